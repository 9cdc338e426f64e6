"""The metrics of the W&B collector, each with its formula. All are gauges, true at their tick.

The window is the 24 hours (`FLEETGAUGE_WANDB_WINDOW`) up to the tick, both ends included. The end of a run is
its last heartbeat, once its state is terminal. docs/metrics.md and metadata.csv are generated from these
declarations; `ledger` and `utilization` compute them.
"""

from __future__ import annotations

from functools import partial

from common.metric import Combine, Metric, gauge

_TAGS = ("entity", "project")
_GROUP_TAGS = ("user", "gpu_type", "group", "job_type", "kind")


def _gauge(name: str, unit: str, text: str, *tags: str, combines: Combine = Combine.SUM) -> Metric:
    """Declare a metric of a project."""
    return gauge(f"wandb.{name}", unit, text, *_TAGS, *tags, combines=combines)


def _runs(name: str, text: str) -> Metric:
    """Declare a number of runs of a project."""
    return _gauge(name, "run", text)


_single = partial(_gauge, combines=Combine.NONE)  # a mean, a rate, or the value of one run
_largest = partial(_gauge, combines=Combine.MAX)


def _usage(name: str, unit: str, text: str) -> Metric:
    """Declare a metric of a group."""
    return gauge(f"wandb.{name}", unit, text, *_TAGS, *_GROUP_TAGS, open_tags=True, combines=Combine.SUM)


ACTIVE = _runs(
    "runs.active",
    "Runs that have started and not ended, running ones with a heartbeat in the last 15 minutes.",
)
COMPLETED = _runs("runs.completed_24h", "Runs that ended in the window as finished.")
FAILED = _runs("runs.failed_24h", "Runs that ended in the window as failed or crashed.")
CRASHED = _runs("runs.crashed_24h", "Runs that ended in the window as crashed; part of failed_24h.")
KILLED = _runs("runs.killed_24h", "Runs that ended in the window as killed.")
PREEMPTED = _runs("runs.preempted_24h", "Runs that ended in the window as preempted.")
TOTAL_RECENT = _runs("runs.total_recent", "Runs that ended in the window in any state, plus active.")
PENDING = _runs(
    "runs.pending", "Runs that wait to start, for less than 30 days (FLEETGAUGE_WANDB_PENDING_FOR)."
)
STARTED = _runs("runs.started_24h", "Runs created in the window, pending ones included.")
OLDEST_PENDING = _largest(
    "runs.oldest_pending_seconds", "second", "Age of the oldest run in runs.pending. Absent when none waits."
)
STALE = _runs("runs.stale", "Runs in state running whose last heartbeat is 15 minutes old or older.")
UNSEEN = _runs(
    "runs.unseen", "Runs that W&B counts but does not return: hidden from the key, or not servable."
)

# Durations and GPU time.
_OF_ENDED = "of the runs that ended in the window. Absent when none ended."
AVG_DURATION = _single(
    "training.avg_duration_hours",
    "hour",
    f"Mean duration {_OF_ENDED} A duration is computeSeconds where positive, else the summary's "
    "_wandb.runtime where positive, else end - start.",
)
DURATION_P50 = _single("training.duration_hours.p50", "hour", f"Median duration (nearest rank) {_OF_ENDED}")
DURATION_P95 = _single(
    "training.duration_hours.p95", "hour", f"Duration that 95 % stay within (nearest rank) {_OF_ENDED}"
)
DURATION_MAX = _largest("training.duration_hours.max", "hour", f"Longest duration {_OF_ENDED}")
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
GPUS_ASSUMED = _runs(
    "training.gpu_count_assumed_runs",
    "Runs in runs.total_recent whose GPUs are unknown and assumed (FLEETGAUGE_WANDB_ASSUMED_GPUS).",
)
UTILIZATION = _single(
    "training.gpu_utilization_pct",
    "percent",
    "100 x usage.gpus_busy / usage.gpus_reporting over the project. Absent when no GPU reports.",
)

