"""The dashboards and monitors of the W&B collector: the fleet, push-to-main and sweeps.

Declarations only: `common.dashboard` has the vocabulary, and the JSON in docs/datadog is generated from here.
"""

from __future__ import annotations

from collectors.wandb import metrics as m
from common.dashboard import (
    Condition,
    Dashboard,
    Monitor,
    Views,
    Widget,
    bad_above,
    bad_below,
    line,
    table,
    toplist,
    value,
)
from common.metric import Metric

_PAGE = "collectors/wandb/README.md"
_PAGES = (_PAGE, "docs/metrics.md")
_PROJECT, _USER = ("entity", "project"), ("user",)
_CONFIG = (*_PROJECT, "config")
_RUN_LINK = (
    "Open the run in W&B",
    "https://wandb.ai/{{entity.value}}/{{project.value}}/runs/{{run_id.value}}",
)
_PROJECT_LINK = ("Open the project in W&B", "https://wandb.ai/{{entity.value}}/{{project.value}}/table")


def _success_rate(completed: Metric, failed: Metric) -> Widget:
    """Return the share of completed runs among those that completed or failed."""
    share = (completed, failed)
    return value("Success rate, last 24 h", completed, share_of=share, colours=bad_below(80, 95))


def _success_rates(owner: str, by: tuple[str, ...], completed: Metric, failed: Metric) -> Widget:
    """Return the same over time, for each owner."""
    return line(f"Success rate by {owner}, last 24 h", completed, by=by, share_of=(completed, failed))


FLEET = Dashboard(
    "fleet",
    "Fleet",
    "Who uses how many GPUs, how busy they are, what they cost, and how runs end. Numbers of the last 24 "
    "hours carry 24h in their names and cover the day up to each point. Utilisation is that of the GPUs "
    "which report it: others are unknown, not idle. Costs leave out GPUs without a price.",
    {
        "Overview": (
            value("GPUs in use", m.GPUS_IN_USE),
            value("GPU utilization", m.USAGE_BUSY, share_of=(m.USAGE_REPORTING,), colours=bad_below(30, 60)),
            value("GPU hours, last 24 h", m.GPU_HOURS),
            value("Active runs", m.ACTIVE),
            _success_rate(m.COMPLETED, m.FAILED),
            value("Idle GPUs", m.USAGE_IDLE, colours=bad_above(0)),
        ),
        "GPUs by owner": (
            line("GPUs in use by user", m.USAGE_GPUS, by=_USER),
            line("GPUs in use by type", m.USAGE_GPUS, by=("gpu_type",)),
            toplist("GPU hours by user, last 24 h", m.USAGE_HOURS, by=_USER),
            toplist("GPU hours by project, last 24 h", m.GPU_HOURS, by=_PROJECT),
            line("GPUs in use by project", m.GPUS_IN_USE, by=_PROJECT),
            toplist("Active runs by user", m.USAGE_ACTIVE, by=_USER),
            line("GPU hours by outcome, last 24 h", m.USAGE_HOURS, m.USAGE_FAILED_HOURS),
            toplist("GPU hours of failed runs by user, last 24 h", m.USAGE_FAILED_HOURS, by=_USER),
        ),
        "Cost": (
            value("Cost, last 24 h", m.USAGE_COST),
            value("Cost per hour", m.USAGE_COST_PER_HOUR),
            value("Cost of failed runs, last 24 h", m.USAGE_COST_FAILED),
            value("GPU hours without a price, last 24 h", m.USAGE_UNPRICED_HOURS),
            value("GPUs without a price", m.USAGE_UNPRICED),
            toplist("Cost by user, last 24 h", m.USAGE_COST, by=_USER),
            toplist("Cost of failed runs by user, last 24 h", m.USAGE_COST_FAILED, by=_USER),
            line("Cost per hour by project", m.USAGE_COST_PER_HOUR, by=_PROJECT),
        ),
        "GPU utilization": (
            line("GPU utilization by user", m.USAGE_BUSY, by=_USER, share_of=(m.USAGE_REPORTING,)),
            line("GPU utilization by project", m.UTILIZATION, by=_PROJECT),
            line(
                "GPU memory utilization by user",
                m.USAGE_MEMORY_FILLED,
                by=_USER,
                share_of=(m.USAGE_REPORTING_MEMORY,),
            ),
            line("GPUs in use and GPUs reporting", m.USAGE_GPUS, m.USAGE_REPORTING),
        ),
        "Idle runs": (
            table(
                "Idle runs",
                m.IDLE_GPUS,
                m.IDLE_SECONDS,
                by=("user", "run", *_PROJECT, "run_id"),
                hours=True,
                link=_RUN_LINK,
            ),
            line("Idle GPUs by user", m.USAGE_IDLE, by=_USER),
            line("Idle cost per hour by user", m.IDLE_COST, by=_USER),
        ),
        "Run outcomes": (
            _success_rates("project", _PROJECT, m.COMPLETED, m.FAILED),
            _success_rates("user", _USER, m.USAGE_COMPLETED, m.USAGE_FAILED),
            line("Ended runs by state, last 24 h", m.COMPLETED, m.FAILED, m.KILLED, m.PREEMPTED),
            toplist("Failed runs by project, last 24 h", m.FAILED, by=_PROJECT, link=_PROJECT_LINK),
            line("Crashed runs by project, last 24 h", m.CRASHED, by=_PROJECT, link=_PROJECT_LINK),
            line("Run duration mean", m.AVG_DURATION, by=_PROJECT),
            line("Run duration max", m.DURATION_MAX, by=_PROJECT),
            line("Run duration p50/p95", m.DURATION_P50, m.DURATION_P95, by=_PROJECT),
        ),
        "Queue": (
            line("Pending runs by project", m.PENDING, by=_PROJECT),
            line("Oldest pending run by project", m.OLDEST_PENDING, by=_PROJECT, hours=True),
            line("Runs started, active and recent", m.STARTED, m.ACTIVE, m.TOTAL_RECENT),
        ),
        "Data quality": (
            line("Stale runs", m.STALE, by=_PROJECT),
            line("Unseen runs and assumed GPU counts", m.UNSEEN, m.GPUS_ASSUMED),
        ),
    },
    _PAGES,
)

