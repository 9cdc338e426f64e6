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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from common.collector import Collector
from common.config.configuration import Configuration
from common.config.settings import CollectorSettings
from common.errors import ConfigurationError, DeclinedError, DeliveryError
from common.execution.backfill_state import BackfillMemory, BackfillState, Past, Survey
from common.execution.delivery import Delivery, Sink
from common.execution.run import SLACK, Run
from common.intake import MAX_AGE
from common.job import Backfill, Mode
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.span import Span
from common.state.checkpoint import Checkpoint, Saved, UnsavedCheckpoint
from common.state.stores import store

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

    def _work(
        self, configuration: Configuration, collector: Collector[Any], settings: CollectorSettings
    ) -> None:
        step = self._job.step or configuration.core.step
        span = Span(self._asked.since, self._asked.until, step).part(self._asked.part, self._asked.parts)
        if len(span.ticks) > MAX_TICKS:
            raise ConfigurationError(
                f"{span} has {len(span.ticks):,} steps of {step} s, more than {MAX_TICKS:,}: "
                "widen --step, or narrow --since and --until"
            )
        if self._job.mode is Mode.DRY_RUN:
            past = Past(collector, self._context(configuration.core, settings, {}, span.until, None), span)
            self._sink = sink = self._open_sink(configuration, collector, span.since)
            self._deliver(collector, self._counted(past.items(), "computing", None), Delivery(sink, None))
            return
        key = f"backfill-{collector.name}-{_digest(self._asked, step, settings, configuration)}"
        place = store(configuration.core)
        with place.open(key) if place else UnsavedCheckpoint() as checkpoint:
            while not self._push(configuration, collector, settings, checkpoint, span):
                log.info("metrics that were left out before can be sent now: beginning anew")
                checkpoint.save(Saved())

    def _push(
        self,
        configuration: Configuration,
        collector: Collector[Any],
        settings: CollectorSettings,
        checkpoint: Checkpoint,
        span: Span,
    ) -> bool:
        """Send what is left of the span; False where what was begun left out too much to be gone on with."""
        begun = BackfillState.parse(checkpoint.saved.state, self._job.now) or BackfillState(
            span.since, span.until, self._job.now
        )
        span = Span(begun.since, begun.until, span.step)
        if begun.state:
            log.info("going on with what was begun: %s", span)
        context = self._context(configuration.core, settings, begun.state, span.until, None)
        past = Past(collector, context, span)
        survey = self._survey(past)
        survey.check_cap(configuration.core.series_cap)
        needs_history = survey.needs_history(self._clock())
        history = self._history(configuration) if needs_history or begun.left_out else None
        names = {*survey.points, *begun.left_out}
        off = sorted(names - history.enabled(names)) if history else []
        self._refuse(off)
        self._agree(survey, span, off)
        past.left_out = self._leave_out(history, off)
        self._tally.requests += history.requests if history else 0
        if set(begun.left_out) - past.left_out:
            return False
        survey = survey.without(past.left_out)
        if past.left_out and not survey.points:
            raise ConfigurationError("Historical Metrics Ingestion is off for all metrics: nothing was sent")
        self._sink = sink = self._past_sink(configuration, survey, span, needs_history=needs_history)
        remember = BackfillMemory(checkpoint, replace(begun, left_out=sorted(past.left_out)), self._clock)
        with self._explaining_how_to_resume(configuration):
            total = survey.points.total()
            items = self._counted(past.items(), "sending", total, sink)
            self._deliver(collector, items, Delivery(sink, remember))
            self._parent.progress("sending", sink.points_sent, total)
        if not self._tally.lost:  # a project that could not be read is what is left to do
            checkpoint.save(Saved())
        return True

    def _survey(self, past: Past) -> Survey:
        """Look at all that would be sent. What is met on the way is counted when it is sent."""
        dropped, lost = self._tally.dropped.copy(), list(self._tally.lost)
        survey = Survey.of(self._counted(past.items(), "computing", None))
        self._tally.dropped, self._tally.lost[:] = dropped, lost
        return survey

    def _history(self, configuration: Configuration) -> HistoricalIngestion:
        from common.datadog.historical import HistoricalIngestion

        return HistoricalIngestion(
            configuration.datadog(), configuration.core, self._deadline, clock=self._clock
        )

    def _refuse(self, off: list[str]) -> None:
        """Datadog would drop the past of some metrics in silence, and nobody said what to do about it."""
        if off and not self._asked.enable and not self._asked.only_enabled:
            from common.datadog.historical import refusal

            command = self._job.command(*self._asked.asked, "--push", "--enable-historical")
            raise ConfigurationError(refusal(off, command))

    def _agree(self, survey: Survey, span: Span, off: list[str]) -> None:
        """Say what will happen, and where a person is there, wait for a yes."""
        from common.datadog.historical import visible

        kept = survey if self._asked.enable else survey.without(off)
        text = f"{kept.points.total():,} points in {len(kept.series):,} series, {span}"
        if kept.oldest is not None:
            text += f"; visible {visible(self._clock() - kept.oldest)}"
        if off:
            verb = "will be turned on" if self._asked.enable else "is off, and they are left out,"
            text += f"; Historical Metrics Ingestion {verb} for {', '.join(off)}"
        if not self._asked.ask or not survey.points:
            log.info("%s", text)
        elif not self._parent.agrees(text):
            raise DeclinedError("nothing was sent: it was not agreed to")

    def _leave_out(self, history: HistoricalIngestion | None, off: list[str]) -> frozenset[str]:
        """The metrics to leave out, once all was turned on that was to be."""
        if history is None or not self._asked.enable:
            return frozenset(off)
        refused: dict[str, str] = {}
        for name in off:
            if reason := history.enable(name):
                refused[name] = reason
                log.warning("%s: Historical Metrics Ingestion was not turned on: %s", name, reason)
            else:
                log.info("%s: Historical Metrics Ingestion is on now", name)
        if refused and not self._asked.only_enabled:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
            raise ConfigurationError(
                f"Historical Metrics Ingestion could not be turned on for {reasons}. "
                "Nothing was sent; --only-enabled leaves these out"
            )
        return frozenset(refused)

    def _past_sink(
        self, configuration: Configuration, survey: Survey, span: Span, *, needs_history: bool
    ) -> DatadogSink:
        """The sink of a backfill. What needs no permission by its age must be sent before it does."""
        from common.datadog.sink import DatadogSink

        left = self._deadline.remaining()
        if not needs_history and survey.oldest is not None:
            left = min(left, survey.oldest + MAX_AGE - SLACK - self._clock())
            if left <= 0:
                raise DeliveryError("points became older than an hour before they were sent: call it again")
        return DatadogSink(
            configuration.datadog(),
            configuration.core,
            Deadline(left),
            clock=self._clock,
            oldest=span.since if needs_history else None,
            many_ticks=True,
        )

    def _counted(
        self, items: Iterator[Sample | Mark], doing: str, total: int | None, sink: Sink | None = None
    ) -> Iterator[Sample | Mark]:
        """The same items, with progress told at every mark: what a sink took, or what went by."""
        passed = 0
        for item in items:
            passed += isinstance(item, Sample)
            yield item
            if isinstance(item, Mark):
                self._parent.progress(doing, sink.points_sent if sink else passed, total)

    @contextmanager
    def _explaining_how_to_resume(self, configuration: Configuration) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if configuration.core.checkpoints:
                log.warning("not all was sent; the same command goes on from here for a day")
            else:
                log.warning(
                    "not all was sent; the same command begins anew, which changes nothing "
                    "(with FLEETGAUGE_CHECKPOINTS it would go on from here)"
                )
            raise


def _digest(asked: Backfill, step: int, settings: CollectorSettings, configuration: Configuration) -> str:
    """What an interrupted backfill is known by: all that decides what is sent where, secrets masked."""
    core, datadog = configuration.core, configuration.datadog()
    told = [*asked.asked, asked.part, asked.parts, step, settings.model_dump_json()]
    told += [core.env, core.service, datadog.address]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=6).hexdigest()
