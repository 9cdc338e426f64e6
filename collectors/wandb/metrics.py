"""The metrics of the W&B collector, each with its formula. All are gauges, true at their tick.

The window is the 24 hours (`FLEETGAUGE_WANDB_WINDOW`) up to the tick, both ends included. The end of a run is
its last heartbeat, once its state is terminal. docs/metrics.md and metadata.csv are generated from these
declarations; `ledger` and `utilization` compute them.
"""

from __future__ import annotations

from common.metric import Combine, Metric, gauge

_TAGS = ("entity", "project")
_GROUP_TAGS = ("user", "gpu_type", "group", "job_type", "kind")


def _gauge(name: str, unit: str, text: str, *tags: str, combines: Combine = Combine.SUM) -> Metric:
    """Declare a metric of a project."""
    return gauge(f"wandb.{name}", unit, text, *_TAGS, *tags, combines=combines)


def _single(name: str, unit: str, text: str, *tags: str) -> Metric:
    """Declare a metric whose series do not combine: a mean, a rate, or the value of one run."""
    return _gauge(name, unit, text, *tags, combines=Combine.NONE)


ACTIVE = _gauge(
    "runs.active",
    "run",
    "Runs that have started and not ended, whatever their age; a run in state running counts while its "
    "heartbeat is younger than 15 minutes.",
)
COMPLETED = _gauge("runs.completed_24h", "run", "Runs that ended in the window as finished.")
FAILED = _gauge("runs.failed_24h", "run", "Runs that ended in the window as failed or crashed.")
CRASHED = _gauge("runs.crashed_24h", "run", "Runs that ended in the window as crashed; part of failed_24h.")
KILLED = _gauge("runs.killed_24h", "run", "Runs that ended in the window as killed.")
PREEMPTED = _gauge("runs.preempted_24h", "run", "Runs that ended in the window as preempted.")
TOTAL_RECENT = _gauge("runs.total_recent", "run", "Runs that ended in the window in any state, plus active.")
PENDING = _gauge(
    "runs.pending",
    "run",
    "Runs that wait to start, created less than 30 days ago (FLEETGAUGE_WANDB_PENDING_FOR).",
)
STARTED = _gauge("runs.started_24h", "run", "Runs created in the window, pending ones included.")
OLDEST_PENDING = _gauge(
    "runs.oldest_pending_seconds",
    "second",
    "Age of the oldest run in runs.pending. Absent when none waits.",
    combines=Combine.MAX,
)
STALE = _gauge(
    "runs.stale",
    "run",
    "Runs in state running whose last heartbeat is 15 minutes old or older, whatever their age.",
)
UNSEEN = _gauge(
    "runs.unseen",
    "run",
    "Runs that W&B counts in its listing but does not return: hidden from the key, or not servable.",
)

# Durations and GPU time.
AVG_DURATION = _single(
    "training.avg_duration_hours",
    "hour",
    "Mean duration of the runs that ended in the window: computeSeconds where positive, else the summary's "
    "_wandb.runtime where positive, else end - start. Absent when none ended.",
)
_LASTING = "of the runs that ended in the window. Absent when none ended."
DURATION_P50, DURATION_P95, DURATION_MAX = (
    _gauge(f"training.duration_hours.{name}", "hour", f"{what} {_LASTING}", combines=combines)
    for name, what, combines in (
        ("p50", "Median duration (nearest rank)", Combine.NONE),
        ("p95", "Duration that 95 % stay within (nearest rank)", Combine.NONE),
        ("max", "Longest duration", Combine.MAX),
    )
)
DURATIONS = {DURATION_P50: 50, DURATION_P95: 95, DURATION_MAX: 100}
GPU_HOURS = _gauge(
    "training.total_gpu_hours_24h",
    "hour",
    "GPU hours worked in the window, at most: the sum over runs of the overlap of [begin, end] with the "
    "window x GPUs of the run. The end is the tick for an active run and the last heartbeat for any other; "
    "the begin is the later of the start and heartbeat - computeSeconds, so that the pauses of resumed runs "
    "do not count. A pending run counts for its computeSeconds only.",
)
GPUS_IN_USE = _gauge("training.gpus_in_use", "", "Sum of the GPUs of active runs.")
GPUS_ASSUMED = _gauge(
    "training.gpu_count_assumed_runs",
    "run",
    "Of the runs in runs.total_recent, those whose number of GPUs is unknown, so that a default "
    "(FLEETGAUGE_WANDB_ASSUMED_GPUS) is assumed.",
)

