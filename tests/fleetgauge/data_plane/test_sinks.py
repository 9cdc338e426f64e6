"""What is done with events: chained, added up, logged to W&B; never raising, and saying what was lost."""

from __future__ import annotations

import json
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleetgauge.data_plane import (
    DataPlaneEvent,
    EventSink,
    EventStatus,
    MetricsDataPlaneClient,
    WandbEvents,
    chain,
    log_event,
)
from support.data_plane_fakes import CALLS, Events, PicklableStore, Store, Tensor, in_a_process_of_its_own


def event(
    op: str = "put", status: EventStatus = "ok", n_keys: int = 2, n_bytes: int = 8, wall_ms: float = 1.0
) -> DataPlaneEvent:
    return {
        "op": op,
        "partition_id": "p",
        "n_keys": n_keys,
        "n_bytes": n_bytes,
        "wall_ms": wall_ms,
        "status": status,
    }


def raising(_: DataPlaneEvent) -> None:
    raise ValueError("full")


# Chains


def test_a_chain_calls_each_in_order_with_a_copy_of_its_own() -> None:
    order: list[str] = []

    def spoil(told: DataPlaneEvent) -> None:
        order.append("spoil")
        told["op"] = "spoiled"

    events = Events()
    chain(spoil, events, lambda _: order.append("last"))(event())
    assert order == ["spoil", "last"]
    assert events.told == [event()]


def test_one_callback_that_raises_does_not_keep_the_event_from_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = Events()
    chained = chain(raising, events, raising)
    for _ in range(3):
        chained(event())
    assert (len(events.told), chained.errors) == (3, 6)
    assert [record.getMessage() for record in caplog.records] == [
        "data plane: a chained callback raised: ValueError('full'); further losses are only counted"
    ]


def test_an_interrupt_goes_through_a_chain() -> None:
    def interrupted(_: DataPlaneEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chain(interrupted)(event())


def test_a_chain_can_be_pickled_and_counts_its_own_losses() -> None:
    chained = chain(log_event, raising)
    chained(event())
    twin = pickle.loads(pickle.dumps(chained))  # noqa: S301  # our own bytes
    twin(event())
    assert (twin.errors, chained.errors) == (1, 1)


def test_a_chain_of_something_that_cannot_be_called_is_refused() -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match=r"chain\(\) takes callbacks, and None cannot be called"):
        chain(log_event, nothing)


class Sink(EventSink):
    def __init__(self) -> None:
        self.attached: list[object] = []
        self.closed = 0

    def __call__(self, event: DataPlaneEvent) -> None:
        pass

    def attach(self, client: object) -> None:
        self.attached.append(client)

    def close(self) -> None:
        self.closed += 1


class BrokenSink(Sink):
    def attach(self, client: object) -> None:
        raise ValueError("cannot attach")

    def close(self) -> None:
        raise ValueError("cannot close")


def test_a_chain_attaches_and_closes_its_sinks_whatever_one_of_them_does() -> None:
    first, last = Sink(), Sink()
    chained = chain(first, log_event, BrokenSink(), last)
    client = MetricsDataPlaneClient(Store(), chained)
    chained.close()
    assert first.attached == last.attached == [client]
    assert (first.closed, last.closed, chained.errors) == (1, 1, 2)


def test_a_sink_that_cannot_be_attached_is_counted_and_still_told() -> None:
    client = MetricsDataPlaneClient(Store(), BrokenSink())
    client.close()
    assert client.snapshot()["callback_errors"] == 1


class FreshSink(Sink):
    """Out of a pickle, it knows of nobody. The latest one can be found."""

    latest: FreshSink

    def __init__(self) -> None:
        super().__init__()
        FreshSink.latest = self

    def __reduce__(self) -> tuple[type[FreshSink], tuple[()]]:
        return FreshSink, ()


