"""Real cosmos-xenna pipelines with the hook around them, and a data-plane client in actors of the same Ray.

    python pipeline.py DIRECTORY RAY_DIRECTORY

One pipeline streams, one runs in batches, one fails. Each writes, below DIRECTORY/<mode>, its records, an
offline W&B run, one byte per task really done to `tasks/<stage class>`, and what its caller saw to
`report.json`. The client, below DIRECTORY/actors, leaves the records of all processes and their ids.
`namespace.py` runs this where there is no network: Ray listens on all addresses.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

INPUTS = 24
BAD_INPUT = 11
INTERVAL_S = 1.0
ACTORS = 4
STEPS = 5
KEYS = 50

# Ray is started by us, not by cosmos-xenna, which would have set these.
os.environ["RAY_MAX_LIMIT_FROM_API_SERVER"] = os.environ["RAY_MAX_LIMIT_FROM_DATA_SOURCE"] = "40000"

import cosmos_xenna.pipelines.v1 as xenna  # type: ignore[import-not-found]  # noqa: E402
import ray  # type: ignore[import-not-found]  # noqa: E402
import wandb  # noqa: E402
from cosmos_xenna.pipelines.private.monitoring import (  # type: ignore[import-not-found]  # noqa: E402
    PipelineMonitor,
)

from fleetgauge.data_plane import (  # noqa: E402
    JsonlEvents,
    MetricsDataPlaneClient,
    WandbEvents,
    chain,
)
from fleetgauge.xenna import XennaObservabilityConfig, make_xenna_wandb_stats_hook  # noqa: E402

log = logging.getLogger("pipeline")


class CountedStage(xenna.Stage):  # type: ignore[misc]
    """A stage that leaves a byte behind for every task it has done."""

    batch = 1
    seconds = 0.05

    def __init__(self, tasks: Path, bad: int | None = None) -> None:
        self._tasks, self._bad = tasks, bad

    @property
    def stage_batch_size(self) -> int:
        return self.batch

    @property
    def required_resources(self) -> Any:
        return xenna.Resources(cpus=0.25)

    def process_data(self, samples: list[Any]) -> list[Any]:
        time.sleep(self.seconds)  # work, so that the pipeline looks at itself more than once
        if self._bad in samples:
            raise ValueError(f"sample {self._bad} is bad")
        with (self._tasks / type(self).__name__).open("ab", buffering=0) as file:
            file.write(b".")
        return samples


class DownloadStage(CountedStage):
    """One task per input."""


class HTTPTokenizeStage(CountedStage):
    """Two inputs per task, and the slowest."""

    batch = 2
    seconds = 0.25


class WriteStage(CountedStage):
    """One task per sample; where a pipeline is to fail, it does here."""


def start_ray(directory: str, attempts: int) -> None:
    """Start Ray, which gives itself thirty seconds: too few on a machine that has much else to do."""
    for attempt in range(1, attempts + 1):
        try:
            ray.init(num_cpus=2, object_store_memory=100_000_000, _temp_dir=directory)
        except Exception as error:
            ray.shutdown()
            if attempt == attempts:
                raise
            log.warning("Ray did not start: %s", error)
        else:
            return


def run(mode: str, tasks: Path) -> list[int]:
    """Run one pipeline to its end, and give back what it returned."""
    batch = mode == "batch"
    streaming = xenna.StreamingSpecificSpec(executor_verbosity_level=xenna.VerbosityLevel.NONE)
    config = xenna.PipelineConfig(
        execution_mode=xenna.ExecutionMode.BATCH if batch else xenna.ExecutionMode.STREAMING,
        logging_interval_s=INTERVAL_S,
        return_last_stage_outputs=True,
        cpu_allocation_percentage=1.0,
        mode_specific=None if batch else streaming,
    )
    bad = BAD_INPUT if mode == "failing" else None
    stages = (DownloadStage(tasks), HTTPTokenizeStage(tasks), WriteStage(tasks, bad))
    specs = [xenna.StageSpec(stage, num_workers=1) for stage in stages]
    return sorted(xenna.run_pipeline(xenna.PipelineSpec(list(range(INPUTS)), specs, config)))


def record(mode: str, directory: Path) -> None:
    """Run one pipeline as a recipe would, and count the calls of the method that is patched."""
    (directory / "tasks").mkdir(parents=True)
    wandb_run = wandb.init(
        mode="offline", dir=directory, project="test", name="job", group="night", settings={"console": "off"}
    )
    wandb_run.log({"mine": 1}, step=0)
    observability = XennaObservabilityConfig(True, INTERVAL_S, "records/")
    hook = make_xenna_wandb_stats_hook(observability, "curate", mode, directory, ["some/dataset"])
    assert hook is not None
    original, calls = PipelineMonitor._make_stats, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        # Called by the hook's wrapper: that does not record the call on leaving.
        if sys._getframe(2).f_code.co_name != "__exit__":
            calls.append(1)
        return original(*args, **kwargs)

    PipelineMonitor._make_stats = counted
    report: dict[str, Any] = {"error": None, "outputs": None}
    try:
        with hook:
            report["outputs"] = run(mode, directory / "tasks")
    except Exception as error:
        report["error"], report["message"] = type(error).__name__, str(error)
    PipelineMonitor._make_stats = original
    report["calls"] = len(calls)
    wandb_run.log({"mine": 2}, step=1)
    wandb_run.log({"mine": 3}, step=2)
    wandb_run.finish()
    (directory / "report.json").write_text(json.dumps(report))


class Run:
    """As a run of W&B: cannot be pickled."""

    def log(self, data: dict[str, Any], *, commit: bool) -> None:
        pass

    def __reduce__(self) -> str:
        raise TypeError("a run cannot be pickled")


class Rows:
    """A tensor of `KEYS` rows, as far as its size is asked."""

    def __init__(self, width: int) -> None:
        self._width = width

    def numel(self) -> int:
        return KEYS * self._width

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
        self._client.put_samples(keys, "train", fields={"logprobs": Rows(10 + self._number)})
        return keys

    def finish(self) -> int:
        self._sink.close()
        return os.getpid()


def hand_to_actors(directory: Path) -> None:
    """Hand a client that is built here to actors, as NeMo-RL does: they put, and the driver clears."""
    sink = chain(
        JsonlEvents(f"{directory}/records/", 1.0, job="ants", rank=99), WandbEvents(Run(), interval_s=0)
    )
    client = MetricsDataPlaneClient(Client(), sink)
    sent = ray.put((client, sink))
    workers = [ray.remote(num_cpus=0)(Worker).remote(sent, number) for number in range(ACTORS)]
    for step in range(STEPS):
        for keys in ray.get([worker.write.remote(step) for worker in workers]):
            client.clear_samples(keys, "train")
    actors = ray.get([worker.finish.remote() for worker in workers])
    sink.close()
    (directory / "report.json").write_text(json.dumps({"actors": actors, "driver": os.getpid()}))


def main(directory: Path, ray_directory: str) -> None:
    logging.basicConfig(level=logging.INFO)
    start_ray(ray_directory, attempts=3)
    hand_to_actors(directory / "actors")
    for mode in ("streaming", "batch", "failing"):
        record(mode, directory / mode)
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
