"""Metrics of the xenna collector, and the keys of a record that they are read from."""

from __future__ import annotations

import re
from functools import lru_cache

from common.metric import Combine, Metric, count, gauge

RUN_TAGS = ("pipeline_kind", "rank", "run_hash")
PIPELINE_TAGS = ("pipeline", *RUN_TAGS)  # the number of a pipeline in its run, absent for the first
STAGE_TAGS = (*PIPELINE_TAGS, "stage")


def _family(prefix: str, tags: tuple[str, ...], *rows: tuple[str, str, Combine, str]) -> dict[str, Metric]:
    """Declare metrics named after the keys of a record, with a dot for each `/`, and return them by key.

    Values of several runs combine as those of several series do.
    """
    return {
        key: gauge(f"{prefix}.{key.replace('/', '.')}", unit, text, *tags, combines=combine)
        for key, unit, combine, text in rows
    }


SUM, MEAN, MAX = Combine.SUM, Combine.MEAN, Combine.MAX

PIPELINE = _family(
    "xenna.pipeline",
    PIPELINE_TAGS,
    ("pipeline_duration_s", "second", MEAN, "How long the pipeline has been running."),
    ("main_loop_rate_hz", "hertz", MEAN, "Iterations of the pipeline's main loop per second."),
    ("progress", "percent", MEAN, "Inputs taken from the input queue; 100 while later stages still work."),
    ("progress_stages", "percent", MEAN, "Tasks completed over all stages, as a share of all tasks."),
    ("num_initial_inputs", "task", SUM, "Inputs of the pipeline."),
    ("num_input_remaining", "task", SUM, "Inputs still in the input queue."),
    ("num_outputs", "task", SUM, "Outputs stored; 0 unless the pipeline returns its last stage's outputs."),
    ("inputs_processed_per_s", "task", MEAN, "Inputs taken per second since the start."),
    ("outputs_per_s", "task", MEAN, "Outputs per second since the start."),
    ("tasks_failed", "task", SUM, "Tasks of all stages that returned nothing."),
)

CLUSTER = _family(
    "xenna.cluster",
    PIPELINE_TAGS,
    ("total_cpus", "core", MEAN, "CPUs of the Ray cluster."),
    ("avail_cpus", "core", MEAN, "CPUs that Ray has not allocated; stage actors request none."),
    ("total_gpus", "device", MEAN, "GPUs of the Ray cluster."),
    ("avail_gpus", "device", MEAN, "GPUs that Ray has not allocated."),
    ("total_mem_gb", "gigabyte", MEAN, "Memory of the Ray cluster, in 10^9 bytes."),
    ("avail_mem_gb", "gigabyte", MEAN, "Memory that Ray has not allocated, in 10^9 bytes."),
    ("total_obj_store_gb", "gigabyte", MEAN, "Object store of the Ray cluster, in 10^9 bytes."),
    ("avail_obj_store_gb", "gigabyte", MEAN, "Object store that is free, in 10^9 bytes."),
)

STAGE = _family(
    "xenna.stage",
    STAGE_TAGS,
    ("actors_target", "process", SUM, "Target number of actors; cosmos-xenna always reports 0."),
    ("actors_pending", "process", SUM, "Actors that are being started."),
    ("actors_ready", "process", SUM, "Actors that are ready for work."),
    ("actors_running", "process", SUM, "Actors that are working."),
    ("actors_idle", "process", SUM, "Actors without a task."),
    ("tasks_completed", "task", SUM, "Tasks completed since the start."),
    ("tasks_failed", "task", SUM, "Tasks that returned nothing since the start."),
    ("queue_in", "task", SUM, "Tasks in the input queue of the stage."),
    ("queue_out", "task", SUM, "Tasks in the output queue of the stage."),
    ("slots_used", "task", SUM, "Slots of the stage's actors that hold a task."),
    ("slots_empty", "task", SUM, "Slots of the stage's actors that are free."),
    ("speed_tasks_per_s", "task", MEAN, "Median speed of one actor, in tasks per second."),
    (
        *("throughput_tasks_per_s", "task", SUM),
        "Tasks that all actors of the stage completed per second, recently.",
    ),
    ("bottleneck", "", MEAN, "1 where the input queue is full and the next stage idle, 0 otherwise."),
    ("resource/cpu_util_pct", "percent", MEAN, "CPU of the stage's actors, summed: 100 is one core."),
    ("resource/mem_gb", "gigabyte", SUM, "Memory of the stage's actors, in 10^9 bytes."),
    ("resource/actor_count", "process", SUM, "Actors whose resources were measured."),
)

LAST_RECORD_AGE, STALLED = _family(
    "xenna.run",
    RUN_TAGS,
    ("last_record_age_seconds", "second", MAX, "Time since the last record of a run that has not ended."),
    (
        *("stalled", "", SUM),
        "1 when a run that has not ended has written nothing for longer than stalled_after, 0 otherwise.",
    ),
).values()
ACTIVE = gauge("xenna.runs.active", "run", "Runs that have not ended and are not stalled.", combines=SUM)
ENDED = count("xenna.runs.ended", "run", "Runs that ended, by their status: ok or error.", "status")

METRICS = (*PIPELINE.values(), *CLUSTER.values(), *STAGE.values(), ENDED)
# Known only for the time of a run: a pipeline that was stalled then may have continued since.
CURRENT = (LAST_RECORD_AGE, STALLED, ACTIVE)


@lru_cache(maxsize=10_000)
def find(key: str) -> tuple[Metric, str] | None:
    """Return the metric of a record's key and the stage in it, if any; None for an undeclared key."""
    key = key.lstrip("/")
    family, _, name = key.partition("/")
    metrics, stage = {"cluster": CLUSTER, "stage": STAGE, "stages": STAGE}.get(family, PIPELINE), ""
    if family == "cluster":
        key = name
    elif family == "stage":
        stage, _, key = name.partition("/")
    elif family == "stages":  # Nemotron's later hook: `stages/<name>/<stage>`, with `resource_` as prefix
        key, _, stage = name.rpartition("/")
        key = re.sub("^resource_", "resource/", key)
    metric = metrics.get(key)
    return (metric, stage) if metric and bool(stage) == (metrics is STAGE) else None
