"""A wrapper around NeMo-RL's data-plane client that reports every call and the bytes outstanding.

It needs neither NeMo-RL nor torch, and never changes what an operation returns or raises: whatever fails in
here is counted, not raised. Counting is in `stats`, events and callbacks are in `events` and `sinks`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sized
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, Self

from fleetgauge.data_plane.events import EventSink, EventStatus, OnEvent, PerProcess, ignore_event
from fleetgauge.data_plane.ledger import Operation
from fleetgauge.data_plane.stats import ClientStats

# What the inner client takes and gives passes through as it is: naming its types would import torch.
Anything = Any


class Call(Operation):
    """One call as a context: whatever ends it, an interrupt or a cancellation too, has its event.

    It captures the statistics of the process in which the call began, so that a fork during the call cannot
    enter it twice.
    """

    def __init__(self, client: MetricsDataPlaneClient, op: str, partition_id: str) -> None:
        self.op = op
        self.partition_id = partition_id
        self._client = client
        self.stats = client._stats.get()

    def run(self, function: Callable[..., Anything], *arguments: Anything, **options: Anything) -> Anything:
        """Call the inner client and measure the time; return what it returns, raise what it raises.

        The time excludes measuring the batch, and is recorded for a failed call too.
        """
        clock = self._client._clock
        began = clock()
        try:
            return function(*arguments, **options)
        finally:
            self.wall_ms = (clock() - began) * 1000.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Enter the call in the statistics and emit its event.

        Returns None, so that an exception always propagates.
        """
        stats = self.stats
        if self._client._stats.get() is not stats:  # in a child forked since: its parent reports this call
            return
        status: EventStatus = "ok"
        if kind is not None:
            status = "timeout" if issubclass(kind, TimeoutError) else "error"
        stats.end(self, status)
        try:
            self._client.on_event(
                {
                    "op": self.op,
                    "partition_id": self.partition_id,
                    "n_keys": self.n_keys,
                    "n_bytes": self.n_bytes,
                    "wall_ms": self.wall_ms,
                    "status": status,
                }
            )
        except Exception as error:
            stats.callback_losses.lose(error)