class Told(Sink):
    """Knows how many calls the store had had when it was told that one would write."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.before: list[int] = []
        self._store = store

    def before_write(self) -> None:
        self.before.append(len(self._store.calls))


@pytest.mark.parametrize("op", CALLS)
def test_a_sink_is_told_once_before_the_first_operation_that_writes(op: str) -> None:
    store = Store()
    told = Told(store)
    client = MetricsDataPlaneClient(store, chain(told))
    CALLS["get"](client)
    for _ in range(2):
        CALLS[op](client)
    assert told.before == ([1] if op in ("register", "put", "clear") else [])


def test_a_client_attaches_itself_again_when_it_is_unpickled() -> None:
    client = MetricsDataPlaneClient(None, FreshSink())
    twin = pickle.loads(pickle.dumps(client))  # noqa: S301  # our own bytes
    assert FreshSink.latest.attached == [twin]


def test_a_sink_has_to_say_what_it_does_with_an_event() -> None:
    with pytest.raises(NotImplementedError):
        EventSink()(event())


# W&B


class Run:
    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.commits: list[bool] = []
        self.error: Exception | None = None

    def log(self, data: dict[str, Any], *, commit: bool) -> None:
        if self.error is not None:
            raise self.error
        self.logged.append(data)
        self.commits.append(commit)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_events_are_added_up_per_operation_under_data_plane() -> None:
    run = Run()
    sink = WandbEvents(run)
    for wall_ms in (1.0, 3.0):
        sink(event(wall_ms=wall_ms))
    sink(event(status="error"))
    sink(event(op="get", status="timeout", wall_ms=60_000.0))
    sink.close()
    (logged,) = run.logged
    assert run.commits == [False]
    p50, p95, p99 = (logged.pop(f"data_plane/put/wall_ms/p{percent}") for percent in (50, 95, 99))
    assert 1.0 <= p50 <= 1.2
    assert p95 == p99 == 3.0
    assert logged == {
        "data_plane/get/errors": 0,
        "data_plane/get/ops": 0,
        "data_plane/get/timeouts": 1,
        "data_plane/put/bytes": 16,
        "data_plane/put/errors": 1,
        "data_plane/put/keys": 4,
        "data_plane/put/ops": 2,
        "data_plane/put/timeouts": 0,
        "data_plane/put/wall_ms/avg": 2.0,
        "data_plane/put/wall_ms/max": 3.0,
    }


def test_what_is_outstanding_is_read_from_the_client_it_is_attached_to() -> None:
    sink = WandbEvents(Run())
    client = MetricsDataPlaneClient(Store(), chain(log_event, sink))
    client.put_samples(["a", "b"], "p", fields={"x": Tensor(2)})
    client.clear_samples(["a"], "p")
    logged = sink.metrics()
    assert logged["data_plane/bytes_outstanding"] == 4
    assert logged["data_plane/peak_bytes_outstanding"] == 8
    assert logged["data_plane/n_keys_outstanding"] == 1


def test_what_is_outstanding_is_not_known_of_two_clients_which_may_write_to_the_same_keys() -> None:
    sink = WandbEvents(Run())
    clients = [MetricsDataPlaneClient(Store(), sink) for _ in range(2)]
    for client in clients:
        client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    assert not [name for name in sink.metrics() if "outstanding" in name]
    assert sink.metrics()["data_plane/foreign_clears"] == 0


def test_what_is_outstanding_is_not_known_of_a_client_that_was_copied_unless_it_promised_to_write_alone() -> (
    None
):
    for alone in (None, True):
        sink = WandbEvents(Run())
        client = MetricsDataPlaneClient(PicklableStore(), sink, alone=alone)
        client.put_samples(["a"], "p", fields={"x": Tensor(1)})
        assert sink.metrics()["data_plane/bytes_outstanding"] == 4
        pickle.dumps(client)
        assert ("data_plane/bytes_outstanding" in sink.metrics()) is bool(alone)


def test_logs_when_the_interval_has_passed_and_not_before() -> None:
    run, clock = Run(), Clock()
    sink = WandbEvents(run, clock=clock)  # every ten seconds, unless it is told otherwise
    sink(event())
    clock.now = 109.9
    sink(event())
    assert run.logged == []
    clock.now = 110.0
    sink(event())
    assert [logged["data_plane/put/ops"] for logged in run.logged] == [3]
    clock.now = 119.9
    sink(event())
    assert len(run.logged) == 1
    clock.now = 120.0
    sink(event())
    assert [logged["data_plane/put/ops"] for logged in run.logged] == [3, 5]


def test_logs_when_a_client_closes() -> None:
    run, clock = Run(), Clock()
    client = MetricsDataPlaneClient(Store(), WandbEvents(run, clock=clock))
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    client.close()
    assert [logged["data_plane/put/ops"] for logged in run.logged] == [1]
    assert run.logged[0]["data_plane/bytes_outstanding"] == 0


def test_nothing_happened_is_nothing_logged() -> None:
    run = Run()
    WandbEvents(run).close()
    assert run.logged == []


def test_a_run_that_raises_is_counted_and_the_next_log_has_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run()
    sink = WandbEvents(run, interval_s=0)
    run.error = ConnectionError("offline")
    sink(event())
    sink(event())
    run.error = None
    sink(event())
    assert (sink.errors, run.logged[0]["data_plane/put/ops"]) == (2, 3)
    sink.close()
    (record,) = caplog.records
    assert record.getMessage() == (
        "data plane: an event or its aggregate did not reach W&B: ConnectionError('offline'); "
        "further losses are only counted"
    )


def test_an_event_that_is_none_is_counted_and_not_raised() -> None:
    odd: Any = {"op": "put"}
    sink = WandbEvents(Run())
    sink(odd)
    sink.close()
    assert sink.errors == 1


def test_a_client_that_is_gone_is_no_longer_read() -> None:
    run = Run()
    sink = WandbEvents(run)
    MetricsDataPlaneClient(Store(), sink).put_samples(["a"], "p", fields={"x": Tensor(1)})
    sink.close()
    assert "data_plane/bytes_outstanding" not in run.logged[0]
    assert run.logged[0]["data_plane/put/ops"] == 1


def test_an_operation_does_not_wait_for_a_log_that_hangs() -> None:
    inside, let_go = threading.Event(), threading.Event()

    class Hanging(Run):
        def log(self, data: dict[str, Any], *, commit: bool) -> None:
            inside.set()
            assert let_go.wait(30)
            super().log(data, commit=commit)

    run = Hanging()
    sink = WandbEvents(run, interval_s=0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sink, event())
        assert inside.wait(30)
        sink(event())
        assert run.logged == []
        let_go.set()
        first.result()
    sink.close()
    assert [logged["data_plane/put/ops"] for logged in run.logged] == [1, 2]


def test_a_program_that_ends_does_not_wait_for_ever_for_a_log_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fleetgauge.data_plane.sinks.MAX_LAST_LOG_WAIT_S", 0.01)
    inside, let_go = threading.Event(), threading.Event()

    class Hanging(Run):
        def log(self, data: dict[str, Any], *, commit: bool) -> None:
            inside.set()
            assert let_go.wait(30)

    sink = WandbEvents(Hanging(), interval_s=0)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sink, event())
        assert inside.wait(30)
        sink.close()
        assert sink.errors == 1
        let_go.set()


def test_no_event_is_lost_between_threads() -> None:
    run = Run()
    sink = WandbEvents(run, interval_s=0)

    def tell(_: int) -> None:
        for _ in range(100):
            sink(event())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tell, range(8)))
    sink.close()
    ops = [logged["data_plane/put/ops"] for logged in run.logged]
    assert (ops[-1], ops) == (800, sorted(ops))
    assert sink.errors == 0


@pytest.mark.parametrize("interval_s", [-1.0, math.nan, math.inf])
def test_an_interval_that_is_none_is_refused(interval_s: float) -> None:
    with pytest.raises(ValueError, match="it must be a number of seconds, 0 or more"):
        WandbEvents(Run(), interval_s)


def test_a_run_that_cannot_log_is_refused() -> None:
    no_run: Any = None
    with pytest.raises(TypeError, match=r"WandbEvents needs a W&B run, and None has no log\(\)"):
        WandbEvents(no_run)


def test_what_is_held_is_logged_at_exit() -> None:
    program = """
