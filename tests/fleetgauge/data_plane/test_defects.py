"""The twelve defects of the wrapper that this one replaces: what is right instead, by number.

The races, defect 4, are in test_data_plane_threads.py.
"""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from typing import Any

import pytest

from fleetgauge.data_plane import DataPlaneEvent, MetricsDataPlaneClient
from support.data_plane_fakes import (
    CALLS,
    Events,
    Jagged,
    LazyStack,
    Meta,
    PicklableStore,
    Store,
    Tensor,
    held,
)


def repickled(client: MetricsDataPlaneClient) -> MetricsDataPlaneClient:
    twin = pickle.loads(pickle.dumps(client))  # noqa: S301  # our own bytes
    assert isinstance(twin, MetricsDataPlaneClient)
    return twin


def test_1_writing_a_field_again_replaces_its_bytes(client: MetricsDataPlaneClient) -> None:
    client.put_samples(["a", "b"], "p", fields={"x": Tensor(2, 5), "y": Tensor(2, 4)})
    assert held(client) == 72
    client.put_samples(["a", "b"], "p", fields={"x": Tensor(2, 5)})
    assert held(client) == 72
    client.put_samples(["a"], "p", fields={"x": Tensor(1, 1), "z": Tensor(1)})
    assert held(client) == 72 - 16 + 4
    client.clear_samples(["a"], "p")
    assert held(client) == 36


def test_1_a_nested_field_is_replaced_as_a_whole(client: MetricsDataPlaneClient) -> None:
    client.put_samples(["a"], "p", fields={"log": {"ids": Tensor(1, 8), "mask": Tensor(1, 8)}})
    client.put_samples(["a"], "p", fields={"log": {"ids": Tensor(1, 2)}})
    assert held(client) == 8


def test_2_each_row_is_cleared_with_its_own_bytes(client: MetricsDataPlaneClient) -> None:
    client.put_samples(["long", "short"], "p", fields={"x": Jagged([50, 1])})
    assert held(client) == 204
    client.clear_samples(["long"], "p")
    assert held(client) == 4


@pytest.mark.parametrize("op", CALLS)
def test_3_a_raising_callback_neither_breaks_nor_masks_anything(op: str, store: Store) -> None:
    def raising(_: DataPlaneEvent) -> None:
        raise ValueError("sink is full")

    client = MetricsDataPlaneClient(store, raising)
    store.result = "the result"
    assert CALLS[op](client) == "the result"
    store.error = RuntimeError("the original")
    with pytest.raises(RuntimeError, match="the original"):
        CALLS[op](client)
    snapshot = client.snapshot()
    assert (snapshot["callback_errors"], snapshot["total_ops"]) == (2, 1)


def test_3_what_a_callback_lost_is_said_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def raising(_: DataPlaneEvent) -> None:
        raise ValueError("sink is full")

    client = MetricsDataPlaneClient(store, raising)
    for _ in range(3):
        client.close()
    assert [record.getMessage() for record in caplog.records] == [
        "data plane: on_event raised: ValueError('sink is full'); further losses are only counted"
    ]


