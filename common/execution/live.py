"""A live run: answers for the present and for what was missed, and reports on itself.

What a backfill does instead is in `common.execution.backfill`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from common import state
from common.config.settings import CollectorSettings
from common.config.sources import Configuration
from common.errors import FleetgaugeError, Interrupted
from common.execution import health
from common.execution.run import SLACK, Run, Sink, failure_of
from common.intake import MAX_AGE, MAX_AHEAD
from common.job import Mode
from common.metric import Series
from common.net.retry import Deadline
from common.outcome import Outcome, Status
from common.state import Document, Store
from common.times import iso
from common.window import Window

LAST_DELIVERY = 2.0  # seconds to send what was collected once a signal asks to end
LAST_WORDS = 2.0  # seconds for the self-metrics once the time is over

log = logging.getLogger(__name__)


@dataclass
class Kept:
    """What a child that stays keeps from tick to tick. One that was refused is replaced, and reads anew."""

    configuration: Configuration | None = None
    settings: CollectorSettings | None = None
    document: Document = field(default_factory=Document)


STAYING = Kept()  # by this process, which runs one collector


class LiveRun(Run):
    """A run that answers for the present."""

    _store: Store | None = None  # also None once it could not be used
    _state_lost = False
    _bad_document: str | None = None
    _gap: Window | None = None
    _newest: int | None = None  # of all points that can be sent

    @cached_property
    def _kept(self) -> Kept:
        return STAYING if self._job.stays else Kept()

    @property
    def _document(self) -> Document:
        return self._kept.document

    def _read_configuration(self) -> Configuration:
        self._kept.configuration = self._kept.configuration or super()._read_configuration()
        return self._kept.configuration

    def _read_settings(self) -> None:
        if self._kept.settings is None:
            super()._read_settings()
            self._kept.settings = self._settings
        self._settings = self._kept.settings

    def report_on(self, outcome: Outcome) -> Outcome:
        """Report on a child that could not."""
        try:
            self._configure()
        except (Exception, Interrupted) as error:
            _log_unreported(error)
            return outcome
        return self._send_self_metrics(outcome, self._deadline)

    def _configure(self) -> None:
        """Load the state as well: when a run last succeeded is reported even where it fails early."""
        super()._configure()
        self._store = state.open_store(self._core)
        if self._store is None:
            return
        try:
            document, self._bad_document = state.load(self._store, self._state_key(), self._now)
        except FleetgaugeError as error:
            self._lose_state(error)
            return
        if document.now >= self._document.now:  # or a process that stays could not save its last one
            self._kept.document = document

    def _lose_state(self, error: FleetgaugeError) -> None:
        """Go on without a store that cannot be used; a process that stays has its document in memory."""
        self._store, self._state_lost = None, True
        self._report.lose("the state of earlier runs", error)

    def _save(self, document: Document) -> None:
        self._kept.document = document
        if self._store is None:
            return
        try:
            if self._bad_document:
                state.set_aside(self._store, self._state_key())
                self._bad_document = None
            state.save(self._store, self._state_key(), document)
        except FleetgaugeError as error:
            self._lose_state(error)

    def _work(self) -> None:
        """Answer for the present."""
        if self._bad_document:
            self._report.drop("bad_state", example=self._bad_document)
        push = self._job.mode is Mode.PUSH
        window = self._due(self._document.sent_until if push else None)
        memory = json.loads(json.dumps(self._document.memory))  # what it was stays as it is until it is saved
        if push:
            self._note_gap(window)
        self._sink = sink = self._open_sink()
        log.debug("the window is %s", window)
        self._add_all(sink, self._collect(self._context(window, memory)))
        if push and memory != self._document.memory:  # observed, whatever becomes of the delivery
            self._save(replace(self._document, now=self._now, memory=memory))
        sink.flush()
        self._lose_beyond_cap()
        if push:
            self._note_sent(window, memory)

    def _open_sink(self) -> Sink:
        if self._job.mode is Mode.PUSH:
            return self._datadog_sink(self._deadline, exact_clock=self._collector.exact_clock)
        return self._dry_run_sink(self._now - MAX_AGE, self._now + MAX_AHEAD)

    def _due(self, sent_until: int | None) -> Window:
        """Return the window of this run. Nothing may be older than an hour when its time is over."""
        earliest = self._now + math.ceil(self._job.timeout) + SLACK - MAX_AGE
        step = self._job.step or self._core.step
        return self._collector.due(self._settings, self._now, step, sent_until, earliest)

    def _add_all(self, sink: Sink, every: Iterable[Series]) -> None:
        """Add all series to the sink; those of a collector that fails on its way are sent at once."""
        newest, last = self._now - MAX_AGE, self._now + MAX_AHEAD
        try:
            for series in every:
                if series.times and newest < series.times[-1] <= last:
                    self._newest = newest = series.times[-1]
                sink.add(series)
        except BaseException as error:
            try:
                sink.flush(LAST_DELIVERY if isinstance(error, Interrupted) else None)
            except FleetgaugeError as failure:
                log.warning("not all that was collected could be sent: %s", failure)
            raise

    def _note_sent(self, window: Window, memory: dict[str, object]) -> None:
        """Save up to when points were sent. What a lost unit lacks is for a backfill."""
        sent_until = max(window.until, self._document.sent_until or 0)
        success = self._document.last_success
        if not self._report.lost:
            success = int(self._clock())
        elif self._collector.has_history and len(self._report.lost) > self._state_lost + self._is_capped:
            log.warning("some units were lost; to send them later: %s", self._backfill_command(window))
        self._save(Document(self._now, sent_until, success, memory))

    def _note_gap(self, window: Window) -> None:
        """Find what was missed and is too old now, and log the command that sends it, where one can."""
        sent_until = self._document.sent_until
        if sent_until is None:
            return
        has_history = self._collector.has_history
        until = window.since if has_history else window.until - window.step  # or only this tick is measured
        self._gap = gap = Window(sent_until, max(sent_until, until), window.step)
        if gap.seconds and has_history:
            command = self._backfill_command(gap)
            log.warning("the points from %s were not sent and are too old; to send them: %s", gap, command)
        elif gap.seconds:
            log.warning("nothing was measured from %s, and it cannot be measured afterwards", gap)

    def _backfill_command(self, window: Window) -> str:
        grid = ("--step", f"{self._job.step}s") if self._job.step else ()
        return self._job.command("--since", iso(window.since), "--until", iso(window.until), *grid, "--push")

    def _closing(self, outcome: Outcome, *, interrupted: bool) -> Outcome:
        if self._job.mode is Mode.DRY_RUN:
            return replace(outcome, as_of=self._newest)
        known = hasattr(self, "_configuration")  # without it nobody knows where to report
        if not known or self._job.mode is not Mode.PUSH or outcome.status is Status.SKIPPED:
            return outcome
        left = LAST_WORDS if interrupted else max(LAST_WORDS, self._deadline.remaining())
        return self._send_self_metrics(outcome, Deadline(left))

    def _send_self_metrics(self, outcome: Outcome, deadline: Deadline) -> Outcome:
        """Deliver the self-metrics; failing to is itself a failure of the run."""
        try:
            sink = self._datadog_sink(deadline)
            for series in health.self_metrics(
                outcome,
                int(self._clock()),
                clock_skew=getattr(self._sink, "clock_skew", None),
                last_success=self._document.last_success,
                gap=None if self._gap is None else self._gap.seconds,
                host=self._host,
                shard=self._job.shard,
            ):
                sink.add(series)
            sink.flush()
        except (Exception, Interrupted) as error:
            _log_unreported(error)
            if outcome.error is None:
                status = Status.PARTIAL if outcome.points_sent else Status.FAILED
                return replace(outcome, status=status, error=failure_of(error))
        return outcome


def _log_unreported(error: BaseException) -> None:
    """Say that self-metrics were not delivered; with a traceback where the reason is a defect."""
    expected = isinstance(error, FleetgaugeError | Interrupted)
    log.warning("the self-metrics were not delivered: %s", error, exc_info=None if expected else error)
