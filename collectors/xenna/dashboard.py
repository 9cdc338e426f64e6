"""The dashboard and the monitors of pipelines."""

from __future__ import annotations

from collectors.xenna import metrics as m
from common.dashboard import (
    Dashboard,
    Monitor,
    Section,
    Views,
    Widget,
    bars,
    heat_map,
    line,
    table,
    toplist,
    value,
)
from common.metric import Metric
from common.records.ingest import ingest_monitors, ingest_section

_PAGES = ("collectors/xenna/README.md", "docs/metrics.md")
_RUN = ("pipeline_kind", "run_hash")


def _of(family: str, *keys: str) -> tuple[Metric, ...]:
    families = {"pipeline": m.PIPELINE, "cluster": m.CLUSTER, "stage": m.STAGE}
    return tuple(families[family][key].metric for key in keys)


def _free(what: str, key: str) -> Widget:
    """What there is of a resource, and what of it is free."""
    return line(what, *_of("cluster", f"total_{key}", f"avail_{key}"))


PIPELINES = Dashboard(
    "pipelines",
    "Pipelines",
    "How far data-preparation pipelines are, which stage holds them up, and which have stopped writing. "
    "Progress counts inputs taken, so that it reaches 100 while later stages still work; progress of the "
    "stages does not.",
    (
        Section(
            "Overview",
            (
                value("Active runs", m.ACTIVE),
                value("Stalled runs", m.STALLED),
                value("Runs that failed", m.ENDED, where=("status:error",)),
            ),
        ),
        Section(
            "Progress",
            (
                line("Progress by run", *_of("pipeline", "progress"), by=_RUN),
                line("Progress of the stages by run", *_of("pipeline", "progress_stages"), by=_RUN),
                line(
                    "Inputs and outputs",
                    *_of("pipeline", "num_initial_inputs", "num_input_remaining", "num_outputs"),
                ),
                line("Speed by run", *_of("pipeline", "inputs_processed_per_s", "outputs_per_s"), by=_RUN),
                line("Failed tasks by run", *_of("pipeline", "tasks_failed"), by=_RUN),
                table(
                    "Runs",
                    *_of("pipeline", "pipeline_duration_s", "main_loop_rate_hz"),
                    m.LAST_RECORD_AGE,
                    by=_RUN,
                ),
                line("Stalled runs", m.STALLED, by=_RUN),
                bars("Runs that ended by status", m.ENDED, by=("status",)),
            ),
        ),
        Section(
            "Stages",
            (
                toplist("Bottleneck", *_of("stage", "bottleneck"), by=("stage",)),
                line("Throughput by stage", *_of("stage", "throughput_tasks_per_s"), by=("stage",)),
                heat_map("Tasks that wait in front of a stage", *_of("stage", "queue_in"), by=("stage",)),
                line("Tasks that wait by stage", *_of("stage", "queue_in", "queue_out"), by=("stage",)),
                line("Tasks by stage", *_of("stage", "tasks_completed", "tasks_failed"), by=("stage",)),
                line("Speed of one actor by stage", *_of("stage", "speed_tasks_per_s"), by=("stage",)),
                bars(
                    "Actors", *_of("stage", "actors_running", "actors_idle", "actors_ready", "actors_pending")
                ),
                line("Slots", *_of("stage", "slots_used", "slots_empty")),
                line("CPU by stage", *_of("stage", "resource/cpu_util_pct"), by=("stage",)),
                line("Memory by stage", *_of("stage", "resource/mem_gb"), by=("stage",)),
                line("Actors measured by stage", *_of("stage", "resource/actor_count"), by=("stage",)),
            ),
        ),
        Section(
            "Ray cluster",
            (
                _free("CPUs", "cpus"),
                _free("GPUs", "gpus"),
                _free("Memory", "mem_gb"),
                _free("Object store", "obj_store_gb"),
            ),
        ),
    ),
    _PAGES,
)

MONITORS = (
    Monitor(
        "pipeline-stalled",
        "Pipeline {{run_hash.name}} has stalled",
        m.STALLED,
        *("min", "30m", ">", 0.0),
        "a run counts as stalled after its own silence (stalled_after); two ticks in a row are no late file",
        "The pipeline {{pipeline_kind.name}} {{run_hash.name}} has not ended and writes nothing any more.",
        "It holds its cluster, and its data will not be there when they are expected.",
        "Look at the driver's log and at Ray's dashboard: a dead actor, a full object store, a lost node.",
        "docs/probes.md",
        by=_RUN,
        priority=2,
    ),
    Monitor(
        "pipeline-error",
        "A pipeline ended in an error",
        m.ENDED,
        *("sum", "1h", ">", 0.0),
        "every pipeline that ends so leaves its outputs incomplete",
        "{{value}} pipelines ended in an error in the last hour.",
        "What they should have written is missing or partial.",
        "Find the run on the dashboard Pipelines, read its last records and the driver's log, and start it "
        "again.",
        "docs/probes.md",
        where=("status:error",),
    ),
    *ingest_monitors("xenna", m.INGEST),
)

VIEWS = Views(
    (PIPELINES,),
    (ingest_section("Reading of pipelines", m.INGEST),),
    MONITORS,
    {_of("stage", "actors_target")[0]: "cosmos-xenna always says 0"},
)
