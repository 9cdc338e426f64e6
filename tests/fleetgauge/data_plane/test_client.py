"""The data-plane wrapper: what it passes on, what it reports, and that it never gets in the way."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from fleetgauge.data_plane import DataPlaneEvent, MetricsDataPlaneClient, log_event
from support.data_plane_fakes import (
    CALLS,
    Jagged,
    LazyStack,
    Meta,
    Store,
    Tensor,
    held,
)

N_KEYS = {"register": 4, "get_data": 2, "put": 2, "get": 3, "clear": 1}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def events() -> list[DataPlaneEvent]:
    return []


@pytest.fixture
def client(store: Store, events: list[DataPlaneEvent]) -> MetricsDataPlaneClient:
    return MetricsDataPlaneClient(store, on_event=events.append)


# What is passed on


META, FIELDS, TAGS = Meta("p", ["a"]), {"x": Tensor(1)}, [{"std": 0.5}]
CLAIM = {"partition_id": "p", "task_name": "t", "required_fields": ["x"], "batch_size": 8}
IDS = {"sample_ids": ["a"], "partition_id": "p"}


@pytest.mark.parametrize(
    ("method", "arguments", "passed"),
    [
        (
            "register_partition",
            {"partition_id": "p", "fields": ["x"], "num_samples": 4, "consumer_tasks": ["t"]}
            | {"grpo_group_size": 2, "enums": {"e": ["u"]}},
            ("register", "p", ["x"], 4, ["t"], {"grpo_group_size": 2, "enums": {"e": ["u"]}}),
        ),
        (
            "claim_meta",
            CLAIM | {"dp_rank": 3, "blocking": False, "timeout_s": 1.5},
            ("claim", "p", "t", ["x"], 8, {"dp_rank": 3, "blocking": False, "timeout_s": 1.5}),
        ),
        (
            "claim_meta",
            CLAIM,
            ("claim", "p", "t", ["x"], 8, {"dp_rank": None, "blocking": True, "timeout_s": 60.0}),
        ),
        ("get_data", {"meta": META, "select_fields": ["x"]}, ("get_data", META, ["x"])),
        ("check_consumption_status", {"partition_id": "p", "task_names": ["t"]}, ("check", "p", ["t"])),
        ("put_samples", IDS | {"fields": FIELDS, "tags": TAGS}, ("put", ["a"], "p", FIELDS, TAGS)),
        ("get_samples", IDS | {"select_fields": ["x"]}, ("get", ["a"], "p", ["x"])),
        ("clear_samples", IDS, ("clear", ["a"], "p")),
        ("clear_samples", {"sample_ids": None, "partition_id": "p"}, ("clear", None, "p")),
        ("close", {}, ("close",)),
    ],
)
def test_argument_is_passed_on_by_its_name_or_in_its_place(
    store: Store, method: str, arguments: dict[str, Any], passed: tuple[object, ...]
) -> None:
    call = getattr(MetricsDataPlaneClient(store), method)
    call(**arguments)
    call(*arguments.values())
    assert store.calls == [passed, passed]


def ids() -> Iterator[str]:
    yield from ("a", "b")


@pytest.mark.parametrize("given", [("a", "b"), ids])
def test_ids_that_can_be_read_once_only_are_passed_on_as_a_list(
    client: MetricsDataPlaneClient, store: Store, events: list[DataPlaneEvent], given: Any
) -> None:
    calls: list[Callable[[Any], object]] = [
        lambda ids: client.put_samples(ids, "p", fields={"x": Tensor(2, 1)}),
        lambda ids: client.get_samples(ids, "p", ["x"]),
        lambda ids: client.clear_samples(ids, "p"),
    ]
    for call in calls:
        call(given() if callable(given) else given)
        passed = store.calls[-1][1]
        assert passed == ["a", "b"] if callable(given) else passed is given
    assert [event["n_keys"] for event in events] == [2, 2, 2]
    assert held(client) == 0


def test_generator_that_fails_is_reported_as_an_error(
    client: MetricsDataPlaneClient, store: Store, events: list[DataPlaneEvent]
) -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise LookupError("no more ids")

    with pytest.raises(LookupError, match="no more ids"):
        client.put_samples(failing(), "p")
    assert (events[-1]["status"], events[-1]["n_keys"], store.calls) == ("error", 0, [])


def test_other_attributes_are_those_of_the_inner_client(client: MetricsDataPlaneClient, store: Store) -> None:
    store.result = "other"
    assert client.result == "other"
    with pytest.raises(AttributeError, match="'Store' object has no attribute 'no_such_thing'"):
        _ = client.no_such_thing
    blank = MetricsDataPlaneClient.__new__(MetricsDataPlaneClient)
    with pytest.raises(AttributeError, match="'MetricsDataPlaneClient' object has no attribute 'anything'"):
        _ = blank.anything
    store.__deepcopy__ = lambda _: "a copy of the inner client"  # type: ignore[attr-defined]
    assert not hasattr(client, "__deepcopy__")


# Events


@pytest.mark.parametrize("op", CALLS)
def test_call_is_reported_once_after_it_and_its_result_returned(op: str, store: Store) -> None:
    told: list[tuple[DataPlaneEvent, int]] = []
    client = MetricsDataPlaneClient(store, lambda event: told.append((event, len(store.calls))))
    store.result = Meta("p", ["x", "y", "z", "z"]) if op == "claim_meta" else object()
    assert CALLS[op](client) is store.result
    ((event, n_calls),) = told
    assert (event["op"], event["status"], n_calls) == (op, "ok", 1)
    assert event["partition_id"] == ("" if op == "close" else "p")
    assert event["n_keys"] == {**N_KEYS, "claim_meta": 3}.get(op, 0)
    assert list(event) == ["op", "partition_id", "n_keys", "n_bytes", "wall_ms", "status"]
    assert [type(value) for value in event.values()] == [str, str, int, int, float, str]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("down"), "error"),
        (TimeoutError("late"), "timeout"),
        (type("StoreTimeout", (TimeoutError,), {})("later"), "timeout"),
        (KeyboardInterrupt(), "error"),
        (asyncio.CancelledError(), "error"),
        (StopIteration("end"), "error"),
        (GeneratorExit(), "error"),
    ],
    ids=repr,
)
def test_whatever_is_raised_is_reported_and_raised_again(
    error: BaseException,
    status: str,
    client: MetricsDataPlaneClient,
    store: Store,
    events: list[DataPlaneEvent],
) -> None:
    store.error = error
    for op, call in CALLS.items():
        events.clear()
        with pytest.raises(type(error)) as raised:
            call(client)
        assert raised.value is error
        assert [event["status"] for event in events] == [status]
        assert events[-1]["n_keys"] == N_KEYS.get(op, 0)
        assert events[-1]["n_bytes"] == (24 if op == "put" else 0)
    assert held(client) == 0


def test_wall_ms_is_the_time_of_the_inner_call_alone(store: Store, events: list[DataPlaneEvent]) -> None:
    ticks = count(7)
    client = MetricsDataPlaneClient(store, events.append, clock=lambda: next(ticks) * 0.5)
    store.before_return = lambda: (next(ticks), None)[1]
    CALLS["put"](client)
    assert events[-1]["wall_ms"] == 1000.0


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


# What is counted


def test_callback_sees_its_operation_counted_and_snapshots_do_not_change(store: Store) -> None:
    seen: list[int] = []
    watched = MetricsDataPlaneClient(store, lambda _: seen.append(held(watched)))
    before, by_partition = watched.snapshot(), watched.bytes_outstanding_by_partition()
    CALLS["put"](watched)
    CALLS["clear"](watched)
    assert seen == [24, 12]
    assert (before["by_op"]["put"]["ops"], before["total_ops"], by_partition) == (0, 0, {})


def test_overflow_of_the_table_is_warned_of_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    client = MetricsDataPlaneClient(store, max_keys=3)
    for key in "abcdefgh":
        client.put_samples([key], "p", fields={"x": Tensor(1)})
    [record] = caplog.records
    assert "too many keys are outstanding" in record.getMessage()
    assert "max_keys is: 3" in record.getMessage()


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
def test_what_cannot_be_measured_costs_only_itself(
    fields: object, client: MetricsDataPlaneClient, store: Store, events: list[DataPlaneEvent]
) -> None:
    client.put_samples(["a", "b"], "p", fields=fields)
    expected = 0 if isinstance(fields, Unreadable) else 8
    assert (events[-1]["status"], events[-1]["n_keys"], events[-1]["n_bytes"]) == ("ok", 2, expected)
    assert held(client) == expected
    store.result = fields
    assert client.get_samples(["a"], "p", []) is fields
    assert client.get_data(Meta("p", ["a"])) is fields
    assert (events[-1]["status"], events[-1]["n_bytes"]) == ("ok", expected)
    assert client.snapshot()["measure_errors"] == 3


def test_arguments_that_cannot_be_counted_are_passed_on(
    client: MetricsDataPlaneClient, store: Store, events: list[DataPlaneEvent]
) -> None:
    endless: dict[str, object] = {"x": Tensor(1)}
    endless["self"] = endless
    client.put_samples(["a"], "q", fields=endless)
    assert client.snapshot()["measure_errors"] == 1
    client.clear_samples(None, "q")
    unhashable: Any = [["a"], ["b"]]
    not_ids: Any = 5
    nothing: Any = None
    client.put_samples(unhashable, "p", fields={"x": Tensor(2)})
    assert (events[-1]["n_keys"], events[-1]["n_bytes"]) == (0, 8)
    client.get_samples(unhashable, "p", [])
    client.clear_samples(unhashable, "p")
    client.put_samples(not_ids, "p", fields={"x": Tensor(2)})
    client.register_partition("p", [], nothing, [])
    client.claim_meta("p", "t", [], 1)
    unreadable: Any = Unreadable()
    client.get_data(unreadable)
    assert (events[-1]["partition_id"], events[-1]["n_keys"]) == ("", 0)
    assert len(store.calls) == 9
    assert {event["status"] for event in events} == {"ok"}
    assert (held(client), client.snapshot()["measure_errors"]) == (0, 1 + 7)


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
def test_interrupt_in_the_midst_of_counting_leaves_the_sums_true(op: str, after: int) -> None:
    client = MetricsDataPlaneClient(Store())
    key = Interrupted()
    keys: Any = ["a", key, "b"]
    client.put_samples(keys, "p", fields={"x": Jagged([1, 10, 100])})
    client.put_samples(["z"], "q", fields={"x": Tensor(1)})
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
    assert held(client) >= 4
    client.put_samples(keys, "p", fields={"x": Jagged([1, 10, 100]), "y": Tensor(3)})
    client.clear_samples(["c"], "p")
    assert client.bytes_outstanding_by_partition() == {"q": 4, "p": 444 + 12}
    assert client.snapshot()["n_keys_outstanding"] == 4
    client.clear_samples(keys, "p")
    assert (held(client), client.snapshot()["n_keys_outstanding"]) == (4, 1)


# What it is


class DataPlaneClient(ABC):
    """The class of NeMo-RL."""

    @abstractmethod
    def put_samples(self) -> None: ...


def test_client_is_an_instance_of_nemo_rls_once_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Subclass(MetricsDataPlaneClient):
        pass

    module = "nemo_rl.data_plane.interfaces"
    monkeypatch.delitem(sys.modules, module, raising=False)
    client, own = MetricsDataPlaneClient(Store()), type("DataPlaneClient", (DataPlaneClient,), {})
    assert isinstance(client, MetricsDataPlaneClient)
    assert not isinstance(client, own)
    for useless in (SimpleNamespace(), SimpleNamespace(DataPlaneClient=int)):
        monkeypatch.setitem(sys.modules, module, useless)
        assert isinstance(client, MetricsDataPlaneClient)
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(DataPlaneClient=own))
    copied = pickle.loads(pickle.dumps(client))  # noqa: S301  # our own bytes
    assert [isinstance(each, own) for each in (client, copied, Subclass(None), object())] == [True] * 3 + [
        False
    ]
    assert not isinstance(client, int)
    assert (type(client), Subclass(None).__class__) == (client.__class__, Subclass)