PUSH_TO_MAIN = Dashboard(
    "push-to-main",
    "Push to main",
    "How fast, how often and how well the runs go that every push to main starts. Throughput is that of the "
    "run that ended last; its age is the time since then.",
    {
        "Overview": (
            _success_rate(m.PUSH_COMPLETED, m.PUSH_FAILED),
            value("Completed runs, last 24 h", m.PUSH_COMPLETED),
            value("Failed runs, last 24 h", m.PUSH_FAILED, colours=bad_above(0)),
        ),
        "Throughput": (
            line(
                "Steps per second by config, last 30 days",
                m.PUSH_CONFIG_STEPS,
                by=_CONFIG,
                where=("ref:main",),
                span="1mo",
            ),
            line(
                "Steps per second of pull requests",
                m.PUSH_CONFIG_STEPS,
                by=_CONFIG,
                where=("ref:pr",),
            ),
            line("Steps per second", m.PUSH_STEPS, m.PUSH_EPOCH_STEPS, by=_PROJECT),
            line("Samples per second", m.PUSH_SPS, m.PUSH_CUMULATIVE_SPS, m.PUSH_EPOCH_SPS, by=_PROJECT),
            line("Age of the throughput", m.PUSH_SPS_AGE, by=_PROJECT, hours=True),
            line("Run duration mean", m.PUSH_AVG_DURATION, by=_PROJECT),
        ),
        "Failures": (
            line(
                "Ended runs by state, last 24 h",
                m.PUSH_COMPLETED,
                m.PUSH_FAILED,
                by=_PROJECT,
                link=_PROJECT_LINK,
            ),
            line("Success rate by project, last 24 h", m.PUSH_SUCCESS, by=_PROJECT),
        ),
    },
    _PAGES,
)

