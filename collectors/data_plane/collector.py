"""Reads the records of data-plane clients and adds operations up to points at the records' own times."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import add
from typing import NamedTuple

from pydantic import Field

from collectors.data_plane import metrics
from common.collector import Context
from common.config.settings import named
from common.metric import Series
from common.records.collector import Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import MAX_NUMBER, Envelope, UnusableRecordError, envelope, text
from common.records.files import Files
from common.records.sums import Block, Key, PointBuffer, SeriesKey
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

    @property
    def width(self) -> int:
        """The width of a bucket in seconds: writers share series only without their job or rank."""
        return 1 if self.tag_job and self.tag_rank else self.aggregate_interval


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


class OperationCalls(NamedTuple):
    """Calls of one operation on one partition."""

    op: str
    partition_id: str
    calls: Calls


class ClientState(NamedTuple):
    """What a client has put and not cleared; None where other clients of its job write too, or it is none.

    That is the most bytes, keys, and bytes by partition. `doubts` are keys since the record before: cleared
    and not outstanding there, and given up.
    """

    outstanding: tuple[int, int, Mapping[str, int]] | None
    doubts: tuple[int, ...]


class DataPlaneGrammar:
    """What the lines of one run of the collector mean."""

    def __init__(self, context: Context[DataPlaneSettings], files: Files, points: PointBuffer) -> None:  # noqa: ARG002
        self._points = points
        self._settings = context.settings
        self._width = context.settings.width
        self._tags: dict[tuple[str, ...], Key] = {}
        self._calls: dict[Key, dict[int, Calls]] = {}  # by tags, and by the start of the bucket
        self._blocks: dict[tuple[str, tuple[Key, ...]], Block] = {}

    def parse(self, value: Json, path: str) -> tuple[Envelope, OperationCalls | ClientState] | None:  # noqa: ARG002
        """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""
        known = envelope(value, NAME)
        if known is None:
            return None
        if "op" in value:
            op = text(value, "op")
            if not op:
                raise UnusableRecordError("bad_body", "op", value["op"])
            return known, OperationCalls(op, text(value, "partition_id"), _calls(value))
        outstanding, doubts = None, tuple[int, ...]()
        if "bytes_outstanding" in value or "interval_s" not in value:  # or it has no client
            by_partition = value.get("bytes_outstanding")
            if not isinstance(by_partition, dict):
                raise UnusableRecordError("bad_body", "bytes_outstanding", by_partition)
            by_partition = {name[:200]: natural(by_partition, name) for name in by_partition}
            totals = (natural(value, "peak_bytes_outstanding"), natural(value, "keys_outstanding"))
            if value.get("sole_writer") is True:
                outstanding = (*totals, by_partition)
        if "foreign_clears" in value and "keys_overflowed" in value:
            doubts = (natural(value, "foreign_clears"), natural(value, "keys_overflowed"))
        return known, ClientState(outstanding, doubts)

    def add(
        self, envelope: Envelope, body: OperationCalls | ClientState, new: bool, problems: list[Problem]
    ) -> bool:
        """Add operations to their bucket, and what a client has outstanding where it knows all of it."""
        del problems  # a record that is usable is so completely
        start = int(envelope.timestamp) // self._width * self._width
        if isinstance(body, OperationCalls):
            if new:
                buckets = self._calls.setdefault(self._tags_of(envelope, body.op, body.partition_id), {})
                before = buckets.get(start)
                buckets[start] = before.plus(body.calls) if before else body.calls
            return True
        if body.outstanding and self._settings.tag_job:  # over jobs it does not add up
            self._add_outstanding(envelope, *body.outstanding)
        if new:
            for metric, number in zip(metrics.DOUBTS, body.doubts, strict=False):
                self._points.count(metric, self._tags_of(envelope), None, start, number)
        return bool(body.doubts)

    def _tags_of(self, envelope: Envelope, op: str = "", partition_id: str = "") -> Key:
        """Return the tags of a record's points; what differs only in one that is off is added up."""
        named = (envelope.job, op, partition_id, envelope.rank)
        tags = self._tags.get(named)
        if tags is None:
            settings = self._settings
            switches = (settings.tag_job, True, settings.tag_partition_id, settings.tag_rank)
            tags = self._tags[named] = tuple(
                f"{name}:{value}"
                for name, value, is_on in zip(metrics.OPERATION_TAGS, named, switches, strict=True)
                if value and is_on
            )
        return tags

    def _add_outstanding(
        self, envelope: Envelope, peak: int, keys: int, by_partition: Mapping[str, int]
    ) -> None:
        tags = self._tags_of(envelope)
        n_bytes = Counter[Key]() if self._settings.tag_partition_id else Counter({tags: 0})
        for partition_id, number in by_partition.items():
            n_bytes[self._tags_of(envelope, "", partition_id)] += number
        name = (envelope.writer, (tags, *n_bytes))
        if name not in self._blocks:
            series: list[SeriesKey] = [
                (metrics.PEAK_BYTES_OUTSTANDING, tags, None),
                (metrics.KEYS_OUTSTANDING, tags, None),
                *((metrics.BYTES_OUTSTANDING, tagged, None) for tagged in n_bytes),
            ]
            self._blocks[name] = self._points.block(series, envelope.writer)
        self._blocks[name].add(envelope.timestamp, (peak, keys, *n_bytes.values()))

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

    def present(self, records: object, *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
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


COLLECTOR = collector_over(RecordKind(NAME, DataPlaneSettings, metrics.METRICS, DataPlaneGrammar))