def test_3_an_interrupt_inside_a_callback_is_not_swallowed(store: Store) -> None:
    def interrupted(_: DataPlaneEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MetricsDataPlaneClient(store, interrupted).close()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_5_an_interrupted_put_is_told_and_counts_for_nothing(
    error: BaseException, client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    store.error = error
    with pytest.raises(type(error)):
        CALLS["put"](client)
    assert (events.last["op"], events.last["status"]) == ("put", "error")
    assert held(client) == 0
    assert client.snapshot()["by_op"]["put"]["errors"] == 1


def test_6_duplicate_ids_count_once(client: MetricsDataPlaneClient, store: Store, events: Events) -> None:
    client.put_samples(["a", "b", "a"], "p", fields={"x": Jagged([1, 10, 100])})
    assert (events.last["n_keys"], events.last["n_bytes"]) == (2, 444)
    assert (held(client), client.snapshot()["n_keys_outstanding"]) == (440, 2)
    client.put_samples(["b", "b", "c"], "p", fields={"x": Jagged([5, 6, 7])})
    assert held(client) == 4 * (100 + 6 + 7)
    client.get_samples(["a", "a"], "p", ["x"])
    assert events.last["n_keys"] == 1
    client.get_data(Meta("p", ["a", "a", "b"]))
    assert events.last["n_keys"] == 2
    store.result = Meta("p", ["a", "a", "b"])
    CALLS["claim_meta"](client)
    assert events.last["n_keys"] == 2
    client.clear_samples(["a", "a"], "p")
    assert (events.last["n_keys"], held(client)) == (1, 4 * 13)


def test_7_close_leaves_nothing_outstanding(client: MetricsDataPlaneClient) -> None:
    CALLS["put"](client)
    client.put_samples(["a"], "q", fields={"x": Tensor(1)})
    client.close()
    assert (held(client), client.bytes_outstanding_by_partition()) == (0, {})
    snapshot = client.snapshot()
    assert (snapshot["n_keys_outstanding"], snapshot["peak_bytes_outstanding"]) == (0, 28)
    CALLS["put"](client)
    client.close()
    assert held(client) == 0


def test_8_clearing_a_partition_tells_how_many_keys_it_held(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    client.put_samples(["a", "b", "c"], "p", fields={"x": Tensor(3)})
    client.put_samples(["z"], "q", fields={"x": Tensor(1)})
    store.error = RuntimeError()
    with pytest.raises(RuntimeError):
        client.clear_samples(None, "p")
    assert events.last["n_keys"] == 3
    with pytest.raises(RuntimeError):
        client.clear_samples(None, "where nothing was put")
    assert events.last["n_keys"] == 0
    store.error = None
    client.clear_samples(None, "p")
    assert (events.last["n_keys"], client.bytes_outstanding_by_partition()) == (3, {"q": 4})
    client.clear_samples(None, "p")
    assert events.last["n_keys"] == 0


class Unreadable:
    """Raises at whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"cannot read {name}")


UNMEASURABLE: dict[str, object] = {
    "unreadable batch": Unreadable(),
    "unreadable leaf": {"x": Tensor(2), "bad": Unreadable()},
    "leaf in a nested batch": {"x": Tensor(2), "deep": {"deeper": {"bad": Unreadable()}}},
    "row of a lazy stack": LazyStack({"x": Tensor()}, {"x": Tensor(), "bad": Unreadable()}),
    "jagged without lengths": {
        "x": Tensor(2),
        "bad": type("J", (), {"is_nested": True, "offsets": lambda _: 0})(),
    },
}


@pytest.mark.parametrize("fields", UNMEASURABLE.values(), ids=UNMEASURABLE)
def test_9_what_cannot_be_measured_costs_only_itself(
    fields: object, client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    client.put_samples(["a", "b"], "p", fields=fields)
    expected = 0 if isinstance(fields, Unreadable) else 8
    assert (events.last["status"], events.last["n_keys"], events.last["n_bytes"]) == ("ok", 2, expected)
    assert held(client) == expected
    store.result = fields
    assert client.get_samples(["a"], "p", []) is fields
    assert client.get_data(Meta("p", ["a"])) is fields
    assert (events.last["status"], events.last["n_bytes"]) == ("ok", expected)
    assert client.snapshot()["measure_errors"] == 3


def test_9_a_batch_that_contains_itself_is_no_harm(client: MetricsDataPlaneClient) -> None:
    endless: dict[str, object] = {"x": Tensor(1)}
    endless["self"] = endless
    client.put_samples(["a"], "p", fields=endless)
    assert client.snapshot()["measure_errors"] >= 1


def test_9_ids_that_cannot_be_counted_are_still_put_got_and_cleared(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    unhashable: Any = [["a"], ["b"]]
    client.put_samples(unhashable, "p", fields={"x": Tensor(2)})
    assert (events.last["n_keys"], events.last["n_bytes"]) == (0, 8)
    client.get_samples(unhashable, "p", [])
    client.clear_samples(unhashable, "p")
    not_ids: Any = 5
    client.put_samples(not_ids, "p", fields={"x": Tensor(2)})
    client.register_partition("p", [], not_ids, [])
    no_number: Any = None
    client.register_partition("p", [], no_number, [])
    client.claim_meta("p", "t", [], 1)
    client.get_data(not_ids)
    assert len(store.calls) == 8
    assert {event["status"] for event in events.told} == {"ok"}
    assert (held(client), client.snapshot()["measure_errors"]) == (0, 6)


def test_9_a_meta_that_cannot_be_read_is_passed_on(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    meta: Any = Unreadable()
    client.get_data(meta)
    assert store.calls == [("get_data", meta, None)]
    assert (events.last["partition_id"], events.last["n_keys"]) == ("", 0)


class Interrupted:
    """A key at whose hashing, once armed, somebody presses Ctrl-C."""

    after: int | None = None

    def __hash__(self) -> int:
        if self.after is not None:
            self.after -= 1
            if self.after < 0:
                self.after = None
                raise KeyboardInterrupt
        return 1


@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("op", ["put", "clear", "snapshot"])
def test_5_an_interrupt_in_the_midst_of_counting_leaves_the_sums_true(op: str, after: int) -> None:
    client = MetricsDataPlaneClient(Store())
    key = Interrupted()
    keys: Any = ["a", key, "b"]
    client.put_samples(keys, "p", fields={"x": Jagged([1, 10, 100])})
    client.put_samples(["z"], "q", fields={"x": Tensor(1)})
    assert held(client) == 448
    key.after = after
    with suppress(KeyboardInterrupt):
        if op == "put":
            client.put_samples(keys, "p", fields={"x": Jagged([2, 20, 200]), "y": Tensor(3)})
        elif op == "clear":
            client.clear_samples(keys, "p")
        else:
            client.put_samples(["c", *keys], "p", fields={"x": Tensor(4)})
            client.snapshot()
    key.after = None
    snapshot = client.snapshot()
    assert snapshot["bytes_outstanding"] == sum(client.bytes_outstanding_by_partition().values())
    client.put_samples(keys, "p", fields={"x": Jagged([1, 10, 100]), "y": Tensor(3)})
    client.clear_samples(["c"], "p")
    assert client.bytes_outstanding_by_partition() == {"q": 4, "p": 444 + 12}
    assert client.snapshot()["n_keys_outstanding"] == 4
    client.clear_samples(keys, "p")
    assert (held(client), client.snapshot()["n_keys_outstanding"]) == (4, 1)


def test_11_the_table_is_bounded_and_says_once_that_it_overflowed(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    client = MetricsDataPlaneClient(store, max_keys=3)
    for key in "abcdefgh":
        client.put_samples([key], "p", fields={"x": Tensor(1)})
    snapshot = client.snapshot()
    assert (snapshot["n_keys_outstanding"], snapshot["bytes_outstanding"]) == (3, 12)
    assert (snapshot["keys_overflowed"], snapshot["bytes_overflowed"]) == (5, 20)
    assert (snapshot["peak_bytes_outstanding"], snapshot["total_bytes"]) == (12, 32)
    client.clear_samples(["a", "h"], "p")
    assert held(client) == 8
    (record,) = caplog.records
    assert record.getMessage() == (
        "data plane: too many keys are outstanding and the oldest no longer counted, max_keys is: 3; "
        "further losses are only counted"
    )


def test_11_oldest_keys_of_the_oldest_partition_are_given_up(store: Store) -> None:
    client = MetricsDataPlaneClient(store, max_keys=4)
    client.put_samples(["a", "b"], "old", fields={"x": Jagged([1, 2])})
    client.put_samples(["c", "d"], "new", fields={"x": Jagged([4, 8])})
    client.put_samples(["a"], "old", fields={"x": Jagged([16])})
    client.put_samples(["e"], "new", fields={"x": Jagged([32])})
    assert client.bytes_outstanding_by_partition() == {"old": 4 * 2, "new": 4 * (4 + 8 + 32)}
    client.put_samples(["f", "g"], "new", fields={"x": Jagged([64, 128])})
    assert client.bytes_outstanding_by_partition() == {"new": 4 * (8 + 32 + 64 + 128)}
    assert client.snapshot()["bytes_overflowed"] == 4 * (16 + 2 + 4)


def test_12_pickled_wrapper_counts_from_zero() -> None:
    client = MetricsDataPlaneClient(PicklableStore(), max_keys=3)
    client.put_samples(["a", "b"], "p", fields={"x": Jagged([50, 1])})
    twin = repickled(client)
    assert (held(twin), twin.snapshot()["total_ops"], held(client)) == (0, 0, 204)
    twin.put_samples(["c", "d", "e", "f"], "p", fields={"x": Tensor(4)})
    assert twin.snapshot()["keys_overflowed"] == 1
    assert twin.adapter_setting == "tq"


def test_12_a_put_under_way_is_not_in_a_pickle_made_meanwhile() -> None:
    store = PicklableStore()
    client = MetricsDataPlaneClient(store)
    twins: list[MetricsDataPlaneClient] = []
    store.before_return = lambda: twins.append(repickled(client))
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    assert (held(client), held(twins[0])) == (4, 0)
    twins[0].clear_samples(["a"], "p")
    assert held(client) == 4


def test_12_other_attributes_of_the_inner_client_are_reachable(
    client: MetricsDataPlaneClient, store: Store
) -> None:
    assert client.adapter_setting == "tq"
    store.adapter_setting = "other"
    assert client.adapter_setting == "other"
    assert client.bytes_by_partition.__self__ is store


def test_12_an_attribute_that_nobody_has_is_an_attribute_error(client: MetricsDataPlaneClient) -> None:
    assert not hasattr(client, "no_such_thing")
    with pytest.raises(AttributeError, match="'Store' object has no attribute 'no_such_thing'"):
        _ = client.no_such_thing
    blank = MetricsDataPlaneClient.__new__(MetricsDataPlaneClient)
    with pytest.raises(AttributeError, match="'MetricsDataPlaneClient' object has no attribute 'anything'"):
        _ = blank.anything


def test_12_special_methods_of_the_inner_client_are_not_taken_for_ours() -> None:
    class Odd(Store):
        def __deepcopy__(self, memo: object) -> str:
            return "a copy of the inner client"

    assert not hasattr(MetricsDataPlaneClient(Odd()), "__deepcopy__")
