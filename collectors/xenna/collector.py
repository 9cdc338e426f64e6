"""Tails the files of xenna pipelines and turns their records into gauges at the records' own times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from collectors.xenna.metrics import LIVE_ONLY, METRICS, READING, find
from collectors.xenna.record import Record, interpret
from collectors.xenna.runs import PipelineRuns
from collectors.xenna.totals import Series, Totals
from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Duration, Texts, named
from common.intake import MAX_AHEAD
from common.metric import Mark, Metric, Sample
from common.records.ingest import Tick, UnusableRecordError, bucket_end, in_batches, look_into
from common.records.paths import first_name
from common.records.replay import Replay
from common.records.tail import Entry, TailedFile
from common.span import Span
from fleetgauge.records import identity

MAX_HELD = 1000  # records held back in one file
MARK_EVERY = 10_000  # samples of one file
MAX_KEYS = 10_000  # keys remembered of one run


class XennaSettings(CollectorSettings):
    """Where the records are, and how runs are told apart."""

    model_config = named("FLEETGAUGE_XENNA_")

    paths: Texts = Field(description="Files, directories and globs that hold records, separated by commas.")
    stage_run_hash: bool = Field(
        True, description="Tag stage metrics with run_hash; off, the values of all runs are aggregated."
    )
    aggregate_interval: Duration = Field(
        60,
        ge=1,
        le=1800,  # a point stands at the start, and must be younger than the intake's hour when it is over
        description="Without run_hash: how much time one aggregated point stands for. "
        "At least the pipelines' logging interval.",
    )
    settle: Duration = Field(
        5, ge=0, le=600, description="Records younger than this wait for the next run: their second may grow."
    )
    stalled_after: Duration = Field(600, ge=1, description="Silence after which a run counts as stalled.")
    forget_after: Duration = Field(
        7 * 86400, ge=86400, description="How long a file or run that nothing was heard of is remembered."
    )
    bytes_per_tick: int = Field(
        64_000_000, ge=1_000_000, description="Most bytes read in one run; the rest waits for the next one."
    )


class _Found(NamedTuple):
    """What a key of a run's records becomes."""

    metric: Metric
    key: str
    stage: str | None
    tags: tuple[str, ...]


