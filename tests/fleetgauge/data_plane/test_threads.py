"""The wrapper under many threads: no sum is ever torn, and at rest all of them are the truth of the store."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from fleetgauge.data_plane import DataPlaneEvent, MetricsDataPlaneClient
from support.data_plane_fakes import SizedRows, Store, Tensor

THREADS = 8

Call = Callable[[MetricsDataPlaneClient], object]


@pytest.fixture(autouse=True, scope="module")
def switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at once; whatever one raises is raised here."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result()


def assert_true_to(store: Store, client: MetricsDataPlaneClient) -> None:
    truth = store.bytes_by_partition()
    snapshot = client.snapshot()
    assert client.bytes_outstanding_by_partition() == truth
    assert snapshot["bytes_outstanding"] == sum(truth.values())
    assert snapshot["n_keys_outstanding"] == store.n_keys()
    assert (snapshot["callback_errors"], snapshot["measure_errors"]) == (0, 0)


def test_snapshot_during_puts_is_of_one_instant() -> None:
    client = MetricsDataPlaneClient(Store())
    stop = threading.Event()
    seen: list[dict[str, Any]] = []

    def put(thread: int) -> None:
        for step in range(60):
            ids = [f"{thread}-{step}-{index}" for index in range(10)]
            client.put_samples(ids, f"p{thread}", fields={"x": Tensor(10, 3), "y": Tensor(10)})

    def watch() -> None:
        while not stop.is_set():
            seen.append(client.snapshot())

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    in_threads(*[partial(put, thread) for thread in range(THREADS)])
    stop.set()
    for watcher in watchers:
        watcher.join()
    for snapshot in seen:
        n_puts = snapshot["total_ops"]
        assert snapshot["total_bytes"] == snapshot["bytes_outstanding"] == n_puts * 160
        assert snapshot["peak_bytes_outstanding"] == n_puts * 160
        assert snapshot["total_keys"] == snapshot["n_keys_outstanding"] == n_puts * 10
        counts = snapshot["by_op"]["put"]
        assert (counts["ops"], counts["keys"], counts["bytes"]) == (n_puts, n_puts * 10, n_puts * 160)
    assert client.snapshot()["total_ops"] == 60 * THREADS


def put(client: MetricsDataPlaneClient, **sizes: int) -> None:
    client.put_samples(list(sizes), "p", fields=SizedRows(*({"x": size} for size in sizes.values())))


def clear(client: MetricsDataPlaneClient, *keys: str, partition: str = "p") -> None:
    client.clear_samples(list(keys) or None, partition)


# A call, another one that begins and ends while it runs, and what is outstanding and cleared in vain then.
RACES: dict[str, tuple[Call, Call, int, int]] = {
    "keys cleared before their put returns are not outstanding": (
        lambda client: put(client, a=1, b=10, c=100),
        lambda client: clear(client, "b", "elsewhere"),
        2 + 1 + 100,
        1,
    ),
    "keys cleared in another partition are": (
        lambda client: put(client, a=1, b=10),
        lambda client: clear(client, "a", partition="q"),
        2 + 11,
        1,
    ),
    "a put survives a clear that does not name its keys": (lambda client: put(client, a=7), clear, 7, 0),
    "a key put again before its clear returns is outstanding": (
        lambda client: clear(client, "old", "a", "c"),
        lambda client: put(client, a=7),
        7,
        1,
    ),
    "a key put while its partition is cleared is outstanding": (
        clear,
        lambda client: put(client, old=7),
        7,
        0,
    ),
    "a key put while its partition is registered is outstanding": (
        lambda client: client.register_partition("p", [], 0, []),
        lambda client: put(client, old=7),
        7,
        0,
    ),
}


@pytest.mark.parametrize("race", RACES)
def test_of_two_calls_that_overlap_the_one_that_began_later_counts(race: str) -> None:
    store = Store()
    client = MetricsDataPlaneClient(store)
    first, second, outstanding, foreign = RACES[race]
    put(client, old=2)
    store.before_return = lambda: in_threads(lambda: second(client))
    first(client)
    assert client.bytes_outstanding_by_partition() == {"p": outstanding}
    assert client.snapshot()["foreign_clears"] == foreign


@pytest.mark.parametrize("op", ["put", "clear", "register"])
def test_call_that_failed_stores_no_key_of_its_own_nor_of_later_ones(op: str) -> None:
    class Key:
        pass

    calls: dict[str, Callable[[list[Any]], object]] = {
        "put": lambda ids: client.put_samples(ids, "p", fields={"x": Tensor(1)}),
        "clear": lambda ids: client.clear_samples(ids, "p"),
        "register": lambda _: client.register_partition("p", [], 0, []),
    }
    store = Store()
    client = MetricsDataPlaneClient(store)
    keys = [Key()]
    kept = weakref.ref(keys[0])
    for error in [RuntimeError()] * 3 + [None]:
        store.error = error
        with suppress(RuntimeError):
            calls[op](keys)
    calls["put"](keys)
    calls["clear"](keys)
    assert client.snapshot()["n_keys_outstanding"] == 0
    keys.clear()
    store.calls.clear()
    gc.collect()
    assert kept() is None


def test_finalizer_that_uses_the_client_is_counted_and_never_hangs() -> None:
    """A key's hash stands for the garbage collector: code of the host that runs while the lock is held."""
    store = Store()
    client = MetricsDataPlaneClient(store)
    calls: list[Callable[[], object]] = [
        client.snapshot,
        client.bytes_outstanding_by_partition,
        lambda: client.put_samples(["f"], "p", fields=SizedRows({"x": 32})),
        lambda: client.clear_samples(["a"], "p"),
        lambda: client.put_samples(["g"], "q", fields=SizedRows({"x": 64})),
        lambda: client.clear_samples(None, "q"),
        lambda: client.register_partition("r", [], 0, []),
    ]

    booking = threading.Event()  # the store is done with the keys: whoever hashes them is our own booking

    class Reentrant:
        def __hash__(self) -> int:
            if calls and booking.is_set():
                calls.pop(0)()
            return 1

    client.put_samples(["a", "b"], "p", fields=SizedRows({"x": 1}, {"x": 2}))
    key: Any = Reentrant()
    while calls:
        store.before_return = booking.set
        client.put_samples(["b", key, "c"], "p", fields=SizedRows({"x": 4}, {"x": 8}, {"x": 16}))
        booking.clear()
        held = client.snapshot()["bytes_outstanding"]
        assert held == sum(client.bytes_outstanding_by_partition().values())
    assert client.bytes_outstanding_by_partition() == {"p": 4 + 8 + 16 + 32}
    client.clear_samples([key, "b", "c", "f"], "p")
    assert_true_to(store, client)


