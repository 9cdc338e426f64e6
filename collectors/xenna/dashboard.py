"""The dashboard and the monitors of pipelines."""

from __future__ import annotations

from collectors.xenna import metrics as m
from common import dashboard as d
from common.metric import Metric
from common.records.ingest import ingest_section, late_monitor

_PAGES = ("collectors/xenna/README.md", "docs/metrics.md")
_RUN = ("pipeline_kind", "run_hash")


def _stage(*keys: str) -> tuple[Metric, ...]:
    return tuple(m.STAGE[key] for key in keys)


def _pipeline(*keys: str) -> tuple[Metric, ...]:
    return tuple(m.PIPELINE[key] for key in keys)


def _cluster(title: str, key: str) -> d.Widget:
    """Return a chart of a resource of each run's cluster: its total and what is available."""
    return d.line(title, m.CLUSTER[f"total_{key}"], m.CLUSTER[f"avail_{key}"], by=_RUN)


PIPELINES = d.Dashboard(
    "pipelines",
    "Pipelines",
    "How far data-preparation pipelines are, which stage is the bottleneck, and which have stopped writing. "
    "Progress counts inputs taken, so that it reaches 100 while later stages still work; progress of the "
    "stages does not.",
    (
        d.Section(
            "Overview",
            (
                d.value("Active runs", m.ACTIVE),
                d.value("Stalled runs", m.STALLED, colours=d.bad_above(0)),
                d.value("Failed runs", m.ENDED, where=("status:error",), colours=d.bad_above(0)),
            ),
        ),
        d.Section(
            "Progress",
            (
                d.line("Progress by run", *_pipeline("progress"), by=_RUN),
                d.line("Stage progress by run", *_pipeline("progress_stages"), by=_RUN),
                d.line(
                    "Inputs and outputs",
                    *_pipeline("num_initial_inputs", "num_input_remaining", "num_outputs"),
                ),
                d.line("Throughput by run", *_pipeline("inputs_processed_per_s", "outputs_per_s"), by=_RUN),
                d.line("Failed tasks by run", *_pipeline("tasks_failed"), by=_RUN),
                d.table(
                    "Runs",
                    *_pipeline("pipeline_duration_s", "main_loop_rate_hz"),
                    m.LAST_RECORD_AGE,
                    by=_RUN,
                    hours=True,
                ),
                d.line("Stalled runs by run", m.STALLED, by=_RUN),
                d.bars("Ended runs by status", m.ENDED, by=("status",)),
            ),
        ),
        d.Section(
            "Stages",
            (
                d.toplist("Bottleneck stages", *_stage("bottleneck"), by=("stage",)),
                d.line("Throughput by stage", *_stage("throughput_tasks_per_s"), by=("stage",)),
                d.heat_map("Input queue by stage (heat map)", *_stage("queue_in"), by=("stage",)),
                d.line("Queues by stage", *_stage("queue_in", "queue_out"), by=("stage",)),
                d.line(
                    "Completed and failed tasks by stage",
                    *_stage("tasks_completed", "tasks_failed"),
                    by=("stage",),
                ),
                d.line("Actor speed by stage", *_stage("speed_tasks_per_s"), by=("stage",)),
                d.line(
                    "Actors by state",
                    *_stage("actors_running", "actors_idle", "actors_ready", "actors_pending"),
                ),
                d.line("Slots", *_stage("slots_used", "slots_empty")),
                d.line("CPU by stage", *_stage("resource/cpu_util_pct"), by=("stage",)),
                d.line("Memory by stage", *_stage("resource/mem_gb"), by=("stage",)),
                d.line("Actors measured by stage", *_stage("resource/actor_count"), by=("stage",)),
            ),
        ),
        d.Section(
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
    d.Monitor(
        "pipeline-stalled",
        "Pipeline {{run_hash.name}} has stalled",
        d.Condition((m.STALLED,), *("min", "30m", ">", 0.0), by=_RUN),
        "a run counts as stalled after its own silence (stalled_after); two ticks in a row are no late file",
        "The pipeline {{pipeline_kind.name}} {{run_hash.name}} has not ended and writes nothing any more.",
        "It occupies its cluster, and its data will be late.",
        "Look at the driver's log and Ray's dashboard: a dead actor, a full object store, a lost node.",
        "docs/probes.md",
        priority=2,
    ),
    d.Monitor(
        "pipeline-error",
        "A pipeline ended in an error",
        d.Condition((m.ENDED,), *("sum", "1h", ">", 0.0), where=("status:error",)),
        "every pipeline that ends so leaves its outputs incomplete",
        "{{value}} pipelines ended in an error in the last hour.",
        "What they should have written is missing or partial.",
        "Find the run on the dashboard Pipelines, read its last records and the driver's log, and start "
        "it again.",
        "docs/probes.md",
    ),
    late_monitor("xenna"),
)

VIEWS = d.Views(
    (PIPELINES,),
    (ingest_section("Reading of pipelines", "xenna"),),
    MONITORS,
    {_stage("actors_target")[0]: "cosmos-xenna always reports 0"},
)
