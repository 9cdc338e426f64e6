"""Tails the segments of telemetry sinks and turns their events into gauges at the events' own times."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from pydantic import Field

from collectors.gpu_memory.alerts import Alerts
from collectors.gpu_memory.metrics import GAUGES, LIVE_ONLY, METRICS, READING
from collectors.gpu_memory.second import Second
from collectors.gpu_memory.sessions import Sessions, Source, seconds_in_order, source_of
from collectors.gpu_memory.sinks import Sinks, patterns
from collectors.gpu_memory.totals import Totals
from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Duration, Texts, named
from common.metric import Mark, Sample
from common.records.ingest import Tick, in_batches, look_into
from common.records.replay import Replay
from common.records.tail import Entry, TailedFile
from common.span import Span
from fleetgauge.gpu_memory import BadEvent, MemoryEvent, parse_event

Interpreted = MemoryEvent | BadEvent


class GpuMemorySettings(CollectorSettings):
    """Where the sinks are, and how jobs are told apart."""

    model_config = named("FLEETGAUGE_GPU_MEMORY_")

    paths: Texts = Field(
        description="Directories of telemetry sinks and OOM dumps, segments and globs, separated by commas."
    )
    tag_job_id: bool = Field(
        True,
        description="Tag with job_id and gpu; off, the values of all jobs of a host and rank are aggregated.",
    )
    aggregate_interval: Duration = Field(
        60,
        ge=1,
        le=1800,  # a point stands at the start, and must be younger than the intake's hour when it is over
        description="Without job_id: how much time one aggregated point stands for. "
        "At least the sessions' sampling interval.",
    )
    settle: Duration = Field(
        5, ge=0, le=600, description="Events younger than this wait for the next run: their second may grow."
    )
    forget_after: Duration = Field(
        7 * 86400, ge=86400, description="How long a file or session that nothing was heard of is remembered."
    )
    bytes_per_tick: int = Field(
        64_000_000, ge=1_000_000, description="Most bytes read in one run; the rest waits for the next one."
    )


class Ingest:
    """One tick: from lines to samples, with everything that must be saved along.

    All that was read becomes samples only once reading is over, because segments and sessions share seconds;
    `bytes_per_tick` bounds it. The mark at the end carries everything.
    """

    def __init__(self, context: Context[GpuMemorySettings], tick: Tick, sinks: Sinks) -> None:
        settings, oldest = context.settings, tick.window.oldest
        # What is read is saved only once all of it is delivered; the passes of a replay are short.
        reserve = context.deadline.seconds / 2 if tick.live else 0
        self._context = context
        self._tag_job_id = settings.tag_job_id
        self._tick = tick
        self._window = tick.window
        self._sinks = sinks
        self._sessions = Sessions(context.state, context.now - settings.forget_after)
        self._alerts = Alerts(context.state, oldest)
        self._totals = Totals(context.state, settings.aggregate_interval, oldest)
        self._tail = tick.tail(
            patterns(settings.paths),
            context.state,
            settings.bytes_per_tick,
            enough=lambda: self._cut or context.deadline.remaining() <= reserve,
            family=lambda path: path.rpartition("/")[0],
        )
        self._seconds: dict[tuple[Source, int], Second] = {}
        self._took = self._bad = 0  # lines, and those of them that were no events
        self._cut = False  # inside a second: what follows must wait until that is read

    @property
    def behind(self) -> bool:
        """Whether something due was left for later, once all is collected."""
        return self._tail.behind or self._cut

    def collect(self) -> Iterator[Sample | Mark]:
        """The events of all files, then how the reading itself went."""
        saved: dict[str, object] = {}
        for file in self._tail.files():
            self._read(file)
            saved |= file.changes()
        for path, why in self._tail.lost:
            self._context.lose(path, why)
        for damage, count in self._tail.damage.items():
            self._context.drop(damage, count)
        yield from in_batches(chain(self._measured(), self._alerts.samples()))
        yield from READING.samples(self._tail, self._bad, self._context.now)
        for part in (self._sessions, self._alerts, self._totals):
            saved |= part.changes()
        yield Mark({**saved, **self._tail.expired()})

    def _read(self, file: TailedFile) -> None:
        """Take a file's events second by second, but for a last one that is not whole yet."""
        session, second = self._sinks.session_of(file.path), -1
        together: list[tuple[Entry, Interpreted]] = []
        self._window = self._tick.window_of(file)
        for entry in file.entries():
            found = _interpret(entry, session)
            at = second if isinstance(found, BadEvent) else int(found.timestamp or 0)
            if at != second:
                self._take_all(together)
                second, together = at, []
                if self._window.may_grow(at):
                    file.wait_until(at + 1)
                    break  # this event and what follows it wait for the next tick
            together.append((entry, found))
        if together and self._took and self._tail.spent():
            file.leave([entry for entry, _ in together])
            self._cut = True
        else:
            self._take_all(together)

    def _take_all(self, together: list[tuple[Entry, Interpreted]]) -> None:
        self._took += len(together)
        for entry, found in together:
            if isinstance(found, BadEvent):
                self._bad += 1
                self._context.drop(found.reason)
            else:
                self._take(found, source_of(found, entry.value))

    def _take(self, event: MemoryEvent, source: Source) -> None:
        """Note what an event says; one too old to be sent still tells its session's beginning and peak."""
        timestamp = event.timestamp or 0.0
        reason = self._window.refuses(timestamp)
        if reason:
            self._context.drop(reason)
        if reason == "in_future":
            return
        self._sessions.hear(source, timestamp)
        if reason:
            self._sessions.peak(source, event.memory_allocated)
            return
        second = int(timestamp)
        self._seconds.setdefault((source, second), Second()).take(event)
        if event.is_alert:
            self._alerts.add(source, event.event_type, second, tag_job_id=self._tag_job_id)

    def _measured(self) -> Iterator[Sample]:
        """Every second read, or the buckets that they add to where the job is not a tag."""
        for source, second in seconds_in_order(self._seconds):
            found = self._seconds[source, second]
            values = found.values()
            peak = self._sessions.peak(source, found.highest)
            if peak is not None:
                values["peak"] = peak
            if not self._tag_job_id:
                if not self._totals.add(source, second, values):
                    self._context.drop("late", len(values))
            elif self._sessions.superseded(source, second):
                self._context.drop("superseded", len(values))
            else:
                host, tags = source.host or None, source.tags()
                for name, value in values.items():
                    yield GAUGES[name](value, second, on_host=host, **tags)
        yield from self._totals.samples()


