"""A backfill: one collector's answer for a span of the past, agreed to and sent window by window.

It has no state: a backfill that was cut off logs the command that continues it. It sends no self-metrics:
those are about live runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from common.collector import Collector
from common.errors import ConfigurationError, DeclinedError, DeliveryError, NoBackfillError
from common.execution.run import SLACK, Run
from common.intake import MAX_AGE
from common.job import Backfill, Mode
from common.metric import Series
from common.times import duration, iso
from common.window import Window

if TYPE_CHECKING:
    from common.datadog.historical import HistoricalIngestion
    from common.datadog.intake import DatadogSink

MAX_TICKS = 500_000
MAX_WAITING = 500_000  # points that are collected before some are sent
SECONDS_TO_AGREE = 120  # that a person may need, until sending begins

log = logging.getLogger(__name__)


class BackfillRun(Run):
    """A run that answers for a span of the past."""

    _window: Window  # that is being collected and sent
    _agreed = False
    _begun = False  # whether something was sent
    _checked: frozenset[str] = frozenset()  # metrics of which is known whether Datadog takes old points
    _left_out: frozenset[str] = frozenset()  # metrics of which it does not

    @property
    def _asked(self) -> Backfill:
        if self._job.backfill is None:
            raise ValueError("a backfill needs a span")
        return self._job.backfill

    def _work(self) -> None:
        check_history(self._collector)
        span = self._span()
        if self._job.mode is Mode.DRY_RUN:
            self._sink = shown = self._dry_run_sink(span.since, span.until)
            for batch in self._batches(span):
                for series in batch:
                    shown.add(series)
                shown.flush()
            return
        if span.since < self._clock() - MAX_AGE:
            self._historical_ingestion()  # raises without its key, before everything is read for nothing
        exact_clock = self._collector.exact_clock
        self._sink = sink = self._datadog_sink(self._deadline, since=span.since, exact_clock=exact_clock)
        try:
            for batch in self._batches(span):
                self._send(sink, batch, span)
        except BaseException:
            if self._begun:
                log.warning("not everything was sent; to continue: %s", self._continuing(span))
            raise
        if self._left_out and not sink.points_sent:
            raise ConfigurationError("Historical Metrics Ingestion is off for all metrics: nothing was sent")

    def _span(self) -> Window:
        """Return what is asked for; ConfigurationError where it has no tick, or too many."""
        asked, step = self._asked, self._job.step or self._core.step
        span = Window(asked.since, asked.until, step)
        if not span.ticks and self._collector.backfill_window is None:
            raise ConfigurationError(
                f"no tick is in {span}, which is shorter than the step of {duration(step)}: "
                "lower --step, or widen --since"
            )
        span = span.slice(asked.part, asked.parts)
        if len(span.ticks) > MAX_TICKS:
            raise ConfigurationError(
                f"{span} has {len(span.ticks):,} steps of {step} s, more than {MAX_TICKS:,}: "
                "widen --step, or narrow --since and --until"
            )
        return span

    def _batches(self, span: Window) -> Iterator[list[Series]]:
        """Yield series to send at once: those of a window, or as many of them as are to wait."""
        live_only = {metric.name for metric in self._collector.live_only}
        memory: dict[str, object] = {}  # which lives as long as the backfill
        for window in self._windows(span):
            self._window = window
            batch: list[Series] = []
            points = 0
            for series in self._collect(self._context(window, memory), live_only):
                if series.times:
                    batch.append(series)
                    points += len(series.times)
                if points >= MAX_WAITING:
                    yield batch
                    batch, points = [], 0
            yield batch

    def _windows(self, span: Window) -> list[Window]:
        width = self._collector.backfill_window
        return [*span.split(width)] if width else [span]

    def _send(self, sink: DatadogSink, batch: list[Series], span: Window) -> None:
        """Send some series, once it is known that Datadog takes them and once it is agreed to."""
        batch = [series for series in batch if series.metric.name not in self._left_out]
        if not batch:
            return
        oldest = min(series.times[0] for series in batch)
        is_old = oldest < self._clock() - MAX_AGE + SECONDS_TO_AGREE
        names = {series.metric.name for series in batch} - self._checked if is_old else set()
        off = self._names_off(names) if names else []
        if not self._agreed:
            self._agree(batch, off, span)
            self._agreed = True
        refused = self._turn_on(off) if off and self._asked.enable else frozenset(off)
        self._checked |= names
        self._left_out |= refused
        left = oldest + MAX_AGE - SLACK - self._clock()
        if not is_old and left <= 0:
            raise DeliveryError("points became older than an hour before they were sent: run it again")
        for series in batch:
            if series.metric.name not in refused:
                sink.add(series)
        self._begun = True
        self._parent.progress(f"sending {self._window}", sink.points_sent, None)
        sink.flush(None if is_old else left)

    def _names_off(self, names: set[str]) -> list[str]:
        """Return the metrics of which Datadog silently drops old points; raises unless that is dealt with."""
        from common.datadog.historical import refusal

        ingestion = self._historical_ingestion()
        off = sorted(names - ingestion.enabled(names))
        self._report.requests += ingestion.client.requests
        if off and not self._asked.enable and not self._asked.only_enabled:
            command = self._job.command(*self._asked.asked, "--push", "--enable-historical")
            raise _about(off, refusal(len(off), command))
        return off

    def _agree(self, batch: list[Series], off: list[str], span: Window) -> None:
        """Say what will be sent and, where a person is there, wait for a yes. The number is an estimate."""
        from common.datadog.historical import visible

        sent = [series for series in batch if self._asked.enable or series.metric.name not in off]
        cut_off = sum(len(series.times) for series in batch) >= MAX_WAITING
        until = max(series.times[-1] for series in batch) if cut_off else self._window.until
        share = (until - span.since) / span.seconds
        points = round(sum(len(series.times) for series in sent) / share)
        windows = len(self._windows(span))
        parts = f"{windows:,} windows" if windows > 1 else f"{len(span.ticks):,} ticks"
        age = self._clock() - min(series.times[0] for series in batch)
        lines = [f"about {points:,} points, {span}, {parts}; visible {visible(age)}"]
        if self._collector.backfill_window is not None:
            lines.append("where files were deleted since, this lowers sums that were sent live")
        if off:
            verb = "will be turned on for" if self._asked.enable else "is off, so that these are left out:"
            lines += [f"Historical Metrics Ingestion {verb} {len(off)} metrics", *off]
        if not self._asked.ask or not sent:
            for line in lines:
                log.info("%s", line)
        elif not self._parent.agrees("\n  ".join(lines)):
            raise DeclinedError("nothing was sent: it was not agreed to")

    def _turn_on(self, off: list[str]) -> frozenset[str]:
        """Turn Historical Metrics Ingestion on; return the metrics for which Datadog refused."""
        ingestion: HistoricalIngestion = self._historical_ingestion()
        refused: dict[str, str] = {}
        for name in off:
            if reason := ingestion.enable(name):
                refused[name] = reason
                log.warning("%s: Historical Metrics Ingestion was not turned on: %s", name, reason)
            else:
                log.info("%s: Historical Metrics Ingestion is on now", name)
        self._report.requests += ingestion.client.requests
        if refused and not self._asked.only_enabled:
            raise _about(
                [f"{name}: {reason}" for name, reason in refused.items()],
                f"Historical Metrics Ingestion could not be turned on for {len(refused)} metrics. "
                "Nothing of them was sent; --only-enabled leaves these out",
            )
        return frozenset(refused)

    def _continuing(self, span: Window) -> str:
        """Return the command that sends what remains. It needs no --slice: the span is that part already."""
        asked, since = self._asked, self._window.since
        options = ["--since", iso(since), "--until", iso(span.until), "--step", duration(span.step)]
        options += ["--enable-historical"] if asked.enable else []
        options += ["--only-enabled"] if asked.only_enabled else []
        return self._job.command(*options, "--push")


# Any: the settings model differs per collector, and only the collector itself looks inside.
def check_history(collector: Collector[Any]) -> None:
    """Raise NoBackfillError for a collector that can only measure the present."""
    if not collector.has_history:
        raise NoBackfillError(f"{collector.name} cannot answer for the past: it can only measure the present")


def _about(details: list[str], message: str) -> ConfigurationError:
    error = ConfigurationError(message)
    error.details = details
    return error
