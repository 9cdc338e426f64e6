"""A wrapped client over a store, and a callback that keeps what it is told."""

from __future__ import annotations

import pytest

from fleetgauge.data_plane import MetricsDataPlaneClient
from support.data_plane_fakes import Events, Store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def client(store: Store, events: Events) -> MetricsDataPlaneClient:
    return MetricsDataPlaneClient(store, on_event=events)
