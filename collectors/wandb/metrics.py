"""What the W&B collector emits, each with its formula. Everything is a gauge, true at the instant asked for.

The window is the 24 hours (`FLEETGAUGE_WANDB_WINDOW`) up to that instant, both ends included. A run's end
is its last heartbeat, once its state is terminal.
"""

from __future__ import annotations

from common.metric import Metric, gauge

_TAGS = ("entity", "project")


def _gauge(name: str, unit: str, text: str, *tags: str) -> Metric:
    return gauge(f"wandb.{name}", unit, text, *_TAGS, *tags)


ACTIVE = _gauge(
    "runs.active",
    "run",
    "Runs that started by then and had not ended, whatever their age; a run still running counts while its "
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
    "Runs that wait to start, created at most 30 days ago (FLEETGAUGE_WANDB_PENDING_FOR): older ones are "
    "forgotten, not waiting.",
)
OLDEST_PENDING = _gauge(
    "runs.oldest_pending_seconds",
    "second",
    "How long ago the run was created that waits longest of those in runs.pending. Absent when none waits.",
)
STALE = _gauge(
    "runs.stale",
    "run",
    "Runs that W&B calls running whose last heartbeat is 15 minutes old or older, whatever their age.",
)
UNSEEN = _gauge(
    "runs.unseen",
    "run",
    "Runs that W&B counts in its listing but did not show: rows hidden from the key, or not servable.",
)

AVG_DURATION = _gauge(
    "training.avg_duration_hours",
    "hour",
    "Mean duration of the runs that ended in the window: computeSeconds where positive, else the summary's "
    "_wandb.runtime where positive, else end - start. Absent when none ended.",
)
GPU_HOURS = _gauge(
    "training.total_gpu_hours_24h",
    "hour",
    "GPU hours worked in the window, at most: the sum over runs of the overlap of [begin, end] with the "
    "window x GPUs of the run. The end is the instant itself for an active run and the last heartbeat for "
    "any other; the begin is the later of the start and heartbeat - computeSeconds, so that the pauses of "
    "resumed runs do not count. Which hours of a resumed run fell into the window, W&B does not tell.",
)
GPUS_IN_USE = _gauge("training.gpus_in_use", "", "Sum of the GPUs of active runs.")
GPUS_ASSUMED = _gauge(
    "training.gpu_count_assumed_runs",
    "run",
    "Of the runs in runs.total_recent, those that say nowhere how many GPUs they use, so that a default "
    "(FLEETGAUGE_WANDB_ASSUMED_GPUS) is taken.",
)

PUSH_COMPLETED = _gauge(
    "push_to_main.runs_completed_24h", "run", "Push-to-main runs that ended in the window as finished."
)
PUSH_FAILED = _gauge(
    "push_to_main.runs_failed_24h", "run", "Push-to-main runs that ended in the window as failed or crashed."
)
PUSH_SUCCESS = _gauge(
    "push_to_main.success_rate_pct",
    "percent",
    "100 x runs_completed_24h / (runs_completed_24h + runs_failed_24h). Absent when both are 0.",
)
PUSH_AVG_DURATION = _gauge(
    "push_to_main.avg_duration_hours",
    "hour",
    "Mean duration of the push-to-main runs that ended in the window. Absent when none ended.",
)
_OF_ONE_RUN = (
    "of the push-to-main run that ended last in the window, finished or crashed, and has any of the five "
    "throughput keys. Absent when that run lacks this one."
)
PUSH_STEPS = _gauge(
    "push_to_main.overview.steps_per_second", "", f"Summary key overview/steps_per_second {_OF_ONE_RUN}"
)
PUSH_EPOCH_STEPS = _gauge(
    "push_to_main.overview.epoch_steps_per_second",
    "",
    f"Summary key overview/epoch_steps_per_second {_OF_ONE_RUN}",
)
PUSH_SPS = _gauge("push_to_main.overview.sps", "", f"Summary key overview/sps {_OF_ONE_RUN}")
PUSH_CUMULATIVE_SPS = _gauge(
    "push_to_main.timing_cumulative.sps", "", f"Summary key timing_cumulative/sps {_OF_ONE_RUN}"
)
PUSH_EPOCH_SPS = _gauge(
    "push_to_main.timing_per_epoch.sps", "", f"Summary key timing_per_epoch/sps {_OF_ONE_RUN}"
)
PUSH_SPS_AGE = _gauge(
    "push_to_main.sps_age_seconds", "second", "How long ago the run ended whose throughput is shown."
)
PUSH_CONFIG_STEPS = _gauge(
    "push_to_main.config.steps_per_second",
    "",
    "Summary key overview/steps_per_second of the latest push-to-main run of each ref (main or pr) and "
    "config that ended in the window, finished or crashed, and has it; both are read from the run's name.",
    "ref",
    "config",
)

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
SWEEP_SUCCESS = _gauge(
    "sweep.success_rate_pct",
    "percent",
    "100 x runs_completed_24h / (runs_completed_24h + runs_failed_24h). Absent when both are 0.",
)
ACTIVE_SWEEPS = _gauge("sweep.active_sweeps", "", "Distinct sweeps that have an active run.")

# The summary key of a throughput metric is its name with a slash for the last dot.
THROUGHPUT = {
    "overview/steps_per_second": PUSH_STEPS,
    "overview/epoch_steps_per_second": PUSH_EPOCH_STEPS,
    "overview/sps": PUSH_SPS,
    "timing_cumulative/sps": PUSH_CUMULATIVE_SPS,
    "timing_per_epoch/sps": PUSH_EPOCH_SPS,
}

# What only the present shows: a run that was stale or pending then may have ended since.
LIVE_ONLY = frozenset({PENDING, OLDEST_PENDING, STALE, UNSEEN})

METRICS = (
    ACTIVE,
    COMPLETED,
    FAILED,
    CRASHED,
    KILLED,
    PREEMPTED,
    TOTAL_RECENT,
    PENDING,
    OLDEST_PENDING,
    STALE,
    UNSEEN,
    AVG_DURATION,
    GPU_HOURS,
    GPUS_IN_USE,
    GPUS_ASSUMED,
    PUSH_COMPLETED,
    PUSH_FAILED,
    PUSH_SUCCESS,
    PUSH_AVG_DURATION,
    PUSH_STEPS,
    PUSH_EPOCH_STEPS,
    PUSH_SPS,
    PUSH_CUMULATIVE_SPS,
    PUSH_EPOCH_SPS,
    PUSH_SPS_AGE,
    PUSH_CONFIG_STEPS,
    SWEEP_TOTAL,
    SWEEP_COMPLETED,
    SWEEP_FAILED,
    SWEEP_ACTIVE,
    SWEEP_SUCCESS,
    ACTIVE_SWEEPS,
)