def test_event_is_reported_outside_the_lock() -> None:
    """A callback that waits for another thread's call must not wait for ever."""
    store = Store()
    client: MetricsDataPlaneClient

    def ask_in_another_thread(_: DataPlaneEvent) -> None:
        in_threads(client.snapshot, client.bytes_outstanding_by_partition)

    client = MetricsDataPlaneClient(store, ask_in_another_thread)
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    assert client.snapshot()["callback_errors"] == 0


def test_at_rest_all_sums_are_the_truth_of_the_store() -> None:
    """Every thread has keys of its own, so that the store is the truth, in partitions that all share."""
    store = Store()
    client = MetricsDataPlaneClient(store)

    def work(thread: int) -> None:
        chance = Random(thread)
        for _ in range(100):
            ids = [f"{thread}-{index}" for index in chance.sample(range(5), 3)]
            shared, own = f"shared{chance.randrange(2)}", f"own{thread}"
            row = {name: chance.randrange(9) for name in chance.choice(["x", "y", "xy"])}
            client.put_samples(ids, shared, fields=SizedRows(*[row] * len(ids)))
            client.clear_samples(ids[: chance.randrange(4)], shared)
            client.put_samples(ids, own, fields=SizedRows(*[row] * len(ids)))
            assert own in client.bytes_outstanding_by_partition()
            client.clear_samples(None, own)
            assert own not in client.bytes_outstanding_by_partition()
            snapshot = client.snapshot()
            assert 0 <= snapshot["bytes_outstanding"] <= snapshot["peak_bytes_outstanding"]

    plans: list[list[Callable[[], object]]] = [
        [partial(work, thread) for thread in range(THREADS)],
        [partial(client.clear_samples, None, "shared0")] * THREADS,
        [partial(client.register_partition, "shared1", [], 0, [])] * THREADS,
    ]
    for plan in plans:
        in_threads(*plan)
        assert_true_to(store, client)
    totals = client.snapshot()
    for total, of_each in (("total_ops", "ops"), ("total_keys", "keys"), ("total_bytes", "bytes")):
        assert totals[total] == sum(row[of_each] for row in totals["by_op"].values())
    assert totals["total_ops"] == len(store.calls)
