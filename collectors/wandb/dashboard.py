"""The dashboards and monitors of the W&B collector: the fleet, push-to-main and sweeps.

Declarations only: `common.dashboard` has the vocabulary, and the JSON in docs/datadog is generated from here.
"""

from __future__ import annotations

from functools import partial

from collectors.wandb import metrics as m
from common import dashboard as d

_PAGE = "collectors/wandb/README.md"
_PAGES = (_PAGE, "docs/metrics.md")
_PROJECT, _USER = ("entity", "project"), ("user",)
_CONFIG, _RUN = (*_PROJECT, "config"), ("user", "run", *_PROJECT, "run_id")
_ENDED, _USAGE_ENDED = (m.COMPLETED, m.FAILED), (m.USAGE_COMPLETED, m.USAGE_FAILED)
_PUSH_ENDED, _SWEEP_ENDED = (m.PUSH_COMPLETED, m.PUSH_FAILED), (m.SWEEP_COMPLETED, m.SWEEP_FAILED)
_REPORTING, _MEMORY = (m.USAGE_REPORTING,), (m.USAGE_REPORTING_MEMORY,)
_SITE = "https://wandb.ai/{{entity.value}}/{{project.value}}"
_PROJECT_LINK = ("Open the project in W&B", f"{_SITE}/table")
_RUN_LINK = ("Open the run in W&B", f"{_SITE}/runs/{{{{run_id.value}}}}")

_success_rate = partial(d.value, "Success rate, last 24 h", colours=d.bad_below(80, 95))
_monitor = partial(d.Monitor, page=_PAGE)

FLEET = d.Dashboard(
    "fleet",
    "Fleet",
    "Who uses how many GPUs, how busy they are, what they cost, and how runs end. Numbers of the last 24 "
    "hours carry 24h in their names and cover the day up to each point. Utilisation is that of the GPUs "
    "which report it: others are unknown, not idle. Costs leave out GPUs without a price.",
    {
        "Overview": (
            d.value("GPUs in use", m.GPUS_IN_USE),
            d.value("GPU utilization", m.USAGE_BUSY, share_of=_REPORTING, colours=d.bad_below(30, 60)),
            d.value("GPU hours, last 24 h", m.GPU_HOURS),
            d.value("Active runs", m.ACTIVE),
            _success_rate(m.COMPLETED, share_of=_ENDED),
            d.value("Idle GPUs", m.USAGE_IDLE, colours=d.bad_above(0)),
        ),
        "GPUs by owner": (
            d.line("GPUs in use by user", m.USAGE_GPUS, by=_USER),
            d.line("GPUs in use by type", m.USAGE_GPUS, by=("gpu_type",)),
            d.toplist("GPU hours by user, last 24 h", m.USAGE_HOURS, by=_USER),
            d.toplist("GPU hours by project, last 24 h", m.GPU_HOURS, by=_PROJECT),
            d.line("GPUs in use by project", m.GPUS_IN_USE, by=_PROJECT),
            d.toplist("Active runs by user", m.USAGE_ACTIVE, by=_USER),
            d.line("GPU hours by outcome, last 24 h", m.USAGE_HOURS, m.USAGE_FAILED_HOURS),
            d.toplist("GPU hours of failed runs by user, last 24 h", m.USAGE_FAILED_HOURS, by=_USER),
        ),
        "Cost": (
            d.value("Cost, last 24 h", m.USAGE_COST),
            d.value("Cost per hour", m.USAGE_COST_PER_HOUR),
            d.value("Cost of failed runs, last 24 h", m.USAGE_COST_FAILED),
            d.value("GPU hours without a price, last 24 h", m.USAGE_UNPRICED_HOURS),
            d.value("GPUs without a price", m.USAGE_UNPRICED),
            d.toplist("Cost by user, last 24 h", m.USAGE_COST, by=_USER),
            d.toplist("Cost of failed runs by user, last 24 h", m.USAGE_COST_FAILED, by=_USER),
            d.line("Cost per hour by project", m.USAGE_COST_PER_HOUR, by=_PROJECT),
        ),
        "GPU utilization": (
            d.line("GPU utilization by user", m.USAGE_BUSY, by=_USER, share_of=_REPORTING),
            d.line("GPU utilization by project", m.UTILIZATION, by=_PROJECT),
            d.line("GPU memory utilization by user", m.USAGE_MEMORY_FILLED, by=_USER, share_of=_MEMORY),
            d.line("GPUs in use and GPUs reporting", m.USAGE_GPUS, m.USAGE_REPORTING),
        ),
        "Idle runs": (
            d.table("Idle runs", m.IDLE_GPUS, m.IDLE_SECONDS, by=_RUN, hours=True, link=_RUN_LINK),
            d.line("Idle GPUs by user", m.USAGE_IDLE, by=_USER),
            d.line("Idle cost per hour by user", m.IDLE_COST, by=_USER),
        ),
        "Run outcomes": (
            d.line("Success rate by project, last 24 h", m.COMPLETED, by=_PROJECT, share_of=_ENDED),
            d.line("Success rate by user, last 24 h", m.USAGE_COMPLETED, by=_USER, share_of=_USAGE_ENDED),
            d.line("Ended runs by state, last 24 h", m.COMPLETED, m.FAILED, m.KILLED, m.PREEMPTED),
            d.toplist("Failed runs by project, last 24 h", m.FAILED, by=_PROJECT, link=_PROJECT_LINK),
            d.line("Crashed runs by project, last 24 h", m.CRASHED, by=_PROJECT, link=_PROJECT_LINK),
            d.line("Run duration mean", m.AVG_DURATION, by=_PROJECT),
            d.line("Run duration max", m.DURATION_MAX, by=_PROJECT),
            d.line("Run duration p50/p95", m.DURATION_P50, m.DURATION_P95, by=_PROJECT),
        ),
        "Queue": (
            d.line("Pending runs by project", m.PENDING, by=_PROJECT),
            d.line("Oldest pending run by project", m.OLDEST_PENDING, by=_PROJECT, hours=True),
            d.line("Runs started, active and recent", m.STARTED, m.ACTIVE, m.TOTAL_RECENT),
        ),
        "Data quality": (
            d.line("Stale runs", m.STALE, by=_PROJECT),
            d.line("Unseen runs and assumed GPU counts", m.UNSEEN, m.GPUS_ASSUMED),
        ),
    },
    _PAGES,
)

