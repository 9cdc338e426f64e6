"""One client built in the driver, handed to four actors of a real Ray, as NeMo-RL hands its own.

    python data_plane_on_ray.py DIRECTORY RAY_DIRECTORY

Leaves the records of two jobs, and the truth about each in `report.json`. In one, the actors put and the
driver clears; in the other, the driver puts and clears, and the actors only read.
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


class Storage:
    """The store: bytes by partition, key and field."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str, str], int] = {}

    def put(self, partition: str, keys: list[str], fields: dict[str, int]) -> None:
        self.held |= {(partition, key, name): size for key in keys for name, size in fields.items()}

    def clear(self, partition: str, keys: list[str]) -> None:
        gone = {(partition, key) for key in keys}
        self.held = {one: size for one, size in self.held.items() if one[:2] not in gone}

    def total(self) -> int:
        return sum(self.held.values())


class Client:
    """An adapter to the store, which travels as its handle."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def put_samples(self, sample_ids: list[str], partition_id: str, fields: Any, tags: Any) -> None:
        sizes = {name: rows.numel() * rows.element_size() // len(sample_ids) for name, rows in fields.items()}
        ray.get(self._storage.put.remote(partition_id, sample_ids, sizes))

    def get_samples(self, sample_ids: list[str], partition_id: str, select_fields: list[str]) -> Any:
        return {name: Rows(len(sample_ids), 1) for name in select_fields}

    def clear_samples(self, sample_ids: list[str], partition_id: str) -> None:
        ray.get(self._storage.clear.remote(partition_id, sample_ids))

    def close(self) -> None:
        pass


class Worker:
    def __init__(self, sent: Any, number: int, rank: str | None) -> None:
        if rank is not None:
            os.environ["RANK"] = rank
        self._client, self._sink = sent
        self._number = number

    def keys(self, step: int) -> list[str]:
        return [f"{step}-{self._number}-{index}" for index in range(KEYS)]

    def write(self, step: int) -> list[str]:
        keys = self.keys(step)
        self._client.put_samples(keys, "train", fields={"logprobs": Rows(KEYS, 10 + self._number)})
        return keys

    def read(self, keys: list[str]) -> int:
        self._client.get_samples(keys, "train", ["ids"])
        return os.getpid()

    def finish(self) -> int:
        self._sink.close()
        return os.getpid()


STORAGE, WORKER = (ray.remote(num_cpus=0)(one) for one in (Storage, Worker))


def sink(directory: Path, job: str) -> Any:
    path = f"{directory}/{job}/"
    return chain(JsonlEvents(path, 1.0, job=job, rank=99), WandbEvents(Run(), interval_s=0))


def workers_put(directory: Path) -> dict[str, Any]:
    """Everything that workers put is cleared by the driver."""
    storage = STORAGE.remote()
    told = sink(directory, "shared")
    client = MetricsDataPlaneClient(Client(storage), told)
    sent = ray.put((client, told))
    workers = [WORKER.remote(sent, number, str(number)) for number in range(ACTORS)]
    for step in range(STEPS):
        for keys in ray.get([worker.write.remote(step) for worker in workers]):
            client.clear_samples(keys, "train")
    pids = ray.get([worker.finish.remote() for worker in workers])
    told.close()
    return {"pids": pids, "held": ray.get(storage.total.remote())}


def driver_puts(directory: Path) -> dict[str, Any]:
    """Everything is put and cleared by the driver, but for the last step; workers read."""
    storage = STORAGE.remote()
    told = sink(directory, "sole")
    client = MetricsDataPlaneClient(Client(storage), told, sole_writer=True)
    workers = [WORKER.remote((client, told), number, None) for number in range(ACTORS)]
    for step in range(STEPS):
        keys = [f"{step}-{index}" for index in range(KEYS)]
        client.put_samples(keys, "train", fields={"ids": Rows(KEYS, 7), "mask": Rows(KEYS, 2)})
        ray.get([worker.read.remote(keys) for worker in workers])
        if step < STEPS - 1:
            client.clear_samples(keys, "train")
    pids = ray.get([worker.finish.remote() for worker in workers])
    held = ray.get(storage.total.remote())
    told.close()
    return {"pids": pids, "held": held}


def main(directory: Path, ray_directory: str) -> None:
    for last in (False, False, True):  # Ray gives itself thirty seconds: too few on a busy machine
        try:
            ray.init(num_cpus=2, object_store_memory=100_000_000, _temp_dir=ray_directory)
            break
        except Exception:
            ray.shutdown()
            if last:
                raise
    report = {"shared": workers_put(directory), "sole": driver_puts(directory)}
    report["driver"] = {"pid": os.getpid()}
    (directory / "report.json").write_text(json.dumps(report))
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
