"""What a collector is, and the context that a run gives it.

A collector neither sends nor retries a delivery nor decides exit codes: it yields series. `common/run/` calls
it, `common/registry.py` finds it, `docs/adding-a-collector.md` shows how one is written.
"""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from common import window
from common.config import aws
from common.config.settings import CollectorSettings, CoreSettings
from common.errors import FleetgaugeError
from common.metric import Metric, Series
from common.net.http import Http
from common.net.retry import Deadline
from common.shards import ALONE, Shard
from common.window import Window

S = TypeVar("S", bound=CollectorSettings)

log = logging.getLogger(__name__)


@dataclass
class Report:
    """What a run reports besides its series: drops and losses by reason, requests, findings, tables.

    Collectors and the run add to it; `common/run/run.py` makes the outcome of it.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # by reason, the first that was dropped
    lost: list[str] = field(default_factory=list)
    lost_by_reason: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    samples: int = 0  # points that the collector yielded
    gap: int | None = None  # seconds before this run that were missed and are too old; None where unknown
    findings: list[str] = field(default_factory=list)  # lines for a person
    tables: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    progress: Callable[[str, int, int | None], None] = lambda doing, done, total: None  # noqa: ARG005

    def drop(self, reason: str, count: int = 1, example: str = "") -> None:
        """Count records or points that cannot be used; this never changes the outcome's status.

        `reason` is a tag of `collector.points_dropped`. The first example of a reason is shown to a person.
        """
        self.dropped[reason] += count
        if example:
            self.examples.setdefault(reason, example)

    def lose(self, unit: str, why: Exception | str, reason: str = "unreadable") -> None:
        """Give up one unit (a project, a page, a file) and continue; the outcome becomes partial.

        `unit` names it for a person. `reason` is a tag of `collector.units_lost`, so that it must have few
        values.
        """
        # Any other exception is a defect of ours: the log has its traceback, and the other units are still
        # read.
        if isinstance(why, Exception) and not isinstance(why, FleetgaugeError | OSError):
            log.error("lost %s: unexpected error", unit, exc_info=why)
            why = f"unexpected error: {type(why).__name__}: {why}"
        else:
            log.warning("lost %s: %s", unit, why)
        self.lost.append(f"{unit}: {why}")
        self.lost_by_reason[reason] += 1


@dataclass(frozen=True)
class Network:
    """How a collector reaches services: through the configured proxy, to the configured AWS endpoint.

    Requests through `http` are counted in the report.
    """

    core: CoreSettings = field(default_factory=CoreSettings)  # by default no proxy, and what AWS defaults to
    report: Report = field(default_factory=Report)  # where requests are counted

    def http(self, url: str, setting: str, connections: int = 1) -> Http:
        """Return connections to one service; `setting` is the variable with its address, for messages.

        `connections` is the number of threads that use it at once.
        """
        return Http(url, self.core, self.report, setting=setting, connections=connections)

    def aws(self, service: str, purpose: str) -> Any:  # Any: each service has a type of its own
        """Return a client of an AWS service; raises ConfigurationError, which names the purpose."""
        return aws.client(service, self.core, purpose)


@dataclass(frozen=True)
class Context(Generic[S]):
    """What a run gives its collector.

    A collector reads neither the clock nor the environment: all that it depends on is here. It may change
    `memory` and `report`.
    """

    settings: S
    window: Window
    now: int  # when the run began: the time of what can only be measured
    deadline: Deadline
    memory: dict[str, object] = field(default_factory=dict)  # what the next run sees again, where one can
    report: Report = field(default_factory=Report)
    network: Network = field(default_factory=Network)
    shard: Shard = ALONE
    stays: bool = False  # whether this process answers for further ticks


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
