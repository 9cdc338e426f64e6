"""An intake at a fixed second, and connections to it, for the tests of the servers themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from support.servers.datadog import Intake

NOW = 1_800_000_000
KEY = "test-api-key"


@pytest.fixture
def intake() -> Iterator[Intake]:
    with Intake(KEY, clock=lambda: NOW) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=5) as manager:
        yield manager