# Push-to-main runs, by the pattern of their names, and sweeps.
_PUSH_ENDED = "Push-to-main runs that ended in the window"
_SWEEP_ENDED = "Sweep runs that ended in the window"
_RATE = "100 x runs_completed_24h / (runs_completed_24h + runs_failed_24h). Absent when both are 0."
PUSH_COMPLETED = _runs("push_to_main.runs_completed_24h", f"{_PUSH_ENDED} as finished.")
PUSH_FAILED = _runs("push_to_main.runs_failed_24h", f"{_PUSH_ENDED} as failed or crashed.")
PUSH_SUCCESS = _single("push_to_main.success_rate_pct", "percent", _RATE)
PUSH_AVG_DURATION = _single(
    "push_to_main.avg_duration_hours",
    "hour",
    f"Mean duration of the {_PUSH_ENDED.lower()}. Absent when none ended.",
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
PUSH_SPS_AGE = _largest(
    "push_to_main.sps_age_seconds", "second", "Time since the end of the run whose throughput is sent."
)
PUSH_CONFIG_STEPS = _single(
    "push_to_main.config.steps_per_second",
    "",
    "Summary key overview/steps_per_second of the latest push-to-main run of each ref (main or pr) and "
    "config that ended in the window, finished or crashed, and has it; both are read from the run's name.",
    *("ref", "config"),
)
SWEEP_TOTAL = _runs("sweep.runs_total_24h", f"{_SWEEP_ENDED} in any state, plus active.")
SWEEP_COMPLETED = _runs("sweep.runs_completed_24h", f"{_SWEEP_ENDED} as finished.")
SWEEP_FAILED = _runs("sweep.runs_failed_24h", f"{_SWEEP_ENDED} as failed or crashed.")
SWEEP_ACTIVE = _runs("sweep.runs_active", "Sweep runs that are active.")
SWEEP_SUCCESS = _single("sweep.success_rate_pct", "percent", _RATE)
ACTIVE_SWEEPS = _gauge("sweep.active_sweeps", "", "Distinct sweeps that have an active run.")

# Usage by group. Sums and never ratios, so that a dashboard can add them over any grouping.
_OF_FAILED = "that belongs to runs which have ended as failed or crashed."
_NO_PRICE = "have neither a price of their type nor a default."
USAGE_ACTIVE = _usage("usage.runs_active", "run", "The group's part of runs.active.")
USAGE_GPUS = _usage("usage.gpus_in_use", "", "The group's part of training.gpus_in_use.")
USAGE_HOURS = _usage("usage.gpu_hours_24h", "hour", "The group's part of training.total_gpu_hours_24h.")
USAGE_FAILED_HOURS = _usage(
    "usage.gpu_hours_failed_24h", "hour", f"The part of usage.gpu_hours_24h {_OF_FAILED}"
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
    f"The part of usage.cost_24h {_OF_FAILED} Absent where none of their GPU hours has a price.",
)
USAGE_COST_PER_HOUR = _usage(
    "usage.cost_per_hour", "dollar", "Cost of one hour of the GPUs in use. Absent where none has a price."
)
USAGE_UNPRICED = _usage("usage.gpus_unpriced", "", f"GPUs in use that {_NO_PRICE}")
USAGE_UNPRICED_HOURS = _usage(
    "usage.gpu_hours_unpriced_24h",
    "hour",
    f"The part of usage.gpu_hours_24h on GPUs that {_NO_PRICE} Absent without prices.",
)
USAGE_REPORTING = _usage(
    "usage.gpus_reporting",
    "",
    "GPUs of active runs that report their utilisation. Where fewer than usage.gpus_in_use do, the others "
    "are unknown, not idle. usage.gpus_busy and usage.gpus_idle are absent where this is 0.",
)
USAGE_BUSY = _usage(
    "usage.gpus_busy", "", "Sum of utilisation / 100 over reporting GPUs: the equivalent of fully busy GPUs."
)
USAGE_REPORTING_MEMORY = _usage(
    "usage.gpus_reporting_memory", "", "GPUs of active runs that report allocated memory."
)
USAGE_MEMORY_FILLED = _usage(
    "usage.gpus_memory_filled", "", "Sum of the allocated shares of memory: the equivalent of full GPUs."
)
USAGE_IDLE = _usage(
    "usage.gpus_idle",
    "",
    "Reporting GPUs of runs all of whose reporting GPUs were under 5 % (FLEETGAUGE_WANDB_IDLE_BELOW) at "
    "every observation for at least an hour (FLEETGAUGE_WANDB_IDLE_AFTER). Absent where no earlier "
    "observation is stored (FLEETGAUGE_STATE).",
)
IDLE_COST = _usage(
    "idle.cost_per_hour", "dollar", "Cost of one hour of usage.gpus_idle. Absent where none has a price."
)
_IDLE_TAGS = ("user", "run", "run_id")
IDLE_GPUS = _gauge(
    "idle.run_gpus",
    "",
    "Reporting GPUs of an idle run; the first 20 of a project (FLEETGAUGE_WANDB_IDLE_RUNS) by GPUs x time.",
    *_IDLE_TAGS,
)
IDLE_SECONDS = _largest(
    "idle.run_seconds", "second", "How long each of these runs has been observed as idle.", *_IDLE_TAGS
)

# W&B has no history of these: they come from the latest system metrics of active runs.
OBSERVED = (
    *(UTILIZATION, USAGE_REPORTING, USAGE_BUSY, USAGE_REPORTING_MEMORY, USAGE_MEMORY_FILLED),
    *(USAGE_IDLE, IDLE_COST, IDLE_GPUS, IDLE_SECONDS),
)
# Only the present shows these: a run that was pending or stale may have ended since.
LIVE_ONLY = frozenset({PENDING, OLDEST_PENDING, STALE, UNSEEN, *OBSERVED})

# In the order of this file, which is that of the generated documents.
METRICS = tuple(value for value in [*globals().values()] if isinstance(value, Metric))
