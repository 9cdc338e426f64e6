"""Tensors, batches and an inner client for the data-plane tests.

The tensors have as much of torch's protocol as tells their size. They have no contents: reading any is a
failure. The client is a true store: it knows, per partition, key and field, the bytes it was given.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetgauge.data_plane import DataPlaneEvent, MetricsDataPlaneClient
from support.project import ROOT


class Tensor:
    def __init__(self, *shape: int, element_size: int = 4) -> None:
        self.shape = shape
        self._element_size = element_size

    def numel(self) -> int:
        product = 1
        for size in self.shape:
            product *= size
        return product

    def element_size(self) -> int:
        return self._element_size

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("the contents of a tensor were read")

    def tolist(self) -> list[object]:
        raise AssertionError("the contents of a tensor were read")


Vector = npt.NDArray[np.int64]


def host_vector(numbers: Iterable[int]) -> Vector:
    """Offsets or lengths on the host, as far as their arithmetic is that of a tensor."""
    return np.array(list(numbers), dtype=np.int64)


class DeviceVector:
    """On a device: has to be copied to the host first."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = list(numbers)

    def cpu(self) -> Vector:
        return host_vector(self._numbers)


class RaggedSize:
    """Stands in a shape for the size that differs from row to row."""


class Jagged:
    """Rows of `lengths` x `inner` elements; when narrowed, each is a view of `buffer` x `inner`."""

    is_nested = True

    def __init__(
        self,
        lengths: Sequence[int],
        *inner: int,
        element_size: int = 4,
        buffer: int | None = None,
        vector: Callable[[Iterable[int]], Any] = host_vector,
    ) -> None:
        self.shape = (len(lengths), RaggedSize(), *inner)
        self._lengths = None if buffer is None else vector(lengths)
        starts = accumulate(lengths if buffer is None else [buffer] * len(lengths), initial=0)
        self._offsets = vector(starts)
        self._element_size = element_size

    def offsets(self) -> Any:
        return self._offsets

    def lengths(self) -> Any:
        return self._lengths

    def element_size(self) -> int:
        return self._element_size

    def numel(self) -> int:
        raise AssertionError("counted a jagged tensor as one block")


class Nested:
    """Torch's older nested tensor: rows that can only be taken apart."""

    is_nested = True

    def __init__(self, *rows: Tensor) -> None:
        self._rows = rows

    def unbind(self) -> tuple[Tensor, ...]:
        return self._rows


class LazyStack:
    def __init__(self, *members: object, stack_dim: int = 0) -> None:
        self.tensordicts = list(members)
        self.stack_dim = stack_dim

    def keys(self) -> list[str]:
        raise AssertionError("a lazy stack was read as a whole")

    items = keys


class NonTensor:
    """A leaf of Python objects, which tensordict holds in a batch of its own."""

    _is_non_tensor = True

    def keys(self) -> list[str]:
        raise AssertionError("walked the objects of a leaf without tensors")

    items = keys


@dataclass
class Meta:
    partition_id: str
    sample_ids: Sequence[str]


