"""A collector that a test answers for, and the intake that it is pushed to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.project import KEY
from support.servers.datadog import Intake
from support.standins import APP_KEY
from support.toy_runs import Toy


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    with Intake(key=KEY, app_key=APP_KEY) as server:
        yield Toy(tmp_path, server, monkeypatch)