PUSH_TO_MAIN = d.Dashboard(
    "push-to-main",
    "Push to main",
    "How fast, how often and how well the runs go that every push to main starts. Throughput is that of the "
    "run that ended last; its age is the time since then.",
    {
        "Overview": (
            _success_rate(m.PUSH_COMPLETED, share_of=_PUSH_ENDED),
            d.value("Completed runs, last 24 h", m.PUSH_COMPLETED),
            d.value("Failed runs, last 24 h", m.PUSH_FAILED, colours=d.bad_above(0)),
        ),
        "Throughput": (
            d.line(
                "Steps per second by config, last 30 days",
                m.PUSH_CONFIG_STEPS,
                by=_CONFIG,
                where=("ref:main",),
                span="1mo",
            ),
            d.line("Steps per second of pull requests", m.PUSH_CONFIG_STEPS, by=_CONFIG, where=("ref:pr",)),
            d.line("Steps per second", m.PUSH_STEPS, m.PUSH_EPOCH_STEPS, by=_PROJECT),
            d.line("Samples per second", m.PUSH_SPS, m.PUSH_CUMULATIVE_SPS, m.PUSH_EPOCH_SPS, by=_PROJECT),
            d.line("Age of the throughput", m.PUSH_SPS_AGE, by=_PROJECT, hours=True),
            d.line("Run duration mean", m.PUSH_AVG_DURATION, by=_PROJECT),
        ),
        "Failures": (
            d.line("Ended runs by state, last 24 h", *_PUSH_ENDED, by=_PROJECT, link=_PROJECT_LINK),
            d.line("Success rate by project, last 24 h", m.PUSH_SUCCESS, by=_PROJECT),
        ),
    },
    _PAGES,
)

