"""What the data-plane wrapper costs its callers: CPU time of a `put` and a `clear`, and the wait for sinks.

Beside it, in turns, run a wrapper with the accounting of NeMo-RL's own (every key is given an even share of a
put's bytes: fast, and wrong for rows that differ), and an empty one. The claims, in CPU time of the calling
thread: for 1 key at most 2.5 times what the former adds, for 1,000 and 10,000 keys x 3 fields at most 1.3
times, also where these are jagged and every row has bytes of its own. What each adds is a median over rounds,
less the empty wrapper's. The slowest call of a hundred is printed, and not part of the claim.

Under saturation, eight threads emit events as fast as they can into a file and into a W&B that takes a tenth
of a second for each log. The claim: of a hundred events, 99 hold their caller up for less than a millisecond.

The tensors are torch's where that is installed, otherwise stand-ins that know as much of their sizes.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.measure import Claim, judge, medians, smallest  # noqa: E402
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain  # noqa: E402

ROUNDS = 60
CALLS = {1: 400, 1000: 8, 10_000: 2}  # of each round, by keys
THREADS = 8
SECONDS = 8.0  # of saturation
OUTSTANDING = {1: 20, 1000: 20, 10_000: 5}  # puts before the first is cleared, by keys

Fields = dict[str, Any]


class Store:
    """An inner client that does nothing: what is measured is what wraps it."""

    def put_samples(self, sample_ids: object, partition_id: str, fields: object, tags: object) -> None:
        pass

    def clear_samples(self, sample_ids: object, partition_id: str) -> None:
        pass


class Empty:
    """Passes every call on."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def put_samples(
        self, sample_ids: Sequence[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> None:
        return self._inner.put_samples(sample_ids, partition_id, fields=fields, tags=tags)

    def clear_samples(self, sample_ids: Sequence[str], partition_id: str) -> None:
        return self._inner.clear_samples(sample_ids, partition_id)


@dataclass
class Totals:
    n_bytes: int = 0
    n_keys: int = 0
    n_ops: int = 0
    outstanding: int = 0
    peak: int = 0
    largest: int = 0
    last: int = 0


class EvenShare:
    """The books of NeMo-RL's wrapper: every key of a put is given the same share of its bytes."""

    def __init__(self, inner: Store, on_event: Callable[[dict[str, Any]], object] = dict) -> None:
        self._inner = inner
        self._on_event = on_event
        self._totals = Totals()
        self._by_partition: dict[str, dict[str, int]] = {}

    @contextmanager
    def _observed(self, op: str, partition_id: str, n_keys: int, n_bytes: int) -> Iterator[None]:
        began, status = time.perf_counter(), "ok"
        try:
            yield
        except TimeoutError:
            status = "timeout"
            raise
        except Exception:
            status = "error"
            raise
        finally:
            if status == "ok":
                self._totals.n_ops += 1
                self._totals.n_keys += n_keys
                self._totals.n_bytes += n_bytes
            event = {"op": op, "partition_id": partition_id, "n_keys": n_keys, "n_bytes": n_bytes}
            event |= {"wall_ms": (time.perf_counter() - began) * 1000.0, "status": status}
            self._on_event(event)

    def put_samples(
        self, sample_ids: Sequence[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> None:
        keys, n_bytes = list(sample_ids), leaf_bytes(fields)
        with self._observed("put", partition_id, len(keys), n_bytes):
            self._inner.put_samples(keys, partition_id, fields=fields, tags=tags)
        share = n_bytes // len(keys)
        held, totals = self._by_partition.setdefault(partition_id, {}), self._totals
        for key in keys:
            held[key] = held.get(key, 0) + share
            totals.outstanding += share
        totals.last, totals.largest = share, max(totals.largest, share)
        totals.peak = max(totals.peak, totals.outstanding)

    def clear_samples(self, sample_ids: Sequence[str], partition_id: str) -> None:
        keys = list(sample_ids)
        with self._observed("clear", partition_id, len(keys), 0):
            self._inner.clear_samples(keys, partition_id)
        held = self._by_partition.get(partition_id, {})
        for key in keys:
            self._totals.outstanding -= held.pop(key, 0)


def leaf_bytes(leaf: Any) -> int:
    """The bytes of a batch, nested ones too."""
    if isinstance(leaf, Mapping):
        return sum(leaf_bytes(one) for one in leaf.values())
    if getattr(leaf, "is_nested", False):
        leaf = leaf.values()
    return int(leaf.numel() * leaf.element_size()) if hasattr(leaf, "element_size") else 0


class Dense:
    is_nested = False

    def __init__(self, numbers: int) -> None:
        self._numel = numbers

    def numel(self) -> int:
        return self._numel

    def element_size(self) -> int:
        return 4


class Jagged:
    is_nested = True

    def __init__(self, offsets: npt.NDArray[np.int64]) -> None:
        self.shape = (len(offsets) - 1, None)
        self._offsets = offsets

    def values(self) -> Dense:
        return Dense(int(self._offsets[-1]))

    def element_size(self) -> int:
        return 4

    def numel(self) -> int:
        return int(self._offsets[-1])

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

    def dense(self, n_rows: int) -> Any:
        # Expanded from one row: as large to whoever asks, without the memory.
        return self._torch.zeros(512).expand(n_rows, 512) if self._torch else Dense(n_rows * 512)

    def jagged(self, n_rows: int) -> Any:
        lengths = (1 + row * 7 % 2048 for row in range(n_rows))
        offsets = np.fromiter(accumulate(lengths, initial=0), dtype=np.int64)
        if not self._torch:
            return Jagged(offsets)
        values = self._torch.zeros(1).expand(int(offsets[-1]))
        return self._torch.nested.nested_tensor_from_jagged(values, self._torch.from_numpy(offsets))


class Way:
    """One wrapper at work, with some puts outstanding, and how long each pair of its calls took."""

    def __init__(self, client: Any, fields: Fields, n_keys: int, calls: int) -> None:
        self._client = client
        self._fields = fields
        self._n_keys = n_keys
        self._calls = calls
        self._held: deque[list[str]] = deque()
        self._step = 0
        self.pairs: list[float] = []

    def __call__(self) -> float:
        """The CPU time of a put and a clear, over one round."""
        ids = [self._ids() for _ in range(self._calls)]
        spent = 0.0
        cleared: list[str] | None
        while ids:
            self._held.append(ids.pop())
            cleared = self._held.popleft() if len(self._held) > OUTSTANDING[self._n_keys] else []
            began = time.thread_time()
            self._client.put_samples(self._held[-1], "train", fields=self._fields)
            self._client.clear_samples(cleared, "train")
            cleared = None  # whoever lets go of the keys last frees them: that is part of it for all
            took = time.thread_time() - began
            self.pairs.append(took)
            spent += took
        return spent / self._calls

    def _ids(self) -> list[str]:
        self._step += 1
        return [f"step-{self._step}-sample-{index}" for index in range(self._n_keys)]


def compared(name: str, n_keys: int, leaf: Callable[[int], Any], rounds: int, limit: float) -> Claim:
    fields = {field: leaf(n_keys) for field in ("ids", "mask", "scores")}
    wrappers = {"empty": Empty, "even share": EvenShare, "ours": MetricsDataPlaneClient}
    ways = {way: Way(wrapper(Store()), fields, n_keys, CALLS[n_keys]) for way, wrapper in wrappers.items()}
    for way in ways.values():
        for _ in range(1 + OUTSTANDING[n_keys] // CALLS[n_keys]):
            way()
        way.pairs.clear()
    middle = medians(rounds, ways)
    slowest = {way: statistics.quantiles(ways[way].pairs, n=100)[98] for way in ways}
    line = "".join(f"{1e6 * middle[way]:12.1f}{1e6 * slowest[way]:9.1f}" for way in ways)
    print(f"{name:22}{line}")
    ratio = (middle["ours"] - middle["empty"]) / (middle["even share"] - middle["empty"])
    return Claim(f"{name}: ours / even share", ratio, limit)


class SlowRun:
    """A W&B run behind a slow network."""

    def log(self, data: dict[str, Any], *, commit: bool) -> None:  # noqa: ARG002  # as a run's
        time.sleep(0.1)


def saturated(seconds: float) -> Claim:
    """Let threads emit events without a pause, and compare how long each held its caller up."""
    waits: list[list[float]] = [[] for _ in range(THREADS)]
    with tempfile.TemporaryDirectory() as directory:
        jsonl, wandb = JsonlEvents(f"{directory}/", 1.0), WandbEvents(SlowRun(), 1.0)
        sink, until = chain(jsonl, wandb), time.perf_counter() + seconds

        def emit(own: list[float]) -> None:
            began = time.perf_counter()
            while began < until:
                event: Any = {"op": "get", "partition_id": "train", "n_keys": 1, "n_bytes": 8}
                sink(event | {"wall_ms": 1.0, "status": "ok"})
                ended = time.perf_counter()
                own.append(ended - began)
                began = ended

        threads = [threading.Thread(target=emit, args=(own,)) for own in waits]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sink.close()
        every = sorted(wait for own in waits for wait in own)
        lost = [counted / len(every) for counted in (jsonl.dropped, wandb.errors)]
    slowest = every[int(0.99 * len(every))]
    print(f"\n{len(every):,} events of {THREADS} threads in {seconds:g} s: p99 {1e6 * slowest:.1f}, ", end="")
    print(f"longest {1e6 * every[-1]:.1f} microseconds; lost {lost[0]:.0%} of the file, {lost[1]:.0%} of W&B")
    return Claim("saturation: p99 of the wait in ms", 1000 * slowest, 1.0)


def main(argv: Sequence[str]) -> int:
    """One key, a thousand and ten thousand, dense and jagged; then the sinks."""
    tiny = smallest(argv, __doc__)
    rounds = 5 if tiny else ROUNDS
    tensors = Tensors()
    print(f"a put and a clear in microseconds of CPU: median, then 99 % of all below; 3 fields, {tensors}")
    print(f"{'':22}{'empty':>12}{'p99':>9}{'even share':>12}{'p99':>9}{'ours':>12}{'p99':>9}")
    return judge(
        [
            compared("1 key, dense", 1, tensors.dense, rounds, 2.5),
            compared("1,000 keys, dense", 1000, tensors.dense, rounds, 1.3),
            compared("1,000 keys, jagged", 1000, tensors.jagged, rounds, 1.3),
            compared("10,000 keys, dense", 10_000, tensors.dense, rounds, 1.3),
            compared("10,000 keys, jagged", 10_000, tensors.jagged, rounds, 1.3),
            saturated(0.2 if tiny else SECONDS),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
