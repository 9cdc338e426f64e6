"""The pipeline statistics of cosmos-xenna as flat metrics; docs/probes.md explains each.

Copying values out of the live objects is quick and happens in the pipeline's thread; everything else here is
arithmetic on copies, on the thread of a `PipelineRecording`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

from fleetgauge.records.background import json_ready

Metrics = dict[str, float]
Pool = dict[str, float]  # a stage's numbers by key; what is not known is absent

# Not GiB: users know these keys with decimal gigabytes.
_GIGA = 1e9
_MAX_NAME = 100
_NUMBERED = re.compile(r"^\s*Stage\s+\d+\s*-\s*")
_AFTER_ACRONYM = re.compile(r"([A-Z]+)([A-Z](?!s(?![a-z]))[a-z])")  # but the s of URLs belongs to it
_AFTER_WORD = re.compile(r"([a-z0-9])([A-Z])")
_OTHER = re.compile(r"\W+")
_getter = cache(attrgetter)  # of the paths below

# Keys of ours, each with the path of its attribute upstream.
_OF_PIPELINE = {
    "start_time": "start_time",
    "time": "time",
    "num_initial_inputs": "num_initial_input_tasks",
    "num_input_remaining": "num_input_tasks_remaining",
    "num_outputs": "num_outputs",
    "pipeline_duration_s": "pipeline_duration_s",
    "main_loop_rate_hz": "main_loop_rate_hz",
    "total_cpus": "cluster.total.num_cpus",
    "total_gpus": "cluster.total.num_gpus",
    "total_mem": "cluster.total.memory",
    "total_obj_store": "cluster.total.object_store_memory",
    "avail_cpus": "cluster.available.num_cpus",
    "avail_gpus": "cluster.available.num_gpus",
    "avail_mem": "cluster.available.memory",
    "avail_obj_store": "cluster.available.object_store_memory",
}
_OF_POOL = {
    "actors_target": "actor_stats.target",
    "actors_pending": "actor_stats.pending",
    "actors_ready": "actor_stats.ready",
    "actors_running": "actor_stats.running",
    "actors_idle": "actor_stats.idle",
    "tasks_completed": "task_stats.total_completed",
    "tasks_failed": "task_stats.total_returned_none",
    "queue_in": "task_stats.input_queue_size",
    "queue_out": "task_stats.output_queue_size",
    "slots_used": "slot_stats.num_used",
    "slots_empty": "slot_stats.num_empty",
    "speed_tasks_per_s": "processing_speed_tasks_per_second",
}
_OF_USAGE = {"cpu_util_pct": "cpu_utilization", "mem": "memory_usage", "actor_count": "actor_count"}


class PoolCopy(NamedTuple):
    """One stage's name and numbers."""

    name: str | None
    numbers: Pool


class Snapshot(NamedTuple):
    """The values of one `PipelineStats`, copied; upstream empties parts of it afterwards."""

    taken_at: float
    interval: object
    pipeline: Metrics
    pools: tuple[PoolCopy, ...]
    usage: dict[object, Metrics]


def copy_stats(stats: object, taken_at: float, interval: object) -> Snapshot:
    """Copy what is there. What a release has moved or left out is absent, and costs only itself.

    `taken_at` is the time of the copy, `interval` what the monitor states as its period.
    """
    pools: tuple[PoolCopy, ...] = ()
    usage: dict[object, Metrics] = {}
    with suppress(Exception):
        pools = tuple(map(copy_pool, stats.actor_pools))  # type: ignore[attr-defined]  # any release's
    with suppress(Exception):
        stages = stats.resource_usage_per_stage  # type: ignore[attr-defined]
        usage = {name: _numbers(_OF_USAGE, stage) for name, stage in stages.items()}
    return Snapshot(taken_at, interval, _numbers(_OF_PIPELINE, stats), pools, usage)


def copy_pool(pool: object) -> PoolCopy:
    """Copy one stage's statistics."""
    name = getattr(pool, "name", None)
    return PoolCopy(None if name is None else str(name), _numbers(_OF_POOL, pool))


def _numbers(paths: Mapping[str, str], source: object) -> Metrics:
    """Return the finite numbers at these paths, by key; scalars of numpy are numbers."""
    found = {key: _read(path, source) for key, path in paths.items()}
    return {key: value for key, value in found.items() if type(value) in (int, float)}


def _read(path: str, source: object) -> Any:  # Any: whatever a release of cosmos-xenna holds there
    """Return the value at a path of attributes as JSON can represent it, None where there is none."""
    try:
        return json_ready(_getter(path)(source))
    except Exception:
        return None


