"""Adds records up by series and time, so that whoever shares a series overwrites nothing of another.

Time is cut into buckets. What was sent of a bucket is kept for as long as the intake takes its points: a
record that is read late adds to its bucket, which is then sent again, whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from collectors.data_plane import metrics
from collectors.data_plane.record import Held, Operations, by_partition, totals_of, whole
from common.metric import Sample
from common.records.ingest import UnusableRecordError
from fleetgauge.data_plane import OperationTotals
from fleetgauge.data_plane.jsonl import body_of

BUCKET = "bucket:"
FORGOTTEN = "forgotten"
MAX_KEPT = 200_000  # series of all buckets


class Series(NamedTuple):
    """What tells operations apart; empty where it is not known, or not a tag."""

    op: str
    job: str
    rank: str
    partition_id: str


class Holding(NamedTuple):
    """What one writer held when it last said so in a bucket."""

    timestamp: float
    job: str
    rank: str
    peak_bytes: int
    keys: int
    bytes_by_partition: dict[str, int]


class Tagging(NamedTuple):
    """Which tags are on; what differs only in one that is off is added up."""

    job: bool = True
    rank: bool = True
    partition_id: bool = True


@dataclass
class Bucket:
    """One stretch of time: operations by series and status, holdings by source."""

    operations: dict[Series, dict[str, OperationTotals]] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.operations) + sum(1 + len(one.bytes_by_partition) for one in self.holdings.values())

    @classmethod
    def from_state(cls, saved: object) -> Bucket:
        """The bucket that was saved; an empty one where it is not one of ours."""
        try:
            operations, holdings = saved["operations"], saved["holdings"]  # type: ignore[index]
            return cls(
                {
                    Series(*map(str, json.loads(series))): {
                        status: totals_of(body) for status, body in by_status.items()
                    }
                    for series, by_status in operations.items()
                },
                {run: _holding(*values) for run, values in holdings.items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError, UnusableRecordError):
            return cls()

    def to_state(self) -> dict[str, object]:
        return {
            "operations": {
                json.dumps(series): {status: body_of(totals) for status, totals in by_status.items()}
                for series, by_status in self.operations.items()
            },
            "holdings": {run: list(holding) for run, holding in self.holdings.items()},
        }


def _holding(
    timestamp: float, job: str, rank: str, peak_bytes: int, keys: int, held: dict[str, int]
) -> Holding:
    return Holding(float(timestamp), str(job), str(rank), whole(peak_bytes), whole(keys), by_partition(held))


class Totals:
    """The buckets that can still be sent. Of the saved ones, only those that grow are looked into."""

    def __init__(self, state: Mapping[str, object], tagging: Tagging, width: int, oldest: int) -> None:
        self.width = width
        self._state = state
        self._tagging = tagging
        self._oldest = oldest
        saved = {key for key in state if key.startswith(BUCKET)}
        starts = {_start(key): key for key in saved}
        self._sizes = {start: _size(state[key]) for start, key in starts.items() if start >= oldest}
        self._foreign = {key for start, key in starts.items() if start < oldest}
        forgotten = state.get(FORGOTTEN)
        self._forgotten = forgotten if type(forgotten) is int else 0
        self._buckets: dict[int, Bucket] = {}
        self._touched: dict[int, set[Series]] = {}
        self._holding: set[int] = set()
        self.growth = 0

    def start_of(self, timestamp: float) -> int:
        """When the bucket of a time begins."""
        return int(timestamp) // self.width * self.width

    def add(self, record: Operations | Held) -> bool:
        """Add a record to its bucket; False where that one is forgotten."""
        start = self.start_of(record.envelope.timestamp)
        if start <= self._forgotten:
            return False
        bucket = self._bucket(start)
        if isinstance(record, Held):
            self._hold(bucket, record)
            self._holding.add(start)
            self.growth += 1 + len(record.bytes_by_partition)
        else:
            series = self._series(record)
            by_status = bucket.operations.setdefault(series, {})
            known = by_status.get(record.status)
            by_status[record.status] = known + record.totals if known else record.totals
            self._touched.setdefault(start, set()).add(series)
            self.growth += 1
        self._sizes[start] = bucket.size
        return True

    def _bucket(self, start: int) -> Bucket:
        if start not in self._buckets:
            self._buckets[start] = Bucket.from_state(self._state.get(f"{BUCKET}{start}"))
        return self._buckets[start]

    def _series(self, record: Operations) -> Series:
        on, known = self._tagging, record.envelope
        return Series(
            record.op,
            known.job if on.job else "",
            (known.rank or "") if on.rank else "",
            record.partition_id if on.partition_id else "",
        )

    def _hold(self, bucket: Bucket, record: Held) -> None:
        """Let a writer's last word in a bucket stand for it."""
        run, on = record.envelope, self._tagging
        before = bucket.holdings.get(record.source)
        if before and before.timestamp > run.timestamp:
            return
        held = record.bytes_by_partition
        bucket.holdings[record.source] = Holding(
            run.timestamp,
            run.job if on.job else "",
            (run.rank or "") if on.rank else "",
            record.peak_bytes,
            record.keys,
            held if on.partition_id else {"": sum(held.values())},
        )

    def samples(self) -> Iterator[Sample]:
        """Every series that grew since this was last saved, whole, at the start of its bucket."""
        for start in sorted(self._touched.keys() | self._holding):
            bucket = self._buckets[start]
            for series in sorted(self._touched.get(start, ())):
                yield from operation_samples(start, series, bucket.operations[series])
            if start in self._holding:
                yield from holding_samples(start, bucket.holdings.values())

    def changes(self) -> dict[str, object]:
        """What to save behind the samples, and what nobody can add to any more and is forgotten."""
        touched = self._touched.keys() | self._holding
        changes: dict[str, object] = {
            f"{BUCKET}{start}": self._buckets[start].to_state() for start in sorted(touched)
        }
        changes |= dict.fromkeys(self._foreign)
        kept = sum(self._sizes.values())
        for start in sorted(self._sizes):
            if kept <= MAX_KEPT:
                break
            kept -= self._sizes.pop(start)
            self._buckets.pop(start, None)
            changes |= {f"{BUCKET}{start}": None, FORGOTTEN: start}
            self._forgotten = start
        self._touched, self._holding, self.growth = {}, set(), 0
        return changes


