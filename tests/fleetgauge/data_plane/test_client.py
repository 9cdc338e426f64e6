"""The data-plane wrapper: what it tells, what it counts, and that it never gets in the way."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import weakref
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from fleetgauge.data_plane import (
    DataPlaneEvent,
    MetricsDataPlaneClient,
    log_event,
)
from support.data_plane_fakes import CALLS, Events, Jagged, Meta, Store, Tensor, held

N_KEYS_UP_FRONT = {"register": 4, "get_data": 2, "put": 2, "get": 3, "clear": 1}


# What is passed on


def test_every_argument_reaches_the_inner_client_in_its_place(store: Store) -> None:
    client = MetricsDataPlaneClient(store)
    meta, fields, tags = Meta("p", ["a"]), {"x": Tensor(1)}, [{"std": 0.5}]
    client.register_partition("p", ["x"], 4, ["t"], grpo_group_size=2, enums={"e": ["u"]})
    client.claim_meta("p", "t", ["x"], 8, dp_rank=3, blocking=False, timeout_s=1.5)
    client.get_data(meta, select_fields=["x"])
    client.check_consumption_status("p", ["t"])
    client.put_samples(["a"], "p", fields=fields, tags=tags)
    client.get_samples(["a"], "p", ["x"])
    client.clear_samples(["a"], "p")
    client.clear_samples(None, "p")
    client.close()
    assert store.calls == [
        ("register", "p", ["x"], 4, ["t"], {"grpo_group_size": 2, "enums": {"e": ["u"]}}),
        ("claim", "p", "t", ["x"], 8, {"dp_rank": 3, "blocking": False, "timeout_s": 1.5}),
        ("get_data", meta, ["x"]),
        ("check", "p", ["t"]),
        ("put", ["a"], "p", fields, tags),
        ("get", ["a"], "p", ["x"]),
        ("clear", ["a"], "p"),
        ("clear", None, "p"),
        ("close",),
    ]


@pytest.mark.parametrize(
    ("operation", "signature"),
    {
        "register_partition": (
            "(partition_id, fields, num_samples, consumer_tasks, grpo_group_size=None, enums=None)"
        ),
        "claim_meta": (
            "(partition_id, task_name, required_fields, batch_size, "
            "dp_rank=None, blocking=True, timeout_s=60.0)"
        ),
        "get_data": "(meta, select_fields=None)",
        "check_consumption_status": "(partition_id, task_names)",
        "put_samples": "(sample_ids, partition_id, fields=None, tags=None)",
        "get_samples": "(sample_ids, partition_id, select_fields)",
        "clear_samples": "(sample_ids, partition_id)",
        "close": "()",
        "snapshot": "()",
        "bytes_outstanding_by_partition": "()",
    }.items(),
)
def test_signatures_are_those_of_the_interface(
    operation: str, signature: str, client: MetricsDataPlaneClient
) -> None:
    of_ours = inspect.signature(getattr(client, operation))
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty) for parameter in of_ours.parameters.values()
    ]
    assert str(inspect.Signature(bare)) == signature


@pytest.mark.parametrize("op", CALLS)
def test_what_the_inner_client_returns_is_returned(
    op: str, client: MetricsDataPlaneClient, store: Store
) -> None:
    store.result = object()
    assert CALLS[op](client) is store.result


def test_generators_of_ids_are_materialised_once(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    def ids() -> Iterator[str]:
        yield from ("a", "b")

    client.put_samples(ids(), "p", fields={"x": Tensor(2, 1)})
    client.get_samples(ids(), "p", ["x"])
    client.clear_samples(ids(), "p")
    assert [call[1] for call in store.calls] == [["a", "b"]] * 3
    assert [event["n_keys"] for event in events.told] == [2, 2, 2]
    assert held(client) == 0


def test_ids_that_can_be_read_again_are_passed_on_as_they_came(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    ids = ("a", "b")
    client.put_samples(ids, "p", fields={"x": Tensor(2, 1)})
    client.get_samples(ids, "p", ["x"])
    client.clear_samples(ids, "p")
    assert [call[1] is ids for call in store.calls] == [True] * 3
    assert [event["n_keys"] for event in events.told] == [2, 2, 2]


def test_a_generator_that_fails_is_told_as_an_error(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    def ids() -> Iterator[str]:
        yield "a"
        raise LookupError("no more ids")

    with pytest.raises(LookupError, match="no more ids"):
        client.put_samples(ids(), "p")
    assert (events.last["status"], events.last["n_keys"], store.calls) == ("error", 0, [])


def test_an_inner_client_that_changes_its_list_of_ids_changes_no_count(
    client: MetricsDataPlaneClient, store: Store
) -> None:
    ids = ["a", "b"]
    store.before_return = ids.clear
    client.put_samples(ids, "p", fields={"x": Tensor(2, 1)})
    assert held(client) == 8
    ids = ["a", "b"]
    store.before_return = ids.clear
    client.clear_samples(ids, "p")
    assert held(client) == 0


# Events


@pytest.mark.parametrize("op", CALLS)
def test_one_event_per_call_after_the_inner_call(op: str, store: Store) -> None:
    told: list[tuple[DataPlaneEvent, int]] = []
    client = MetricsDataPlaneClient(store, lambda event: told.append((event, len(store.calls))))
    CALLS[op](client)
    ((event, n_calls),) = told
    assert (event["op"], event["status"], n_calls) == (op, "ok", 1)
    assert event["partition_id"] == ("" if op == "close" else "p")
    assert list(event) == ["op", "partition_id", "n_keys", "n_bytes", "wall_ms", "status"]
    assert [type(value) for value in event.values()] == [str, str, int, int, float, str]


def test_wall_ms_is_the_time_of_the_inner_call_alone(store: Store, events: Events) -> None:
    ticks = count(7)
    client = MetricsDataPlaneClient(store, events, clock=lambda: next(ticks) * 0.5)
    store.before_return = lambda: (next(ticks), None)[1]
    CALLS["put"](client)
    assert events.last["wall_ms"] == 1000.0


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("down"), "error"),
        (TimeoutError("late"), "timeout"),
        (type("StoreTimeout", (TimeoutError,), {})("later"), "timeout"),
        (KeyboardInterrupt(), "error"),
        (asyncio.CancelledError(), "error"),
        (SystemExit(3), "error"),
        (StopIteration("end"), "error"),
        (GeneratorExit(), "error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
@pytest.mark.parametrize("op", CALLS)
def test_whatever_is_raised_has_its_event_and_is_raised_again(
    op: str,
    error: BaseException,
    status: str,
    client: MetricsDataPlaneClient,
    store: Store,
    events: Events,
) -> None:
    store.error = error
    with pytest.raises(type(error)) as raised:
        CALLS[op](client)
    assert raised.value is error
    assert [event["status"] for event in events.told] == [status]
    assert events.last["n_keys"] == N_KEYS_UP_FRONT.get(op, 0)
    assert events.last["n_bytes"] == (24 if op == "put" else 0)


@pytest.mark.parametrize("op", CALLS)
def test_n_keys_of_a_call_that_succeeded(
    op: str, client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    store.result = Meta("p", ["x", "y", "z"]) if op == "claim_meta" else None
    CALLS[op](client)
    assert events.last["n_keys"] == {**N_KEYS_UP_FRONT, "claim_meta": 3}.get(op, 0)


def test_bytes_are_those_of_fields_put_and_of_fields_returned(
    client: MetricsDataPlaneClient, store: Store, events: Events
) -> None:
    client.put_samples(["a", "b"], "p", fields={"x": Tensor(2, 3), "y": Tensor(2, element_size=2)})
    assert events.last["n_bytes"] == 28
    store.result = {"x": Tensor(2, 3)}
    client.get_samples(["a", "b"], "p", ["x"])
    assert events.last["n_bytes"] == 24
    client.get_data(Meta("p", ["a", "b"]))
    assert events.last["n_bytes"] == 24


@pytest.mark.parametrize("ids", [[], 5])
def test_a_put_of_no_keys_still_tells_its_bytes(
    ids: Any, client: MetricsDataPlaneClient, events: Events
) -> None:
    client.put_samples(ids, "p", fields={"x": Tensor(7)})
    assert (events.last["n_keys"], events.last["n_bytes"], held(client)) == (0, 28, 0)
    assert (client.snapshot()["measure_errors"], client.snapshot()["max_bytes_per_key_seen"]) == (0, 0)


@pytest.mark.parametrize(
    ("at_info", "heard"),
    [
        ((), []),
        (("nemo_rl",), ["nemo_rl.data_plane.observability"]),
        (("fleetgauge.data_plane", "nemo_rl"), ["fleetgauge.data_plane"]),
    ],
)
def test_log_event_uses_our_logger_or_else_that_of_nemo_rl(
    store: Store, caplog: pytest.LogCaptureFixture, at_info: tuple[str, ...], heard: list[str]
) -> None:
    for name in ("", "fleetgauge.data_plane", "nemo_rl"):
        caplog.set_level(logging.INFO if name in at_info else logging.WARNING, logger=name)
    caplog.handler.setLevel(logging.INFO)
    MetricsDataPlaneClient(store, log_event).check_consumption_status("p", [])
    assert [(record.name, record.levelno) for record in caplog.records] == [(name, 20) for name in heard]


def test_a_callback_already_sees_the_operation_counted(store: Store) -> None:
    seen: list[int] = []
    watched = MetricsDataPlaneClient(store, lambda _: seen.append(held(watched)))
    CALLS["put"](watched)
    CALLS["clear"](watched)
    assert seen == [24, 12]


def test_a_snapshot_does_not_change_afterwards(client: MetricsDataPlaneClient) -> None:
    before = client.snapshot()
    by_partition = client.bytes_outstanding_by_partition()
    CALLS["put"](client)
    assert before["by_op"]["put"]["ops"] == before["total_ops"] == 0
    assert by_partition == {}


def test_bytes_per_key_of_the_last_put_and_the_most_one_key_was_given(client: MetricsDataPlaneClient) -> None:
    client.put_samples(["a", "b"], "p", fields={"x": Jagged([50, 1]), "y": Jagged([1, 9]), "z": Tensor(2)})
    snapshot = client.snapshot()
    assert (snapshot["last_put_bytes_per_key"], snapshot["max_bytes_per_key_seen"]) == (126, 208)
    client.put_samples(["a", "b", "c"], "p", fields={"x": Tensor(7, element_size=1)})
    assert client.snapshot()["last_put_bytes_per_key"] == 2
    client.put_samples(["c"], "p", fields={"x": Tensor(1)})
    client.put_samples([], "p", fields={"x": Tensor(7)})
    snapshot = client.snapshot()
    assert (snapshot["last_put_bytes_per_key"], snapshot["max_bytes_per_key_seen"]) == (4, 208)
    client.put_samples(["d", "e"], "p", fields={"x": Jagged([51, 1]), "y": Jagged([0, 50])})
    assert client.snapshot()["max_bytes_per_key_seen"] == 208


# Building one


def test_a_callback_that_cannot_be_called_is_refused(store: Store) -> None:
    not_callable: Any = "print"
    with pytest.raises(TypeError, match="on_event is 'print': it must be callable, or None"):
        MetricsDataPlaneClient(store, not_callable)


def test_a_table_for_no_key_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="max_keys is 0: it must be at least 1"):
        MetricsDataPlaneClient(store, max_keys=0)
    MetricsDataPlaneClient(store, max_keys=1)


class Key(str):
    """A key that can be watched."""


@pytest.mark.parametrize("how", ["cleared", "written again"])
def test_keys_of_a_jagged_put_that_are_gone_are_not_stored(store: Store, how: str) -> None:
    client = MetricsDataPlaneClient(store)
    keys = [Key(number) for number in range(100)]
    watched = [weakref.ref(key) for key in keys]
    client.put_samples(keys, "p", fields={"x": Jagged(range(100))})
    if how == "written again":
        client.put_samples(keys[1:], "p", fields={"x": Tensor(99)})
    client.clear_samples(keys[1:], "p")
    assert client.snapshot()["n_keys_outstanding"] == 1
    store.calls.clear()
    del keys
    gc.collect()
    assert sum(key() is not None for key in watched) <= 2
