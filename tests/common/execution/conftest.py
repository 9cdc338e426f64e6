"""A collector that a test answers for, and the intake that it is pushed to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_runs import Toy

from growing_file import KEY
from servers.datadog import Intake
from standins import APP_KEY, NOW


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    with Intake(key=KEY, clock=lambda: NOW, app_key=APP_KEY) as server:
        yield Toy(tmp_path, server, monkeypatch)
