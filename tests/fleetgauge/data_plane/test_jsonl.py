"""JsonlEvents: what its records add up to, when they are written, and what it survives."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from fleetgauge.data_plane import (
    DataPlaneEvent,
    JsonlEvents,
    MetricsDataPlaneClient,
    OperationTotals,
    chain,
    jsonl,
)
from support.data_plane_fakes import Store, Tensor

ROOT = Path(__file__).parents[3]
NOW = 1_794_790_000.0  # the start of an interval

Json = dict[str, Any]


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Sinks:
    """Builds sinks that write to one directory, and reads what they wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.built: list[JsonlEvents] = []

    def new(self, **options: Any) -> JsonlEvents:
        self.built.append(JsonlEvents(f"{self.folder}/", clock=self.clock, **options))
        return self.built[-1]

    def written(self) -> list[Json]:
        """Everything, once the sinks are closed."""
        for sink in self.built:
            sink.close()
        return [one for path in sorted(self.folder.glob("*.jsonl")) for one in records.read(path)]

    def operations(self) -> list[Json]:
        return [one for one in self.written() if "op" in one]

    def held(self) -> list[Json]:
        """What is held, but for the first word of a run."""
        return [one for one in self.written() if "op" not in one and one["event"] != "start"]


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[Sinks]:
    sinks = Sinks(tmp_path)
    yield sinks
    for sink in sinks.built:
        sink.close()


def event(op: str = "put", partition_id: str = "p", **other: Any) -> DataPlaneEvent:
    told: Any = {
        "op": op,
        "partition_id": partition_id,
        "n_keys": 2,
        "n_bytes": 8,
        "wall_ms": 1.0,
        "status": "ok",
    }
    return told | other  # type: ignore[no-any-return]  # what is put in may be wrong on purpose


def counts(found: list[Json]) -> list[tuple[float, int]]:
    return [(one["timestamp"] - NOW, one["count"]) for one in found]


def test_a_record_holds_what_its_events_add_up_to(sinks: Sinks) -> None:
    sink = sinks.new(job="ants", rank=3)
    for n_keys, n_bytes, wall_ms in ((2, 8, 1.0), (3, 100, 5.0), (5, 0, 1.0)):
        sink(event(n_keys=n_keys, n_bytes=n_bytes, wall_ms=wall_ms))
    sinks.clock.now += 4
    (record,) = sinks.operations()
    whole = (
        OperationTotals.of_one(2, 8, 1.0)
        + OperationTotals.of_one(3, 100, 5.0)
        + OperationTotals.of_one(5, 0, 1.0)
    )
    assert {key: value for key, value in record.items() if key not in ("host", "pid", "run_id")} == {
        "schema_version": 1,
        "kind": "data_plane",
        "event": "stats",
        "seq": 1,
        "timestamp": NOW + 4,
        "job": "ants",
        "rank": 3,
        "op": "put",
        "partition_id": "p",
        "status": "ok",
        "count": 3,
        "keys": 10,
        "bytes": 108,
        "wall_ms": {
            "sum": 7.0,
            "min": 1.0,
            "max": 5.0,
            "buckets": {str(index): count for index, count in sorted(whole.buckets.items())},
        },
    }
    assert sorted(record["wall_ms"]["buckets"].values()) == [1, 2]


def test_operations_partitions_and_statuses_are_told_apart(sinks: Sinks) -> None:
    sink = sinks.new()
    told = [("put", "p", "ok"), ("get", "p", "ok"), ("put", "q", "ok"), ("put", "p", "timeout")]
    for number, (op, partition_id, status) in enumerate(told, 1):
        for _ in range(number):
            sink(event(op, partition_id, status=status))
    found = {
        (one["op"], one["partition_id"], one["status"]): (one["count"], one["keys"])
        for one in sinks.operations()
    }
    assert found == {one: (number, 2 * number) for number, one in enumerate(told, 1)}


def test_an_interval_is_written_once_it_is_over_and_stamped_with_its_end(sinks: Sinks) -> None:
    sink = sinks.new()  # every ten seconds, unless it is told otherwise
    sinks.clock.now = NOW + 3
    sink(event())
    sinks.clock.now = NOW + 9.9
    sink(event())
    sinks.clock.now = NOW + 10
    sink(event())
    sinks.clock.now = NOW + 47
    sink(event())
    sinks.clock.now = NOW + 48
    assert counts(sinks.operations()) == [(10, 2), (20, 1), (48, 1)]


def test_all_ranks_end_their_intervals_at_the_same_time(sinks: Sinks) -> None:
    for started in (0, 3, 9.5):
        sinks.clock.now = NOW + started
        sinks.new(interval_s=10)(event())
    sinks.clock.now = NOW + 12
    for sink in sinks.built:
        sink.advance()
    assert counts(sinks.operations()) == [(10, 1)] * 3


