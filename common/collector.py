"""What a collector is, and the only window on the world it gets.

A collector neither pushes nor retries a delivery nor decides exit codes: it yields samples and marks.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from common import registry
from common.config.settings import CollectorSettings, CoreSettings
from common.errors import ConfigurationError, FleetgaugeError
from common.metric import Mark, Metric, Sample
from common.net.http import Http, proxy_for
from common.net.retry import Deadline
from common.parent import Parent
from common.shards import ALONE, Shard
from common.span import Missed, Span, missed
from common.times import EARLIEST, iso

S = TypeVar("S", bound=CollectorSettings)


@dataclass
class Tally:
    """What one run of a collector met on its way, besides samples."""

    dropped: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)  # by reason, the first that was dropped
    requests: int = 0
    gap: Span | None = None  # the longest that was missed and could not be filled
    missed: int = 0  # ticks that were missed and can still be sent
    tables: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # for a person to look at


@dataclass(frozen=True)
class Context(Generic[S]):
    """Settings (with credentials), the instant to answer for, saved state and the time that is left.

    `at` is the instant the answer is for: the tick, so that a repetition writes the same points. `now` is
    when the run started: the time of what can only be measured, never recomputed.
    """

    settings: S
    at: int
    now: int
    node_name: str
    state: Mapping[str, object]
    deadline: Deadline
    log: logging.Logger
    tally: Tally = field(default_factory=Tally)
    network: CoreSettings | None = None  # which proxy to use; None for none
    step: int | None = None  # of the grid that `at` is on; None where nothing can have been missed
    fills: bool = True  # whether what was missed is to be sent as well
    remembers: bool = True  # whether the next run will see what this one marks
    sendable_since: int = 0  # the intake still takes what is from then on when this run must be over
    parent: Parent = field(default_factory=Parent)
    shard: Shard = ALONE
    sent_until: int = 0  # by other numbers of shards, what several units add up to
    about_to_send: Callable[[int], None] = lambda _: None  # saves, first, up to when this run may send that
    node_local: bool = False  # whether this node's records are all that it sees, and others see theirs
    stays: bool = False  # whether this process answers for further ticks
    clock: Callable[[], float] = time.time  # for what is true only of the second it is measured at
    intake_clock: Callable[[], float | None] = lambda: None  # what it shows at `now`; None where unknown

    def http(self, url: str, connections: int = 1) -> Http:
        """Connections to one service, through the proxy where one is configured; each request is counted."""
        return Http(proxy_for(url, self.network), self.tally, connections=connections)

    def missed(self, last: object) -> list[int]:
        """The ticks after the last delivered one that can still be sent; what cannot is noted as a gap.

        A dry run shows the present only, and how many ticks a push would fill.
        """
        if self.step is None or not isinstance(last, int) or last < EARLIEST:
            return []
        found: Missed = missed(last, self.at, self.step, self.sendable_since)
        self.tally.missed = max(self.tally.missed, len(found.ticks))
        if found.ticks or found.gap.seconds:
            filled = "are filled" if self.fills else "would be filled by a push"
            self.log.debug(
                "since %s, %d ticks %s; lost for good: %s", iso(last), len(found.ticks), filled, found.gap
            )
        if not self.fills:
            return []
        if self.tally.gap is None or found.gap.seconds > self.tally.gap.seconds:
            self.tally.gap = found.gap
        return found.ticks

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records or points that could not be used; this never changes the outcome's status."""
        self.tally.dropped[reason] += count

    def lose(self, unit: str, why: Exception | str) -> None:
        """Give up one unit (a project, a page, a file) and go on; the outcome becomes partial."""
        if isinstance(why, Exception) and not isinstance(why, FleetgaugeError | OSError):
            self.log.error("lost %s: unexpected error", unit, exc_info=why)
            why = f"unexpected error: {type(why).__name__}: {why}"
        else:
            self.log.warning("lost %s: %s", unit, why)
        self.tally.lost.append(f"{unit}: {why}")


@dataclass(frozen=True)
class Collector(Generic[S]):
    """A source of metrics: the value `COLLECTOR` of `collectors/<name>/collector.py`.

    `check` yields one line per thing it found to be good, and an error for each that is not; it may raise
    the last one. A collector that `resumes` yields marks and cannot push without a checkpoint store. One
    that is `per_node` keeps a checkpoint for each node.

    `backfill` is how it answers for a span of the past; None where only the present can be asked. It reads
    what it must once, and returns a function that yields the samples of the span, and marks, as often as
    it is called. Metrics that are `live_only` cannot be known for the past and are never among them.
    """

    name: str
    settings: type[S]
    metrics: tuple[Metric, ...]
    collect: Callable[[Context[S]], Iterator[Sample | Mark]]
    check: Callable[[Context[S]], Iterator[str | FleetgaugeError]]
    resumes: bool = False
    per_node: bool = False
    backfill: Callable[[Context[S], Span], Callable[[], Iterator[Sample | Mark]]] | None = None
    live_only: frozenset[Metric] = frozenset()


# Any: the settings model differs per collector, and only the collector itself looks inside.
def load_collector(name: str) -> Collector[Any]:
    """Import one collector, and only that one."""
    if str(registry.ROOT) not in sys.path:
        sys.path.insert(0, str(registry.ROOT))
    try:
        module = importlib.import_module(f"collectors.{name}.collector")
    except ImportError as error:
        raise ConfigurationError(
            f"collector {name} cannot be imported: {error}. Run ./scripts/setup, or use the image."
        ) from error
    collector: Collector[Any] = module.COLLECTOR
    return collector
