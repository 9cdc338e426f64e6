"""How fleetgauge itself is looked at, and when somebody is told that its numbers cannot be trusted."""

from __future__ import annotations

from common.dashboard import Dashboard, Monitor, Section, Views, bars, line, note, toplist, value
from common.execution import health as h

_BY = ("collector",)
_OF_A_RUN = (*_BY, "shard")
_PAGE = "docs/troubleshooting.md"

ITSELF = Dashboard(
    "fleetgauge-itself",
    "fleetgauge itself",
    "Whether the numbers on the other dashboards are there, whole and on time. A collector is up where "
    "everything asked for was read and delivered. A live run sends one point per series, so that points "
    "sent are what it costs in custom metrics.",
    (
        Section(
            "Overview",
            (
                value("Every collector is up", h.UP),
                value("Longest gap", h.GAP),
                value("Points dropped", h.DROPPED),
            ),
        ),
        Section(
            "Health",
            (
                line("Up by collector", h.UP, by=_BY),
                line("Time since the last success", h.LAST_SUCCESS, by=_BY),
                line("Gap by collector", h.GAP, by=_BY),
                bars("Drops by reason", h.DROPPED, by=("collector", "reason")),
                line("Clock ahead of the intake's", h.SKEW, by=_OF_A_RUN),
                line("Duration by collector", h.DURATION, by=_BY),
            ),
        ),
        Section(
            "Cost",
            (
                line("Points sent by collector", h.SENT, by=_BY),
                toplist("Samples by collector", h.SAMPLES, by=_BY),
                line("Requests by collector", h.REQUESTS, by=_BY),
                note("What a series costs", text="FLEETGAUGE_SERIES_CAP bounds the series of one collector."),
            ),
        ),
    ),
    (_PAGE, "docs/metrics.md"),
)

MONITORS = (
    Monitor(
        "collector-down",
        "Collector {{collector.name}} is down or silent",
        h.UP,
        *("max", "1h", "<", 1.0),
        "four ticks in a row without one that is whole are no passing trouble of a source",
        "No run of the collector {{collector.name}} read and delivered everything in the last hour; or none "
        "ran.",
        "What the dashboards show of it is missing or incomplete, and nobody can tell from them.",
        "Read the log of its last run, then run it by hand: scripts/run_collector.py {{collector.name}} "
        "--check.",
        _PAGE,
        by=_OF_A_RUN,  # or the other shards would hide one that is silent
        no_data=60,
        priority=2,
    ),
    Monitor(
        "points-dropped",
        "{{collector.name}} drops points: {{reason.name}}",
        h.DROPPED,
        *("sum", "1h", ">", 100.0),
        "a damaged line or two is nothing to wake for; a hundred in an hour is a source that has changed",
        "The collector {{collector.name}} dropped {{value}} records or points for {{reason.name}} in an "
        "hour.",
        "They are missing on every dashboard, for good.",
        "Run it with --verbose, which names the first of each reason; the reasons are in the collector's "
        "README.",
        _PAGE,
        by=("collector", "reason"),
        warning=0.0,
    ),
    Monitor(
        "gap",
        "{{collector.name}} left a gap",
        h.GAP,
        *("max", "1h", ">", 0.0),
        "any gap is time of which nothing is known",
        "{{value}} s before the last run of {{collector.name}} were missed, and are too old to be sent by a "
        "live run.",
        "That time is empty on the dashboards.",
        "Fill it with a backfill: scripts/run_collector.py {{collector.name}} --since ... --push.",
        "docs/backfill.md",
        by=_BY,
    ),
    Monitor(
        "clock",
        "The clock of {{collector.name}} is off",
        h.SKEW,
        *("min", "1h", ">", 120.0),
        "the intake takes what is up to ten minutes ahead; two minutes are no delay of the network",
        "The machine that runs {{collector.name}} has a clock that differs from Datadog's by {{value}} s.",
        "Points stand at the wrong time, and beyond ten minutes ahead or an hour behind they are dropped.",
        "Mend the time service (NTP) of the node.",
        _PAGE,
        by=_OF_A_RUN,
        absolute=True,
    ),
)

VIEWS = Views(
    (ITSELF,),
    monitors=MONITORS,
    unseen={h.UNITS_LOST: "it is not sent yet", h.SHARDS: "it is not sent yet"},
)