def test_an_interval_is_written_without_another_event(sinks: Sinks) -> None:
    asked = threading.Event()
    by: list[str] = []

    class Client:
        def snapshot(self) -> dict[str, Any]:
            by.append(threading.current_thread().name)
            if len(by) > 1:
                asked.set()
            return {"n_keys_outstanding": 0, "peak_bytes_outstanding": 0}

    sink, client = sinks.new(interval_s=0.01), Client()
    sink.attach(client)
    sink(event())
    sinks.clock.now = NOW + 0.5
    assert asked.wait(30)
    assert by == ["MainThread", "fleetgauge-data-plane"]  # as it begins, and once the interval is over
    ((ended, count),) = counts(sinks.operations())
    assert (round(ended, 2), count) == (0.01, 1)


def test_an_event_that_another_thread_overtook_counts_in_the_later_interval(sinks: Sinks) -> None:
    sink = sinks.new(interval_s=10)
    for second in (11, 9, 12):
        sinks.clock.now = NOW + second
        sink(event())
    assert counts(sinks.operations()) == [(12, 3)]


@pytest.mark.parametrize(("second", "records"), [(10, [(26, 2)]), (9.5, [(9.5, 1), (10, 1)])])
def test_an_event_is_late_by_an_interval_at_most_or_the_clock_was_set_back(
    sinks: Sinks, second: float, records: list[tuple[float, int]]
) -> None:
    sink = sinks.new(interval_s=10)
    for now in (25, second):
        sinks.clock.now = NOW + now
        sink(event())
    sinks.clock.now = NOW + 26
    assert counts(sinks.operations()) == records


