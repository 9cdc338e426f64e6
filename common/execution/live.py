"""A live run: answers for the present, fills what was missed, remembers how far it came, reports on itself.

What a backfill does instead is in `common.execution.backfill`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from common import registry
from common.collector import Context
from common.config.configuration import Configuration
from common.config.settings import CollectorSettings
from common.errors import BusyError, FleetgaugeError, Interrupted
from common.execution import health
from common.execution.delivery import Delivery
from common.execution.run import Run, failure_of
from common.intake import MAX_AGE, MAX_AHEAD
from common.job import Mode
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.outcome import Outcome, Status
from common.span import Span, missed
from common.state import slots
from common.state.checkpoint import Checkpoint, Saved, Store
from common.state.key import checkpoint_key
from common.times import iso, tick

LAST_WORDS = 2.0  # seconds for the self-metrics once the time is over

log = logging.getLogger(__name__)


class _Remembered(Checkpoint):
    """What a child that stays remembers where there is no store; of successes only a store speaks."""

    def save(self, saved: Saved) -> None:
        self.saved = replace(saved, last_success=None)


@dataclass
class Kept:
    """What a child that stays keeps from tick to tick. One that was refused is replaced, and reads anew."""

    configuration: Configuration | None = None
    settings: CollectorSettings | None = None
    checkpoint: _Remembered = field(default_factory=_Remembered)


_STAYING = Kept()  # by this process, which runs one collector


class LiveRun(Run):
    """A run that answers for the present."""

    _last_success: int | None = None
    _as_of: int | None = None
    _sent_until = 0
    _forgets = False  # whether it does without a store that is there and cannot be used

    @cached_property
    def _kept(self) -> Kept:
        return _STAYING if self._job.stays else Kept()

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
        return self._report(outcome, self._deadline)

    def _configure(self) -> None:
        super()._configure()
        if self._job.mode in {Mode.PUSH, Mode.REPORT} and (place := self._place):
            # Asked without the collector, to be reported even where it cannot be imported.
            name, address = self._job.collector, self._configuration.address
            keys = [checkpoint_key(name, self._core, address, *node) for node in ((), (self._node_name,))]
            found = [place.peek(slots.own_key(key, self._job.shard.index)).last_success for key in keys]
            self._last_success = max((moment for moment in found if moment is not None), default=None)

    def _work(self) -> None:
        """Answer for the present."""
        job = self._job
        with self._hold() as checkpoint:
            self._tally.dropped.update(
                {"bad_checkpoint": checkpoint.set_aside} if checkpoint.set_aside else {}
            )
            step = job.step or self._core.step
            context = self._context(checkpoint.saved.state, tick(job.now, step), step)
            context = replace(context, remembers=context.remembers and not self._forgets)
            self._sink = sink = self._open_sink(job.now - MAX_AGE)
            context = replace(context, intake_clock=self._intake_clock, stays=job.stays)

            def remember(changes: Mapping[str, object]) -> None:
                try:
                    checkpoint.change(changes)
                except FleetgaugeError as error:
                    self._do_without(error)

            def about_to_send(until: int) -> None:
                remember({slots.SENT_UNTIL: until})
                if self._place:
                    slots.confirm(self._place, self._key(), job.shard)

            if job.mode is Mode.PUSH:
                context = replace(context, about_to_send=about_to_send)
            context = replace(context, sent_until=self._sent_until)

            self._as_of = context.at
            items = self._with_progress(self._dated(self._collector.collect(context)), "collecting samples")
            self._deliver(items, Delivery(sink, remember))
            if job.mode is Mode.PUSH and not self._forgets:  # or it cannot know what was missed
                self._note_gap(context)
            if not self._tally.lost:
                checkpoint.change({}, int(self._clock()))
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

    def _note_gap(self, context: Context[Any]) -> None:
        """What was missed and cannot be filled: said with the command that does it, where one can."""
        collector, last, step = self._collector, self._last_success, context.step
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

    def _hold(self) -> Checkpoint:
        """The collector's checkpoint, held by this run; in a dry run only read, and never moved."""
        place = self._store()
        if place is None:
            return self._kept.checkpoint
        key, shard = self._key(), self._job.shard
        if self._job.mode is Mode.DRY_RUN:
            with suppress(FleetgaugeError):  # it shows what it can
                self._note_layout(place, key)
            return Checkpoint(slots.peek(place, key, shard))
        try:
            with ExitStack() as closing:
                checkpoint = closing.enter_context(slots.SlotCheckpoint(place, key, shard))
                if not (self._collector.resumes or self._collector.per_node):
                    checkpoint.change({})  # what will not be kept must not be counted on either
                self._note_layout(place, key)
                closing.pop_all()
                return checkpoint
        except FleetgaugeError as error:
            self._do_without(error)
            return Checkpoint()

    def _note_layout(self, place: Store, key: str) -> None:
        """Learn what was sent, and when all went well, before there were as many shards as now."""
        if self._collector.resumes:  # others have no series that several shards feed
            push = self._job.mode is Mode.PUSH
            self._sent_until, success = slots.layout(place, key, self._job.shard, hold=push)
            self._last_success = max(self._last_success or 0, success or 0) or None

    def _do_without(self, error: FleetgaugeError) -> None:
        """Go on without a store that cannot be used, where only some of the answer needs it."""
        if self._collector.resumes or isinstance(error, BusyError):
            raise error
        if not self._forgets:
            self._forgets = True
            log.warning("what needs the memory of earlier runs is left out: %s", error)
            self._tally.lost.append(f"what needs the memory of earlier runs: {error}")

    def _closing(self, outcome: Outcome, *, interrupted: bool) -> Outcome:
        if self._job.mode is Mode.DRY_RUN:
            return replace(outcome, as_of=self._as_of, missed_ticks=self._tally.missed)
        known = hasattr(self, "_configuration")  # without it nobody knows where to report
        if not known or self._job.mode is not Mode.PUSH or outcome.status is Status.SKIPPED:
            return outcome
        left = LAST_WORDS if interrupted else max(LAST_WORDS, self._deadline.remaining())
        return self._report(outcome, Deadline(left))

    def _report(self, outcome: Outcome, deadline: Deadline) -> Outcome:
        """Deliver the self-metrics; failing to is itself a failure of the run."""
        try:
            skew = getattr(self._sink, "clock_skew", None)
            gap = None if self._tally.gap is None else self._tally.gap.seconds
            samples = health.samples(outcome, int(self._clock()), skew, self._last_success, gap)
            # Of a collector of a node they carry the node, or healthy ones would overwrite a dead one.
            of_node = registry.per_node(outcome.collector) or self._core.node_local
            host, shard = self._node_name if of_node else None, self._job.shard.tags
            self._datadog_sink(deadline).send(
                sample._replace(host=host, tags=sample.tags + shard) for sample in samples
            )
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