def operation_samples(at: int, series: Series, by_status: Mapping[str, OperationTotals]) -> Iterator[Sample]:
    """The points of one series. Times of nothing are absent; counts of nothing are 0."""
    tags = {name: value for name, value in series._asdict().items() if value}
    ok = by_status.get("ok")
    yield metrics.OPS(ok.count if ok else 0, at, **tags)
    for status, metric in (("error", metrics.ERRORS), ("timeout", metrics.TIMEOUTS)):
        yield metric(by_status[status].count if status in by_status else 0, at, **tags)
    yield metrics.KEYS(ok.keys if ok else 0, at, **tags)
    yield metrics.BYTES(ok.bytes if ok else 0, at, **tags)
    if ok is None:
        return
    # Rounded, because the order in which files are read must not show in the last digit.
    yield metrics.WALL_AVG(round(ok.wall_ms_avg, 9), at, **tags)
    for percent, metric in metrics.WALL_PERCENTILES.items():
        yield metric(ok.wall_ms_percentile(percent), at, **tags)
    yield metrics.WALL_MAX(ok.wall_ms_max, at, **tags)


def holding_samples(at: int, holdings: Iterable[Holding]) -> Iterator[Sample]:
    """What all writers of a bucket hold, added up where they share their tags."""
    by_writer: dict[tuple[str, str], list[Holding]] = {}
    for holding in holdings:
        by_writer.setdefault((holding.job, holding.rank), []).append(holding)
    for (job, rank), sharing in sorted(by_writer.items()):
        tags = {name: value for name, value in (("job", job), ("rank", rank)) if value}
        yield metrics.PEAK_BYTES_OUTSTANDING(sum(one.peak_bytes for one in sharing), at, **tags)
        yield metrics.KEYS_OUTSTANDING(sum(one.keys for one in sharing), at, **tags)
        held: Counter[str] = Counter()
        for one in sharing:
            held.update(one.bytes_by_partition)
        for partition_id, n_bytes in sorted(held.items()):
            named = {"partition_id": partition_id} if partition_id else {}
            yield metrics.BYTES_OUTSTANDING(n_bytes, at, **tags, **named)


def _start(key: str) -> int:
    """When a saved bucket begins; -1, which is too old, where it is not one of ours."""
    number = key.removeprefix(BUCKET)
    return int(number) if number.isascii() and number.isdecimal() else -1


def _size(saved: object) -> int:
    """The size of a saved bucket, without looking into it any further."""
    try:
        operations, holdings = saved["operations"], saved["holdings"]  # type: ignore[index]
        return len(operations) + sum(1 + len(holding[-1]) for holding in holdings.values())
    except (AttributeError, IndexError, KeyError, TypeError):
        return 0
