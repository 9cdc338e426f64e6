"""JsonlEvents: its records, when they are written, and what is lost."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator
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
)
from fleetgauge.data_plane import sinks as sinks_module
from support.data_plane_fakes import Store, Tensor, event
from support.standins import Time

NOW = 1_794_790_000.0  # the start of an interval

Json = dict[str, Any]


class Sinks:
    """Builds a sink that writes to a directory, and reads what it wrote."""

    sink: JsonlEvents

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Time(NOW)

    def new(self, **options: Any) -> JsonlEvents:
        self.sink = JsonlEvents(f"{self.folder}/", clock=self.clock, **options)
        return self.sink

    def emit(self, second: float, *events: DataPlaneEvent) -> None:
        """Emit events at a second after the start, and have them counted."""
        self.clock.now = NOW + second
        for each in events or [event()]:
            self.sink(each)
        assert self.sink.flush()

    def written(self) -> list[Json]:
        """Return all records, once the sink is closed."""
        self.sink.close()
        return [one for path in sorted(self.folder.glob("*.jsonl")) for one in records.read(path)]

    def operations(self) -> list[Json]:
        return [one for one in self.written() if "op" in one]

    def outstanding(self) -> list[Json]:
        return [one for one in self.written() if "op" not in one]


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[Sinks]:
    sinks = Sinks(tmp_path)
    yield sinks
    sinks.sink.close()


def counts(found: list[Json]) -> list[tuple[float, int]]:
    return [(one["timestamp"] - NOW, one["count"]) for one in found]


def test_record_has_the_sums_of_its_events(sinks: Sinks) -> None:
    # Longer than a thread can wait.
    sink, totals = sinks.new(job="ants", rank=3, interval_s=1e12), OperationTotals()
    for n_keys, n_bytes, wall_ms in ((2, 8, 1.0), (3, 100, 5.0), (5, 0, 1.0)):
        sink(event(n_keys=n_keys, n_bytes=n_bytes, wall_ms=wall_ms))
        totals.add(n_keys, n_bytes, wall_ms)
    assert sink.flush()
    sinks.clock.now += 4
    (record,) = sinks.operations()
    assert not sink.flush()  # it is closed
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
            "buckets": {str(index): count for index, count in sorted(totals.buckets.items())},
        },
    }


@pytest.mark.parametrize(
    ("seconds", "expected"),
    {
        "by whole multiples": ((3, 9.9, 10, 47), [(10, 2), (20, 1), (47, 1)]),
        "overtaken by another thread": ((11, 9, 12), [(12, 3)]),
        "an interval late at most": ((25, 10), [(10, 2)]),
        "more than an interval late": ((25, 9), [(9, 1), (9, 1)]),
        "clock set back": ((3600, 5), [(5, 1), (5, 1)]),
    }.values(),
)
def test_interval_is_stamped_with_its_end(
    sinks: Sinks, seconds: tuple[float, ...], expected: list[tuple[float, int]]
) -> None:
    sinks.new()
    for second in seconds:
        sinks.emit(second)
    assert counts(sinks.operations()) == expected


def test_fraction_of_a_second_does_not_end_as_it_begins(sinks: Sinks) -> None:
    assert (0.5 // 0.1 + 1) * 0.1 == 0.5  # such fractions are not exact
    sinks.new(interval_s=0.1)
    sinks.emit(0.5 - NOW, event(), event())
    sinks.clock.now = 0.59
    assert [(one["timestamp"], one["count"]) for one in sinks.operations()] == [(0.59, 2)]


def test_interval_is_written_without_a_further_event(sinks: Sinks) -> None:
    second = threading.Event()
    threads: list[str] = []

    class Client:
        def snapshot(self) -> dict[str, Any]:
            threads.append(threading.current_thread().name)
            if len(threads) > 1:
                second.set()
            return {}

    sink, client = sinks.new(interval_s=0.01), Client()
    sink.attach(client)
    sink(event())
    assert sink.flush()
    sinks.clock.now = NOW + 0.5
    assert second.wait(30)
    assert set(threads) == {"fleetgauge-data-plane"}
    ((ended, count),) = counts(sinks.operations())
    assert (round(ended, 2), count) == (0.01, 1)


# What is outstanding


def test_outstanding_bytes_are_summed_over_clients_by_partition(sinks: Sinks) -> None:
    sink = sinks.new()
    clients = [MetricsDataPlaneClient(Store(), chain(sink), sole_writer=True) for _ in range(2)]
    for client in clients:
        client.put_samples(["a", "b"], "p", fields={"x": Tensor(2)})
    clients[0].put_samples(["c"], "q", fields={"x": Tensor(1)})
    clients[0].clear_samples(None, "q")
    clients[1].clear_samples(["a"], "p")
    assert sink.flush()
    sinks.clock.now = NOW + 14
    start, end = sinks.outstanding()
    assert (start["event"], end["event"], end["timestamp"]) == ("start", "end", NOW + 14)
    assert end["bytes_outstanding"] == {"p": 12, "q": 0}
    assert (end["peak_bytes_outstanding"], end["keys_outstanding"]) == (12 + 8, 3)
    assert (end["interval_s"], end["sole_writer"]) == (10.0, True)


def test_record_names_a_sole_writer_only_where_all_were_declared(sinks: Sinks) -> None:
    sink = sinks.new()
    clients = [MetricsDataPlaneClient(Store(), sink, sole_writer=sole) for sole in (True, False)]
    clients[0].put_samples(["a"], "p", fields={"x": Tensor(1)})
    assert {one["sole_writer"] for one in sinks.outstanding()} == {False}


def test_doubts_are_written_as_the_increase_since_the_record_before(sinks: Sinks) -> None:
    sink = sinks.new()
    client = MetricsDataPlaneClient(Store(), sink, max_keys=2)
    client.put_samples(["a", "b", "c"], "p", fields={"x": Tensor(3)})
    assert sink.flush()
    for second, key in ((10, "d"), (20, "e")):
        sinks.clock.now = NOW + second
        client.clear_samples([key], "p")
        assert sink.flush()
    found = [(one["keys_overflowed"], one["foreign_clears"]) for one in sinks.outstanding()]
    assert [sum(column) for column in zip(*found, strict=True)] == [1, 2]
    assert found[0] == (1, 0)


def test_client_that_is_gone_or_fails_costs_no_operation(sinks: Sinks) -> None:
    class Failing:
        def snapshot(self) -> dict[str, Any]:
            raise ValueError("no snapshot")

    sink, failing = sinks.new(), Failing()
    MetricsDataPlaneClient(Store(), sink).put_samples(["a"], "p", fields={"x": Tensor(1)})
    assert sink.flush()
    sink.attach(failing)
    assert [one["count"] for one in sinks.operations()] == [1]
    assert sink.dropped == 1


def test_client_that_is_attached_at_the_wrong_moment_costs_no_operation(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing(weakref.WeakSet[object]):
        def __iter__(self) -> Iterator[object]:
            raise RuntimeError("Set changed size during iteration")

    monkeypatch.setattr(weakref, "WeakSet", Changing)
    sinks.new()
    sinks.emit(0)
    assert [one["event"] for one in sinks.written()] == ["start", "stats", "end"]


# Bounds and losses


def test_partitions_past_the_limit_are_summed_as_one(sinks: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_module, "MAX_GROUPS", 3)
    sinks.new()
    late = event(partition_id="e", status="timeout")
    sinks.emit(0, *(event(partition_id=partition_id) for partition_id in "abcdea"), late)
    assert [(one["partition_id"], one["status"], one["count"]) for one in sinks.operations()] == [
        ("a", "ok", 2),
        ("b", "ok", 1),
        ("c", "ok", 1),
        ("_other", "ok", 2),
        ("_other", "timeout", 1),
    ]
    assert sinks.sink.dropped == 0


def test_smallest_partitions_past_the_limit_are_summed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_module, "MAX_PARTITIONS", 3)
    assert sinks_module.largest({"a": 1, "b": 30, "c": 2, "d": 40}) == {"d": 40, "b": 30, "_other": 3}
    assert sinks_module.largest({"a": 1, "b": 30, "c": 2}) == {"a": 1, "b": 30, "c": 2}
    assert sinks_module.largest(dict.fromkeys("bdac", 1)) == {"a": 1, "b": 1, "_other": 2}


@pytest.mark.parametrize(
    "odd", [None, {"op": "put"}, event(wall_ms=math.nan), event(wall_ms=math.inf), event(wall_ms="1")]
)
def test_malformed_event_costs_itself_and_is_counted(sinks: Sinks, odd: Any) -> None:
    sink = sinks.new()
    sinks.emit(0, event(), odd, event())
    assert [one["count"] for one in sinks.operations()] == [2]
    assert sink.dropped == 1


def test_events_that_find_no_room_are_counted_and_none_waits(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sinks_module, "MAX_WAITING", 3)
    inside, released = threading.Event(), threading.Event()

    class Hanging:
        def snapshot(self) -> dict[str, Any]:
            inside.set()
            assert released.wait(30)
            return {}

    sink, hanging = sinks.new(), Hanging()
    sink.attach(hanging)
    sink(event())
    assert inside.wait(30)
    for _ in range(5):
        sink(event())
    assert sink.dropped == 2
    released.set()
    assert sum(one["count"] for one in sinks.operations()) == 4
    assert len(caplog.records) == 1
