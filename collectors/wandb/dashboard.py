"""The dashboards and monitors of the W&B collector: the fleet, push-to-main and sweeps."""

from __future__ import annotations

from collectors.wandb import metrics as m
from common.dashboard import Dashboard, Monitor, Section, Views, bars, line, note, table, toplist, value

_PAGES = ("collectors/wandb/README.md", "docs/metrics.md")
_PROJECT = ("entity", "project")

FLEET = Dashboard(
    "fleet",
    "Fleet",
    "Who uses how many GPUs, how busy they are, what they cost, and how runs end. Numbers of the last 24 "
    "hours carry 24h in their names and cover the day up to each point. Utilisation is that of the GPUs "
    "which report it: others are unknown, not idle. Costs leave out GPUs without a price.",
    (
        Section(
            "Overview",
            (
                value("GPUs in use", m.GPUS_IN_USE),
                value("GPU utilisation", m.USAGE_BUSY, share_of=(m.USAGE_REPORTING,)),
                value("GPU hours of the day", m.GPU_HOURS),
                value("Active runs", m.ACTIVE),
                value("Runs that succeed", m.COMPLETED, share_of=(m.COMPLETED, m.FAILED)),
                value("Idle GPUs", m.USAGE_IDLE),
            ),
        ),
        Section(
            "GPUs by owner",
            (
                line("GPUs in use by user", m.USAGE_GPUS, by=("user",)),
                line("GPUs in use by type", m.USAGE_GPUS, by=("gpu_type",)),
                toplist("GPU hours by user", m.USAGE_HOURS, by=("user",)),
                toplist("GPU hours by project", m.GPU_HOURS, by=_PROJECT),
                line("GPUs in use by project", m.GPUS_IN_USE, by=_PROJECT),
                toplist("Active runs by user", m.USAGE_ACTIVE, by=("user",)),
                bars("GPU hours by end", m.USAGE_HOURS, m.USAGE_FAILED_HOURS),
                toplist("GPU hours that failed, by user", m.USAGE_FAILED_HOURS, by=("user",)),
            ),
        ),
        Section(
            "Cost",
            (
                value("Cost of the day", m.USAGE_COST),
                value("Cost of an hour now", m.USAGE_COST_PER_HOUR),
                value("Cost of failed runs of the day", m.USAGE_COST_FAILED),
                value("GPU hours of the day without a price", m.USAGE_UNPRICED_HOURS),
                value("GPUs without a price", m.USAGE_UNPRICED),
                toplist("Cost of the day by user", m.USAGE_COST, by=("user",)),
                toplist("Cost of failed runs of the day by user", m.USAGE_COST_FAILED, by=("user",)),
                line("Cost of an hour by project", m.USAGE_COST_PER_HOUR, by=_PROJECT),
            ),
        ),
        Section(
            "How busy the GPUs are",
            (
                line("Utilisation by user", m.USAGE_BUSY, by=("user",), share_of=(m.USAGE_REPORTING,)),
                line("Utilisation of each project", m.UTILIZATION, by=_PROJECT),
                line(
                    "Memory filled by user",
                    m.USAGE_MEMORY_FILLED,
                    by=("user",),
                    share_of=(m.USAGE_REPORTING_MEMORY,),
                ),
                line("GPUs in use and those that report", m.USAGE_GPUS, m.USAGE_REPORTING),
            ),
        ),
        Section(
            "Idle runs",
            (
                table("Runs that hold idle GPUs", m.IDLE_GPUS, m.IDLE_SECONDS, by=("user", "run", "project")),
                line("Idle GPUs by user", m.USAGE_IDLE, by=("user",)),
                line("Cost of idle GPUs per hour, by user", m.IDLE_COST, by=("user",)),
            ),
        ),
        Section(
            "How runs end",
            (
                line("Success rate by project", m.COMPLETED, by=_PROJECT, share_of=(m.COMPLETED, m.FAILED)),
                line(
                    "Success rate by user",
                    m.USAGE_COMPLETED,
                    by=("user",),
                    share_of=(m.USAGE_COMPLETED, m.USAGE_FAILED),
                ),
                bars("Runs that ended", m.COMPLETED, m.FAILED, m.KILLED, m.PREEMPTED),
                line("Crashed runs by project", m.CRASHED, by=_PROJECT),
                line("Mean duration", m.AVG_DURATION, by=_PROJECT),
                line("Longest runs", m.DURATION_MAX, by=_PROJECT),
                line("Duration of half and of nearly all runs", m.DURATION_P50, m.DURATION_P95, by=_PROJECT),
            ),
        ),
        Section(
            "Queue",
            (
                line("Runs that wait, by project", m.PENDING, by=_PROJECT),
                line("Longest wait by project", m.OLDEST_PENDING, by=_PROJECT),
                line("Runs started and active", m.STARTED, m.ACTIVE, m.TOTAL_RECENT),
            ),
        ),
        Section(
            "What the numbers rest on",
            (
                line("Runs that only seem to run", m.STALE, by=_PROJECT),
                line("Runs not shown and GPUs assumed", m.UNSEEN, m.GPUS_ASSUMED),
            ),
        ),
    ),
    _PAGES,
)

