"""What the tests of the hook share: a stand-in for cosmos-xenna, and that no hook leaves a thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.xenna_pipeline import standin


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class that a hook patches."""
    return standin.install(monkeypatch)


@pytest.fixture
def nothing_stays() -> Iterator[None]:
    """No thread is left when the test is over."""
    before = threading.enumerate()
    yield
    left = [one for one in threading.enumerate() if one not in before]
    assert not [one for one in left if one.name.startswith("fleetgauge")]
