"""The dashboard and the monitors of fleetgauge itself, over the self-metrics of `health.py`.

`common/dashboard.py` has the types, `common/datadog/documents.py` makes Datadog's JSON of them, and
`scripts/provision.py` writes it. The dashboards of collectors are in `collectors/<name>/dashboard.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from common import dashboard as d
from common.metric import Combine
from common.run import health as h

_BY = ("collector",)
# `collector.up` combines by MIN. For the number of shards that are up its series are added instead.
_SHARDS_UP = replace(h.UP, combines=Combine.SUM)
_PAGE = "docs/troubleshooting.md"
_monitor = partial(d.Monitor, page=_PAGE)
_down = partial(_monitor, no_data=60, priority=2)
_LOG = (
    "Read the log of its last run, then run it by hand: scripts/run_collector.py {{collector.name}} --check."
)

ITSELF = d.Dashboard(
    "fleetgauge-itself",
    "fleetgauge itself",
    "Whether the numbers on the other dashboards are complete and on time. A collector is down where a run "
    "failed; a partial run reports the units it lost. A live run sends one point per series, so that points "
    "sent are what it costs in custom metrics.",
    {
        "Overview": (
            d.value("Collectors up (min)", h.UP, colours=d.bad_below(1, 1)),
            d.value("Gap max", h.GAP, hours=True, colours=d.bad_above(0)),
            d.value("Units lost", h.UNITS_LOST, colours=d.bad_above(0)),
            d.value("Points dropped", h.DROPPED),
        ),
        "Health": (
            d.line("Up by collector", h.UP, by=_BY),
            d.line("Time since the last success", h.LAST_SUCCESS, by=_BY, hours=True),
            d.line("Gap by collector", h.GAP, by=_BY, hours=True),
            d.bars("Units lost by reason", h.UNITS_LOST, by=("collector", "reason")),
            d.bars("Points dropped by reason", h.DROPPED, by=("collector", "reason")),
            d.line("Shards", h.SHARDS, by=_BY),
            d.line("Clock skew", h.SKEW, by=("collector", "shard", "host")),
            d.line("Run duration by collector", h.DURATION, by=_BY),
        ),
        "Cost": (
            d.bars("Points sent by collector", h.SENT, by=_BY),
            d.toplist("Samples by collector", h.SAMPLES, by=_BY),
            d.bars("Requests by collector", h.REQUESTS, by=_BY),
        ),
    },
    (_PAGE, "docs/metrics.md"),
)

MONITORS = (
    _down(
        # W&B and collectors on nodes have monitors of their own: a silent shard or node has no series, and in
        # one group the others would hide it.
        "collector-down",
        "Collector {{collector.name}} is down or silent",
        d.Condition((h.UP,), *("max", "1h", "<", 1.0), by=_BY, where=("!collector:wandb", "!host:*")),
        "four failed ticks in a row are no temporary failure of a source",
        "No run of the collector {{collector.name}} succeeded in the last hour, or none ran.",
        "Its data is missing on the dashboards.",
        _LOG,
    ),
    _down(
        "collector-down-node",
        "Collector {{collector.name}} on {{host.name}} is down or silent",
        # A group per host: a node that becomes silent has no data, and only its own group can report that.
        d.Condition((h.UP,), *("max", "1h", "<", 1.0), by=(*_BY, "host"), where=("host:*",)),
        "four failed ticks in a row are no temporary failure; a silent node is down, or its pod is",
        "No run of the collector {{collector.name}} on {{host.name}} succeeded in the last hour, or none "
        "ran.",
        "The data of that node is missing on the dashboards.",
        "Look at the pod of fleetgauge on {{host.name}} and at its log. Resolve this by hand if the node "
        "was removed on purpose.",
    ),
    _down(
        "collector-down-wandb",
        "The W&B collector is down or silent, in part or completely",
        # A shard that never ran has no series to group by. So the sum of `up` is compared with the number
        # of shards that each running shard reports.
        d.Condition(
            (_SHARDS_UP, h.SHARDS), *("max", "1h", "<", 0.0), where=("collector:wandb",), formula="{} - {}"
        ),
        "in none of four ticks as many shards were up as there are",
        "Shards of the W&B collector are down or silent: {{value}} (shards that are up, minus all).",
        "The projects of the missing shards are missing on the dashboards.",
        "Read the logs of the pods, then run the collector by hand: scripts/run_collector.py wandb --check.",
    ),
    _monitor(
        "units-lost",
        "{{collector.name}} lost units: {{reason.name}}",
        d.Condition((h.UNITS_LOST,), *("sum", "1h", ">", 0.0), by=("collector", "reason")),
        "a lost unit is data that was configured; the next tick may heal it, so that it does not page",
        "The collector {{collector.name}} lost {{value}} units (projects, files, GPUs) in an hour: "
        "{{reason.name}}.",
        "Their data is missing or incomplete on the dashboards.",
        "The log of its last run names each unit and the command that sends it later.",
        priority=5,
    ),
    _monitor(
        "points-dropped",
        "{{collector.name}} drops points: {{reason.name}}",
        d.Condition((h.DROPPED,), *("sum", "1h", ">", 100.0), warning=0.0, by=("collector", "reason")),
        "a damaged line or two is normal; a hundred in an hour is a source that has changed",
        "The collector {{collector.name}} dropped {{value}} records or points for {{reason.name}} in an "
        "hour.",
        "They are missing on every dashboard, for good.",
        "Run it with --verbose, which names the first of each reason; the reasons are in the collector's "
        "README.",
    ),
    d.Monitor(
        # Without a state document `collector.gap_seconds` is not sent, so this monitor does not alert on no
        # data.
        "gap",
        "{{collector.name}} left a gap",
        d.Condition((h.GAP,), *("max", "1h", ">", 0.0), by=_BY, formula="{} / 3600"),
        "any gap is time without data; no data means that there is no store (FLEETGAUGE_STATE)",
        "{{value}} hours before the last run of {{collector.name}} were missed: too old to be sent.",
        "That time is empty on the dashboards.",
        "Fill it with a backfill: scripts/run_collector.py {{collector.name}} --since ... --push.",
        "docs/backfill.md",
    ),
)

VIEWS = d.Views((ITSELF,), MONITORS)
