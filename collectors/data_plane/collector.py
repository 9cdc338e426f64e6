"""Reads the records of data-plane clients and adds operations up to points at the records' own times."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from operator import add
from typing import Any, NamedTuple

from pydantic import Field

from collectors.data_plane import metrics
from common.collector import Context
from common.config.settings import named
from common.metric import Series
from common.records.collector import Grammar, Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import MAX_NUMBER, Envelope, UnusableRecordError, envelope, text
from common.records.files import Files
from common.records.sums import Block, Key, PointBuffer, SeriesKey
from fleetgauge.data_plane import BUCKET_ENDS_MS
from fleetgauge.data_plane.operation_totals import percentiles
from fleetgauge.records import Json

NAME = "data_plane"

_BUCKETS = {str(index): index for index in range(len(BUCKET_ENDS_MS) + 1)}


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
    """Calls of one operation on one partition: how many succeeded, failed and timed out.

    Of those that succeeded also what they moved and took. Times are in milliseconds; `buckets` counts calls
    by the index of their time in the histogram.
    """

    tags: Key
    succeeded: int
    errors: int
    timeouts: int
    keys: int
    bytes: int
    total_time: float
    shortest: float
    longest: float
    buckets: Mapping[str, int]

    def plus(self, other: Calls) -> Calls:
        """Return both together."""
        sums = map(add, self[1:7], other[1:7])
        low, high = min(self.shortest, other.shortest), max(self.longest, other.longest)
        buckets = Counter(self.buckets)
        buckets.update(other.buckets)
        return Calls._make((self.tags, *sums, low, high, buckets))

    def times(self) -> list[float]:
        """Return the mean, the percentiles and the longest time of calls that succeeded."""
        low, high, count = self.shortest, self.longest, self.succeeded
        buckets = sorted([(_BUCKETS[index], number) for index, number in self.buckets.items()])
        # Rounded, because the order in which files are read must not show in the last digit.
        mean = round(self.total_time / count, 9)
        return [mean, *percentiles(metrics.PERCENTS, count, low, high, buckets), high]


class ClientState(NamedTuple):
    """What a client has put and not cleared; None where other clients of its job write too, or it is none.

    That is the most bytes, keys, and bytes by partition. `doubts` are keys since the record before: cleared
    and not outstanding there, and given up.
    """

    outstanding: tuple[int, int, Mapping[str, int]] | None
    doubts: tuple[int, ...]


class DataPlaneGrammar(Grammar[Calls | ClientState]):
    """What the lines of one run of the collector mean."""

    def __init__(self, context: Context[DataPlaneSettings], files: Files, points: PointBuffer) -> None:  # noqa: ARG002
        self._points = points
        self._settings = context.settings
        self._width = context.settings.width
        self._tags: dict[tuple[object, ...], Key] = {}  # of calls, by what a record says
        self._calls: defaultdict[Key, dict[int, Calls]] = defaultdict(dict)  # by tags and start of the bucket
        self._blocks: dict[tuple[str, tuple[Key, ...]], Block] = {}

    def parse(self, value: Json, path: str) -> tuple[Envelope, Calls | ClientState] | None:  # noqa: ARG002
        """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""
        known = envelope(value, NAME)
        if known is None:
            return None
        if "op" in value:
            name = (known.job, value["op"], value.get("partition_id"), known.rank)
            tags = self._tags.get(name)
            if tags is None:
                if not name[1]:
                    raise UnusableRecordError("bad_body", "op", name[1])
                tags = self._tags[name] = self._tags_of(known, text(value, "op"), text(value, "partition_id"))
            return known, _calls(value, tags)
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

    def add(self, envelope: Envelope, body: Calls | ClientState, new: bool, problems: list[Problem]) -> bool:
        """Add operations to their bucket, and what a client has outstanding where it knows all of it."""
        del problems  # a record that is usable is so completely
        start = int(envelope.timestamp) // self._width * self._width
        if isinstance(body, Calls):
            if new:
                buckets = self._calls[body.tags]
                before = buckets.setdefault(start, body)
                if before is not body:
                    buckets[start] = before.plus(body)
            return True
        if body.outstanding and self._settings.tag_job:  # over jobs it does not add up
            peak, keys, by_partition = body.outstanding
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
        if new:
            for metric, number in zip(metrics.DOUBTS, body.doubts, strict=False):
                self._points.count(metric, self._tags_of(envelope), None, start, number)
        return bool(body.doubts)

    def _tags_of(self, envelope: Envelope, op: str = "", partition_id: str = "") -> Key:
        """Return the tags of a record's points; what differs only in one that is off is added up."""
        settings = self._settings
        switches = (settings.tag_job, True, settings.tag_partition_id, settings.tag_rank)
        values = (envelope.job, op, partition_id, envelope.rank)
        named = zip(metrics.OPERATION_TAGS, values, switches, strict=True)
        return tuple(f"{name}:{value}" for name, value, is_on in named if value and is_on)

    def sums(self) -> Iterator[Series]:
        """Yield the operations of each series. Times of nothing are absent; counts of nothing are 0."""
        for tags, buckets in self._calls.items():
            starts = sorted(buckets)
            calls = [buckets[start] for start in starts]
            _, *columns = zip(*calls, strict=True)
            for metric, values in zip(metrics.COUNTED, columns, strict=False):
                yield Series(metric, tags, None, starts, values)
            timed = [start for start in starts if buckets[start].succeeded]
            rows = [buckets[start].times() for start in timed]
            for metric, values in zip(metrics.TIMED, zip(*rows, strict=True), strict=bool(timed)):
                yield Series(metric, tags, None, timed, values)


def _calls(value: Mapping[str, Any], tags: Key) -> Calls:  # Any: parsed JSON
    """Return the calls that a record counts; numbers that contradict each other are refused."""
    try:
        count, keys, n_bytes, wall_ms = value["count"], value["keys"], value["bytes"], value["wall_ms"]
        total, low, high = wall_ms["sum"], wall_ms["min"], wall_ms["max"]
        buckets: dict[str, int] = wall_ms["buckets"]
        numbers = buckets.values()
        # What is no number raises TypeError, and no comparison with NaN is true.
        good = (
            type(count) is type(keys) is type(n_bytes) is int
            and buckets.keys() <= _BUCKETS.keys()
            and min(numbers) >= 0
            and 0 < sum(numbers) == count < MAX_NUMBER
            and 0 <= keys < MAX_NUMBER
            and 0 <= n_bytes < MAX_NUMBER
            and 0 <= low <= high < MAX_NUMBER
            and 0 <= total < MAX_NUMBER
        )
    except (KeyError, TypeError, AttributeError, ValueError):  # ValueError: there is no bucket
        good = False
    if not good:
        named = {key: value.get(key) for key in ("count", "keys", "bytes", "wall_ms")}
        raise UnusableRecordError("bad_body", "what it counts", named)
    status = value.get("status")
    if status == "ok":
        return Calls(tags, count, 0, 0, keys, n_bytes, total, low, high, buckets)
    if status not in ("error", "timeout"):
        raise UnusableRecordError("bad_body", "status", status)
    errors, timeouts = (count, 0) if status == "error" else (0, count)
    return Calls(tags, 0, errors, timeouts, 0, 0, 0.0, math.inf, 0.0, {})


def natural(value: Json, key: str) -> int:
    """Return a field that is a number of things; UnusableRecordError where it is none."""
    number = value.get(key)
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise UnusableRecordError("bad_body", key, number)
    return number


COLLECTOR = collector_over(RecordKind(NAME, DataPlaneSettings, metrics.METRICS, DataPlaneGrammar))
