"""Reads the records of data-plane clients and adds operations up to points at the records' own times."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import add
from typing import NamedTuple

from pydantic import Field

from collectors.data_plane import metrics
from common.collector import Context
from common.config.settings import named
from common.metric import Series
from common.records.collector import Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import MAX_NUMBER, UnusableRecordError, envelope, text
from common.records.files import Files
from common.records.sums import Block, Counts, Gauges, Key, SeriesKey
from common.window import Window
from fleetgauge.data_plane import BUCKET_ENDS_MS
from fleetgauge.data_plane.operation_totals import percentiles
from fleetgauge.records import Json

NAME = "data_plane"

_BUCKETS = {str(index): index for index in range(len(BUCKET_ENDS_MS) + 1)}
_NUMBERS = {int, float}
_INTEGERS = {int}


class DataPlaneSettings(RecordSettings):
    """Where the records are, and which tags the metrics have."""

    model_config = named("FLEETGAUGE_DATA_PLANE_")

    tag_job: bool = Field(True, description="Tag with the job; off, all jobs are added up.")
    tag_rank: bool = Field(True, description="Tag with the rank; off, all ranks of a job are added up.")
    tag_partition_id: bool = Field(
        True, description="Tag with the partition; off, all partitions are added up."
    )


class Calls(NamedTuple):
    """How many calls succeeded, failed and timed out; of those that succeeded also what they moved and took.

    Times are in milliseconds; `buckets` counts calls by the index of their time in the histogram.
    """

    succeeded: int
    errors: int
    timeouts: int
    keys: int
    bytes: int
    total_time: float
    shortest: float
    longest: float
    buckets: Mapping[int, int]

    def plus(self, other: Calls) -> Calls:
        """Return both together."""
        timed = [calls for calls in (self, other) if calls.succeeded]
        low = min((calls.shortest for calls in timed), default=0.0)
        high = max((calls.longest for calls in timed), default=0.0)
        buckets = dict(self.buckets)
        for index, number in other.buckets.items():
            buckets[index] = buckets.get(index, 0) + number
        return Calls._make((*map(add, self[:6], other[:6]), low, high, buckets))

    def times(self) -> list[float]:
        """Return the mean, the percentiles and the longest time of calls that succeeded."""
        low, high, buckets = self.shortest, self.longest, sorted(self.buckets.items())
        # Rounded, because the order in which files are read must not show in the last digit.
        mean = round(self.total_time / self.succeeded, 9)
        return [mean, *percentiles(metrics.PERCENTS, self.succeeded, low, high, buckets), high]


class Record(NamedTuple):
    """Calls of one operation on one partition, or the state of a client.

    What the client has put and not cleared is known where it is the only one of its job that writes: the most
    bytes, keys, and bytes `by_partition`. `doubts` are keys since the record before: cleared and not
    outstanding there, and given up.
    """

    writer: str
    seq: int
    timestamp: float
    job: str
    rank: str
    op: str = ""
    partition_id: str = ""
    calls: Calls | None = None
    peak_and_keys: tuple[int, int] = (0, 0)
    by_partition: Mapping[str, int] | None = None
    doubts: tuple[int, ...] = ()


class DataPlaneGrammar:
    """What the lines of one run of the collector mean."""

    def __init__(self, context: Context[DataPlaneSettings], files: Files) -> None:  # noqa: ARG002
        self.gauges = Gauges()
        self._settings = context.settings
        self._width = _width(context.settings)
        self._tags: dict[tuple[str, ...], Key] = {}
        self._calls: dict[Key, dict[int, Calls]] = {}  # by tags, and by the start of the bucket
        self._blocks: dict[tuple[str, tuple[Key, ...]], Block] = {}
        self._doubts = Counts()

    def parse(self, value: Json, path: str) -> Record | None:  # noqa: ARG002
        """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""
        known = envelope(value, NAME)
        if known is None:
            return None
        writer = (*known[:3], known.job, known.rank or "")
        if "op" in value:
            op = text(value, "op")
            if not op:
                raise UnusableRecordError("bad_body", "op", value["op"])
            return Record(*writer, op, text(value, "partition_id"), _calls(value))
        totals, by_partition, doubts = (0, 0), None, tuple[int, ...]()
        if "bytes_outstanding" in value or "interval_s" not in value:  # or it has no client
            totals = (natural(value, "peak_bytes_outstanding"), natural(value, "keys_outstanding"))
            by_partition = value.get("bytes_outstanding")
            if not isinstance(by_partition, dict):
                raise UnusableRecordError("bad_body", "bytes_outstanding", by_partition)
            by_partition = {name[:200]: natural(by_partition, name) for name in by_partition}
        if "foreign_clears" in value and "keys_overflowed" in value:
            doubts = (natural(value, "foreign_clears"), natural(value, "keys_overflowed"))
        if value.get("sole_writer") is not True:
            by_partition = None
        return Record(*writer, peak_and_keys=totals, by_partition=by_partition, doubts=doubts)

    def add(self, record: Record, new: bool, problems: list[Problem]) -> bool:  # noqa: ARG002
        """Add operations to their bucket, and what a client has outstanding where it knows all of it."""
        if record.by_partition is not None and self._settings.tag_job:  # over jobs it does not add up
            self._add_outstanding(record, record.by_partition)
        if new:
            start = int(record.timestamp) // self._width * self._width
            if record.calls:
                buckets = self._calls.setdefault(self._tags_of(record, record.partition_id), {})
                before = buckets.get(start)
                buckets[start] = record.calls if before is None else before.plus(record.calls)
            for metric, number in zip(metrics.DOUBTS, record.doubts, strict=False):
                self._doubts.add(metric, self._tags_of(record), None, start, number)
        return bool(record.calls or record.doubts)

    def _tags_of(self, record: Record, partition_id: str = "") -> Key:
        """Return the tags of a record's points; what differs only in one that is off is added up."""
        named = (record.job, record.op, partition_id, record.rank)
        if named not in self._tags:
            settings = self._settings
            switches = (settings.tag_job, True, settings.tag_partition_id, settings.tag_rank)
            self._tags[named] = tuple(
                f"{name}:{value}"
                for name, value, is_on in zip(metrics.OPERATION_TAGS, named, switches, strict=True)
                if value and is_on
            )
        return self._tags[named]

    def _add_outstanding(self, record: Record, by_partition: Mapping[str, int]) -> None:
        tags = self._tags_of(record)
        n_bytes = Counter[Key]() if self._settings.tag_partition_id else Counter({tags: 0})
        for partition_id, number in by_partition.items():
            n_bytes[self._tags_of(record, partition_id)] += number
        name = (record.writer, (tags, *n_bytes))
        if name not in self._blocks:
            series: list[SeriesKey] = [
                (metrics.PEAK_BYTES_OUTSTANDING, tags, None),
                (metrics.KEYS_OUTSTANDING, tags, None),
                *((metrics.BYTES_OUTSTANDING, tagged, None) for tagged in n_bytes),
            ]
            self._blocks[name] = self.gauges.block(series, record.writer)
        block = self._blocks[name]
        for values, value in zip(block.values, (*record.peak_and_keys, *n_bytes.values()), strict=True):
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
            rows = [buckets[start].times() for start in timed]
            for metric, values in zip(metrics.TIMED, zip(*rows, strict=True), strict=bool(timed)):
                yield Series(metric, tags, None, timed, array("d", values))
        yield from self._doubts.series()

    def present(self, records: Sequence[Record], *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
        """Yield nothing: clients say nothing of the present."""
        yield from ()


def _calls(value: Json) -> Calls:
    """Return the calls that a record counts; numbers that contradict each other are refused."""
    count, keys, n_bytes = natural(value, "count"), natural(value, "keys"), natural(value, "bytes")
    wall_ms, status = value.get("wall_ms"), value.get("status")
    try:
        total, low, high = wall_ms["sum"], wall_ms["min"], wall_ms["max"]  # type: ignore[index]
        buckets: dict[str, int] = wall_ms["buckets"]  # type: ignore[index]
        numbers = buckets.values()
        good = (
            _NUMBERS.issuperset((type(total), type(low), type(high)))
            and _INTEGERS.issuperset(map(type, numbers))
            and min(numbers) >= 0
            and sum(numbers) == count > 0
            and 0 <= low <= high < MAX_NUMBER
            and 0 <= total < MAX_NUMBER
        )
        indexed = {_BUCKETS[index]: number for index, number in buckets.items()}
    except (KeyError, TypeError, AttributeError, ValueError):  # ValueError: there is no bucket
        good = False
    if not good:
        raise UnusableRecordError("bad_body", "count, wall_ms", (count, wall_ms))
    if status == "ok":
        return Calls(count, 0, 0, keys, n_bytes, float(total), float(low), float(high), indexed)
    if status not in ("error", "timeout"):
        raise UnusableRecordError("bad_body", "status", status)
    errors, timeouts = (count, 0) if status == "error" else (0, count)
    return Calls(0, errors, timeouts, 0, 0, 0.0, 0.0, 0.0, {})


def natural(value: Json, key: str) -> int:
    """Return a field that is a number of things; UnusableRecordError where it is none."""
    number = value.get(key)
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise UnusableRecordError("bad_body", key, number)
    return number


def _width(settings: DataPlaneSettings) -> int:
    """Return the length of a bucket: writers keep their own time, and where they share a series each must be
    in every bucket."""
    return 1 if settings.tag_job and settings.tag_rank else settings.aggregate_interval


COLLECTOR = collector_over(
    RecordKind(
        name=NAME,
        settings=DataPlaneSettings,
        metrics=metrics.METRICS,
        grammar=DataPlaneGrammar,
        width=_width,
    )
)