SWEEPS = d.Dashboard(
    "sweeps",
    "Sweeps",
    "How many runs of sweeps are active, and how those of the last 24 hours ended.",
    {
        "Overview": (
            d.value("Active sweeps", m.ACTIVE_SWEEPS),
            d.value("Active runs", m.SWEEP_ACTIVE),
            _success_rate(m.SWEEP_COMPLETED, share_of=_SWEEP_ENDED),
        ),
        "Runs": (
            d.line("Active sweeps by project", m.ACTIVE_SWEEPS, by=_PROJECT),
            d.line("Active runs by project", m.SWEEP_ACTIVE, by=_PROJECT),
            d.line("Ended runs by state, last 24 h", m.SWEEP_COMPLETED, m.SWEEP_FAILED, m.SWEEP_TOTAL),
            d.line("Success rate by project, last 24 h", m.SWEEP_SUCCESS, by=_PROJECT),
        ),
    },
    _PAGES,
)

MONITORS = (
    _monitor(
        "push-throughput",
        "Push-to-main throughput of {{config.name}} fell",
        d.Condition(
            (m.PUSH_CONFIG_STEPS,),
            *("avg", "1d", "<", -10.0),
            by=_CONFIG,
            where=("ref:main",),
            change="pct_change 1w",
        ),
        "runs of one config differ by a few percent from day to day; a tenth is a change of the code",
        "Steps per second of {{config.name}} in {{project.name}} are {{value}} % off those of a week ago.",
        "Every run of the team that uses this config takes longer and costs more from now on.",
        "Compare the pushes to main since the drop on the dashboard Push to main, or bisect them.",
        priority=2,
    ),
    _monitor(
        "push-success",
        "Push-to-main runs of {{project.name}} fail",
        d.Condition((m.PUSH_SUCCESS,), *("max", "4h", "<", 80.0), warning=90.0, by=_PROJECT),
        "one failed run of five in a day is seldom chance; four hours let a single bad push be fixed first",
        "Only {{value}} % of the push-to-main runs in {{project.name}} of the last day finished.",
        "Main may be broken for everybody who starts from it.",
        "Open the failed runs in W&B, find the first push that failed, and fix or revert it.",
        priority=2,
    ),
    _monitor(
        "crashed-runs",
        "Many runs of {{project.name}} crashed",
        d.Condition((m.CRASHED,), *("avg", "1h", ">", 10.0), by=_PROJECT, change="change 1d"),
        "ten more crashes than the day before are beyond what single mistakes make",
        "{{value}} more runs of {{project.name}} crashed in the last day than in the day before.",
        "So many at once are usually a node, a file system or a dependency, and further runs crash too.",
        "See on the dashboards Fleet and Hosts what they have in common: a host, a user, a version.",
    ),
    _monitor(
        "idle-gpus",
        "Run {{run.name}} of {{user.name}} holds idle GPUs",
        d.Condition(
            (m.IDLE_SECONDS,), *("min", "30m", ">", 3.0), by=("user", "run", "project"), formula="{} / 3600"
        ),
        "checkpoints, evaluations and downloads seldom take three hours",
        "The GPUs of run {{run.name}} in {{project.name}} have been idle for {{value}} hours.",
        "They cost as much as busy ones, and no other run can use them.",
        "Ask {{user.name}} whether the run hangs or only waits, and end it if it is not needed.",
    ),
    _monitor(
        "queued-runs",
        "A run of {{project.name}} has been queued for long",
        d.Condition((m.OLDEST_PENDING,), *("min", "1h", ">", 4.0), by=_PROJECT, formula="{} / 3600"),
        "four hours are longer than most runs take, so that something should have become free",
        "The oldest pending run of {{project.name}} was created {{value}} hours ago and has not started.",
        "The queue is stuck, or the fleet is too small for its load.",
        "See on the dashboard Fleet whether GPUs are idle or in use; look at the agents of the queue in W&B.",
    ),
)

VIEWS = d.Views((FLEET, PUSH_TO_MAIN, SWEEPS), monitors=MONITORS)
