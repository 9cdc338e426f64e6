"""A live run: answers for the present, fills what was missed, remembers how far it came, reports on itself.

What a backfill does instead is in `common.execution.backfill`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from common.collector import Collector, Context
from common.config.configuration import Configuration
from common.config.settings import CollectorSettings
from common.errors import FleetgaugeError, Interrupted
from common.execution import health
from common.execution.delivery import Delivery
from common.execution.run import Run, failure_of
from common.intake import MAX_AGE, MAX_AHEAD
from common.job import Job, Mode
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.outcome import Outcome, Status
from common.span import Span, missed
from common.state.checkpoint import Checkpoint, UnsavedCheckpoint, changed
from common.state.key import checkpoint_key
from common.state.stores import store
from common.times import iso, tick

LAST_WORDS = 2.0  # seconds for the self-metrics once the time is over

log = logging.getLogger(__name__)


class LiveRun(Run):
    """A run that answers for the present."""

    _last_success: int | None = None
    _as_of: int | None = None

    def _load(self, configuration: Configuration) -> Collector[Any]:
        if self._job.mode is Mode.PUSH:  # to be reported even where the collector cannot be imported
            self._last_success = _last_success(configuration, self._job.collector, self._node_name)
        return super()._load(configuration)

    # Any: the settings model differs per collector, and only the collector itself looks inside.
    def _work(
        self, configuration: Configuration, collector: Collector[Any], settings: CollectorSettings
    ) -> None:
        """Answer for the present."""
        job, core = self._job, configuration.core
        with self._hold(configuration, collector) as checkpoint:
            self._tally.dropped.update(
                {"bad_checkpoint": checkpoint.set_aside} if checkpoint.set_aside else {}
            )
            step = job.step or core.step
            context = self._context(core, settings, checkpoint.saved.state, tick(job.now, step), step)
            self._sink = sink = self._open_sink(configuration, collector, job.now - MAX_AGE)
            context = replace(context, intake_clock=self._intake_clock)

            def remember(changes: Mapping[str, object]) -> None:
                checkpoint.save(replace(checkpoint.saved, state=changed(checkpoint.saved.state, changes)))

            self._as_of = context.at
            self._deliver(collector, self._dated(collector.collect(context)), Delivery(sink, remember))
            if job.mode is Mode.PUSH:
                self._note_gap(collector, context)
            if not self._tally.lost:
                checkpoint.save(replace(checkpoint.saved, last_success=int(self._clock())))
                self._last_success = checkpoint.saved.last_success

    def _dated(self, items: Iterator[Sample | Mark]) -> Iterator[Sample | Mark]:
        """The same items, noting the newest instant that can be sent: what is measured is not of the tick."""
        newest, last = self._job.now - MAX_AGE, self._job.now + MAX_AHEAD
        for item in items:
            if isinstance(item, Sample) and newest < item.timestamp <= last:
                self._as_of = newest = item.timestamp
            yield item

    def _intake_clock(self) -> float | None:
        """What the intake's clock showed when the run started; it is asked where it has not answered yet."""
        from common.datadog.sink import DatadogSink

        if not isinstance(self._sink, DatadogSink):
            return None  # a dry run asks nobody
        if self._sink.clock_skew is None:
            self._sink.validate()
        return None if self._sink.clock_skew is None else self._job.now - self._sink.clock_skew

    def _note_gap(self, collector: Collector[Any], context: Context[Any]) -> None:
        """What was missed and cannot be filled: said with the command that does it, where one can."""
        last, step = self._last_success, context.step
        if self._tally.gap is None and step and last is not None:
            if collector.resumes:  # it reads on from where it was, but what it reads may be too old by now
                self._tally.gap = Span(last, max(last, context.now - MAX_AGE), step)
            else:
                self._tally.gap = missed(last, context.at, step, oldest=context.at).gap
        gap = self._tally.gap
        if gap is None or not gap.seconds:
            return
        if collector.backfill is None:
            log.warning("nothing was measured from %s, and it cannot be measured afterwards", gap)
            return
        # A collector that resumes had left its youngest records for the run that did not come.
        since = iso(gap.since - gap.step if collector.resumes else gap.since)
        grid = ("--step", f"{self._job.step}s") if self._job.step else ()
        command = self._job.command("--since", since, "--until", iso(gap.until), *grid, "--push")
        log.warning("the points from %s were not sent and are too old now; to send them: %s", gap, command)

    def _hold(self, configuration: Configuration, collector: Collector[Any]) -> Checkpoint:
        """The collector's checkpoint, held by this run; in a dry run only read, and never moved."""
        place = self._store(configuration, collector)
        if place is None:
            return UnsavedCheckpoint()
        key = self._key(configuration, collector)
        if self._job.mode is Mode.DRY_RUN:
            return UnsavedCheckpoint(place.peek(key))
        return place.open(key)

    def _closing(self, outcome: Outcome, *, interrupted: bool) -> Outcome:
        if self._job.mode is Mode.DRY_RUN:
            return replace(outcome, as_of=self._as_of, missed_ticks=self._tally.missed)
        if self._job.mode is not Mode.PUSH or outcome.status is Status.SKIPPED:
            return outcome
        left = LAST_WORDS if interrupted else max(LAST_WORDS, self._deadline.remaining())
        return self._report(outcome, Deadline(left))

    def _report(self, outcome: Outcome, deadline: Deadline) -> Outcome:
        """Deliver the self-metrics; failing to is itself a failure of the run."""
        if self._configuration is None:
            return outcome
        try:
            skew = getattr(self._sink, "clock_skew", None)
            gap = None if self._tally.gap is None else self._tally.gap.seconds
            report(outcome, self._configuration, deadline, skew, self._last_success, gap, self._clock)
        except (Exception, Interrupted) as error:
            _log_unreported(error)
            if outcome.error is None:
                status = Status.PARTIAL if outcome.points_sent else Status.FAILED
                return replace(outcome, status=status, error=failure_of(error))
        return outcome


def _last_success(configuration: Configuration, name: str, node_name: str) -> int | None:
    """When a run last succeeded, where a store remembers it; asked without importing the collector."""
    place = store(configuration.core)
    if place is None:
        return None
    keys = [checkpoint_key(name, configuration.core, configuration.address, *n) for n in ((), (node_name,))]
    found = [place.peek(key).last_success for key in keys]
    return max((moment for moment in found if moment is not None), default=None)


def report(
    outcome: Outcome,
    configuration: Configuration,
    deadline: Deadline,
    clock_skew: float | None,
    last_success: int | None,
    gap: int | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Deliver the self-metrics of a run."""
    from common.datadog.sink import DatadogSink

    sink = DatadogSink(configuration.datadog(), configuration.core, deadline, clock=clock)
    sink.send(health.samples(outcome, int(clock()), clock_skew, last_success, gap))


def report_for(job: Job, outcome: Outcome, environ: Mapping[str, str]) -> Outcome:
    """Report on a child that could not."""
    try:
        configuration = Configuration(environ, job.config)
        node_name = configuration.core.node_name or socket.gethostname()
        last_success = _last_success(configuration, job.collector, node_name)
        report(outcome, configuration, Deadline(job.timeout), None, last_success)
    except (Exception, Interrupted) as error:
        _log_unreported(error)
    return outcome


def _log_unreported(error: BaseException) -> None:
    """Say that self-metrics were not delivered; with a traceback where the reason is a defect."""
    expected = isinstance(error, FleetgaugeError | Interrupted)
    log.warning("the self-metrics were not delivered: %s", error, exc_info=None if expected else error)
