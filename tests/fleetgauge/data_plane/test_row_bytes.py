"""How many bytes rows have: the same claims with arrays of torch's protocol, and with torch itself.

The name of each test says which ran. test_data_plane_torch.py runs both in an environment that has torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.data_plane.row_bytes import bytes_by_row, measure, sizes_at
from support.data_plane_fakes import (
    DeviceVector,
    Jagged,
    LazyStack,
    Nested,
    NonTensor,
    Tensor,
    host_vector,
)

SIZES = {"int64": 8, "float32": 4, "bfloat16": 2, "bool": 1}


class Arrays:
    """Makes batches of stand-ins. What it returns is of libraries that may not be installed, hence `Any`."""

    def dense(self, *shape: int, dtype: str = "float32") -> Any:
        return Tensor(*shape, element_size=SIZES[dtype])

    def jagged(self, lengths: Sequence[int], *inner: int, dtype: str = "float32") -> Any:
        return Jagged(lengths, *inner, element_size=SIZES[dtype])

    def narrowed(self, lengths: Sequence[int], buffer: int) -> Any:
        return Jagged(lengths, buffer=buffer)

    def from_offsets(self, *offsets: int) -> Any:
        jagged = Jagged([0] * (len(offsets) - 1))
        jagged._offsets = host_vector(offsets)
        return jagged

    def transposed(self, lengths: Sequence[int], inner: int) -> Any:
        jagged = Jagged(lengths, inner)
        n_rows, ragged, width = jagged.shape
        jagged.shape = (n_rows, width, ragged)
        return jagged

    def nested(self, *shapes: tuple[int, ...]) -> Any:
        return Nested(*(Tensor(*shape) for shape in shapes))

    def batch(self, n_rows: int, **leaves: Any) -> Any:
        return leaves

    def row(self, **leaves: Any) -> Any:
        return leaves

    def lazy(self, *members: Any, stack_dim: int = 0) -> Any:
        return LazyStack(*members, stack_dim=stack_dim)

    def texts(self, *texts: str) -> Any:
        return NonTensor()


class Torch:
    def __init__(self) -> None:
        self.torch: Any = import_module("torch")
        self.tensordict: Any = import_module("tensordict")

    def dense(self, *shape: int, dtype: str = "float32") -> Any:
        return self.torch.zeros(*shape, dtype=getattr(self.torch, dtype))

    def jagged(self, lengths: Sequence[int], *inner: int, dtype: str = "float32") -> Any:
        rows = [self.dense(length, *inner, dtype=dtype) for length in lengths]
        return self.torch.nested.nested_tensor(rows, layout=self.torch.jagged)

    def narrowed(self, lengths: Sequence[int], buffer: int) -> Any:
        numbers = self.torch.tensor
        starts = numbers([0] * len(lengths))
        padded = self.dense(len(lengths), buffer)
        return self.torch.nested.narrow(padded, 1, starts, numbers(lengths), layout=self.torch.jagged)

    def from_offsets(self, *offsets: int) -> Any:
        values, starts = self.dense(offsets[-1]), self.torch.tensor(offsets)
        return self.torch.nested.nested_tensor_from_jagged(values, starts)

    def transposed(self, lengths: Sequence[int], inner: int) -> Any:
        return self.jagged(lengths, inner).transpose(1, 2)

    def nested(self, *shapes: tuple[int, ...]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls this layout a prototype
            return self.torch.nested.nested_tensor([self.dense(*shape) for shape in shapes])

    def batch(self, n_rows: int, **leaves: Any) -> Any:
        return self.tensordict.TensorDict(leaves, batch_size=[n_rows])

    def row(self, **leaves: Any) -> Any:
        return self.tensordict.TensorDict(leaves, batch_size=[])

    def lazy(self, *members: Any, stack_dim: int = 0) -> Any:
        return self.tensordict.lazy_stack(list(members), stack_dim)

    def texts(self, *texts: str) -> Any:
        return self.tensordict.NonTensorStack(*texts)


Makes = Arrays | Torch
MAKERS = {"arrays": Arrays, "torch": Torch} if find_spec("torch") else {"arrays": Arrays}


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Makes:
    maker: Makes = request.param()
    return maker


def rows(fields: Any, n_rows: int) -> dict[Any, list[int]]:
    measured = measure(fields, n_rows)
    assert measured.unmeasured == []
    found = [sizes_at(measured.columns, row) for row in range(n_rows)]
    by_field = {name: [sizes[name] for sizes in found] for name in measured.columns}
    assert measured.total == sum(map(sum, by_field.values())) == measure(fields, 1).total
    by_row = bytes_by_row(measured.columns)
    assert (n_rows * [by_row] if isinstance(by_row, int) else by_row) == [sum(row.values()) for row in found]
    return by_field


def stack(make: Makes) -> Any:
    """Two rows of 5 and 2 elements."""
    return make.lazy(make.row(x=make.dense(5)), make.row(x=make.dense(2)))


def nested(make: Makes) -> Any:
    inner = make.batch(2, mask=make.dense(2, dtype="bool"), ids=make.jagged([1, 4], dtype="int64"))
    return make.batch(2, x=make.dense(2, 3), log=make.batch(2, deep=inner, y=make.dense(2)))


def across(make: Makes) -> Any:
    members = [make.batch(2, x=make.dense(2, 3), y=make.jagged([1, length])) for length in (2, 3, 4)]
    return make.lazy(*members, stack_dim=1)


# A batch, and the bytes of each of its rows by field.
BATCHES: dict[str, tuple[Callable[[Any], Any], dict[str, list[int]]]] = {
    "every-type": (
        lambda make: make.batch(3, **{dtype: make.dense(3, 5, dtype=dtype) for dtype in SIZES}),
        {dtype: [5 * size] * 3 for dtype, size in SIZES.items()},
    ),
    "nested-leaves-count-to-their-field": (nested, {"x": [12, 12], "log": [1 + 8 + 4, 1 + 32 + 4]}),
    "jagged": (
        lambda make: make.batch(3, x=make.jagged([50, 0, 1]), y=make.jagged([2, 3, 1], 7, dtype="bfloat16")),
        {"x": [200, 0, 4], "y": [28, 42, 14]},
    ),
    "ragged-dimension-is-not-the-second": (
        lambda make: make.batch(2, x=make.transposed([5, 2], 3)),
        {"x": [60, 24]},
    ),
    "narrowed-view-without-its-buffer": (
        lambda make: make.batch(3, x=make.narrowed([3, 4, 90], 100)),
        {"x": [12, 16, 360]},
    ),
    "offset-in-its-buffer": (lambda make: {"x": make.from_offsets(2, 5, 10)}, {"x": [12, 20]}),
    "nested-tensor-of-the-older-layout": (lambda make: {"x": make.nested((5, 3), (2, 7))}, {"x": [60, 56]}),
    "lazy-stack": (
        lambda make: make.lazy(
            make.row(x=make.dense(5), n=make.row(y=make.dense(1))),
            make.row(x=make.dense(2), n=make.row(y=make.dense(3))),
        ),
        {"x": [20, 8], "n": [4, 12]},
    ),
    "field-of-some-rows-of-a-lazy-stack": (
        lambda make: make.lazy(make.row(x=make.dense(1)), make.row(x=make.dense(1), y=make.dense(3))),
        {"x": [4, 4], "y": [0, 12]},
    ),
    "lazy-stack-inside-a-batch": (lambda make: make.batch(2, log=stack(make)), {"log": [20, 8]}),
    "lazy-stack-across-rows": (across, {"x": [36, 36], "y": [24, 24]}),
    "leaf-without-tensors": (
        lambda make: make.batch(2, x=make.dense(2), text=make.texts("a", "b")),
        {"x": [4, 4], "text": [0, 0]},
    ),
    "dict-with-a-tensor-or-a-batch-for-each-row": (
        lambda make: {
            "x": [make.dense(5), make.dense(1)],
            "log": (make.row(y=make.dense(2)), make.row()),
        },
        {"x": [20, 4], "log": [8, 0]},
    ),
    "other-rows-than-keys-are-divided": (
        lambda make: {"x": make.jagged([4, 3]), "y": make.dense(7, dtype="bool"), "z": make.dense(6)},
        {"x": [10, 9, 9], "y": [3, 2, 2], "z": [8, 8, 8]},
    ),
}


@pytest.mark.parametrize("batch", BATCHES)
def test_rows_have_their_own_bytes(make: Makes, batch: str) -> None:
    build, expected = BATCHES[batch]
    assert rows(build(make), len(next(iter(expected.values())))) == expected


# Only what the arrays can show


@pytest.mark.parametrize("vector", [host_vector, DeviceVector])
@pytest.mark.parametrize("buffer", [None, 100])
def test_offsets_are_read_wherever_they_lie(vector: Any, buffer: int | None) -> None:
    jagged = Jagged([5, 0, 90, 1], 2, buffer=buffer, vector=vector)
    assert rows({"x": jagged, "y": Tensor(4)}, 4) == {"x": [40, 0, 720, 8], "y": [4] * 4}
    assert rows({"x": jagged}, 4) == {"x": [40, 0, 720, 8]}
    assert rows({"x": jagged}, 2) == {"x": [384, 384]}


@pytest.mark.parametrize("vector", [host_vector, DeviceVector])
def test_a_single_row_is_a_plain_number(vector: Any) -> None:
    """Many rows may come one by one, and a column object for each would take as much memory as its table."""
    assert measure({"x": Jagged([5], vector=vector), "y": Tensor(3)}, 1).columns == {"x": 20, "y": 12}


def test_odd_batches_are_measured_as_far_as_they_go() -> None:
    assert rows({"x": Jagged([])}, 1) == {"x": [0]}
    assert rows({"x": Jagged([0, 0])}, 2) == {"x": [0, 0]}
    assert measure(None, 2).columns == {}
    assert rows(SimpleNamespace(tensordicts=[{"x": Tensor(3)}, {"x": Tensor(1)}]), 2) == {"x": [12, 4]}
    assert rows({"x": memoryview(bytes(10))}, 2) == {"x": [5, 5]}  # knows its nbytes only
    unknown = SimpleNamespace(numel=lambda: 0.5, element_size=lambda: 4)
    assert rows({"x": unknown, "y": SimpleNamespace(nbytes="7")}, 2) == {"x": [0, 0], "y": [0, 0]}
    measured = measure({"x": Tensor(7), "y": Jagged([1, 2])}, 0)
    assert (measured.total, measured.columns) == (40, {"x": 28, "y": 12})


def test_what_cannot_have_rows_of_its_own_is_not_walked() -> None:
    class Guarded(list[int]):
        def __iter__(self) -> Any:
            raise AssertionError("walked a list of numbers")

    class Dense(Tensor):
        is_nested = False

        def unbind(self) -> None:
            raise AssertionError("took a dense tensor apart")

    fields = {"x": Guarded([1, 2]), "y": [], "z": ["a", "b"], "dense": Dense(2, 3)}
    assert rows(fields, 2) == {"x": [0, 0], "y": [0, 0], "z": [0, 0], "dense": [12, 12]}


lengths = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(total=st.integers(0, 1000), n_rows=st.integers(1, 20))
def test_a_division_loses_nothing_and_is_even(total: int, n_rows: int) -> None:
    (sizes,) = rows({"x": Tensor(total, element_size=1)}, n_rows).values()
    assert (sum(sizes), max(sizes) - min(sizes) <= 1) == (total, True)
