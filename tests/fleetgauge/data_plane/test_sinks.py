"""What is done with events: chained, added up, logged to W&B; never raising, and saying what was lost."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import pytest

from fleetgauge.data_plane import (
    DataPlaneEvent,
    EventSink,
    JsonlEvents,
    MetricsDataPlaneClient,
    WandbEvents,
    chain,
    log_event,
)
from support.data_plane_fakes import Run, Store, Tensor, event
from support.standins import Time


def raising(_: DataPlaneEvent) -> None:
    raise ValueError("full")


# Chains


def test_a_chain_calls_each_in_order_with_a_copy_of_its_own() -> None:
    order: list[str] = []

    def spoil(told: DataPlaneEvent) -> None:
        order.append("spoil")
        told["op"] = "spoiled"

    events: list[DataPlaneEvent] = []
    chain(spoil, events.append, lambda _: order.append("last"))(event())
    assert order == ["spoil", "last"]
    assert events == [event()]


def test_one_callback_that_raises_does_not_keep_the_event_from_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[DataPlaneEvent] = []
    chained = chain(raising, events.append, raising)
    for _ in range(3):
        chained(event())
    assert (len(events), chained.errors) == (3, 6)
    assert [record.getMessage() for record in caplog.records] == [
        "data plane: a chained callback raised: ValueError('full'); further losses are only counted"
    ]


def test_chain_lets_an_interrupt_pass_and_a_copy_counts_its_own_losses() -> None:
    def interrupted(_: DataPlaneEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chain(interrupted)(event())
    chained = chain(log_event, raising)
    chained(event())
    twin = pickle.loads(pickle.dumps(chained))  # noqa: S301  # our own bytes
    twin(event())
    assert (twin.errors, chained.errors) == (1, 1)


NOTHING: Any = None
TEXT: Any = "print"


@pytest.mark.parametrize(
    ("build", "error", "reason"),
    [
        (lambda: chain(log_event, NOTHING), TypeError, "None cannot be called"),
        (lambda: WandbEvents(NOTHING), TypeError, r"None has no log\(\)"),
        (lambda: WandbEvents(Run(), -1.0), ValueError, "it must be a number of seconds, 0 or more"),
        (lambda: WandbEvents(Run(), math.nan), ValueError, "it must be a number of seconds, 0 or more"),
        (lambda: JsonlEvents("d/", 0), ValueError, "interval_s is 0: .* more than 0"),
        (lambda: JsonlEvents("d/", math.inf), ValueError, "interval_s is inf: .* more than 0"),
        (lambda: JsonlEvents("d/", rotate_after=0), ValueError, "rotate_after is 0: .* more than 0"),
        (lambda: JsonlEvents("s3://bucket/d/"), ValueError, "s3"),
        (lambda: MetricsDataPlaneClient(None, TEXT), TypeError, "on_event is 'print': it must be callable"),
        (lambda: MetricsDataPlaneClient(None, max_keys=0), ValueError, "max_keys is 0: it must be at least"),
    ],
)
def test_arguments_that_can_never_work_are_refused(build: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        build()


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
    assert MetricsDataPlaneClient(Store(), BrokenSink()).snapshot()["callback_errors"] == 1
    twin = pickle.loads(pickle.dumps(MetricsDataPlaneClient(None, Sink())))  # noqa: S301  # our own bytes
    assert len(twin.on_event.attached) == 1 + 1  # the original, and the copy itself


# W&B


def puts(run: Run) -> list[int]:
    return [logged["data_plane/put/ops"] for logged in run.logged]


def test_totals_are_logged_per_operation_under_data_plane() -> None:
    run = Run()
    sink = WandbEvents(run)
    WandbEvents(run).close()  # has nothing to log
    sink(event(op=7))  # which does not compare with a text
    for wall_ms in (1.0, 3.0):
        sink(event(wall_ms=wall_ms))
    sink(event(status="error"))
    sink(event(op="get", status="timeout", wall_ms=60_000.0))
    sink.close()
    (logged,) = run.logged
    assert logged["data_plane/7/ops"] == 1
    logged = {key: value for key, value in logged.items() if not key.startswith("data_plane/7/")}
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


@pytest.mark.parametrize("sole_writer", [True, False])
def test_outstanding_bytes_are_logged_for_a_sole_writer(sole_writer: bool) -> None:
    run = Run()
    sink = WandbEvents(run)
    client = MetricsDataPlaneClient(Store(), chain(log_event, sink), sole_writer=sole_writer)
    client.put_samples(["a", "b"], "p", fields={"x": Tensor(2)})
    client.clear_samples(["a"], "p")
    sink.close()
    (logged,) = run.logged
    expected = {"bytes_outstanding": 4, "peak_bytes_outstanding": 8, "n_keys_outstanding": 1}
    found = {name: logged[f"data_plane/{name}"] for name in expected if f"data_plane/{name}" in logged}
    assert found == (expected if sole_writer else {})
    assert (logged["data_plane/foreign_clears"], logged["data_plane/keys_overflowed"]) == (0, 0)


def test_logs_are_an_interval_apart_and_on_another_thread() -> None:
    run, clock = Run(), Time(100.0)
    sink = WandbEvents(run, clock=clock)
    for _ in range(3):
        sink(event())
    run.released.clear()
    clock.now = 110.0
    sink(event())
    assert run.inside.wait(30)
    for _ in range(2):
        sink(event())  # returns, although the log hangs
    run.released.set()
    sink.close()
    assert puts(run) == [4, 6]
    assert threading.get_ident() not in run.threads
    run.inside.clear()
    sink = WandbEvents(run, clock=clock)
    sink(event("close"))  # is logged at once
    assert run.inside.wait(30)
    sink.close()


def test_log_after_a_failed_log_has_everything() -> None:
    run = Run()
    run.error = ConnectionError("offline")
    sink = WandbEvents(run, clock=Time(), interval_s=0)
    run.released.clear()
    sink(event())
    assert run.inside.wait(30)
    run.released.set()
    while not sink.errors:
        pass
    run.error = None
    sink(event())
    sink.close()
    assert puts(run) == [2, 2]
