"""The dashboard and the monitors of pipelines."""

from __future__ import annotations

from collectors.xenna import metrics as m
from common.dashboard import (
    Condition,
    Dashboard,
    Monitor,
    Section,
    Views,
    Widget,
    bad_above,
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
    return tuple(families[family][key] for key in keys)


def _cluster(title: str, key: str) -> Widget:
    """Return a chart of a resource of each run's cluster: its total and what is available."""
    return line(title, *_of("cluster", f"total_{key}", f"avail_{key}"), by=_RUN)


PIPELINES = Dashboard(
    "pipelines",
    "Pipelines",
    "How far data-preparation pipelines are, which stage is the bottleneck, and which have stopped writing. "
    "Progress counts inputs taken, so that it reaches 100 while later stages still work; progress of the "
    "stages does not.",
    (
        Section(
            "Overview",
            (
                value("Active runs", m.ACTIVE),
                value("Stalled runs", m.STALLED, colours=bad_above(0)),
                value("Failed runs", m.ENDED, where=("status:error",), colours=bad_above(0)),
            ),
        ),
        Section(
            "Progress",
            (
                line("Progress by run", *_of("pipeline", "progress"), by=_RUN),
                line("Stage progress by run", *_of("pipeline", "progress_stages"), by=_RUN),
                line(
                    "Inputs and outputs",
                    *_of("pipeline", "num_initial_inputs", "num_input_remaining", "num_outputs"),
                ),
                line(
                    "Throughput by run", *_of("pipeline", "inputs_processed_per_s", "outputs_per_s"), by=_RUN
                ),
                line("Failed tasks by run", *_of("pipeline", "tasks_failed"), by=_RUN),
                table(
                    "Runs",
                    *_of("pipeline", "pipeline_duration_s", "main_loop_rate_hz"),
                    m.LAST_RECORD_AGE,
                    by=_RUN,
                    hours=True,
                ),
                line("Stalled runs by run", m.STALLED, by=_RUN),
                bars("Ended runs by status", m.ENDED, by=("status",)),
            ),
        ),
        Section(
            "Stages",
            (
                toplist("Bottleneck stages", *_of("stage", "bottleneck"), by=("stage",)),
                line("Throughput by stage", *_of("stage", "throughput_tasks_per_s"), by=("stage",)),
                heat_map("Input queue by stage (heat map)", *_of("stage", "queue_in"), by=("stage",)),
                line("Queues by stage", *_of("stage", "queue_in", "queue_out"), by=("stage",)),
                line(
                    "Completed and failed tasks by stage",
                    *_of("stage", "tasks_completed", "tasks_failed"),
                    by=("stage",),
                ),
                line("Actor speed by stage", *_of("stage", "speed_tasks_per_s"), by=("stage",)),
                line(
                    "Actors by state",
                    *_of("stage", "actors_running", "actors_idle", "actors_ready", "actors_pending"),
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
                _cluster("CPUs by run", "cpus"),
                _cluster("GPUs by run", "gpus"),
                _cluster("Memory by run", "mem_gb"),
                _cluster("Object store by run", "obj_store_gb"),
            ),
        ),
    ),
    _PAGES,
)

MONITORS = (
    Monitor(
        "pipeline-stalled",
        "Pipeline {{run_hash.name}} has stalled",
        Condition((m.STALLED,), *("min", "30m", ">", 0.0), by=_RUN),
        "a run counts as stalled after its own silence (stalled_after); two ticks in a row are no late file",
        "The pipeline {{pipeline_kind.name}} {{run_hash.name}} has not ended and writes nothing any more.",
        "It occupies its cluster, and its data will be late.",
        "Look at the driver's log and Ray's dashboard: a dead actor, a full object store, a lost node.",
        "docs/probes.md",
        priority=2,
    ),
    Monitor(
        "pipeline-error",
        "A pipeline ended in an error",
        Condition((m.ENDED,), *("sum", "1h", ">", 0.0), where=("status:error",)),
        "every pipeline that ends so leaves its outputs incomplete",
        "{{value}} pipelines ended in an error in the last hour.",
        "What they should have written is missing or partial.",
        "Find the run on the dashboard Pipelines, read its last records and the driver's log, and start "
        "it again.",
        "docs/probes.md",
    ),
    *ingest_monitors("xenna", m.INGEST),
)

VIEWS = Views(
    (PIPELINES,),
    (ingest_section("Reading of pipelines", m.INGEST),),
    MONITORS,
    {_of("stage", "actors_target")[0]: "cosmos-xenna always reports 0"},
)
