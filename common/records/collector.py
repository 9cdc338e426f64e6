"""A collector out of an ingest: its live tick, its replay of the past, and what `--check` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from glob import escape
from itertools import islice
from typing import Any

from common.collector import Collector, Context
from common.errors import ConfigurationError, FleetgaugeError
from common.metric import Mark, Sample
from common.records.engine import Ingest
from common.records.grammar import S
from common.records.paths import find, shown
from common.records.replay import Replay
from common.records.saved import SavedState
from common.records.tail import NOT_THERE, Tail
from common.records.window import Tick, Window
from common.span import Span

MAX_CHECKED = 10_000  # lines of a file


# Any: the records are the collector's own.
def collector_over(ingest: type[Ingest[S, Any]], settings: type[S]) -> Collector[S]:
    """The collector whose ticks these are."""

    def tick(context: Context[S]) -> Tick:
        known = context.settings
        return Tick(Window.of(context.now, known.settle), context.now, known.forget_after)

    def collect(context: Context[S]) -> Iterator[Sample | Mark]:
        return ingest(context, tick(context), ingest.survey(context)).collect()

    def backfill(context: Context[S], span: Span) -> Replay[S]:
        again = partial(ingest, known=ingest.survey(context))
        width, history = ingest.width(context.settings), ingest.history(context.settings)
        return Replay(context, span, again, ingest.live_only, context.settings.settle, width, history)

    def check(context: Context[S]) -> Iterator[str | FleetgaugeError]:
        return _check(ingest(context, tick(context), ingest.survey(context)))

    return Collector(
        name=ingest.name,
        settings=settings,
        metrics=ingest.metrics,
        collect=collect,
        check=check,
        resumes=True,
        backfill=backfill,
        live_only=ingest.live_only,
    )


def _check(ingest: Ingest[S, Any]) -> Iterator[str | FleetgaugeError]:
    """How many files each path stands for, and what its newest one says; an error for each missing one."""
    patterns = ingest.patterns(ingest.settings)
    found = find(patterns)
    wrong = [*found.unreadable, *((shown(path), NOT_THERE) for path in found.missing.values())]
    for path, why in wrong:
        yield ConfigurationError(f"FLEETGAUGE_{ingest.name.upper()}_PATHS: cannot look into {path}: {why}")
    for pattern in patterns:
        files = [path for path, owner in found.pattern_of.items() if owner == pattern and path in found.files]
        newest = max(files, key=lambda path: found.files[path].st_mtime_ns, default=None)
        said = f"; in the newest, {shown(newest)}: {_understood(ingest, newest)}" if newest else ""
        yield f"{shown(pattern)}: {len(files)} files{said}"


def _understood(ingest: Ingest[S, Any], path: str) -> str:
    """What the lines of a file are to a collector, in words."""
    told: Counter[str] = Counter()
    now = ingest.tick.now
    tail = Tail([escape(path)], SavedState({}), now=now, identity=ingest.identity, expire_after=now)
    for file in tail.files():
        ingest.path, ingest.head = file.path, file.head
        for entry in islice(file.entries(), MAX_CHECKED):
            told[ingest.means(entry)] += 1
    told += tail.damage + Counter(f"cannot be read: {why}" for _, why in tail.lost)
    ours = told.pop("", 0)
    return ", ".join(
        [f"{ours} records of {ingest.name}", *(f"{n} {what}" for what, n in sorted(told.items()))]
    )