UTILIZATION = _single(
    "training.gpu_utilization_pct",
    "percent",
    "100 x usage.gpus_busy / usage.gpus_reporting over the project. Absent when no GPU reports.",
)

# Push-to-main runs, by the pattern of their names.
PUSH_COMPLETED = _gauge(
    "push_to_main.runs_completed_24h", "run", "Push-to-main runs that ended in the window as finished."
)
PUSH_FAILED = _gauge(
    "push_to_main.runs_failed_24h", "run", "Push-to-main runs that ended in the window as failed or crashed."
)
PUSH_SUCCESS = _single(
    "push_to_main.success_rate_pct",
    "percent",
    "100 x runs_completed_24h / (runs_completed_24h + runs_failed_24h). Absent when both are 0.",
)
PUSH_AVG_DURATION = _single(
    "push_to_main.avg_duration_hours",
    "hour",
    "Mean duration of the push-to-main runs that ended in the window. Absent when none ended.",
)
_OF_LATEST_RUN = (
    "of the push-to-main run that ended last in the window, finished or crashed, and has any of the five "
    "throughput keys. Absent when that run lacks this one."
)
THROUGHPUT = {  # by summary key
    key: _single(f"push_to_main.{key.replace('/', '.')}", "", f"Summary key {key} {_OF_LATEST_RUN}")
    for key in (
        "overview/steps_per_second",
        "overview/epoch_steps_per_second",
        "overview/sps",
        "timing_cumulative/sps",
        "timing_per_epoch/sps",
    )
}
PUSH_STEPS, PUSH_EPOCH_STEPS, PUSH_SPS, PUSH_CUMULATIVE_SPS, PUSH_EPOCH_SPS = THROUGHPUT.values()
PUSH_SPS_AGE = _gauge(
    "push_to_main.sps_age_seconds",
    "second",
    "Time since the end of the run whose throughput is sent.",
    combines=Combine.MAX,
)
PUSH_CONFIG_STEPS = _single(
    "push_to_main.config.steps_per_second",
    "",
    "Summary key overview/steps_per_second of the latest push-to-main run of each ref (main or pr) and "
    "config that ended in the window, finished or crashed, and has it; both are read from the run's name.",
    "ref",
    "config",
)

# Sweeps.
SWEEP_TOTAL = _gauge(
    "sweep.runs_total_24h", "run", "Sweep runs that ended in the window in any state, plus active."
)
SWEEP_COMPLETED = _gauge(
    "sweep.runs_completed_24h", "run", "Sweep runs that ended in the window as finished."
)
SWEEP_FAILED = _gauge(
    "sweep.runs_failed_24h", "run", "Sweep runs that ended in the window as failed or crashed."
)
SWEEP_ACTIVE = _gauge("sweep.runs_active", "run", "Sweep runs that are active.")
SWEEP_SUCCESS = _single(
    "sweep.success_rate_pct",
    "percent",
    "100 x runs_completed_24h / (runs_completed_24h + runs_failed_24h). Absent when both are 0.",
)
ACTIVE_SWEEPS = _gauge("sweep.active_sweeps", "", "Distinct sweeps that have an active run.")


def _usage(name: str, unit: str, text: str) -> Metric:
    """Declare a metric of a group."""
    return gauge(f"wandb.{name}", unit, text, *_TAGS, *_GROUP_TAGS, open_tags=True, combines=Combine.SUM)


