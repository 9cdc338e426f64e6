"""What every run reports about itself, for every collector that was not skipped.

The numbers describe the run, so they carry the time it ended; `collector.up` is 1 only when everything
asked for was read and delivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from common.metric import Combine, Series, count, gauge
from common.outcome import Outcome, Status
from common.shards import ALONE, Shard

_TAGS = ("collector", "shard")

UP = gauge(
    "collector.up",
    "",
    "1 when all that was asked for was read and delivered, 0 otherwise.",
    *_TAGS,
    combines=Combine.MIN,
)
DURATION = gauge(
    "collector.duration_seconds",
    "second",
    "How long the run of the collector took.",
    *_TAGS,
    combines=Combine.MAX,
)
SAMPLES = count("collector.samples", "item", "Samples the collector yielded in the run.", *_TAGS)
SENT = count("collector.points_sent", "item", "Points the intake accepted in the run.", *_TAGS)
DROPPED = count(
    "collector.points_dropped",
    "item",
    "Records and points of the run that were not sent as they were, by reason; never counted as a failure.",
    *_TAGS,
    "reason",
)
UNITS_LOST = count(
    "collector.units_lost",
    "item",
    "Units of a partial run that could not be read or sent, by reason: projects, files, pages, GPUs.",
    *_TAGS,
    "reason",
)
REQUESTS = count("collector.requests", "request", "Requests the collector made to its source.", *_TAGS)
SHARDS = gauge(
    "collector.shards",
    "",
    "Number of shards that the collector's runs are spread over (--shard).",
    *_TAGS,
    combines=Combine.MAX,
)
SKEW = gauge(  # ahead or behind: neither the highest nor the mean says how wrong the clocks are
    "collector.clock_skew_seconds",
    "second",
    "How far this machine's clock is ahead of the intake's, to about a second.",
    *_TAGS,
)

LAST_SUCCESS = gauge(
    "collector.last_success_age_seconds",
    "second",
    "Time since a run of the collector last read and delivered everything; needs FLEETGAUGE_STATE.",
    *_TAGS,
    combines=Combine.MAX,
)

GAP = gauge(
    "collector.gap_seconds",
    "second",
    "Time before this run that was missed and could not be filled any more; 0 where nothing is missing; "
    "needs FLEETGAUGE_STATE.",
    *_TAGS,
    combines=Combine.MAX,
)

METRICS = (UP, DURATION, SAMPLES, SENT, DROPPED, UNITS_LOST, REQUESTS, SKEW, LAST_SUCCESS, GAP, SHARDS)

# Reported even when zero, so that a monitor on them has data to look at.
REASONS = ("not_finite", "too_old", "in_future", "tag_collision", "series_cap")


def self_metrics(
    outcome: Outcome,
    at: int,
    *,
    clock_skew: float | None = None,
    last_success: int | None = None,
    gap: int | None = None,
    host: str | None = None,
    shard: Shard = ALONE,
) -> Iterator[Series]:
    """Yield the self-metrics of one run; what is not known has none."""
    tags = {"collector": outcome.collector} | ({"shard": str(shard.index)} if shard.count > 1 else {})
    values = {
        UP: int(outcome.status in {Status.OK, Status.EMPTY}),
        DURATION: outcome.seconds,
        SAMPLES: outcome.samples,
        SENT: outcome.points_sent,
        REQUESTS: outcome.requests,
        SKEW: clock_skew,
        LAST_SUCCESS: None if last_success is None else max(0, at - last_success),
        GAP: gap,
    }
    for metric, value in values.items():
        if value is not None:
            yield metric(value, at, on_host=host, **tags)
    for reason in sorted({*REASONS, *outcome.dropped}):
        yield DROPPED(outcome.dropped.get(reason, 0), at, on_host=host, reason=reason, **tags)
