"""A collector of the test's own, run in this process: quick enough to try every edge of a run.

Used by tests of `common.execution`; what a real process adds is in `project.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, named
from common.execution.backfill import BackfillRun
from common.execution.live import LiveRun
from common.job import Job, Mode
from common.metric import Mark, Sample, gauge
from common.outcome import Outcome
from common.parent import Parent
from common.show.dry_run_file import DryRunFile
from support.growing_file import KEY
from support.servers.datadog import Intake
from support.standins import NOW

VALUE = gauge("toy.value", "item", "A value.", "kind")
OTHER = gauge("toy.other", "item", "Another value.")
Items = Iterator[Sample | Mark]


class ToySettings(CollectorSettings):
    model_config = named("FLEETGAUGE_TOY_")


class NewerSettings(ToySettings):
    """Those of a version that has one more."""

    size: int = 3


class Listening(Parent):
    """One that writes down how far a run said that it is and what it was asked, and agrees or not."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []
        self.asked: list[str] = []
        self.answer = True

    def progress(self, doing: str, done: int, total: int | None) -> None:
        self.told.append((doing, done, total))

    def agrees(self, text: str) -> bool:
        self.asked.append(text)
        return self.answer


class Toy:
    """A collector whose every answer a test gives, and runs of it."""

    def __init__(self, folder: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.samples = folder / "samples"
        self.environ = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        self.intake = intake
        self.parent = Listening()
        self._patch = monkeypatch

    def answers(
        self,
        collect: Callable[[Context[Any]], Items],
        settings: type[ToySettings] = ToySettings,
        **options: Any,
    ) -> None:
        options.setdefault("check", lambda _: iter(()))
        made = Collector("toy", settings, (VALUE, OTHER), collect, **options)
        package, module = ModuleType("collectors.toy"), ModuleType("collectors.toy.collector")
        package.__path__, module.__dict__["COLLECTOR"] = [], made
        for one in (package, module):
            self._patch.setitem(sys.modules, one.__name__, one)

    def run(
        self, mode: Mode = Mode.DRY_RUN, environ: Mapping[str, str] | None = None, ahead: int = 0, **job: Any
    ) -> Outcome:
        path = str(self.samples) if mode is Mode.DRY_RUN else None
        asked = Job("toy", mode, **{"now": NOW, "timeout": 60, "samples_path": path, **job})
        kind = LiveRun if asked.backfill is None else BackfillRun
        given = {**self.environ, **(environ or {})}
        return kind(asked, given, self.parent, clock=lambda: NOW + ahead).run()

    def found(self) -> dict[str, float]:
        """The values of a dry run by their kind."""
        return {
            part.series.tags[0].removeprefix("kind:"): part.values[0] for part in DryRunFile(self.samples)
        }
