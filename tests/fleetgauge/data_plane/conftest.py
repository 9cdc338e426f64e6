"""A wrapped client over a store, and the events that it reported."""

from __future__ import annotations

import pytest

from fleetgauge.data_plane import DataPlaneEvent, MetricsDataPlaneClient
from support.data_plane_fakes import Store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def events() -> list[DataPlaneEvent]:
    return []


@pytest.fixture
def client(store: Store, events: list[DataPlaneEvent]) -> MetricsDataPlaneClient:
    return MetricsDataPlaneClient(store, on_event=events.append)
