"""What every run reports about itself, for every collector that was not skipped.

The numbers describe the run, so they carry the time it ended; `collector.up` is 1 only when everything
asked for was read and delivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from common.metric import Sample, gauge
from common.outcome import Outcome, Status

UP = gauge(
    "collector.up", "", "1 when all that was asked for was read and delivered, 0 otherwise.", "collector"
)
DURATION = gauge(
    "collector.duration_seconds", "second", "How long the run of the collector took.", "collector"
)
SAMPLES = gauge("collector.samples", "item", "Samples the collector yielded in the run.", "collector")
SENT = gauge("collector.points_sent", "item", "Points the intake accepted in the run.", "collector")
DROPPED = gauge(
    "collector.points_dropped",
    "item",
    "Records and points of the run that were not sent as they were, by reason; never counted as a failure.",
    "collector",
    "reason",
)
REQUESTS = gauge("collector.requests", "request", "Requests the collector made to its source.", "collector")
SKEW = gauge(
    "collector.clock_skew_seconds",
    "second",
    "How far this machine's clock is ahead of the intake's, to about a second.",
    "collector",
)

LAST_SUCCESS = gauge(
    "collector.last_success_age_seconds",
    "second",
    "Time since a run of the collector last read and delivered everything; needs a checkpoint store.",
    "collector",
)

GAP = gauge(
    "collector.gap_seconds",
    "second",
    "Time before this run that was missed and could not be filled any more; 0 where nothing is missing; "
    "needs a checkpoint store.",
    "collector",
)

METRICS = (UP, DURATION, SAMPLES, SENT, DROPPED, REQUESTS, SKEW, LAST_SUCCESS, GAP)

# Reported even when zero, so that a monitor on them has data to look at.
REASONS = ("not_finite", "too_old", "in_future", "tag_collision", "series_cap")


def samples(
    outcome: Outcome, at: int, clock_skew: float | None, last_success: int | None, gap: int | None
) -> Iterator[Sample]:
    """The self-metrics of one run."""
    name = outcome.collector
    yield UP(int(outcome.status in {Status.OK, Status.EMPTY}), at, collector=name)
    yield DURATION(outcome.seconds, at, collector=name)
    yield SAMPLES(outcome.samples, at, collector=name)
    yield SENT(outcome.points_sent, at, collector=name)
    for reason in sorted({*REASONS, *outcome.dropped}):
        yield DROPPED(outcome.dropped.get(reason, 0), at, collector=name, reason=reason)
    yield REQUESTS(outcome.requests, at, collector=name)
    if clock_skew is not None:
        yield SKEW(clock_skew, at, collector=name)
    if last_success is not None:
        yield LAST_SUCCESS(max(0, at - last_success), at, collector=name)
    if gap is not None:
        yield GAP(gap, at, collector=name)
