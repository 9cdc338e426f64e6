"""A W&B server for every test of its collector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.servers.wandb import Wandb


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running
