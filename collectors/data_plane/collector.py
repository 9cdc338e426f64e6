"""Reads the records of data-plane clients and adds operations up to points at the records' own times."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from collectors.data_plane import metrics
from collectors.data_plane.record import NAME, Calls, Operations, Outstanding, Record, parse
from common.collector import Context
from common.config.settings import named
from common.metric import Series
from common.records.collector import Problem, RecordKind, RecordSettings, collector_over
from common.records.files import Files
from common.records.sums import Block, Counts, Gauges, Identities, Key, SeriesKey
from common.window import Window
from fleetgauge.data_plane.operation_totals import percentiles
from fleetgauge.records import Json


class DataPlaneSettings(RecordSettings):
    """Where the records are, and which tags the metrics have."""

    model_config = named("FLEETGAUGE_DATA_PLANE_")

    tag_job: bool = Field(True, description="Tag with the job; off, all jobs are added up.")
    tag_rank: bool = Field(True, description="Tag with the rank; off, all ranks of a job are added up.")
    tag_partition_id: bool = Field(
        True, description="Tag with the partition; off, all partitions are added up."
    )


class Tagging(NamedTuple):
    """Which tags are on; what differs only in one that is off is added up."""

    job: bool
    rank: bool
    partition_id: bool

    def tags(self, record: Record, partition_id: str = "", op: str = "") -> Key:
        """Return the tags of a record's points."""
        values = (record.job * self.job, op, partition_id * self.partition_id, record.rank * self.rank)
        names = zip(metrics.OPERATION_TAGS, values, strict=True)
        return tuple(f"{name}:{value}" for name, value in names if value)


def _times(calls: Calls) -> list[float]:
    """Return the mean, the percentiles and the longest time of calls that succeeded."""
    buckets = sorted(calls.buckets.items())
    # Rounded, because the order in which files are read must not show in the last digit.
    mean = round(calls.total_time / calls.succeeded, 9)
    low, high = calls.shortest, calls.longest
    return [mean, *percentiles(metrics.PERCENTS, calls.succeeded, low, high, buckets), high]


class DataPlaneGrammar:
    """What the lines of one run of the collector mean."""

    def __init__(self, context: Context[DataPlaneSettings], files: Files) -> None:  # noqa: ARG002
        settings = context.settings
        self.gauges = Gauges()
        self._tagging = Tagging(settings.tag_job, settings.tag_rank, settings.tag_partition_id)
        self._width = _width(settings)
        self._tags: dict[tuple[str, ...], Key] = {}
        self._calls: dict[Key, dict[int, Calls]] = {}  # by tags, and by the start of the bucket
        self._blocks: dict[tuple[str, tuple[Key, ...]], Block] = {}
        self._doubts = Counts()
        self._seen = Identities()

    def parse(self, value: Json, path: str) -> Record | None:  # noqa: ARG002
        """Return the record that an object is; None for another kind's."""
        return parse(value)

    def add(self, record: Record, new: bool, problems: list[Problem]) -> bool:  # noqa: ARG002
        """Add operations to their bucket, and what a client has outstanding where it knows all of it."""
        if isinstance(record, Outstanding):
            self._add_outstanding(record)
        if new and self._seen.add(record.writer, record.seq):
            start = int(record.timestamp) // self._width * self._width
            if isinstance(record, Operations):
                named = (record.job, record.rank, record.op, record.partition_id)
                tags = self._tags.get(named)
                if tags is None:
                    tags = self._tags[named] = self._tagging.tags(record, record.partition_id, record.op)
                    self._calls.setdefault(tags, {})
                buckets = self._calls[tags]
                known = buckets.get(start)
                buckets[start] = record.calls if known is None else known.plus(record.calls)
            elif record.doubts:
                for metric, number in zip(metrics.DOUBTS, record.doubts, strict=True):
                    self._doubts.add(metric, self._tagging.tags(record), None, start, number)
        return isinstance(record, Operations) or bool(record.doubts)

    def _add_outstanding(self, record: Outstanding) -> None:
        """Add the gauges of a client that is the only writer of its job; over jobs they do not add up."""
        if not record.sole_writer or not self._tagging.job:
            return
        tags = self._tagging.tags(record)
        held = Counter[Key]() if self._tagging.partition_id else Counter({tags: 0})
        for partition_id, n_bytes in record.bytes_by_partition.items():
            held[self._tagging.tags(record, partition_id)] += n_bytes
        name = (record.writer, (tags, *held))
        if name not in self._blocks:
            series: list[SeriesKey] = [
                (metrics.PEAK_BYTES_OUTSTANDING, tags, None),
                (metrics.KEYS_OUTSTANDING, tags, None),
                *((metrics.BYTES_OUTSTANDING, tagged, None) for tagged in held),
            ]
            self._blocks[name] = self.gauges.block(series, record.writer)
        block = self._blocks[name]
        for values, value in zip(block.values, (record.peak_bytes, record.keys, *held.values()), strict=True):
            values.append(value)
        block.times.append(record.timestamp)

    def sums(self, window: Window) -> Iterator[Series]:  # noqa: ARG002
        """Yield the operations of each series. Times of nothing are absent; counts of nothing are 0."""
        for tags, buckets in self._calls.items():
            starts = sorted(buckets)
            calls = [buckets[start] for start in starts]
            for metric, values in zip(metrics.COUNTED, zip(*calls, strict=True), strict=False):
                yield Series(metric, tags, None, starts, array("d", values))
            timed = [start for start in starts if buckets[start].succeeded]
            rows = [_times(buckets[start]) for start in timed]
            for metric, values in zip(metrics.TIMED, zip(*rows, strict=True), strict=bool(timed)):
                yield Series(metric, tags, None, timed, array("d", values))
        yield from self._doubts.series()

    def present(self, records: Sequence[Record], *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
        """Yield nothing: clients say nothing of the present."""
        yield from ()


def _width(settings: DataPlaneSettings) -> int:
    """Return the length of a bucket: writers keep their own time, and where they share a series each must be
    in every bucket."""
    return 1 if settings.tag_job and settings.tag_rank else settings.aggregate_interval


COLLECTOR = collector_over(
    RecordKind(
        name=NAME,
        settings=DataPlaneSettings,
        metrics=metrics.METRICS,
        live_only=metrics.LIVE_ONLY,
        ingest=metrics.INGEST,
        grammar=DataPlaneGrammar,
        width=_width,
    )
)