class Store:
    """An inner client that holds rows. `rows` are their sizes: {key: {field: bytes}}, by partition."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, dict[str, int]]] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.error: BaseException | None = None
        self.result: object = None
        self.before_return: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def _called(self, *call: object) -> Any:
        self.calls.append(call)
        if self.before_return is not None:
            hook, self.before_return = self.before_return, None
            hook()
        if self.error is not None:
            raise self.error
        return self.result

    def register_partition(self, partition_id: str, *arguments: object, **options: object) -> Any:
        with self._lock:
            self.rows.pop(partition_id, None)
        return self._called("register", partition_id, *arguments, options)

    def claim_meta(self, *arguments: object, **options: object) -> Any:
        return self._called("claim", *arguments, options)

    def get_data(self, meta: object, select_fields: list[str] | None = None) -> Any:
        return self._called("get_data", meta, select_fields)

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> Any:
        return self._called("check", partition_id, task_names)

    def put_samples(
        self, sample_ids: Iterable[str], partition_id: str, fields: object = None, tags: object = None
    ) -> Any:
        if isinstance(fields, SizedRows):
            with self._lock:
                for key, sizes in zip(sample_ids, fields.sizes, strict=True):
                    self.rows.setdefault(partition_id, {}).setdefault(key, {}).update(sizes)
        return self._called("put", sample_ids, partition_id, fields, tags)

    def get_samples(self, sample_ids: Iterable[str], partition_id: str, select_fields: list[str]) -> Any:
        return self._called("get", sample_ids, partition_id, select_fields)

    def clear_samples(self, sample_ids: Iterable[str] | None, partition_id: str) -> Any:
        with self._lock:
            if sample_ids is None:
                self.rows.pop(partition_id, None)
            else:
                for key in sample_ids:
                    self.rows.get(partition_id, {}).pop(key, None)
        return self._called("clear", sample_ids, partition_id)

    def close(self) -> Any:
        return self._called("close")

    def bytes_by_partition(self) -> dict[str, int]:
        """The truth. Partitions without a key are not told."""
        with self._lock:
            return {
                partition_id: sum(sum(sizes.values()) for sizes in rows.values())
                for partition_id, rows in self.rows.items()
                if rows
            }

    def n_keys(self) -> int:
        with self._lock:
            return sum(map(len, self.rows.values()))

    def __reduce__(self) -> tuple[type[Store], tuple[()]]:
        return type(self), ()  # a fresh connection, as of an adapter that is sent to a worker


class SizedRows(dict[str, object]):
    """A batch whose rows have the sizes given: every field is a list with one tensor of bytes a row."""

    def __init__(self, *sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        names = list(sizes[0]) if sizes else []
        super().__init__({name: [Tensor(row[name], element_size=1) for row in sizes] for name in names})


class Run:
    """A W&B run, which cannot be pickled: has what was logged, and waits with a log until it is released."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.threads: set[int] = set()
        self.error: Exception | None = None
        self.inside, self.released = threading.Event(), threading.Event()
        self.released.set()

    def log(self, data: dict[str, Any], *, commit: bool) -> None:
        assert not commit
        self.threads.add(threading.get_ident())
        self.inside.set()
        assert self.released.wait(30)
        if self.error is not None:
            raise self.error
        self.logged.append(data)

    def __reduce__(self) -> str:
        raise TypeError("a run cannot be pickled")


def event(op: Any = "put", partition_id: str = "p", **other: Any) -> DataPlaneEvent:
    told: Any = {"op": op, "partition_id": partition_id, "n_keys": 2, "n_bytes": 8, "wall_ms": 1.0}
    told |= {"status": "ok"} | other
    return told  # type: ignore[no-any-return]  # what is put in may be wrong on purpose


# One call of each operation.
CALLS: dict[str, Callable[[MetricsDataPlaneClient], Any]] = {
    "register": lambda client: client.register_partition("p", ["x"], 4, ["train"]),
    "claim_meta": lambda client: client.claim_meta("p", "train", ["x"], 2),
    "get_data": lambda client: client.get_data(Meta("p", ["a", "b"])),
    "check_consumption_status": lambda client: client.check_consumption_status("p", ["train"]),
    "put": lambda client: client.put_samples(["a", "b"], "p", fields={"x": Tensor(2, 3)}),
    "get": lambda client: client.get_samples(["a", "b", "c"], "p", ["x"]),
    "clear": lambda client: client.clear_samples(["a"], "p"),
    "close": lambda client: client.close(),
}


def held(client: MetricsDataPlaneClient) -> int:
    """The bytes outstanding, and that its partitions add up to them."""
    outstanding = client.snapshot()["bytes_outstanding"]
    assert outstanding == sum(client.bytes_outstanding_by_partition().values())
    assert isinstance(outstanding, int)
    return outstanding


def in_a_process_of_its_own(program: str, *arguments: str) -> str:
    """What a program prints that finds the project and these fakes."""
    script = f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}\n{program}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