class Ingest:
    """One tick: from lines to samples, with everything that must be saved along."""

    def __init__(self, context: Context[XennaSettings], tick: Tick) -> None:
        settings = context.settings
        self._context = context
        self._now = context.now
        self._tick = tick
        self._window = tick.window
        self._runs = PipelineRuns(context.state, context.now, settings.stalled_after, settings.forget_after)
        self._totals = (
            None
            if settings.stage_run_hash
            else Totals(context.state, settings.aggregate_interval, tick.window.oldest)
        )
        self._tail = tick.tail(
            settings.paths,
            context.state,
            settings.bytes_per_tick,
            enough=lambda: context.deadline.remaining() <= 0,
            identity=identity,
            family=first_name,
        )
        # While totals are open, or a series is contested, the mark at the end carries it all.
        self._saved: dict[str, object] = {}
        self._contested: list[tuple[Record, list[Sample]]] = []  # until all files are read
        self._keys: dict[str, dict[str, _Found | None]] = {}  # by run, then by key
        self._tags: dict[tuple[str, str | None], tuple[str, ...]] = {}  # by run and stage
        self._bad = 0

    @property
    def behind(self) -> bool:
        """Whether something due was left for later, once all is collected."""
        return self._tail.behind

    def collect(self) -> Iterator[Sample | Mark]:
        """Every file's records, then how the runs and the reading itself are."""
        for file in self._tail.files():
            yield from self._read(file)
            yield from self._mark({**file.changes(), **self._runs.changes()})
            self._keys.clear()
            self._tags.clear()
        for path, why in self._tail.lost:
            self._context.lose(path, why)
        for damage, count in self._tail.damage.items():
            self._context.drop(damage, count)
        yield from in_batches(one for held in self._contested for one in self._shown(*held))
        if self._totals:
            yield from in_batches(self._totals.samples())
            self._saved |= self._totals.changes()
        yield from self._runs.samples()
        yield from READING.samples(self._tail, self._bad, self._now)
        yield Mark({**self._saved, **self._tail.expired(), **self._runs.expired()})

    def _mark(self, changes: dict[str, object]) -> Iterator[Mark]:
        if self._totals or self._contested:
            self._saved |= changes
            changes = {}
        yield Mark(changes)

    def _read(self, file: TailedFile) -> Iterator[Sample | Mark]:
        """The records of one file, but for the last ones where their second may still grow."""
        held: list[tuple[Entry, Record | None]] = []
        since, second = 0, -1
        self._window = self._tick.window_of(file)
        for entry in file.entries():
            record = self._interpret(entry, file.head)
            waits = record is not None and self._window.may_grow(record.timestamp)
            if record and waits and not self._tick.live:
                file.wait_until(bucket_end(record.timestamp))
                break
            if held or waits:
                if len(held) >= MAX_HELD:
                    break
                held.append((entry, record))
                if record and record.ended_well is not None and self._all_of(record.run, held):
                    for _, one in held:
                        yield from self._samples(one) if one else ()
                    held.clear()
            elif record:
                if since >= MARK_EVERY and int(record.timestamp) != second:
                    yield from self._mark({**file.changes(), **self._runs.changes()})
                    since = 0
                second = int(record.timestamp)
                samples = self._samples(record)
                since += len(samples)
                yield from samples
        if held:
            file.leave([entry for entry, _ in held])

    def _interpret(self, entry: Entry, head: str) -> Record | None:
        try:
            return interpret(entry.value, head)
        except UnusableRecordError as reason:
            self._bad += 1
            self._context.drop(str(reason))
            return None

    @staticmethod
    def _all_of(run: str, held: list[tuple[Entry, Record | None]]) -> bool:
        return all(record is None or record.run == run for _, record in held)

    def _samples(self, record: Record) -> list[Sample]:
        """The points of a record that can be sent; those of stages go into the totals where there are any."""
        self._runs.hear(record)
        reason = self._window.refuses(record.timestamp)
        if reason:
            self._context.drop(reason, len(record.metrics))
            return []
        at = int(record.timestamp)
        samples: list[Sample] = []
        shared: dict[Series, float] = {}
        for (metric, key, stage, tags), value in self._values(record):
            if self._totals is None or stage is None:
                samples.append(Sample(metric, value, at, tags, None))
            elif -1e300 < value < 1e300:
                shared[record.pipeline_kind, stage, key] = value
            else:
                self._context.drop("not_finite")
        if self._totals and shared and not self._totals.add(record.run, record.timestamp, shared):
            self._context.drop("late", len(shared))
        if samples and self._runs.contested(record):
            self._contested.append((record, samples))
            return []
        return self._shown(record, samples)

    def _shown(self, record: Record, samples: list[Sample]) -> list[Sample]:
        if samples and self._runs.superseded(record):
            self._context.drop("superseded", len(samples))
            return []
        return samples

    def _values(self, record: Record) -> Iterator[tuple[_Found, float]]:
        """The numbers of a record under keys that are declared; what a key becomes is worked out once."""
        keys = self._keys.setdefault(record.run, {})
        for key, value in record.metrics.items():
            if value is None:
                continue
            if key not in keys:
                if len(keys) >= MAX_KEYS:
                    keys.clear()
                    self._tags.clear()
                keys[key] = self._find(record, key)
            found = keys[key]
            if found is None:
                self._context.drop("unknown_metric")
            elif type(value) is float or type(value) is int:
                yield found, value
            else:
                self._context.drop("not_a_number")

    def _find(self, record: Record, key: str) -> _Found | None:
        declared = find(key)
        if declared is None:
            return None
        keyed, stage = declared
        if (record.run, stage) not in self._tags:
            tags = record.tags() | ({"stage": stage} if stage else {})
            self._tags[record.run, stage] = keyed.metric(0, 0, **tags).tags
        return _Found(keyed.metric, keyed.key, stage, self._tags[record.run, stage])


def collect(context: Context[XennaSettings]) -> Iterator[Sample | Mark]:
    """What the records say that were written since the last tick."""
    settings = context.settings
    yield from Ingest(context, Tick.at(context.now, settings.settle, settings.forget_after)).collect()


def backfill(context: Context[XennaSettings], span: Span) -> Replay[XennaSettings]:
    """What the records say of a span. Runs that fell silent before it may still own their series then."""
    settings = context.settings
    return Replay(
        context,
        span,
        Ingest,
        LIVE_ONLY,
        settings.settle,
        width=1 if settings.stage_run_hash else settings.aggregate_interval,
        history=max(MAX_AHEAD, settings.stalled_after),
    )


def check(context: Context[XennaSettings]) -> Iterator[str]:
    """Whether everything that was configured can be looked into."""
    yield look_into("FLEETGAUGE_XENNA_PATHS", context.settings.paths)


COLLECTOR = Collector(
    name="xenna",
    settings=XennaSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    resumes=True,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