from fleetgauge.data_plane import MetricsDataPlaneClient, WandbEvents
from support.data_plane_fakes import Store
class Run:
    def log(self, data, *, commit): print(data["data_plane/put/ops"], commit)
def job():
    MetricsDataPlaneClient(Store(), WandbEvents(Run())).put_samples(["a"], "p")
job()
closed = WandbEvents(Run())
closed({"op": "put", "partition_id": "p", "n_keys": 0, "n_bytes": 0, "wall_ms": 1.0, "status": "ok"})
closed.close()
print("end")
"""
    assert in_a_process_of_its_own(program).splitlines() == ["1 False", "end", "1 False"]


@pytest.mark.slow
def test_a_real_run_keeps_its_own_steps(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb: the same claims ran with a run of its protocol")
    program = """
import json, wandb
from fleetgauge.data_plane import MetricsDataPlaneClient, WandbEvents
from support.data_plane_fakes import PicklableStore, Store, Tensor
run = wandb.init(mode="offline", project="x")
sink = WandbEvents(run, interval_s=0)
client = MetricsDataPlaneClient(Store(), sink)
run.log({"loss": 1})
for key in "ab":
    client.put_samples([key], "p", fields={"x": Tensor(1)})
step = run.step
run.log({"loss": 2})
print(json.dumps([step, run.step, sink.errors, dict(run.summary)]))
run.finish()
"""
    printed = in_a_process_of_its_own(program, WANDB_DIR=str(tmp_path), WANDB_SILENT="true")
    step, last_step, errors, summary = json.loads(printed.splitlines()[-1])
    assert (step, last_step, errors) == (1, 2, 0)
    assert (summary["loss"], summary["data_plane/put/ops"], summary["data_plane/put/bytes"]) == (2, 2, 8)