SWEEPS = Dashboard(
    "sweeps",
    "Sweeps",
    "How many runs of sweeps are active, and how those of the last 24 hours ended.",
    {
        "Overview": (
            value("Active sweeps", m.ACTIVE_SWEEPS),
            value("Active runs", m.SWEEP_ACTIVE),
            _success_rate(m.SWEEP_COMPLETED, m.SWEEP_FAILED),
        ),
        "Runs": (
            line("Active sweeps by project", m.ACTIVE_SWEEPS, by=_PROJECT),
            line("Active runs by project", m.SWEEP_ACTIVE, by=_PROJECT),
            line("Ended runs by state, last 24 h", m.SWEEP_COMPLETED, m.SWEEP_FAILED, m.SWEEP_TOTAL),
            line("Success rate by project, last 24 h", m.SWEEP_SUCCESS, by=_PROJECT),
        ),
    },
    _PAGES,
)

MONITORS = (
    Monitor(
        "push-throughput",
        "Push-to-main throughput of {{config.name}} fell",
        Condition(
            (m.PUSH_CONFIG_STEPS,),
            *("avg", "1d", "<", -10.0),
            by=_CONFIG,
            where=("ref:main",),
            change="pct_change 1w",
        ),
        "runs of one config differ by a few percent from day to day; a tenth is a change of the code",
        "Steps per second of config {{config.name}} in {{project.name}} are {{value}} % off those of a "
        "week ago.",
        "Every run of the team that uses this config takes longer and costs more from now on.",
        "Compare the pushes to main since the drop, on the dashboard Push to main; bisect if that is not "
        "enough.",
        _PAGE,
        priority=2,
    ),
    Monitor(
        "push-success",
        "Push-to-main runs of {{project.name}} fail",
        Condition((m.PUSH_SUCCESS,), *("max", "4h", "<", 80.0), warning=90.0, by=_PROJECT),
        "one failed run of five in a day is seldom chance; four hours let a single bad push be fixed first",
        "Only {{value}} % of the push-to-main runs in {{project.name}} of the last day finished.",
        "Main may be broken for everybody who starts from it.",
        "Open the failed runs in W&B, find the first push that failed, and fix or revert it.",
        _PAGE,
        priority=2,
    ),
    Monitor(
        "crashed-runs",
        "Many runs of {{project.name}} crashed",
        Condition((m.CRASHED,), *("avg", "1h", ">", 10.0), by=_PROJECT, change="change 1d"),
        "ten more crashes than the day before are beyond what single mistakes make",
        "{{value}} more runs of {{project.name}} crashed in the last day than in the day before.",
        "So many at once are usually a node, a file system or a dependency, and every further run is "
        "lost as well.",
        "See on the dashboards Fleet and Hosts what the crashed runs have in common: a host, a user, a "
        "version.",
        _PAGE,
    ),
    Monitor(
        "idle-gpus",
        "Run {{run.name}} of {{user.name}} holds idle GPUs",
        Condition(
            (m.IDLE_SECONDS,), *("min", "30m", ">", 3.0), by=("user", "run", "project"), formula="{} / 3600"
        ),
        "checkpoints, evaluations and downloads seldom take three hours",
        "The GPUs of run {{run.name}} in {{project.name}}, started by {{user.name}}, have been idle for "
        "{{value}} hours.",
        "They cost as much as busy ones, and no other run can use them.",
        "Ask {{user.name}} whether the run hangs or only waits, and end it if it is not needed.",
        _PAGE,
    ),
    Monitor(
        "queued-runs",
        "A run of {{project.name}} has been queued for long",
        Condition((m.OLDEST_PENDING,), *("min", "1h", ">", 4.0), by=_PROJECT, formula="{} / 3600"),
        "four hours are longer than most runs take, so that something should have become free",
        "The oldest pending run of {{project.name}} was created {{value}} hours ago and has not started.",
        "The queue is stuck, or the fleet is too small for its load.",
        "See on the dashboard Fleet whether GPUs are idle or in use; look at the agents of the queue in W&B.",
        _PAGE,
    ),
)

VIEWS = Views((FLEET, PUSH_TO_MAIN, SWEEPS), monitors=MONITORS)