PUSH_TO_MAIN = Dashboard(
    "push-to-main",
    "Push to main",
    "How fast, how often and how well the runs go that every push to main starts. Throughput is that of the "
    "run that ended last; its age is the time since then.",
    (
        Section(
            "Overview",
            (
                value("Runs that succeed", m.PUSH_COMPLETED, share_of=(m.PUSH_COMPLETED, m.PUSH_FAILED)),
                value("Runs completed", m.PUSH_COMPLETED),
                value("Runs failed", m.PUSH_FAILED),
            ),
        ),
        Section(
            "Throughput",
            (
                line(
                    "Steps per second by config, last 30 days",
                    m.PUSH_CONFIG_STEPS,
                    by=(*_PROJECT, "config"),
                    where=("ref:main",),
                    span="1mo",
                ),
                line(
                    "Steps per second of pull requests",
                    m.PUSH_CONFIG_STEPS,
                    by=(*_PROJECT, "config"),
                    where=("ref:pr",),
                ),
                line("Steps per second", m.PUSH_STEPS, m.PUSH_EPOCH_STEPS, by=_PROJECT),
                line("Samples per second", m.PUSH_SPS, m.PUSH_CUMULATIVE_SPS, m.PUSH_EPOCH_SPS, by=_PROJECT),
                line("Age of the throughput", m.PUSH_SPS_AGE, by=_PROJECT),
                line("Mean duration", m.PUSH_AVG_DURATION, by=_PROJECT),
            ),
        ),
        Section(
            "Failures",
            (
                bars("Runs that ended", m.PUSH_COMPLETED, m.PUSH_FAILED),
                line("Success rate of each project", m.PUSH_SUCCESS, by=_PROJECT),
                note(
                    "Where to look",
                    text="A crash is in the run's log in W&B; open the project and sort by end.",
                ),
            ),
        ),
    ),
    _PAGES,
)

SWEEPS = Dashboard(
    "sweeps",
    "Sweeps",
    "How many runs of sweeps are active, and how those of the last 24 hours ended.",
    (
        Section(
            "Overview",
            (
                value("Active sweeps", m.ACTIVE_SWEEPS),
                value("Active runs", m.SWEEP_ACTIVE),
                value("Runs that succeed", m.SWEEP_COMPLETED, share_of=(m.SWEEP_COMPLETED, m.SWEEP_FAILED)),
            ),
        ),
        Section(
            "Runs",
            (
                line("Active sweeps by project", m.ACTIVE_SWEEPS, by=_PROJECT),
                line("Active runs by project", m.SWEEP_ACTIVE, by=_PROJECT),
                bars("Runs of the day", m.SWEEP_COMPLETED, m.SWEEP_FAILED, m.SWEEP_TOTAL),
                line("Success rate of each project", m.SWEEP_SUCCESS, by=_PROJECT),
            ),
        ),
    ),
    _PAGES,
)

MONITORS = (
    Monitor(
        "push-throughput",
        "Push-to-main throughput of {{config.name}} fell",
        m.PUSH_CONFIG_STEPS,
        *("avg", "1d", "<", -10.0),
        "runs of one config differ by a few percent from day to day; a tenth is a change of the code",
        "Steps per second of config {{config.name}} in {{project.name}} are {{value}} % off those of a week "
        "ago.",
        "Every run of the team that uses this config takes longer and costs more from now on.",
        "Compare the pushes to main since the line bent, on the dashboard Push to main; bisect where that "
        "is not enough.",
        "collectors/wandb/README.md",
        by=(*_PROJECT, "config"),
        where=("ref:main",),
        change="1w",
        percent=True,
        priority=2,
    ),
    Monitor(
        "push-success",
        "Push-to-main runs of {{project.name}} fail",
        m.PUSH_SUCCESS,
        *("max", "4h", "<", 80.0),
        "one failed run of five in a day is seldom chance; four hours let a single bad push be mended first",
        "Only {{value}} % of the push-to-main runs in {{project.name}} of the last day finished.",
        "Main may be broken for everybody who starts from it.",
        "Open the failed runs in W&B, find the first push that failed, and mend or revert it.",
        "collectors/wandb/README.md",
        by=_PROJECT,
        warning=90.0,
        priority=2,
    ),
    Monitor(
        "crashed-runs",
        "Many runs of {{project.name}} crashed",
        m.CRASHED,
        *("avg", "1h", ">", 10.0),
        "ten more crashes than the day before are beyond what single mistakes make",
        "{{value}} more runs of {{project.name}} crashed in the last day than in the day before.",
        "So many at once are usually a node, a file system or a dependency, and every further run is lost as "
        "well.",
        "See on the dashboards Fleet and Hosts what the crashed runs have in common: a host, a user, a "
        "version.",
        "collectors/wandb/README.md",
        by=_PROJECT,
        change="1d",
    ),
    Monitor(
        "idle-gpus",
        "Run {{run.name}} of {{user.name}} holds idle GPUs",
        m.IDLE_SECONDS,
        *("min", "30m", ">", 10800.0),
        "checkpoints, evaluations and downloads seldom take three hours",
        "The GPUs of run {{run.name}} in {{project.name}}, started by {{user.name}}, have been idle for "
        "{{value}} s.",
        "They cost as much as busy ones, and no other run can use them.",
        "Ask {{user.name}} whether the run hangs or only waits, and end it where it is not needed.",
        "collectors/wandb/README.md",
        by=("user", "run", "project"),
    ),
    Monitor(
        "queued-runs",
        "A run of {{project.name}} has been queued for long",
        m.OLDEST_PENDING,
        *("min", "1h", ">", 14400.0),
        "four hours are longer than most runs take, so that something should have become free",
        "The run of {{project.name}} that waits longest was created {{value}} s ago and has not started.",
        "The queue is stuck, or the fleet is too small for its load.",
        "See on the dashboard Fleet whether GPUs are idle or in use; look at the agents of the queue in W&B.",
        "collectors/wandb/README.md",
        by=_PROJECT,
    ),
)

VIEWS = Views((FLEET, PUSH_TO_MAIN, SWEEPS), monitors=MONITORS)