class MetricsDataPlaneClient:
    """Wraps a data-plane client; `on_event` is called once per operation, after it.

    Safe to share between threads. The inner client's other attributes are reachable through it. Out of a
    pickle, and in a forked child, it counts from zero. At most `max_keys` keys are followed from put to
    clear; past that the oldest are given up, and counted.

    `sole_writer=True` declares that no other client of the job puts, clears or registers: only then are the
    outstanding bytes of this client those of the job, and sent. It never applies to a copy or a forked child.
    """

    def __init__(
        self,
        inner: Anything,
        on_event: OnEvent | None = None,
        *,
        max_keys: int = 100_000,
        sole_writer: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wrap `inner`, and attach the client to a callback that is a sink.

        Raises TypeError for a callback that cannot be called, ValueError for `max_keys` below 1. `clock`
        returns seconds and is only used for durations.
        """
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event is {on_event!r}: it must be callable, or None")
        if max_keys < 1:
            raise ValueError(f"max_keys is {max_keys!r}: it must be at least 1")
        self._inner = inner
        self.on_event = ignore_event if on_event is None else on_event
        self._clock = clock
        # A pid and not a flag: a forked child inherits the attribute, and is a second writer.
        self._sole_writer_pid = os.getpid() if sole_writer else None
        # `partial` and not a lambda: a client must survive plain pickle.
        self._stats = PerProcess(partial(ClientStats, max_keys))
        self._attach()

    @property
    def sole_writer(self) -> bool:
        """Whether this client was declared the only one of its job that writes."""
        return self._sole_writer_pid == os.getpid()

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> Anything:
        """Register a partition. Registering one again clears the bytes that were outstanding in it."""
        with Call(self, "register", partition_id) as call:
            call.stats.guarded(None, call.stats.begin_register, call, num_samples)
            return call.run(
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
        """Claim metadata; the event counts the keys of the result, 0 where that cannot be read."""
        with Call(self, "claim_meta", partition_id) as call:
            meta = call.run(
                self._inner.claim_meta,
                partition_id,
                task_name,
                required_fields,
                batch_size,
                dp_rank=dp_rank,
                blocking=blocking,
                timeout_s=timeout_s,
            )
            call.n_keys = call.stats.guarded(0, _n_keys_of, meta)
            return meta

    def get_data(self, meta: Anything, select_fields: list[str] | None = None) -> Anything:
        """Read a batch; keys are those of `meta`, bytes those of the returned batch."""
        # Metadata may be any object: without a readable partition the event has an empty partition.
        partition_id = self._stats.get().guarded("", getattr, meta, "partition_id", "")
        with Call(self, "get_data", partition_id) as call:
            call.n_keys = call.stats.guarded(0, _n_keys_of, meta)
            batch = call.run(self._inner.get_data, meta, select_fields=select_fields)
            call.n_bytes = call.stats.measured(batch, 1).total
            return batch

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> Anything:
        with Call(self, "check_consumption_status", partition_id) as call:
            return call.run(self._inner.check_consumption_status, partition_id, task_names)

    def put_samples(
        self,
        sample_ids: Iterable[str],
        partition_id: str,
        fields: Anything = None,
        tags: list[dict[str, Anything]] | None = None,
    ) -> Anything:
        """Store a batch. Its bytes are outstanding from success until its keys are cleared.

        Bytes are measured before the call, as an event of a failed put reports them too. An iterator of ids
        is read once, and passed on as a list.
        """
        with Call(self, "put", partition_id) as call:
            sample_ids = _reusable(sample_ids)
            call.stats.guarded(None, call.stats.begin_put, call, sample_ids, fields)
            return call.run(self._inner.put_samples, sample_ids, partition_id, fields=fields, tags=tags)

    def get_samples(self, sample_ids: Iterable[str], partition_id: str, select_fields: list[str]) -> Anything:
        """Read fields of samples. A repeated id counts as one key."""
        with Call(self, "get", partition_id) as call:
            sample_ids = _reusable(sample_ids)
            call.n_keys = len(call.stats.guarded(set(), set, sample_ids))
            batch = call.run(self._inner.get_samples, sample_ids, partition_id, select_fields=select_fields)
            call.n_bytes = call.stats.measured(batch, 1).total
            return batch

    def clear_samples(self, sample_ids: Iterable[str] | None, partition_id: str) -> Anything:
        """Clear samples, or all of the partition where `sample_ids` is None."""
        with Call(self, "clear", partition_id) as call:
            sample_ids = None if sample_ids is None else _reusable(sample_ids)
            call.stats.guarded(None, call.stats.begin_clear, call, sample_ids)
            return call.run(self._inner.clear_samples, sample_ids, partition_id)

    def close(self) -> Anything:
        """Close the inner client. On success, everything outstanding in this client is cleared."""
        with Call(self, "close", "") as call:
            return call.run(self._inner.close)

    def snapshot(self) -> dict[str, Any]:  # counters, and under `by_op` a table of them
        """Return everything counted so far, all of the same instant."""
        return asdict(self._stats.get().snapshot())

    def bytes_outstanding_by_partition(self) -> dict[str, int]:
        """Return the outstanding bytes of every partition that has any outstanding key."""
        return self._stats.get().bytes_by_partition()

    def _attach(self) -> None:
        if isinstance(self.on_event, EventSink):
            # A sink is the user's object: one that fails must not prevent the construction of the client.
            try:
                self.on_event.attach(self)
            except Exception as error:
                self._stats.get().callback_losses.lose(error)

    def __getattr__(self, name: str) -> Anything:
        # Special methods are not forwarded: copying or pickling would act on the inner client instead.
        if name.startswith("__") or "_inner" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._inner, name)

    def __getstate__(self) -> dict[str, Anything]:
        """Return the attributes, without the declaration of a sole writer: a copy is a second writer."""
        return self.__dict__ | {"_sole_writer_pid": None}

    def __setstate__(self, state: dict[str, Anything]) -> None:
        """Restore a copy, and attach it to its own sink: counts start at zero (`PerProcess`)."""
        self.__dict__.update(state)
        self._attach()

    @property  # type: ignore[misc]  # a wrapper cannot be assigned another class
    def __class__(self) -> type[MetricsDataPlaneClient]:
        # `isinstance` reads this first: the moment to join NeMo-RL's class, which the caller has
        # imported by now. Joining any earlier could mean importing it ourselves.
        _join_nemo_rl()
        return type(self)


def _join_nemo_rl() -> None:
    """Register the wrapper as a virtual subclass of NeMo-RL's client, where NeMo-RL has been imported.

    A failure leaves `isinstance` as it is.
    """
    with suppress(Exception):
        sys.modules["nemo_rl.data_plane.interfaces"].DataPlaneClient.register(MetricsDataPlaneClient)


def _reusable(sample_ids: Iterable[str]) -> Iterable[str]:
    """Return the ids as they are where they can be read more than once, otherwise as a list."""
    # The exact type first: `isinstance` with an abstract class is slow, and a list is the usual argument.
    # What is not iterable passes unchanged, so that the inner client raises its own error.
    if type(sample_ids) is list or isinstance(sample_ids, Sized) or not isinstance(sample_ids, Iterable):
        return sample_ids
    return list(sample_ids)


def _n_keys_of(meta: Anything) -> int:
    return len(set(meta.sample_ids))