class Pipeline:
    """One pipeline, whose statistics arrive one after the other; `number` counts those of a run.

    It remembers the last statistics, which throughput and the totals at the end need.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.stages: list[dict[str, object]] = []  # as records list them
        self._names: list[str | None] = []
        self._keys: list[str | None] = []
        self._started: float | None = None
        self._time: float | None = None
        self._completed: dict[str, float] = {}
        self._to_do: float | None = None  # tasks of the first stage, as estimated last

    def metrics(self, snapshot: Snapshot) -> Metrics:
        """Return all metrics of a record, by key without a prefix.

        Each call advances the state by one record.
        """
        of_pipeline = snapshot.pipeline
        self._started = of_pipeline.get("start_time")
        pools = self._pools(snapshot.pools)
        self._to_do = _first_to_do(of_pipeline, pools)
        metrics = {**_pipeline_metrics(of_pipeline), **_cluster_metrics(of_pipeline)}
        metrics |= self._sums(pools)
        metrics |= {f"stage/{key}/{name}": value for key, pool in pools for name, value in pool.items()}
        # After `_pools`, which knows the keys of the stages.
        metrics |= self._throughput(of_pipeline.get("time"), pools)
        metrics |= _bottlenecks(pools, of_pipeline.get("num_input_remaining", 0))
        metrics |= self._usage(snapshot)
        return metrics

    def totals(self, taken_at: float, copies: Sequence[PoolCopy]) -> Metrics:
        """Return what is known once the pipeline has ended: its totals, and no gauge of what has ended."""
        pools = self._pools(copies)
        if pools and self._to_do is not None:
            # The estimate was made while the pipeline ran: by the end the first stage may have been given
            # more.
            self._to_do = max(self._to_do, _tasks_given(pools[0][1]))
        metrics = self._sums(pools)
        if self._started is not None:
            metrics["pipeline_duration_s"] = taken_at - self._started
        for key, pool in pools:
            totals = ("tasks_completed", "tasks_failed")
            metrics |= {f"stage/{key}/{name}": pool[name] for name in totals if name in pool}
        return metrics

    def _pools(self, copies: Sequence[PoolCopy]) -> list[tuple[str, Pool]]:
        """Return the stages by key, and update the list of stages where their names changed."""
        names = [copy.name for copy in copies]
        # Names are the same from record to record: keys are computed once.
        if names != self._names:
            self._names, self._keys = names, stage_keys(names)
            named = enumerate(zip(self._keys, names, strict=True))
            self.stages = [{"index": i, "name": key, "stage": str(name)} for i, (key, name) in named if key]
        keyed = zip(self._keys, copies, strict=True)
        return [(key, copy.numbers) for key, copy in keyed if key]

    def _sums(self, pools: list[tuple[str, Pool]]) -> Metrics:
        """Return the figures over all stages; failed tasks only where every stage counts them."""
        metrics: Metrics = {}
        share = None if self._to_do is None else _completed_share([pool for _, pool in pools], self._to_do)
        if share is not None:
            metrics["progress_stages"] = 100.0 * share
        if pools and all("tasks_failed" in pool for _, pool in pools):
            metrics["tasks_failed"] = sum(pool["tasks_failed"] for _, pool in pools)
        return metrics

    def _throughput(self, time: float | None, pools: list[tuple[str, Pool]]) -> Metrics:
        """Return the tasks completed per second since the statistics before these.

        A count that fell, or a time that did not advance, gives none.
        """
        completed = {key: pool["tasks_completed"] for key, pool in pools if "tasks_completed" in pool}
        before, earlier = self._completed, self._time
        self._completed, self._time = completed, time
        if time is None or earlier is None or time <= earlier:
            return {}
        return {
            f"stage/{key}/throughput_tasks_per_s": (count - before[key]) / (time - earlier)
            for key, count in completed.items()
            if key in before and count >= before[key]
        }

    def _usage(self, snapshot: Snapshot) -> Metrics:
        """Return the resource usage of each stage.

        Upstream has it by name, also for actors of no stage ("").
        """
        metrics: Metrics = {}
        for name, key in zip(self._names, self._keys, strict=True):
            if key and isinstance(name, str) and name in snapshot.usage:
                usage = dict(snapshot.usage[name])
                if "mem" in usage:
                    usage["mem_gb"] = usage.pop("mem") / _GIGA
                metrics |= {f"stage/{key}/resource/{one}": value for one, value in usage.items()}
        return metrics


def flatten_stats(stats: object, prefix: str = "xenna/") -> Metrics:
    """Return one `PipelineStats` as W&B shows it, for a callback of cosmos-xenna's own, when there is one.

    Without what takes two of them: throughput. Never raises: what is not there is left out.
    """
    snapshot = copy_stats(stats, 0.0, None)
    return {f"{prefix}{key}": value for key, value in Pipeline().metrics(snapshot).items()}


def _pipeline_metrics(known: Metrics) -> Metrics:
    """Return the metrics of the pipeline; rates are 0 while no time has passed."""
    counts = ("num_initial_inputs", "num_input_remaining", "num_outputs")
    same = ("pipeline_duration_s", "main_loop_rate_hz", *counts)
    metrics = {key: known[key] for key in same if key in known}
    initial, remaining = known.get("num_initial_inputs"), known.get("num_input_remaining")
    if initial and remaining is not None and 0 <= remaining <= initial:
        metrics["progress"] = 100.0 * (initial - remaining) / initial
    if "time" in known and "start_time" in known:
        seconds = known["time"] - known["start_time"]
        if initial is not None and remaining is not None:
            metrics["inputs_processed_per_s"] = (initial - remaining) / seconds if seconds > 0 else 0.0
        if "num_outputs" in known:
            metrics["outputs_per_s"] = known["num_outputs"] / seconds if seconds > 0 else 0.0
    return metrics


def _cluster_metrics(known: Metrics) -> Metrics:
    counts = ("total_cpus", "total_gpus", "avail_cpus", "avail_gpus")
    metrics = {f"cluster/{key}": known[key] for key in counts if key in known}
    sizes = ("total_mem", "avail_mem", "total_obj_store", "avail_obj_store")
    return metrics | {f"cluster/{key}_gb": known[key] / _GIGA for key in sizes if key in known}


def _tasks_given(pool: Pool) -> float:
    """Return the tasks that a stage has been given: completed, queued and in progress."""
    return sum(pool[key] for key in ("tasks_completed", "queue_in", "slots_used") if key in pool)


def _first_to_do(known: Metrics, pools: list[tuple[str, Pool]]) -> float | None:
    """Return how many tasks the first stage will have had; None if unknown.

    Estimated from the inputs per task of those it was given. In batch mode it was given all of them, and
    upstream counts the inputs as remaining for ever.
    """
    initial, remaining = known.get("num_initial_inputs", 0), known.get("num_input_remaining")
    if not pools or remaining is None or not 0 <= remaining <= initial or initial <= 0:
        return None
    given, taken = _tasks_given(pools[0][1]), initial - remaining
    if not given:
        return initial
    return given * initial / taken if taken else given


def _completed_share(pools: Sequence[Pool], to_do: float) -> float | None:
    """Return the mean of the shares that the stages have completed, each of what it will have to do.

    That is estimated from stage to stage: tasks given per task completed by the one before. Upstream's own
    progress covers the input queue only.
    """
    shares: list[float] = []
    before: Pool | None = None
    for pool in pools:
        if "tasks_completed" not in pool:
            return None
        if before and before["tasks_completed"]:
            coming = _tasks_given(pool) + before.get("queue_out", 0)
            to_do = to_do * coming / before["tasks_completed"] if coming else to_do
        shares.append(min(1.0, pool["tasks_completed"] / to_do) if to_do else 0.0)
        before = pool
    return sum(shares) / len(shares) if shares else None


def _bottlenecks(pools: list[tuple[str, Pool]], inputs: float) -> Metrics:
    """Return 1 for a stage with at least as much work as slots while its successor, if any, has idle actors.

    0 for any other; absent where a number is missing. `inputs` wait before the first stage.
    """
    metrics: Metrics = {}
    waiting = inputs
    for (key, pool), successor in zip_longest(pools, [pool for _, pool in pools[1:]]):
        needed = {"queue_in", "queue_out", "slots_used", "slots_empty"}
        if needed <= pool.keys() and (
            successor is None or {"actors_running", "actors_idle"} <= successor.keys()
        ):
            # Work that waits before the stage counts as well: it is in the output queue of the stage before.
            slots = pool["slots_used"] + pool["slots_empty"]
            full = slots > 0 and waiting + pool["queue_in"] + pool["slots_used"] >= slots
            idle = successor is None or not successor["actors_running"] or successor["actors_idle"] > 0
            metrics[f"stage/{key}/bottleneck"] = int(full and idle)
        waiting = pool.get("queue_out", 0)
    return metrics


def stage_keys(names: Sequence[object]) -> list[str | None]:
    """Return a key for each stage, in order; None for a stage without a name.

    Keys are in snake case, with the index of the stage where two would collide.
    """
    found = [_snake(str(name)) if name not in ("", None) else None for name in names]
    # Two stages of one class differ upstream only in the number of their name, which is stripped.
    counts = Counter(found)
    taken = {key for key, count in counts.items() if count == 1}
    keys: list[str | None] = []
    for index, key in enumerate(found):
        unique = key
        if key is not None and counts[key] > 1:
            unique = f"{key}_{index}"
            while unique in taken:
                unique = f"{unique}_{index}"
            taken.add(unique)
        keys.append(unique)
    return keys


def _snake(name: str) -> str:
    # `HTTPServer` becomes `http_server`: first the end of an acronym, then each capital after a small letter.
    text = _AFTER_ACRONYM.sub(r"\1_\2", _NUMBERED.sub("", name))
    text = _OTHER.sub("_", _AFTER_WORD.sub(r"\1_\2", text)).strip("_").lower()
    return text[:_MAX_NAME] or "stage"
