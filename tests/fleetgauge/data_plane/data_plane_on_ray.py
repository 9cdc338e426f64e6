"""One client built in the driver, handed to four actors of a real Ray, as NeMo-RL hands its own.

    python data_plane_on_ray.py DIRECTORY RAY_DIRECTORY

The actors put, the driver clears. Leaves their records, and the truth about them in `report.json`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found]

from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain

ACTORS = 4
STEPS = 5
KEYS = 50


class Run:
    """As a run of W&B: cannot be pickled."""

    def log(self, data: dict[str, Any], *, commit: bool) -> None:
        pass

    def __reduce__(self) -> str:
        raise TypeError("a run cannot be pickled")


class Rows:
    """A tensor, as far as its size is asked."""

    def __init__(self, n_rows: int, width: int) -> None:
        self._numbers = n_rows * width

    def numel(self) -> int:
        return self._numbers

    def element_size(self) -> int:
        return 4


class Client:
    """An adapter to a store elsewhere."""

    def put_samples(self, *_: Any, **__: Any) -> None: ...

    def clear_samples(self, *_: Any, **__: Any) -> None: ...


class Worker:
    def __init__(self, sent: Any, number: int) -> None:
        os.environ["RANK"] = str(number)
        self._client, self._sink = sent
        self._number = number

    def write(self, step: int) -> list[str]:
        keys = [f"{step}-{self._number}-{index}" for index in range(KEYS)]
        self._client.put_samples(keys, "train", fields={"logprobs": Rows(KEYS, 10 + self._number)})
        return keys

    def finish(self) -> int:
        self._sink.close()
        return os.getpid()


def run_job(directory: Path) -> list[int]:
    """Everything that workers put is cleared by the driver. Returns their process ids."""
    sink = chain(
        JsonlEvents(f"{directory}/records/", 1.0, job="ants", rank=99), WandbEvents(Run(), interval_s=0)
    )
    client = MetricsDataPlaneClient(Client(), sink)
    sent = ray.put((client, sink))
    workers = [ray.remote(num_cpus=0)(Worker).remote(sent, number) for number in range(ACTORS)]
    for step in range(STEPS):
        for keys in ray.get([worker.write.remote(step) for worker in workers]):
            client.clear_samples(keys, "train")
    pids: list[int] = ray.get([worker.finish.remote() for worker in workers])
    sink.close()
    return pids


def main(directory: Path, ray_directory: str) -> None:
    for last in (False, False, True):  # Ray gives itself thirty seconds: too few on a busy machine
        try:
            ray.init(num_cpus=2, object_store_memory=100_000_000, _temp_dir=ray_directory)
            break
        except Exception:
            ray.shutdown()
            if last:
                raise
    report = {"actors": run_job(directory), "driver": os.getpid()}
    (directory / "report.json").write_text(json.dumps(report))
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
