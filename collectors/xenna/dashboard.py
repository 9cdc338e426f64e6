"""The dashboard and the monitors of pipelines."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.xenna import metrics as m
from common import dashboard as d
from common.metric import Metric
from common.records.ingest import record_views

_RUN = ("pipeline_kind", "run_hash")
_STAGE = ("stage",)
_RUNS, _STAGES, _CLUSTER = m.PIPELINE, m.STAGE, m.CLUSTER


def _line(title: str, family: Mapping[str, Metric], *keys: str, by: tuple[str, ...] = ()) -> d.Widget:
    """Return a chart of the metrics of some keys of a record."""
    return d.line(title, *(family[key] for key in keys), by=by)


PIPELINES = d.Dashboard(
    "pipelines",
    "Pipelines",
    "How far data-preparation pipelines are, which stage is the bottleneck, and which have stopped writing. "
    "Progress counts inputs taken, so that it reaches 100 while later stages still work; progress of the "
    "stages does not.",
    {
        "Overview": (
            d.value("Active runs", m.ACTIVE),
            d.value("Stalled runs", m.STALLED, colours=d.bad_above(0)),
            d.value("Failed runs", m.ENDED, where=("status:error",), colours=d.bad_above(0)),
        ),
        "Progress": (
            _line("Progress by run", _RUNS, "progress", by=_RUN),
            _line("Stage progress by run", _RUNS, "progress_stages", by=_RUN),
            _line("Inputs and outputs", _RUNS, "num_initial_inputs", "num_input_remaining", "num_outputs"),
            _line("Throughput by run", _RUNS, "inputs_processed_per_s", "outputs_per_s", by=_RUN),
            _line("Failed tasks by run", _RUNS, "tasks_failed", by=_RUN),
            d.table(
                "Runs",
                *(_RUNS["pipeline_duration_s"], _RUNS["main_loop_rate_hz"], m.LAST_RECORD_AGE),
                by=_RUN,
                hours=True,
            ),
            d.line("Stalled runs by run", m.STALLED, by=_RUN),
            d.bars("Ended runs by status", m.ENDED, by=("status",)),
        ),
        "Stages": (
            d.toplist("Bottleneck stages", _STAGES["bottleneck"], by=_STAGE),
            _line("Throughput by stage", _STAGES, "throughput_tasks_per_s", by=_STAGE),
            d.heat_map("Input queue by stage (heat map)", _STAGES["queue_in"], by=_STAGE),
            _line("Queues by stage", _STAGES, "queue_in", "queue_out", by=_STAGE),
            _line(
                "Completed and failed tasks by stage", _STAGES, "tasks_completed", "tasks_failed", by=_STAGE
            ),
            _line("Actor speed by stage", _STAGES, "speed_tasks_per_s", by=_STAGE),
            _line(
                "Actors by state", _STAGES, "actors_running", "actors_idle", "actors_ready", "actors_pending"
            ),
            _line("Slots", _STAGES, "slots_used", "slots_empty"),
            _line("CPU by stage", _STAGES, "resource/cpu_util_pct", by=_STAGE),
            _line("Memory by stage", _STAGES, "resource/mem_gb", by=_STAGE),
            _line("Actors measured by stage", _STAGES, "resource/actor_count", by=_STAGE),
        ),
        "Ray cluster": (
            _line("CPUs by run", _CLUSTER, "total_cpus", "avail_cpus", by=_RUN),
            _line("GPUs by run", _CLUSTER, "total_gpus", "avail_gpus", by=_RUN),
            _line("Memory by run", _CLUSTER, "total_mem_gb", "avail_mem_gb", by=_RUN),
            _line("Object store by run", _CLUSTER, "total_obj_store_gb", "avail_obj_store_gb", by=_RUN),
        ),
    },
    ("collectors/xenna/README.md", "docs/metrics.md"),
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
)

VIEWS = record_views("xenna", PIPELINES, *MONITORS)
