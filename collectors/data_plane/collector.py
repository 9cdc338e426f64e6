"""Tails the files of data-plane clients and adds their records up to points at the records' own times."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from collectors.data_plane.metrics import LIVE_ONLY, METRICS, READING
from collectors.data_plane.record import Held, Operations, interpret
from collectors.data_plane.totals import Tagging, Totals
from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Duration, Texts, named
from common.metric import Mark, Sample
from common.records.ingest import Tick, UnusableRecordError, look_into
from common.records.replay import Replay
from common.records.tail import Entry, TailedFile
from common.span import Span
from fleetgauge.records import identity

MARK_EVERY = 5000  # series that grew; each is up to ten samples


class DataPlaneSettings(CollectorSettings):
    """Where the records are, and what is told apart."""

    model_config = named("FLEETGAUGE_DATA_PLANE_")

    paths: Texts = Field(description="Files, directories and globs that hold records, separated by commas.")
    tag_job: bool = Field(True, description="Tag with the job; off, all jobs are added up.")
    tag_rank: bool = Field(True, description="Tag with the rank; off, all ranks of a job are added up.")
    tag_partition_id: bool = Field(
        True, description="Tag with the partition; off, all partitions are added up."
    )
    aggregate_interval: Duration = Field(
        60,
        ge=1,
        le=1800,  # a point stands at the start, and must be younger than the intake's hour when it is over
        description="Without job or rank: how much time one aggregated point stands for. "
        "At least the interval of the writers.",
    )
    settle: Duration = Field(
        15,
        ge=0,
        le=600,
        description="Younger records wait for the next run: their time may still grow.",
    )
    forget_after: Duration = Field(
        7 * 86400, ge=86400, description="How long a file that nothing was heard of is remembered."
    )
    bytes_per_tick: int = Field(
        64_000_000, ge=1_000_000, description="Most bytes read in one run; the rest waits for the next one."
    )

    @property
    def width(self) -> int:
        """How much time one point stands for.

        Writers keep their own time: where several share a series, each has to be in every bucket.
        """
        return 1 if self.tag_job and self.tag_rank else self.aggregate_interval


class Ingest:
    """One tick: from lines to samples, with everything that must be saved along."""

    def __init__(self, context: Context[DataPlaneSettings], tick: Tick) -> None:
        settings = context.settings
        self._context = context
        self._tick = tick
        self._totals = Totals(
            context.state,
            Tagging(settings.tag_job, settings.tag_rank, settings.tag_partition_id),
            settings.width,
            tick.window.oldest,
        )
        self._tail = tick.tail(
            settings.paths,
            context.state,
            settings.bytes_per_tick,
            enough=lambda: context.deadline.remaining() <= 0,
            identity=identity,
        )
        self._saved: dict[str, object] = {}
        self._bad = 0

    @property
    def behind(self) -> bool:
        """Whether something due was left for later, once all is collected."""
        return self._tail.behind

    def collect(self) -> Iterator[Sample | Mark]:
        """Every file's records, added up, then how the reading itself went."""
        for file in self._tail.files():
            yield from self._read(file)
            self._saved |= file.changes()
        for path, why in self._tail.lost:
            self._context.lose(path, why)
        for damage, count in self._tail.damage.items():
            self._context.drop(damage, count)
        self._saved |= self._tail.expired()
        yield from READING.samples(self._tail, self._bad, self._context.now)
        yield from self._send()

    def _send(self) -> Iterator[Sample | Mark]:
        """What has grown, and behind it a mark for all that was read."""
        yield from self._totals.samples()
        yield Mark(self._saved | self._totals.changes())
        self._saved = {}

    def _read(self, file: TailedFile) -> Iterator[Sample | Mark]:
        """The records of one file, up to the first one whose time is not over yet."""
        last = -1
        window = self._tick.window_of(file)
        for entry in file.entries():
            record = self._interpret(entry)
            if record is None:
                continue
            timestamp = record.envelope.timestamp
            start = self._totals.start_of(timestamp)
            reason = window.refuses(timestamp) or window.refuses(start)
            if reason:
                self._context.drop(reason)
                continue
            if window.may_grow(timestamp, self._totals.width):
                file.wait_until(start + self._totals.width)
                return
            if self._totals.growth >= MARK_EVERY and start != last:
                self._saved |= file.changes()
                yield from self._send()
            last = start
            if not self._totals.add(record):
                self._context.drop("late")

    def _interpret(self, entry: Entry) -> Operations | Held | None:
        try:
            return interpret(entry.value)
        except UnusableRecordError as reason:
            self._bad += 1
            self._context.drop(str(reason))
            return None


def collect(context: Context[DataPlaneSettings]) -> Iterator[Sample | Mark]:
    """What the records say that were written since the last tick."""
    settings = context.settings
    yield from Ingest(context, Tick.at(context.now, settings.settle, settings.forget_after)).collect()


def backfill(context: Context[DataPlaneSettings], span: Span) -> Replay[DataPlaneSettings]:
    """What the records say of a span."""
    settings = context.settings
    return Replay(context, span, Ingest, LIVE_ONLY, settings.settle, settings.width)


def check(context: Context[DataPlaneSettings]) -> Iterator[str]:
    """Whether everything that was configured can be looked into."""
    yield look_into("FLEETGAUGE_DATA_PLANE_PATHS", context.settings.paths)


COLLECTOR = Collector(
    name="data_plane",
    settings=DataPlaneSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    resumes=True,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
