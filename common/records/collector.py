"""A collector out of an ingest: its live tick, its replay of the past, and what `--check` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from glob import escape
from itertools import islice
from typing import Any

from common.collector import Collector, Context
from common.errors import ConfigurationError, FleetgaugeError
from common.intake import MAX_AGE
from common.metric import Mark, Sample
from common.records.engine import Ingest
from common.records.grammar import S
from common.records.paths import shown
from common.records.replay import Replay
from common.records.saved import SavedState
from common.records.storages import Files, days
from common.records.tail import NOT_THERE, Tail
from common.records.window import Tick, Window
from common.span import Span
from common.times import DAY

MAX_CHECKED = 10_000  # lines of a file


# Any: the records are the collector's own.
def collector_over(ingest: type[Ingest[S, Any]], settings: type[S]) -> Collector[S]:
    """The collector whose ticks these are."""

    def live(context: Context[S]) -> Ingest[S, Any]:
        known, now = context.settings, context.now
        files = Files(context.network, days(now - DAY, now), known.max_objects)
        tick = Tick(Window.of(now, known.settle), now, known.forget_after, files)
        return ingest(context, tick, ingest.survey(context, files))

    def collect(context: Context[S]) -> Iterator[Sample | Mark]:
        return live(context).collect()

    def backfill(context: Context[S], span: Span) -> Replay[S]:
        since, until = span.since - ingest.history(context.settings), span.until + MAX_AGE
        files = Files(context.network, days(since, until), context.settings.max_objects)
        return Replay(context, span, ingest, files, ingest.survey(context, files))

    def check(context: Context[S]) -> Iterator[str | FleetgaugeError]:
        return _check(live(context))

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
    files = ingest.tick.files
    patterns = ingest.patterns(ingest.settings, files)
    found = files.find(patterns)
    wrong = [*found.unreadable, *((shown(path), NOT_THERE) for path in found.missing.values())]
    for path, why in wrong:
        yield ConfigurationError(f"FLEETGAUGE_{ingest.name.upper()}_PATHS: cannot look into {path}: {why}")
    for pattern in patterns:
        those = [path for path, owner in found.pattern_of.items() if owner == pattern and path in found.files]
        newest = max(those, key=lambda path: found.files[path].written, default=None)
        said = f"; in the newest, {shown(newest)}: {_understood(ingest, newest)}" if newest else ""
        yield f"{shown(pattern)}: {len(those)} files{said}"


def _understood(ingest: Ingest[S, Any], path: str) -> str:
    """What the lines of a file are to a collector, in words."""
    told: Counter[str] = Counter()
    now = ingest.tick.now
    files, identity = ingest.tick.files, ingest.identity
    tail = Tail([escape(path)], SavedState({}), now=now, storage=files, identity=identity, expire_after=now)
    for file in tail.files():
        ingest.path, ingest.head = file.path, file.head
        for entry in islice(file.entries(), MAX_CHECKED):
            told[ingest.means(entry)] += 1
    told += tail.damage + Counter(f"cannot be read: {why}" for _, why in tail.lost)
    ours = told.pop("", 0)
    return ", ".join(
        [f"{ours} records of {ingest.name}", *(f"{n} {what}" for what, n in sorted(told.items()))]
    )
