"""What the data-plane wrapper adds to a `put` of 1,000 keys x 3 fields whose inner call takes 10 ms.

The claim: at most 5 % of the inner call, whatever its tensors hold. A cost is what a call through the wrapper
took beyond the inner call it made, so that both halves of a ratio are of one call. Every put has keys of its
own. In a training run twenty puts are kept outstanding; a lone producer's keys are cleared by somebody else.

Run with `python benchmarks/data_plane.py`; it ends with status 1 if the claim does not hold.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from fleetgauge.data_plane import MetricsDataPlaneClient  # noqa: E402

KEYS = 1000
INNER_S = 0.010
ROUNDS = 90
CLAIM = 0.05


class Store:
    """An inner client that keeps the processor busy for as long as a call is to take."""

    def __init__(self) -> None:
        self.took = 0.0

    def put_samples(self, *_: object, **__: object) -> None:
        began = now = time.thread_time()
        while now - began < INNER_S:
            now = time.thread_time()
        self.took = now - began

    clear_samples = put_samples


class Dense:
    def __init__(self, width: int) -> None:
        self._numel = KEYS * width

    def numel(self) -> int:
        return self._numel

    def element_size(self) -> int:
        return 8


class Jagged:
    is_nested = True
    shape = (KEYS, None)

    def __init__(self, longest: int) -> None:
        lengths = (row * 7 % longest for row in range(KEYS))
        self._offsets = np.fromiter(accumulate(lengths, initial=0), dtype=np.int64)

    def element_size(self) -> int:
        return 4

    def lengths(self) -> None:
        return None

    def offsets(self) -> npt.NDArray[np.int64]:
        return self._offsets


class OwnCost:
    """Calls a wrapped client and keeps what each took beyond its inner call, as a share of that."""

    def __init__(self) -> None:
        self._inner = Store()
        self._client = MetricsDataPlaneClient(self._inner)
        self.put: list[float] = []
        self.clear: list[float] = []

    def run(self, *, writes: list[dict[str, object]], outstanding: int | None) -> None:
        held: deque[list[str]] = deque()
        for step in range(ROUNDS):
            sample_ids = [f"step-{step}-sample-{index}" for index in range(KEYS)]
            for fields in writes:
                began = time.thread_time()
                self._client.put_samples(sample_ids, "train", fields=fields)
                self.put.append((time.thread_time() - began) / self._inner.took - 1)
            held.append(sample_ids)
            if outstanding is not None and len(held) > outstanding:
                began = time.thread_time()
                self._client.clear_samples(held.popleft(), "train")
                self.clear.append((time.thread_time() - began) / self._inner.took - 1)


def main() -> int:
    dense: dict[str, object] = {name: Dense(512) for name in ("ids", "mask", "scores")}
    huge: dict[str, object] = {name: Dense(512_000) for name in ("ids", "mask", "scores")}
    jagged: dict[str, object] = {name: Jagged(2048) for name in ("ids", "mask", "scores")}
    later: dict[str, object] = {name: Jagged(2048) for name in ("logprobs", "advantages", "returns")}
    cases = {
        "dense": ([dense], 20),
        "dense, 1,000 times the elements": ([huge], 20),
        "jagged": ([jagged], 20),
        "jagged, then three more fields": ([jagged, later], 20),
        "jagged, lone producer": ([jagged], None),
    }
    print(f"own cost as a share of a {INNER_S * 1000:.0f} ms inner call, {KEYS} keys x 3 fields")
    print(f"{'':34}{'put: median':>12}{'mean':>8}{'clear: median':>15}")
    worst = 0.0
    for name, (writes, outstanding) in cases.items():
        cost = OwnCost()
        cost.run(writes=writes, outstanding=outstanding)
        put = statistics.median(cost.put)
        worst = max(worst, put)
        clear = f"{statistics.median(cost.clear):15.2%}" if cost.clear else ""
        print(f"{name:34}{put:12.2%}{statistics.fmean(cost.put):8.2%}{clear}")
    print(f"{'worst put':34}{worst:12.2%}  (claim: at most {CLAIM:.0%})")
    return 0 if worst <= CLAIM else 1


if __name__ == "__main__":
    sys.exit(main())
