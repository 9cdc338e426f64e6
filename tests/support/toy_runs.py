"""A collector of the test's own, run in this process: quick enough to try every edge of a run.

Used by tests of `common.run`; what a real process adds is in `project.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, named
from common.metric import Series, count, gauge
from common.options import Mode, Options
from common.outcome import Outcome
from common.run.run import run
from common.run.session import Cache
from common.show.points import Points
from support.project import KEY
from support.servers.datadog import Intake
from support.standins import NOW

VALUE = gauge("toy.value", "item", "A value.", "kind")
OTHER = gauge("toy.other", "item", "Another value.")
TOTAL = count("toy.total", "item", "A total.", "kind")


class ToySettings(CollectorSettings):
    model_config = named("FLEETGAUGE_TOY_")


class Person:
    """Records progress and questions, and agrees or not."""

    def __init__(self) -> None:
        self.progressed: list[tuple[str, int, int | None]] = []
        self.asked: list[str] = []
        self.answer = True

    def progress(self, doing: str, done: int, total: int | None) -> None:
        self.progressed.append((doing, done, total))

    def agree(self, text: str) -> bool:
        self.asked.append(text)
        return self.answer


def install(patch: pytest.MonkeyPatch, collector: Collector[Any], *, per_node: bool = False) -> None:
    """Make a collector one that can be loaded by its name."""
    package = ModuleType(f"collectors.{collector.name}")
    module = ModuleType(f"collectors.{collector.name}.collector")
    package.__path__, module.__dict__["COLLECTOR"] = [], collector
    package.__dict__["PER_NODE"] = per_node
    for one in (package, module):
        patch.setitem(sys.modules, one.__name__, one)


class Toy:
    """A collector whose every answer a test gives, and runs of it; `now` is the time, of the intake too."""

    def __init__(self, folder: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = folder / "store"
        self.environ = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        self.now = NOW
        self.intake = intake
        intake.clock = lambda: self.now
        self.person = Person()
        self.points: dict[str, Points] = {}
        self.cache: Cache | None = None  # of a process that stays
        self._patch = monkeypatch

    def answers(self, collect: Callable[[Context[Any]], Iterator[Series]], **options: Any) -> None:
        """Have the collector do this."""
        options.setdefault("check", lambda _: iter(()))
        per_node = options.pop("per_node", False)
        install(
            self._patch,
            Collector("toy", ToySettings, (VALUE, OTHER, TOTAL), collect, **options),
            per_node=per_node,
        )

    def keep_state(self) -> None:
        """Have a store from now on."""
        self.store.mkdir(exist_ok=True)
        self.environ["FLEETGAUGE_STATE"] = str(self.store)

    def run(
        self,
        mode: Mode = Mode.DRY_RUN,
        environ: Mapping[str, str] | None = None,
        ahead: int = 0,
        **options: Any,
    ) -> Outcome:
        """Run it, with a clock that is so many seconds ahead of the intake's."""
        self.points.clear()
        return run(
            "toy",
            Options(mode, **{"timeout": 60, **options}),
            {**self.environ, **(environ or {})},
            points=self.points,
            agree=self.person.agree,
            progress=self.person.progress,
            clock=lambda: self.now + ahead,
            cache=self.cache,
        )

    def push(self, **options: Any) -> Outcome:
        return self.run(Mode.PUSH, **options)

    def document(self) -> Any:
        """The state document, as JSON."""
        [path] = {*self.store.glob("toy-*.json")} - {*self.store.glob("*.bad.json")}
        return json.loads(path.read_text())

    def seconds(self, metric: str = "toy.value") -> list[int]:
        """The seconds that the intake has a point of."""
        return sorted(key.second for key in self.intake.points if key.metric == metric)
