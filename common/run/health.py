"""The self-metrics: what every live push reports about itself, for every collector that was not skipped.

`run.py` sends them after the run, also after a failed one. `health_dashboard.py` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.metric import Combine, Metric, Series, count, gauge
from common.outcome import Outcome, Status
from common.shards import SHARDED
from common.times import tick

if TYPE_CHECKING:
    from common.run.session import Session

_TAGS = ("collector", "shard")


def _gauge(name: str, unit: str, text: str, combines: Combine = Combine.MAX) -> Metric:
    return gauge(f"collector.{name}", unit, text, *_TAGS, combines=combines)


def _count(name: str, unit: str, text: str, *tags: str) -> Metric:
    return count(f"collector.{name}", unit, text, *_TAGS, *tags)


# MIN over series: one collector, node or shard that is down is visible in a number over all of them.
_UP_HELP = "0 when the run failed, 1 otherwise; collector.units_lost counts what a partial run lacks."
UP = _gauge("up", "", _UP_HELP, Combine.MIN)
_SHARDS_HELP = "Number of shards (--shard I/N) that read the source together; each reports collector.up."
SHARDS = _gauge("shards", "", _SHARDS_HELP)
DURATION = _gauge("duration_seconds", "second", "How long the run of the collector took.")
SAMPLES = _count("samples", "item", "Points that the collector yielded in the run.")
SENT = _count("points_sent", "item", "Points that the intake accepted in the run.")
_DROPPED_HELP = (
    "Records and points of the run that were not sent as they were, by reason; never counted as a failure."
)
DROPPED = _count("points_dropped", "item", _DROPPED_HELP, "reason")
_LOST_HELP = "Units (projects, files, pages, GPUs) that the run could not read or send, by reason."
UNITS_LOST = _count("units_lost", "item", _LOST_HELP, "reason")
REQUESTS = _count("requests", "request", "Requests that the collector made to its source.")
# The skew is signed: over several series neither the highest nor the mean is the error of the clocks, so they
# do not combine.
_SKEW_HELP = "How far this machine's clock is ahead of the intake's, to about a second."
SKEW = _gauge("clock_skew_seconds", "second", _SKEW_HELP, Combine.NONE)
_SUCCESS_HELP = (
    "Time since a run of the collector last read and delivered everything; needs FLEETGAUGE_STATE."
)
LAST_SUCCESS = _gauge("last_success_age_seconds", "second", _SUCCESS_HELP)
_GAP_HELP = (
    "Time before this run that was missed and could not be filled any more; 0 where nothing is missing; "
    "needs FLEETGAUGE_STATE."
)
GAP = _gauge("gap_seconds", "second", _GAP_HELP)

METRICS = (UP, SHARDS, DURATION, SAMPLES, SENT, DROPPED, UNITS_LOST, REQUESTS, SKEW, LAST_SUCCESS, GAP)

# Sent even when zero, so that a monitor on them has data.
DROP_REASONS = ("not_finite", "too_old", "in_future", "tag_collision", "series_cap")
LOSS_REASONS = ("unreadable",)


def self_metrics(outcome: Outcome, session: Session) -> Iterator[Series]:
    """Yield the self-metrics of one run; what is not known has none.

    `collector.up` is stamped with the tick that the run answers for, so that a run and a parent that reports
    for it send one point: Datadog stores the last value of a series and second. Counts are stamped with the
    second the run began: two runs of one tick are two runs.
    """
    shard, began, ended = session.options.shard, session.now, int(session.clock())
    tags = {"collector": outcome.collector} | ({"shard": str(shard.index)} if shard.count > 1 else {})
    report, last_success = outcome.report, session.cache.document.last_success
    at_tick = {
        UP: int(outcome.status is not Status.FAILED),
        SHARDS: shard.count if outcome.collector == SHARDED else None,
    }
    at_begin = {SAMPLES: report.samples, SENT: report.points_sent, REQUESTS: report.requests}
    at_end = {
        DURATION: outcome.seconds,
        SKEW: session.client().clock_skew,
        LAST_SUCCESS: None if last_success is None else max(0, ended - last_success),
        GAP: report.gap,
    }
    for values, at in ((at_tick, tick(began, session.step)), (at_begin, began), (at_end, ended)):
        for metric, value in values.items():
            if value is not None:
                yield metric(value, at, on_host=session.host, **tags)
    for metric, known, found in (
        (DROPPED, DROP_REASONS, report.dropped),
        (UNITS_LOST, LOSS_REASONS, report.lost_by_reason),
    ):
        for reason in sorted({*known, *found}):
            yield metric(found.get(reason, 0), began, on_host=session.host, reason=reason, **tags)