def _interpret(entry: Entry, session: str) -> Interpreted:
    try:
        event = parse_event(entry.value, session)
    except BadEvent as bad:
        return bad
    return event if event.timestamp is not None else BadEvent("bad_timestamp")


def collect(context: Context[GpuMemorySettings]) -> Iterator[Sample | Mark]:
    """What the sessions measured since the last tick."""
    settings, sinks = context.settings, Sinks(context.settings.paths)
    yield from sinks.samples(context)
    tick = Tick.at(context.now, settings.settle, settings.forget_after)
    yield from Ingest(context, tick, sinks).collect()


def backfill(context: Context[GpuMemorySettings], span: Span) -> Replay[GpuMemorySettings]:
    """What the sessions measured in a span. Manifests only tell whose their segments are."""
    settings, sinks = context.settings, Sinks(context.settings.paths)
    width = 1 if settings.tag_job_id else settings.aggregate_interval
    return Replay(context, span, partial(Ingest, sinks=sinks), LIVE_ONLY, settings.settle, width)


def check(context: Context[GpuMemorySettings]) -> Iterator[str]:
    """Whether everything that was configured can be looked into."""
    yield look_into("FLEETGAUGE_GPU_MEMORY_PATHS", patterns(context.settings.paths))


COLLECTOR = Collector(
    name="gpu_memory",
    settings=GpuMemorySettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    resumes=True,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