# Usage by group. Sums and never ratios, so that a dashboard can add them over any grouping.
USAGE_ACTIVE = _usage("usage.runs_active", "run", "The group's part of runs.active.")
USAGE_GPUS = _usage("usage.gpus_in_use", "", "The group's part of training.gpus_in_use.")
USAGE_HOURS = _usage("usage.gpu_hours_24h", "hour", "The group's part of training.total_gpu_hours_24h.")
USAGE_FAILED_HOURS = _usage(
    "usage.gpu_hours_failed_24h",
    "hour",
    "The part of usage.gpu_hours_24h that belongs to runs which have ended as failed or crashed.",
)
USAGE_COMPLETED = _usage("usage.runs_completed_24h", "run", "The group's part of runs.completed_24h.")
USAGE_FAILED = _usage("usage.runs_failed_24h", "run", "The group's part of runs.failed_24h.")
USAGE_COST = _usage(
    "usage.cost_24h",
    "dollar",
    "usage.gpu_hours_24h x the price of each run's GPU type (FLEETGAUGE_WANDB_GPU_PRICES), without GPUs that "
    "have no price. Absent without prices, and where no GPU hour of the group has one.",
)
USAGE_COST_FAILED = _usage(
    "usage.cost_failed_24h",
    "dollar",
    "The part of usage.cost_24h that belongs to runs which have ended as failed or crashed. Absent where "
    "none of their GPU hours has a price.",
)
USAGE_COST_PER_HOUR = _usage(
    "usage.cost_per_hour",
    "dollar",
    "Cost of one hour of the GPUs in use, priced as in usage.cost_24h. Absent where none has a price.",
)
USAGE_UNPRICED = _usage(
    "usage.gpus_unpriced", "", "GPUs in use that have neither a price of their type nor a default."
)
USAGE_UNPRICED_HOURS = _usage(
    "usage.gpu_hours_unpriced_24h",
    "hour",
    "The part of usage.gpu_hours_24h on GPUs that have neither a price of their type nor a default. Absent "
    "without prices.",
)
USAGE_REPORTING = _usage(
    "usage.gpus_reporting",
    "",
    "GPUs of active runs that report their utilisation. Where fewer than usage.gpus_in_use do, the others "
    "are unknown, not idle. usage.gpus_busy and usage.gpus_idle are absent where this is 0.",
)
USAGE_BUSY = _usage(
    "usage.gpus_busy",
    "",
    "Sum of utilisation / 100 over the GPUs that report: the equivalent number of fully busy GPUs.",
)
USAGE_REPORTING_MEMORY = _usage(
    "usage.gpus_reporting_memory", "", "GPUs of active runs that report allocated memory."
)
USAGE_MEMORY_FILLED = _usage(
    "usage.gpus_memory_filled",
    "",
    "Sum over GPUs of the allocated share of memory: the equivalent number of full GPUs.",
)
USAGE_IDLE = _usage(
    "usage.gpus_idle",
    "",
    "Reporting GPUs of runs all of whose reporting GPUs were under 5 % (FLEETGAUGE_WANDB_IDLE_BELOW) at "
    "every observation for at least an hour (FLEETGAUGE_WANDB_IDLE_AFTER). Absent where no earlier "
    "observation is stored (FLEETGAUGE_STATE).",
)
IDLE_COST = _usage(
    "idle.cost_per_hour",
    "dollar",
    "Cost of one hour of usage.gpus_idle, priced as in usage.cost_24h. Absent where none has a price.",
)
_IDLE_TAGS = ("user", "run", "run_id")
IDLE_GPUS = _gauge(
    "idle.run_gpus",
    "",
    "Reporting GPUs of an idle run, for the first 20 (FLEETGAUGE_WANDB_IDLE_RUNS) of a project by GPUs x "
    "time.",
    *_IDLE_TAGS,
)
IDLE_SECONDS = _gauge(
    "idle.run_seconds",
    "second",
    "How long each of these runs has been observed as idle.",
    *_IDLE_TAGS,
    combines=Combine.MAX,
)

# W&B has no history of these: they come from the latest system metrics of active runs.
OBSERVED = (
    UTILIZATION,
    USAGE_REPORTING,
    USAGE_BUSY,
    USAGE_REPORTING_MEMORY,
    USAGE_MEMORY_FILLED,
    USAGE_IDLE,
    IDLE_COST,
    IDLE_GPUS,
    IDLE_SECONDS,
)
# Only the present shows these: a run that was pending or stale may have ended since.
LIVE_ONLY = frozenset({PENDING, OLDEST_PENDING, STALE, UNSEEN, *OBSERVED})

# In the order of this file, which is that of the generated documents.
METRICS = tuple(value for value in [*globals().values()] if isinstance(value, Metric))  # in order
