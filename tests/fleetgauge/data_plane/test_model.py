"""The wrapper against a shadow model: whatever is called in whatever order, the sums are the truth."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fleetgauge.data_plane import DataPlaneEvent, MetricsDataPlaneClient
from support.data_plane_fakes import Jagged, Store, Tensor

partitions = st.sampled_from(["p", "q", "r"])
keys = st.lists(st.sampled_from("abcdefgh"), max_size=6)
sizes = st.lists(st.integers(0, 9), min_size=6, max_size=6)
fields = st.dictionaries(st.sampled_from(["x", "y", "z"]), sizes, max_size=3)
failures = st.sampled_from([None, None, None, RuntimeError, TimeoutError, KeyboardInterrupt])


class Inner(Store):
    """Keeps no calls, and empties every list that it is given."""

    def itself(self) -> Inner:
        return self

    def _called(self, *call: object) -> Any:
        self.calls.clear()
        for argument in call:
            if isinstance(argument, list):
                argument.clear()
        return super()._called(*call)


class Failing:
    """Keeps what it is told, and fails."""

    def __init__(self) -> None:
        self.told: list[DataPlaneEvent] = []

    def __call__(self, event: DataPlaneEvent) -> None:
        self.told.append(event)
        raise ValueError("a callback that always fails")


class Model(RuleBasedStateMachine):
    """`held` is {partition: {key: {field: bytes}}}."""

    @initialize(max_keys=st.sampled_from([1, 4, 1000]))
    def build(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.begin(MetricsDataPlaneClient(Inner(), Failing(), max_keys=max_keys))

    def begin(self, client: MetricsDataPlaneClient) -> None:
        self.client, self.store = client, client.itself()
        assert isinstance(client.on_event, Failing)
        self.events = client.on_event
        self.foreign = 0
        self.held: dict[str, dict[str, dict[str, int]]] = {}
        self.peak = self.overflowed_keys = self.overflowed_bytes = self.calls = 0
        self.last_put = self.largest = 0
        self.by_op: dict[str, list[int]] = {}

    def call(
        self,
        failure: type[BaseException] | None,
        call: Callable[[], object],
        op: str,
        partition: str = "",
        n_keys: int = 0,
        n_bytes: int = 0,
    ) -> bool:
        """Make a call, which has one event whatever becomes of it. Return whether it succeeded."""
        self.calls += 1
        self.store.error = None if failure is None else failure()
        if failure is None:
            call()
            totals = self.by_op.setdefault(op, [0, 0, 0])
            for index, value in enumerate((1, n_keys, n_bytes)):
                totals[index] += value
        else:
            with pytest.raises(failure):
                call()
        [event] = self.events.told
        self.events.told.clear()
        status = "ok" if failure is None else "timeout" if failure is TimeoutError else "error"
        assert (event["op"], event["partition_id"], event["status"]) == (op, partition, status)
        assert (event["n_keys"], event["n_bytes"]) == (n_keys, n_bytes)
        return failure is None

    @rule(partition=partitions, ids=keys, rows=fields, failure=failures, jagged=st.booleans())
    def put(
        self,
        partition: str,
        ids: list[str],
        rows: dict[str, list[int]],
        failure: type[BaseException] | None,
        jagged: bool,
    ) -> None:
        if jagged:
            rows = {name: row[: len(ids)] for name, row in rows.items()}
            batch: dict[str, object] = {name: Jagged(row, element_size=1) for name, row in rows.items()}
        else:
            rows = {name: row[:1] * len(ids) for name, row in rows.items()}
            batch = {name: Tensor(sum(row), element_size=1) for name, row in rows.items()}
        n_keys, n_bytes = len(set(ids)), sum(map(sum, rows.values()))
        given = list(ids)
        put = partial(self.client.put_samples, given, partition, fields=batch)
        if not self.call(failure, put, "put", partition, n_keys, n_bytes):
            return
        if ids:
            self.last_put = n_bytes // n_keys
            self.largest = max(self.largest, *map(sum, zip(*rows.values(), strict=True)), 0)
            held = self.held.setdefault(partition, {})
            for index, key in enumerate(ids):
                held.setdefault(key, {}).update({name: row[index] for name, row in rows.items()})
            self.overflow()
        self.peak = max(self.peak, self.bytes())

    def overflow(self) -> None:
        """Give up the oldest keys of the oldest partitions."""
        everything = [(name, key) for name, rows in self.held.items() for key in rows]
        for name, key in everything[: max(0, len(everything) - self.max_keys)]:
            self.overflowed_keys += 1
            self.overflowed_bytes += sum(self.held[name].pop(key).values())
            self.forget_if_empty(name)

    @rule(partition=partitions, ids=keys, failure=failures)
    def clear(self, partition: str, ids: list[str], failure: type[BaseException] | None) -> None:
        clear = partial(self.client.clear_samples, iter(ids), partition)
        if self.call(failure, clear, "clear", partition, len(set(ids))):
            self.foreign += len(set(ids) - self.held.get(partition, {}).keys())
            for key in ids:
                self.held.get(partition, {}).pop(key, None)
            self.forget_if_empty(partition)

    @rule(partition=partitions, failure=failures)
    def clear_partition(self, partition: str, failure: type[BaseException] | None) -> None:
        clear = partial(self.client.clear_samples, None, partition)
        if self.call(failure, clear, "clear", partition, len(self.held.get(partition, {}))):
            self.held.pop(partition, None)

    @rule(partition=partitions, failure=failures)
    def register(self, partition: str, failure: type[BaseException] | None) -> None:
        register = partial(self.client.register_partition, partition, [], 5, [])
        if self.call(failure, register, "register", partition, 5):
            self.held.pop(partition, None)

    @rule(failure=failures)
    def close(self, failure: type[BaseException] | None) -> None:
        if self.call(failure, self.client.close, "close"):
            self.held.clear()

    @rule()
    def send_to_another_process(self) -> None:
        self.begin(pickle.loads(pickle.dumps(self.client)))  # noqa: S301  # our own bytes

    def forget_if_empty(self, partition: str) -> None:
        if not self.held.get(partition, True):
            del self.held[partition]

    def n_keys(self) -> int:
        return sum(map(len, self.held.values()))

    def bytes(self) -> int:
        return sum(sum(row.values()) for rows in self.held.values() for row in rows.values())

    @invariant()
    def is_the_truth(self) -> None:
        snapshot = self.client.snapshot()
        assert snapshot["bytes_outstanding"] == self.bytes()
        assert self.client.bytes_outstanding_by_partition() == {
            partition: sum(sum(row.values()) for row in rows.values())
            for partition, rows in self.held.items()
        }
        assert snapshot["n_keys_outstanding"] == self.n_keys() <= self.max_keys
        assert snapshot["peak_bytes_outstanding"] == self.peak
        assert snapshot["keys_overflowed"] == self.overflowed_keys
        assert snapshot["bytes_overflowed"] == self.overflowed_bytes
        assert snapshot["foreign_clears"] == self.foreign
        assert snapshot["last_put_bytes_per_key"] == self.last_put
        assert snapshot["max_bytes_per_key_seen"] == self.largest
        assert (snapshot["callback_errors"], snapshot["measure_errors"]) == (self.calls, 0)

    @invariant()
    def totals_are_the_sum_of_the_operations(self) -> None:
        snapshot = self.client.snapshot()
        by_op = {op: [row["ops"], row["keys"], row["bytes"]] for op, row in snapshot["by_op"].items()}
        assert {op: totals for op, totals in by_op.items() if totals[0]} == self.by_op
        assert [snapshot["total_ops"], snapshot["total_keys"], snapshot["total_bytes"]] == [
            sum(totals[index] for totals in self.by_op.values()) for index in range(3)
        ]
        failed = sum(row["errors"] + row["timeouts"] for row in snapshot["by_op"].values())
        assert failed + snapshot["total_ops"] == self.calls


TestModel = Model.TestCase
TestModel.settings = settings(deadline=None, max_examples=250, stateful_step_count=20)
