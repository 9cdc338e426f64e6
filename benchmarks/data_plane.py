"""What the data-plane wrapper adds to a `put` of 1,000 keys x 3 fields whose inner call takes 10 ms.

The claim: at most 5 % of the inner call, on average and in the median, whatever its tensors hold. A cost is
what a call through the wrapper took beyond the inner call it made, so that both halves of a ratio are of one
call. Every put has keys of its own. In a training run twenty puts are kept outstanding; the keys of a lone
producer are cleared by somebody else. What giving up keys costs it once its table is full is printed as well,
and not part of the claim.

The tensors are torch's where that is installed, otherwise stand-ins that know as much of their sizes.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.measure import Claim, judge, smallest  # noqa: E402
from fleetgauge.data_plane import MetricsDataPlaneClient  # noqa: E402

KEYS = 1000
INNER_S = 0.010
ROUNDS = 90
CLAIM = 0.05

Fields = dict[str, object]


class Store:
    """An inner client whose calls are as much work as takes so long on this machine while it is idle.

    Where others use the machine too, the same work takes longer, and so does the wrapper's.
    """

    def __init__(self, seconds: float) -> None:
        self.took = 0.0
        self._words = [f"word-{index}" for index in range(KEYS)]
        self._turns = 1
        self._turns = max(1, round(seconds / min(self._timed() for _ in range(500))))

    def _timed(self) -> float:
        self.put_samples()
        return self.took

    def put_samples(self, *_: object, **__: object) -> None:
        began = time.thread_time()
        for _turn in range(self._turns):
            dict.fromkeys(self._words)
        self.took = time.thread_time() - began

    clear_samples = put_samples


class Dense:
    def __init__(self, width: int) -> None:
        self._numel = KEYS * width

    def numel(self) -> int:
        return self._numel

    def element_size(self) -> int:
        return 4


class Jagged:
    is_nested = True
    shape = (KEYS, None)

    def __init__(self, offsets: npt.NDArray[np.int64]) -> None:
        self._offsets = offsets

    def element_size(self) -> int:
        return 4

    def lengths(self) -> None:
        return None

    def offsets(self) -> npt.NDArray[np.int64]:
        return self._offsets


class Tensors:
    """Makes the fields of a batch. What torch makes is `Any` here, as it may not be installed."""

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch") if find_spec("torch") else None

    def __str__(self) -> str:
        return f"torch {self._torch.__version__}" if self._torch else "stand-ins for torch"

    def dense(self, width: int, *names: str) -> Fields:
        # Expanded from one row: as large to whoever asks, without the memory.
        return {
            name: self._torch.zeros(width).expand(KEYS, width) if self._torch else Dense(width)
            for name in names
        }

    def jagged(self, longest: int, *names: str) -> Fields:
        lengths = (row * 7 % longest for row in range(KEYS))
        offsets = np.fromiter(accumulate(lengths, initial=0), dtype=np.int64)
        return {name: self._jagged(offsets.copy()) for name in names}

    def _jagged(self, offsets: npt.NDArray[np.int64]) -> object:
        if not self._torch:
            return Jagged(offsets)
        values = self._torch.zeros(1).expand(int(offsets[-1]))
        return self._torch.nested.nested_tensor_from_jagged(values, self._torch.from_numpy(offsets))


class Case(NamedTuple):
    writes: list[Fields]
    outstanding: int | None = 20
    rounds_before: int = 0
    claimed: bool = True


class OwnCost:
    """Calls a wrapped client and keeps what each took beyond its inner call, as a share of that."""

    def __init__(self, inner_seconds: float) -> None:
        self._inner = Store(inner_seconds)
        self._client = MetricsDataPlaneClient(self._inner)
        self.inner: list[float] = []
        self.put: list[float] = []
        self.clear: list[float] = []

    def run(self, case: Case, rounds: int) -> None:
        held: deque[list[str]] = deque()
        for step in range(case.rounds_before + rounds):
            sample_ids = [f"step-{step}-sample-{index}" for index in range(KEYS)]
            for fields in case.writes:
                began = time.thread_time()
                self._client.put_samples(sample_ids, "train", fields=fields)
                self.put.append((time.thread_time() - began) / self._inner.took - 1)
                self.inner.append(self._inner.took)
            held.append(sample_ids)
            if case.outstanding is not None and len(held) > case.outstanding:
                began = time.thread_time()
                self._client.clear_samples(held.popleft(), "train")
                self.clear.append((time.thread_time() - began) / self._inner.took - 1)
        del self.put[: case.rounds_before * len(case.writes)]


def main(argv: Sequence[str]) -> int:
    """The cases that are claimed, and what a full table costs."""
    rounds, inner_seconds = (25, 0.001) if smallest(argv, __doc__) else (ROUNDS, INNER_S)
    tensors = Tensors()
    names = ("ids", "mask", "scores")
    jagged = tensors.jagged(2048, *names)
    later = tensors.jagged(2048, "logprobs", "advantages", "returns")
    cases = {
        "dense": Case([tensors.dense(512, *names)]),
        "dense, 1,000 times the elements": Case([tensors.dense(512_000, *names)]),
        "jagged": Case([jagged]),
        "jagged, then three more fields": Case([jagged, later]),
        "jagged, lone producer": Case([jagged], outstanding=None),
        "jagged, lone producer, table full": Case(
            [jagged], outstanding=None, rounds_before=101, claimed=False
        ),
    }
    print(f"own cost as a share of an inner call, {KEYS} keys x 3 fields, {tensors}")
    print(f"{'':34}{'inner call':>12}{'put: median':>14}{'mean':>8}{'clear: median':>15}{'mean':>8}")
    claims = []
    for name, case in cases.items():
        cost = OwnCost(inner_seconds)
        cost.run(case, rounds)
        line = f"{name:34}{1000 * statistics.median(cost.inner):9.1f} ms"
        line += f"{statistics.median(cost.put):14.2%}{statistics.fmean(cost.put):8.2%}"
        if cost.clear:
            line += f"{statistics.median(cost.clear):15.2%}{statistics.fmean(cost.clear):8.2%}"
        print(line)
        if case.claimed:
            claims.append(Claim(f"put, {name}: median / inner call", statistics.median(cost.put), CLAIM))
            claims.append(Claim(f"put, {name}: mean / inner call", statistics.fmean(cost.put), CLAIM))
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
