"""What a collector is, and the context that a run gives it.

A collector neither sends nor retries a delivery nor decides exit codes: it yields series. `common/run/` calls
it, `common/registry.py` finds it, `docs/adding-a-collector.md` shows how one is written.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from common import window
from common.config.settings import CollectorSettings, CoreSettings
from common.errors import FleetgaugeError
from common.metric import Metric, Series
from common.net.http import Http
from common.net.retry import Deadline
from common.outcome import Report
from common.shards import ALONE, Shard
from common.window import Window

S = TypeVar("S", bound=CollectorSettings)
Progress = Callable[[str, int, int | None], None]  # what is done, how much of it, of how much


def ignore_progress(doing: str, done: int, total: int | None) -> None:
    """Show nothing: there is no person."""


@dataclass(frozen=True)
class Context(Generic[S]):
    """What a run gives its collector.

    A collector reads neither the clock nor the environment: all that it depends on is here. It may change
    `memory` and `report`. `progress` shows a person what is done, how much of it and of how much.
    """

    settings: S
    window: Window
    now: int  # when the run began: the time of what can only be measured
    deadline: Deadline
    memory: dict[str, object] = field(default_factory=dict)  # what the next run sees again, where one can
    report: Report = field(default_factory=Report)
    progress: Progress = ignore_progress
    core: CoreSettings = field(default_factory=CoreSettings)  # such as the proxy and AWS; by default neither
    shard: Shard = ALONE
    stays: bool = False  # whether this process answers for further ticks

    def http(self, url: str, setting: str, connections: int = 1) -> Http:
        """Return connections to one service; `setting` is the variable with its address, for messages.

        They go through the configured proxy, and requests are counted in the report. `connections` is the
        number of threads that use it at once.
        """
        return Http(url, self.core, self.report, setting=setting, connections=connections)


@dataclass(frozen=True)
class Collector(Generic[S]):
    """A source of metrics: the value `COLLECTOR` of `collectors/<name>/collector.py`.

    `collect` yields the series of the context's window. `check` yields one line per thing it found to be
    good, and an error for each that is not; it may raise the last one. Without one, `--check` collects once
    and sends nothing. `due` is the window of a live run, out of the time, the step, up to when points were
    sent (None where that is not known) and the earliest second that the intake takes.

    With `has_history` it can answer for the past. Metrics that are `live_only` cannot be known for the past.
    With `adds_up` it sends sums of what it read: a push fails where our clock and the intake's differ, and a
    backfill is cut into hours.

    `explain` lists, for a person, what the value of a metric with some tags is made of at the last tick of a
    window; None where nothing can be listed.
    """

    name: str
    settings: type[S]
    metrics: tuple[Metric, ...]
    collect: Callable[[Context[S]], Iterator[Series]]
    check: Callable[[Context[S]], Iterator[str | FleetgaugeError]] | None = None
    due: Callable[[S, int, int, int | None, int], Window] = lambda _, *given: window.due(*given)
    has_history: bool = False
    live_only: frozenset[Metric] = frozenset()
    adds_up: bool = False
    explain: Callable[[Context[S], Metric, Mapping[str, str]], list[dict[str, object]]] | None = None


# Any: the settings model differs per collector, and only the collector itself reads it.
def load_collector(name: str) -> Collector[Any]:
    """Import one collector, and only that one: a library that another one lacks does not matter.

    Raises ImportError for a library that this Python lacks.
    """
    collector: Collector[Any] = importlib.import_module(f"collectors.{name}.collector").COLLECTOR
    return collector
