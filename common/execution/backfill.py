"""One collector's answer for a span of the past: computed, surveyed, agreed to and delivered.

A backfill keeps a checkpoint of its own, under what was asked for, and never touches the one of the live
ticks. It reports no self-metrics: those tell how the live ticks fare.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from common.errors import ConfigurationError, DeclinedError, DeliveryError
from common.execution.backfill_state import BackfillCheckpoint, BackfillState, SpanSamples, Survey
from common.execution.delivery import Delivery
from common.execution.run import SLACK, Run
from common.intake import MAX_AGE
from common.job import Backfill, Mode
from common.net.retry import Deadline
from common.span import Span
from common.state.checkpoint import Checkpoint, Saved
from common.times import duration, iso

if TYPE_CHECKING:
    from common.datadog.historical import HistoricalIngestion
    from common.datadog.sink import DatadogSink

MAX_TICKS = 500_000

log = logging.getLogger(__name__)


class BackfillRun(Run):
    """A run that answers for a span of the past."""

    @property
    def _asked(self) -> Backfill:
        if self._job.backfill is None:
            raise ValueError("a backfill needs a span")
        return self._job.backfill

    def _work(self) -> None:
        step = self._job.step or self._core.step
        whole = Span(self._asked.since, self._asked.until, step)
        if step > whole.seconds and not self._collector.resumes:  # records have times of their own
            told = f"the step of {duration(step)} is longer than the span, {duration(whole.seconds)}"
            if not whole.ticks:
                raise ConfigurationError(f"{told}, in which no tick falls: lower --step, or widen --since")
            log.warning("%s: it has a single tick", told)
        span = whole.part(self._asked.part, self._asked.parts)
        if len(span.ticks) > MAX_TICKS:
            raise ConfigurationError(
                f"{span} has {len(span.ticks):,} steps of {step} s, more than {MAX_TICKS:,}: "
                "widen --step, or narrow --since and --until"
            )
        if self._job.mode is Mode.DRY_RUN:
            samples = SpanSamples(self._collector, self._context({}, span.until, None), span)
            self._sink = sink = self._open_sink(span.since)
            self._deliver(self._with_progress(samples.items(), "computing samples"), Delivery(sink, None))
            return
        if span.since < self._clock() - MAX_AGE:
            self._historical_ingestion()  # raises without its key, before every run is listed for nothing
        place = self._place
        if place is None and self._asked.once is not None:
            raise ConfigurationError("--once needs to remember what was done: set FLEETGAUGE_CHECKPOINTS")
        with place.open(self._backfill_key(step)) if place else Checkpoint() as checkpoint:
            while not self._push(checkpoint, span):
                log.info("metrics that were left out before can be sent now: starting again")
                checkpoint.save(Saved())

    def _push(self, checkpoint: Checkpoint, span: Span) -> bool:
        """Send what is left of the span; False where more metrics can be sent than an earlier attempt did."""
        state = BackfillState.parse(checkpoint.saved.state, self._job.now) or BackfillState(
            span.since, span.until, self._job.now
        )
        span = Span(state.since, state.until, span.step)
        if state.done:
            log.info("%s was completed at %s: nothing is left to do", span, iso(state.saved_at))
            return True
        if state.state:
            log.info("resuming the interrupted backfill: %s", span)
        samples = SpanSamples(self._collector, self._context(state.state, span.until, None), span)
        survey = self._survey(samples)
        survey.check_cap(self._core.series_cap)
        samples.left_out = self._metrics_to_leave_out(survey, span, state.left_out)
        if set(state.left_out) - samples.left_out:
            return False
        survey = survey.without(samples.left_out)
        if samples.left_out and not survey.points:
            raise ConfigurationError("Historical Metrics Ingestion is off for all metrics: nothing was sent")
        self._sink = sink = self._historical_sink(survey, span)
        saves = BackfillCheckpoint(checkpoint, replace(state, left_out=sorted(samples.left_out)), self._clock)
        with self._explaining_how_to_resume():
            total = survey.points.total()
            items = self._with_progress(samples.items(), "sending", total, sink)
            self._deliver(items, Delivery(sink, saves))
            self._parent.progress("sending", sink.points_sent, total)
        if not self._tally.lost:  # a project that could not be read is what is left to do
            done = replace(state, saved_at=int(self._clock()), state={}, done=True)
            checkpoint.save(Saved() if self._asked.once is None else Saved(asdict(done)))
        return True

    def _survey(self, samples: SpanSamples) -> Survey:
        """Look at all that would be sent. What is met on the way is counted when it is sent."""
        dropped, lost = self._tally.dropped.copy(), list(self._tally.lost)
        items = self._with_progress(samples.items(), "computing samples")
        survey = Survey.of(items, self._clock)
        self._tally.dropped, self._tally.lost[:] = dropped, lost
        return survey

    def _metrics_to_leave_out(self, survey: Survey, span: Span, left_out_before: list[str]) -> frozenset[str]:
        """The metrics that Datadog would drop in silence, once it is agreed what to do about them."""
        if not survey.needs_historical_ingestion and not left_out_before:
            self._agree(survey, span, [])
            return frozenset()
        from common.datadog.historical import refusal

        ingestion = self._historical_ingestion()
        names = {*survey.points, *left_out_before}
        off = sorted(names - ingestion.enabled(names))
        if off and not self._asked.enable and not self._asked.only_enabled:
            command = self._job.command(*self._asked.asked, "--push", "--enable-historical")
            raise _about(off, refusal(len(off), command))
        self._agree(survey, span, off)
        left_out = self._turn_on(ingestion, off) if self._asked.enable else frozenset(off)
        self._tally.requests += ingestion.requests
        return left_out

    def _agree(self, survey: Survey, span: Span, off: list[str]) -> None:
        """Say what will happen, and where a person is there, wait for a yes."""
        from common.datadog.historical import visible

        kept = survey if self._asked.enable else survey.without(off)
        text = f"{kept.points.total():,} points in {len(kept.series):,} series, {span}"
        if kept.oldest is not None:
            text += f"; visible {visible(self._clock() - kept.oldest)}"
        lines = [text]
        if off:
            verb = "will be turned on for" if self._asked.enable else "is off, so that these are left out:"
            lines += [f"Historical Metrics Ingestion {verb} {len(off)} metrics", *off]
        if not self._asked.ask or not (survey.points or (off and self._asked.enable)):
            for line in lines:
                log.info("%s", line)
        elif not self._parent.agrees("\n  ".join(lines)):
            raise DeclinedError("nothing was sent: it was not agreed to")

    def _turn_on(self, ingestion: HistoricalIngestion, off: list[str]) -> frozenset[str]:
        """Turn Historical Metrics Ingestion on; the metrics for which Datadog refused."""
        refused: dict[str, str] = {}
        for name in off:
            if reason := ingestion.enable(name):
                refused[name] = reason
                log.warning("%s: Historical Metrics Ingestion was not turned on: %s", name, reason)
            else:
                log.info("%s: Historical Metrics Ingestion is on now", name)
        if refused and not self._asked.only_enabled:
            raise _about(
                [f"{name}: {reason}" for name, reason in refused.items()],
                f"Historical Metrics Ingestion could not be turned on for {len(refused)} metrics. "
                "Nothing was sent; --only-enabled leaves these out",
            )
        return frozenset(refused)

    def _historical_sink(self, survey: Survey, span: Span) -> DatadogSink:
        """The sink of a backfill. What needs no permission by its age must be sent before it does."""
        left = self._deadline.remaining()
        if not survey.needs_historical_ingestion and survey.oldest is not None:
            left = min(left, survey.oldest + MAX_AGE - SLACK - self._clock())
            if left <= 0:
                raise DeliveryError("points became older than an hour before they were sent: run it again")
        oldest = span.since if survey.needs_historical_ingestion else None
        return self._datadog_sink(Deadline(left), oldest=oldest)

    @contextmanager
    def _explaining_how_to_resume(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            how = "starts again, doubling nothing (with FLEETGAUGE_CHECKPOINTS it would resume from here)"
            if self._core.checkpoints:
                how = "resumes from here, within a day"
            log.warning("not everything was sent; the same command %s", how)
            raise

    def _backfill_key(self, step: int) -> str:
        """Names a backfill: a hash of all that decides what is sent where, secrets masked.

        Settings that are left alone are no part of it, so that a newer version, which has more, knows it too.
        """
        asked, core, datadog = self._asked, self._core, self._configuration.datadog()
        settings = self._settings.model_dump_json(exclude_defaults=True)
        told = [*asked.asked, asked.part, asked.parts, step, settings]
        told += [core.env, core.service, datadog.address, core.instance]
        told += [self._node_name] if core.node_local else []
        told += [] if asked.once is None else [asked.once]
        told += self._job.shard.options
        digest = hashlib.blake2b(json.dumps(told).encode(), digest_size=6).hexdigest()
        return f"backfill-{self._collector.name}-{digest}"


def _about(details: list[str], said: str) -> ConfigurationError:
    error = ConfigurationError(said)
    error.details = details
    return error
