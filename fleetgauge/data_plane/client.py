"""A wrapper around NeMo-RL's data-plane client that tells of every call and of the bytes still held.

Knows the client's eight operations, when each succeeded, and what its rows weigh. Needs neither NeMo-RL nor
torch, and never changes what an operation returns or raises: whatever fails in here is counted, not raised.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, Protocol

from fleetgauge.data_plane.accounts import Accounts, Call
from fleetgauge.data_plane.events import EventSink, EventStatus, OnEvent, ignore_event

# What the inner client takes and gives passes through as it is: naming its types would import torch.
Anything = Any


class SampleMeta(Protocol):
    @property
    def partition_id(self) -> str: ...
    @property
    def sample_ids(self) -> Sequence[str]: ...


class MetricsDataPlaneClient:
    """Wraps a data-plane client; `on_event` is called once per operation, after it.

    Safe to share between threads. The inner client's other attributes are reachable through it. Its pickle
    carries the counts so far, if the inner client and the callback can be pickled. At most `max_keys` keys
    are followed from put to clear; past that the oldest are given up, and counted.
    """

    def __init__(
        self,
        inner: Anything,
        on_event: OnEvent | None = None,
        *,
        max_keys: int = 100_000,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event is {on_event!r}: it must be callable, or None")
        if max_keys < 1:
            raise ValueError(f"max_keys is {max_keys!r}: it must be at least 1")
        self._inner = inner
        self._on_event = ignore_event if on_event is None else on_event
        self._clock = clock
        self._accounts = Accounts(max_keys)
        self._attach()

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> Anything:
        with self._call("register", partition_id) as call:
            self._accounts.guarded(None, self._accounts.plan_register, call, num_samples)
            return self._timed(
                call,
                self._inner.register_partition,
                partition_id,
                fields,
                num_samples,
                consumer_tasks,
                grpo_group_size=grpo_group_size,
                enums=enums,
            )

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> Anything:
        with self._call("claim_meta", partition_id) as call:
            meta = self._timed(
                call,
                self._inner.claim_meta,
                partition_id,
                task_name,
                required_fields,
                batch_size,
                dp_rank=dp_rank,
                blocking=blocking,
                timeout_s=timeout_s,
            )
            call.n_keys = self._accounts.guarded(0, _n_keys_of, meta)
            return meta

    def get_data(self, meta: SampleMeta, select_fields: list[str] | None = None) -> Anything:
        partition_id = self._accounts.guarded("", getattr, meta, "partition_id", "")
        with self._call("get_data", partition_id) as call:
            call.n_keys = self._accounts.guarded(0, _n_keys_of, meta)
            batch = self._timed(call, self._inner.get_data, meta, select_fields=select_fields)
            call.n_bytes = self._accounts.measured(batch, 1).total
            return batch

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> Anything:
        with self._call("check_consumption_status", partition_id) as call:
            return self._timed(call, self._inner.check_consumption_status, partition_id, task_names)

    def put_samples(
        self,
        sample_ids: Iterable[str],
        partition_id: str,
        fields: Anything = None,
        tags: list[dict[str, Anything]] | None = None,
    ) -> Anything:
        with self._call("put", partition_id) as call:
            sample_ids = _kept(sample_ids)
            self._accounts.guarded(None, self._accounts.plan_put, call, sample_ids, fields)
            return self._timed(
                call, self._inner.put_samples, sample_ids, partition_id, fields=fields, tags=tags
            )

    def get_samples(self, sample_ids: Iterable[str], partition_id: str, select_fields: list[str]) -> Anything:
        with self._call("get", partition_id) as call:
            sample_ids = _kept(sample_ids)
            call.n_keys = len(self._accounts.guarded(set(), set, sample_ids))
            batch = self._timed(
                call, self._inner.get_samples, sample_ids, partition_id, select_fields=select_fields
            )
            call.n_bytes = self._accounts.measured(batch, 1).total
            return batch

    def clear_samples(self, sample_ids: Iterable[str] | None, partition_id: str) -> Anything:
        with self._call("clear", partition_id) as call:
            sample_ids = None if sample_ids is None else _kept(sample_ids)
            self._accounts.guarded(None, self._accounts.plan_clear, call, sample_ids)
            return self._timed(call, self._inner.clear_samples, sample_ids, partition_id)

    def close(self) -> Anything:
        with self._call("close", "") as call:
            self._accounts.plan_close(call)
            return self._timed(call, self._inner.close)

    def snapshot(self) -> dict[str, Any]:  # counters, and under `by_op` a table of them
        """Everything counted so far, all of it of the same instant."""
        return asdict(self._accounts.snapshot())

    def bytes_outstanding_by_partition(self) -> dict[str, int]:
        return self._accounts.bytes_by_partition()

    @contextmanager
    def _call(self, op: str, partition_id: str) -> Iterator[Call]:
        """Whatever ends a call has its event, an interrupt and a cancellation too, then goes on its way."""
        call = Call(op, partition_id)
        try:
            yield call
        except BaseException as error:
            self._end(call, "timeout" if isinstance(error, TimeoutError) else "error")
            raise
        self._end(call, "ok")

    def _timed(
        self, call: Call, operation: Callable[..., Anything], *arguments: Anything, **options: Anything
    ) -> Anything:
        began = self._clock()
        try:
            return operation(*arguments, **options)
        finally:
            call.wall_ms = (self._clock() - began) * 1000.0

    def _end(self, call: Call, status: EventStatus) -> None:
        self._accounts.end(call, status)
        try:
            self._on_event(call.event(status))
        except Exception as error:
            self._accounts.callback_losses.add(error)

    def _attach(self) -> None:
        if isinstance(self._on_event, EventSink):
            try:
                self._on_event.attach(self)
            except Exception as error:
                self._accounts.callback_losses.add(error)

    def __getattr__(self, name: str) -> Anything:
        # Special methods are not forwarded: copying or pickling would act on the inner client instead.
        if name.startswith("__") or "_inner" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._inner, name)

    def __setstate__(self, state: dict[str, Anything]) -> None:
        self.__dict__.update(state)
        self._attach()

    @property  # type: ignore[misc]  # nobody may assign a wrapper another class
    def __class__(self) -> type[MetricsDataPlaneClient]:
        # `isinstance` reads this first: the moment to join NeMo-RL's class, which whoever asks about it has
        # imported by now. Joining any earlier could mean importing it ourselves.
        _join_nemo_rl()
        return type(self)


def _join_nemo_rl() -> None:
    for module in ("nemo_rl.data_plane.interfaces", "nemo_rl.data_plane"):
        with suppress(Exception):
            sys.modules[module].DataPlaneClient.register(MetricsDataPlaneClient)


def _kept(sample_ids: Iterable[str]) -> Iterable[str]:
    """The ids, to be read more than once; what can be already is passed on as it came."""
    if isinstance(sample_ids, Sized) or not isinstance(sample_ids, Iterable):
        return sample_ids
    return list(sample_ids)


def _n_keys_of(meta: SampleMeta) -> int:
    return len(set(meta.sample_ids))
