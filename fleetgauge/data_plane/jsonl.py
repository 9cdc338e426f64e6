"""Writes what data-plane events add up to as records (docs/data-plane.md), one interval after the other.

Knows intervals, aggregates and how much may be held. How an operation was measured is the client's business,
and how a record reaches the disk that of `fleetgauge.records`.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from os import PathLike, fspath

from fleetgauge.data_plane.events import WRITES, DataPlaneEvent, EventSink, HasSnapshot, Losses
from fleetgauge.data_plane.operation_totals import OperationTotals
from fleetgauge.data_plane.peers import peers_of, rank_here
from fleetgauge.records import Event, Json, RecordWriter, resolve_path
from fleetgauge.records.background import renewed_in_child

KIND = "data_plane"

# Where operations and bytes of partitions go that there is no room to tell apart.
OTHER_PARTITIONS = "_other"

MAX_WAITING = 10_000  # events that wait while another thread adds up
MAX_GROUPS = 500  # operations, partitions and statuses told apart in one interval
MAX_PARTITIONS = 500  # partitions whose bytes are told apart
MAX_QUEUED = 4000  # records: some intervals of as many groups as there can be
MAX_CLOSE_WAIT_S = 5.0  # how long closing may wait for another thread, and for the disk

_Group = tuple[str, str, str]  # op, partition, status


class JsonlEvents(EventSink):
    """Writes one record per operation, partition and status of each interval, and one of what is held.

    Intervals end at whole multiples of `interval_s`, on every rank at the same time; one without events is
    written too, for the bytes that are still held. `path` is a file, a directory or a pattern with
    `{run_id}`; a directory, where every process has a file of its own, is best. With `rotate_after` seconds,
    files are closed by time (`RecordWriter`). Nothing raises or waits once
    this is built: what is lost is counted in `dropped` and said once.

    File and threads are opened by the first event, in the process where it happens. A copy out of a pickle,
    and a forked child, write records of their own, with the rank that their environment tells; `rank` is that
    of the process that built this.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        interval_s: float = 10.0,
        *,
        job: str | None = None,
        rank: int | None = None,
        rotate_after: float = math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not (math.isfinite(interval_s) and interval_s > 0):
            raise ValueError(f"interval_s is {interval_s!r}: it must be a number of seconds, more than 0")
        resolve_path(path, kind=KIND, run_id="any")  # raises for what can never work
        if not rotate_after > 0:
            raise ValueError(f"rotate_after is {rotate_after!r}: it must be a number of seconds, more than 0")
        self._copy = partial(type(self), path, interval_s, job=job, rotate_after=rotate_after, clock=clock)
        self._interval_s = interval_s
        self._clock = clock
        self._new_writer = partial(
            RecordWriter,
            path,
            KIND,
            job=job,
            queue_size=MAX_QUEUED,
            rotate_after=rotate_after,
            clock=lambda: self._stamp,
        )
        # Each with what was told of it before.
        self.clients: weakref.WeakKeyDictionary[HasSnapshot, dict[str, int]] = weakref.WeakKeyDictionary()
        self._n_attached = 0  # with those that are gone
        self.peers = peers_of(job, fspath(path))
        self._begin(rank)
        renewed_in_child.add(self)

    def after_fork(self) -> None:
        self._begin(None)

    def _begin(self, rank: int | None) -> None:
        self._rank = rank
        self._source = uuid.uuid4().hex  # stays the same where a close makes it another run
        self._stamp: float = self._clock()
        self._end = self._end_after(self._stamp)
        self._groups: dict[_Group, OperationTotals] = {}
        self._losses = Losses("an event or its aggregate was not written")
        self._dropped_before = 0
        self.wrote = False
        # Whoever has the lock adds up for all. An event only joins the queue, which a finalizer or a signal
        # handler may do at any moment; it never waits for the lock.
        self.waiting: deque[tuple[float, DataPlaneEvent]] = deque()
        self._adding_up = threading.Lock()
        self._writer: RecordWriter | None = None
        self._closed = threading.Event()

    @property
    def dropped(self) -> int:
        """Events that were not counted and records that were not written."""
        writer = self._writer
        return self._losses.count + self._dropped_before + (writer.dropped if writer else 0)

    def attach(self, client: HasSnapshot) -> None:
        self.clients[client] = {}
        self._n_attached += 1

    def before_write(self) -> None:
        self.peers.begin(self._source)

    def __call__(self, event: DataPlaneEvent) -> None:
        try:
            if len(self.waiting) >= MAX_WAITING:
                self._losses.add(f"{MAX_WAITING} events are waiting already")
            else:
                self.waiting.append((self._clock(), event))
            self.advance()
        except Exception as error:
            self._losses.add(error)

    def advance(self) -> None:
        """Write the interval that is over, if one is. Called with every event, and by a thread in between."""
        while self._adding_up.acquire(blocking=False):
            try:
                self._add_up()
                self._turn(self._clock())
            except Exception as error:
                self._losses.add(error)
            finally:
                self._adding_up.release()
            if not self.waiting:  # what came while we were at it found the lock taken
                return

    def close(self) -> None:
        """Write what is held and wait for the disk, for a few seconds at most. Events may follow."""
        atexit.unregister(self.close)
        if not self._adding_up.acquire(timeout=MAX_CLOSE_WAIT_S):
            self._losses.add("another thread has not come to an end")
            return
        try:
            self._add_up()
            if self._writer is not None:
                self._write_interval(self._clock(), Event.END)
        except Exception as error:
            self._losses.add(error)
        finally:
            self._closed.set()
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close(MAX_CLOSE_WAIT_S)
                self._dropped_before += writer.dropped
            self._adding_up.release()

    def _open(self) -> None:
        self._writer = self._new_writer(rank=self._rank_now())
        self._write(self._clock(), self.held(set()), Event.START)
        self._closed = threading.Event()
        atexit.register(self.close)
        with suppress(RuntimeError):  # without a thread, intervals are written when an event comes
            threading.Thread(
                target=self._keep_time, args=(self._closed,), name="fleetgauge-data-plane", daemon=True
            ).start()

    def _rank_now(self) -> int | None:
        return rank_here() if self._rank is None else self._rank

    def _keep_time(self, closed: threading.Event) -> None:
        while not closed.wait(self._interval_s):
            self.advance()

    def _end_after(self, now: float) -> float:
        end = (now // self._interval_s + 1) * self._interval_s
        return end if end > now else now + self._interval_s  # fractions of a second are not exact

    def _add_up(self) -> None:
        while self.waiting:
            at, event = self.waiting.popleft()
            try:
                one = _of_one(event)
                self._turn(at)
                self._groups.setdefault(self._group(event), OperationTotals()).add(one)
                begins = event["op"] in WRITES and not self.wrote
                self.wrote = self.wrote or begins
                if self._writer is None:
                    self._open()
                elif begins:  # at once: from here on, another client cannot know what the job holds
                    self._write(self._clock(), self.held(set()))
            except Exception as error:
                self._losses.add(error)

    def _group(self, event: DataPlaneEvent) -> _Group:
        group = (str(event["op"]), str(event["partition_id"]), str(event["status"]))
        if group in self._groups or len(self._groups) < MAX_GROUPS:
            return group
        return (group[0], OTHER_PARTITIONS, group[2])

    def _turn(self, now: float) -> None:
        """Begin the interval that `now` is in, and write the one before.

        Of an event that another thread overtook, a little late is early enough; a clock may also be set back.
        """
        if not self._end - 2 * self._interval_s <= now < self._end:
            self._write_interval(now)

    def _write_interval(self, now: float, event: Event = Event.STATS) -> None:
        """The operations as of the interval's end, and what is held as of now, which may be the last word."""
        groups, self._groups = self._groups, {}
        ended, self._end = min(self._end, now), self._end_after(now)
        for (op, partition_id, status), totals in groups.items():
            named = {"op": op, "partition_id": partition_id, "status": status}
            self._write(ended, named | body_of(totals))
        if self._writer is not None:  # or what is counted since the word before would be lost
            word = self.held({partition_id for _, partition_id, _ in groups})
            if event is Event.END or self.wrote or "bytes_outstanding" in word:
                self._write(now, word, event)

    def _write(self, stamp: float, body: Json, event: Event = Event.STATS) -> None:
        self._stamp = stamp
        if self._writer is not None:
            self._writer.write(event, body)

    def held(self, partitions: set[str]) -> Json:
        """What all attached clients hold; a partition that was used and holds nothing is told as 0."""
        word: Json = {"source": self._source, "interval_s": self._interval_s, "writes": self.wrote}
        by_partition = dict.fromkeys(partitions - {"", OTHER_PARTITIONS}, 0)
        try:
            read = {client: client.snapshot() for client in list(self.clients)}
            held = dict.fromkeys((*_HELD, *_COUNTED), 0)
            for client, snapshot in read.items():
                for name, n_bytes in getattr(client, "bytes_outstanding_by_partition", dict)().items():
                    by_partition[name] = by_partition.get(name, 0) + n_bytes
                for field, name in _HELD.items():
                    held[field] += snapshot.get(name, 0)
                for name in _COUNTED:
                    held[name] += snapshot.get(name, 0) - self.clients[client].get(name, 0)
                    self.clients[client][name] = snapshot.get(name, 0)
            # Asked last: what was read is from before any copy that is made from here on.
            unknown = self.peers.unknown(read, self._n_attached, self._rank_now())
        except Exception as error:
            self._losses.add(error)
            return word
        return (
            word | held | {"bytes_outstanding": largest(by_partition), "unknown": unknown} if read else word
        )

    def __reduce__(self) -> tuple[Callable[..., JsonlEvents], tuple[Callable[[], JsonlEvents]]]:
        self.peers.copied = True
        return _copied, (self._copy,)


def _copied(build: Callable[[], JsonlEvents]) -> JsonlEvents:
    """A sink out of a pickle, which knows that it is not the only one."""
    sink = build()
    sink.peers.copied = True
    return sink


# The fields of a record, and what they are called in the snapshot of a client.
_HELD = {"peak_bytes_outstanding": "peak_bytes_outstanding", "keys_outstanding": "n_keys_outstanding"}
_COUNTED = ("keys_overflowed", "foreign_clears")  # since the word before


def _of_one(event: DataPlaneEvent) -> OperationTotals:
    if not math.isfinite(event["wall_ms"]):
        raise ValueError(f"wall_ms is {event['wall_ms']!r}")
    return OperationTotals.of_one(event["n_keys"], event["n_bytes"], event["wall_ms"])


def body_of(totals: OperationTotals) -> Json:
    """Some operations as a record has them."""
    return {
        "count": totals.count,
        "keys": totals.keys,
        "bytes": totals.bytes,
        "wall_ms": {
            "sum": totals.wall_ms_sum,
            "min": totals.wall_ms_min,
            "max": totals.wall_ms_max,
            "buckets": {str(index): count for index, count in sorted(totals.buckets.items())},
        },
    }


def largest(by_partition: Mapping[str, int]) -> dict[str, int]:
    """The partitions that hold most, and the rest as one."""
    if len(by_partition) <= MAX_PARTITIONS:
        return dict(by_partition)
    ranked = sorted(by_partition.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(n_bytes for _, n_bytes in ranked[MAX_PARTITIONS - 1 :])
    return dict(ranked[: MAX_PARTITIONS - 1]) | {OTHER_PARTITIONS: rest}