def test_an_interval_of_a_fraction_of_a_second_does_not_end_as_it_begins(sinks: Sinks) -> None:
    sinks.clock.now = 0.5
    assert (0.5 // 0.1 + 1) * 0.1 == 0.5  # such fractions are not exact
    sink = sinks.new(interval_s=0.1)
    for _ in range(2):
        sink(event())
    sinks.clock.now = 0.59
    assert [(one["timestamp"], one["count"]) for one in sinks.operations()] == [(0.59, 2)]


def test_a_clock_that_is_set_back_loses_nothing(sinks: Sinks) -> None:
    sink = sinks.new(interval_s=10)
    sinks.clock.now = NOW + 3600
    sink(event())
    sinks.clock.now = NOW + 5
    sink(event())
    sinks.clock.now = NOW + 6
    assert counts(sinks.operations()) == [(5, 1), (6, 1)]


# What is held


def test_what_clients_hold_is_told_by_partition_with_the_time_it_is_true_for(sinks: Sinks) -> None:
    sink = sinks.new(interval_s=10)
    clients = [MetricsDataPlaneClient(Store(), chain(sink)) for _ in range(2)]
    for client in clients:
        client.put_samples(["a", "b"], "p", fields={"x": Tensor(2)})
    clients[0].put_samples(["c"], "q", fields={"x": Tensor(1)})
    clients[0].clear_samples(None, "q")
    clients[1].clear_samples(["a"], "p")
    sinks.clock.now = NOW + 14
    sink.advance()
    first, *_ = sinks.held()
    assert first["timestamp"] == NOW + 14
    assert first["bytes_outstanding"] == {"p": 12, "q": 0}
    assert (first["peak_bytes_outstanding"], first["keys_outstanding"]) == (12 + 8, 3)


def test_what_is_held_is_told_in_intervals_without_an_event_too(sinks: Sinks) -> None:
    sink = sinks.new(interval_s=10)
    client = MetricsDataPlaneClient(Store(), sink)
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    for second in (10, 20, 25, 30):
        sinks.clock.now = NOW + second
        sink.advance()
    found = [(one["timestamp"] - NOW, one["bytes_outstanding"]) for one in sinks.held()]
    assert found == [(second, {"p": 4}) for second in (10, 20, 30, 30)]
    assert counts(sinks.operations()) == [(10, 1)]


def test_a_client_that_is_gone_and_one_that_cannot_tell_cost_no_operation(sinks: Sinks) -> None:
    class Odd:
        def snapshot(self) -> dict[str, Any]:
            raise ValueError("no snapshot")

    sink, odd = sinks.new(), Odd()
    MetricsDataPlaneClient(Store(), sink).put_samples(["a"], "p", fields={"x": Tensor(1)})
    sink.attach(odd)
    assert [one["count"] for one in sinks.operations()] == [1]
    assert [("bytes_outstanding" in one, one["event"]) for one in sinks.held()] == [(False, "end")]
    assert sink.dropped == 1


# Bounds and losses


def test_past_so_many_groups_partitions_are_added_up_as_one(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_GROUPS", 3)
    sink = sinks.new()
    for partition_id in ("a", "b", "c", "d", "e", "a"):
        sink(event(partition_id=partition_id))
    assert [(one["partition_id"], one["count"]) for one in sinks.operations()] == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
        ("_other", 2),
    ]
    assert sink.dropped == 0


def test_of_a_client_that_only_reads_it_is_told_what_is_held_and_without_one_only_that_it_ended(
    sinks: Sinks,
) -> None:
    class Silent:
        def snapshot(self) -> dict[str, Any]:
            return {}

    silent = Silent()
    for sink in (sinks.new(interval_s=10), sinks.new(interval_s=10)):
        sink(event("get"))
    sinks.built[1].attach(silent)
    for now in (10, 20):
        sinks.clock.now = NOW + now
        for sink in sinks.built:
            sink.advance()
    names = ("peak_bytes_outstanding", "keys_outstanding", "keys_overflowed", "foreign_clears")
    told: dict[str, list[Any]] = {}
    for one in sinks.held():
        told.setdefault(one["source"], []).append((one["event"], [one.get(name) for name in names]))
    assert sorted(told.values(), key=len) == [
        [("end", [None] * 4)],
        [("stats", [0] * 4), ("stats", [0] * 4), ("end", [0] * 4)],
    ]


def test_past_so_many_partitions_the_smallest_are_held_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_PARTITIONS", 3)
    assert jsonl.largest({"a": 1, "b": 30, "c": 2, "d": 40}) == {"d": 40, "b": 30, "_other": 3}
    assert jsonl.largest({"a": 1, "b": 30, "c": 2}) == {"a": 1, "b": 30, "c": 2}
    assert jsonl.largest(dict.fromkeys("bdac", 1)) == {"a": 1, "b": 1, "_other": 2}


@pytest.mark.parametrize(
    "odd", [None, {"op": "put"}, event(wall_ms=math.nan), event(wall_ms=math.inf), event(wall_ms="1")]
)
def test_an_event_that_is_none_costs_itself_and_is_counted(sinks: Sinks, odd: Any) -> None:
    sink = sinks.new()
    for told in (event(), odd, event()):
        sink(told)
    assert [one["count"] for one in sinks.operations()] == [2]
    assert sink.dropped == 1


class Slow:
    """A client whose snapshot takes until it is let go."""

    def __init__(self) -> None:
        self.inside, self.let_go = threading.Event(), threading.Event()

    def snapshot(self) -> dict[str, Any]:
        self.inside.set()
        assert self.let_go.wait(30)
        return {"n_keys_outstanding": 0, "peak_bytes_outstanding": 0}


def test_an_event_does_not_wait_for_the_thread_that_adds_up(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_WAITING", 2)
    sink, slow = sinks.new(interval_s=10), Slow()
    sink.attach(slow)
    sinks.clock.now = NOW + 10
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sink, event())
        assert slow.inside.wait(30)
        for _ in range(3):
            sink(event())
        slow.let_go.set()
        first.result()
    assert sink.dropped == 1
    assert sum(one["count"] for one in sinks.operations()) == 3


def test_an_event_that_comes_just_before_the_lock_is_let_go_is_not_left_waiting(sinks: Sinks) -> None:
    moments: list[Callable[[], object]] = []

    class Interrupting(Clock):
        def __call__(self) -> float:
            if moments:
                moments.pop(0)()
            return super().__call__()

    sinks.clock = Interrupting()
    sink = sinks.new()
    moments += [lambda: None, lambda: sink(event("get"))]  # as it is told, and after it was added up
    sink(event())
    assert (moments, len(sink.waiting)) == ([], 0)
    assert {one["op"]: one["count"] for one in sinks.operations()} == {"put": 1, "get": 1}


def test_a_finalizer_that_tells_an_event_while_one_is_added_up_is_counted(sinks: Sinks) -> None:
    sink = sinks.new(interval_s=10)

    class Nested:
        def snapshot(self) -> dict[str, Any]:
            sink(event("clear"))
            return {"n_keys_outstanding": 0, "peak_bytes_outstanding": 0}

    nested = Nested()
    sink.attach(nested)
    sink(event())
    sinks.clock.now = NOW + 10
    sink.advance()
    found = {(one["op"], one["timestamp"] - NOW): one["count"] for one in sinks.operations()}
    assert found[("put", 10)] == found[("clear", 10)] == 1
    assert sink.dropped == 0


def test_no_event_is_lost_between_threads(sinks: Sinks) -> None:
    sink = sinks.new(interval_s=10)

    def tell(number: int) -> None:
        for step in range(100):
            sinks.clock.now = NOW + step
            sink(event(partition_id=str(number % 3)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tell, range(8)))
    assert sum(one["count"] for one in sinks.operations()) == 800
    assert sink.dropped == 0


def test_a_disk_that_is_full_costs_the_host_nothing(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    sink = sinks.new()
    sink(event())
    sink(event("get"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        sink.close()
    assert sink.dropped in (3, 4)  # two of operations and the end; the start may have been written before
    assert len(caplog.records) == 1


def test_records_that_find_no_room_are_counted_while_the_file_is_open(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, opened, write = threading.Event(), threading.Event(), os.write

    def hang(descriptor: int, text: bytes) -> int:
        reached.set()
        opened.wait()
        return write(descriptor, text)

    monkeypatch.setattr(jsonl, "MAX_QUEUED", 1)
    monkeypatch.setattr(os, "write", hang)
    sink = sinks.new(interval_s=10)
    sink(event())
    assert reached.wait(30)
    sinks.clock.now = NOW + 10
    sink(event())
    assert sink.dropped == 1  # what is held, as the operations wait already
    opened.set()


def test_events_that_follow_a_close_are_written_by_another_run(sinks: Sinks) -> None:
    sink = sinks.new()
    sink(event())
    sink.close()
    sink.close()
    sink(event())
    found = sinks.operations()
    assert [(one["seq"], one["count"]) for one in found] == [(1, 1), (1, 1)]
    assert len({one["run_id"] for one in found}) == 2


def test_what_is_held_names_its_source_whatever_the_run(sinks: Sinks) -> None:
    for sink in (sinks.new(), sinks.new()):
        client = MetricsDataPlaneClient(Store(), sink)
        for key in "ab":
            client.put_samples([key], "p", fields={"x": Tensor(1)})
            sink.close()
    found = sinks.held()
    assert len({one["run_id"] for one in found}) >= 4
    assert len({one["source"] for one in found}) == 2


def test_closing_gives_up_on_a_thread_that_does_not_come_to_an_end(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_CLOSE_WAIT_S", 0.01)
    slow = Slow()
    sink = sinks.new(interval_s=10)
    sink.attach(slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sink, event())
        assert slow.inside.wait(30)
        sink.close()
        slow.let_go.set()
        first.result()
    assert sink.dropped == 1


def test_nothing_happened_is_nothing_written(sinks: Sinks) -> None:
    sinks.new()
    assert sinks.written() == []


def test_a_pickled_sink_writes_records_of_its_own(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/", 60.0, job="ants", rank=1)
    twin = pickle.loads(pickle.dumps(sink))  # noqa: S301  # our own bytes
    sink(event())
    twin(event("get"))
    sink.close()
    twin.close()
    found = [one for path in tmp_path.iterdir() for one in records.read(path) if "op" in one]
    assert sorted((one["op"], one["job"], one.get("rank"), one["seq"]) for one in found) == [
        ("get", "ants", None, 1),
        ("put", "ants", 1, 1),
    ]
    assert len({one["run_id"] for one in found}) == 2


@pytest.mark.parametrize("interval_s", [0, -1.0, math.nan, math.inf])
def test_an_interval_that_is_none_is_refused(tmp_path: Path, interval_s: float) -> None:
    with pytest.raises(ValueError, match="it must be a number of seconds, more than 0"):
        JsonlEvents(tmp_path, interval_s)


@pytest.mark.parametrize("rotate_after", [0, -1.0, math.nan])
def test_a_file_that_would_be_old_as_it_begins_is_refused(tmp_path: Path, rotate_after: float) -> None:
    with pytest.raises(ValueError, match=r"rotate_after is .*: it must be a number of seconds, more than 0"):
        JsonlEvents(tmp_path, rotate_after=rotate_after)
    JsonlEvents(tmp_path, rotate_after=0.5).close()


def test_a_path_that_can_never_work_is_refused() -> None:
    with pytest.raises(ValueError, match="s3"):
        JsonlEvents("s3://bucket/records/")


def test_what_is_held_is_written_at_exit(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient
from support.data_plane_fakes import Store, Tensor
client = MetricsDataPlaneClient(Store(), JsonlEvents("{tmp_path}/", rank=7))
client.put_samples(["a"], "p", fields={{"x": Tensor(1)}})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = tmp_path.iterdir()
    start, operation, held = records.read(path)
    assert (start["event"], start["seq"], start["bytes_outstanding"]) == ("start", 0, {"p": 4})
    assert (operation["op"], operation["count"], operation["bytes"], operation["rank"]) == ("put", 1, 4, 7)
    assert held["bytes_outstanding"] == {"p": 4}
