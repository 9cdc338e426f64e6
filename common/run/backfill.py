"""A backfill: the points of one collector for a span of the past, confirmed and sent window by window.

It has no state: one that was cut off prints the command that continues it. It sends no self-metrics: those
are about live runs.

Points older than an hour are stored only for metrics with Historical Metrics Ingestion
(`common/datadog/historical.py`); that is checked before old points of a metric are sent. The live counterpart
is `common/run/live.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from common import signals
from common.collector import Collector
from common.errors import ConfigurationError, DeclinedError, DeliveryError, NoBackfillError
from common.metric import Series
from common.options import Backfill, Mode
from common.run.session import AGE_MARGIN, Session, lose_beyond_cap
from common.times import HOUR, duration, iso
from common.window import MAX_AGE, Window

if TYPE_CHECKING:
    from common.datadog.intake import DatadogSink

# Every tick is computed: a mistyped --step or --since is refused before the source is read.
MAX_TICKS = 500_000
# Bounds the memory of a backfill: points that are collected before some are sent.
MAX_BATCH_POINTS = 500_000
# Time that a person may need at the prompt. Points that become older than an hour in it count as old already:
# the intake would drop them silently by the time they are sent.
SECONDS_TO_AGREE = 120

log = logging.getLogger(__name__)


def backfill(session: Session, options: Backfill, agree: Callable[[str], bool]) -> None:
    """Send the points of a span, or add them to the sink of a dry run.

    `agree` shows a text to a person and returns whether to send; it is called at most once, before the first
    request that writes. Raises NoBackfillError for a collector without history, ConfigurationError for a bad
    span or metrics without historical ingestion, DeclinedError where the person declined, and DeliveryError.
    """
    check_history(session.collector)
    span = _span(session, options)
    if session.options.mode is Mode.PUSH:
        _Sending(session, options, span, agree).send_all()
        return
    if session.sink is None:
        raise ValueError("a dry run has a sink")
    # The state of live runs is neither read nor changed: it is about the present.
    memory: dict[str, object] = {}  # of this backfill only
    for window in _windows(session, span):
        for batch in _batches(session, window, memory):
            for series in batch:
                session.sink.add(series)
            session.sink.flush()
    lose_beyond_cap(session.sink, session.report)


def _span(session: Session, options: Backfill) -> Window:
    """Return the part of the span that this process sends.

    Raises ConfigurationError where the requested span has no tick, or this part of it more than MAX_TICKS.
    """
    step = session.step
    span = Window(options.since, options.until, step)
    # Checked before slicing: a slice without a tick is normal where there are more slices than ticks.
    # Collectors that add up records send seconds, and need no tick.
    if not span.ticks and not session.collector.adds_up:
        raise ConfigurationError(
            f"no tick is in {span}, which is shorter than the step of {duration(step)}: "
            "lower --step, or widen --since"
        )
    span = span.slice(options.part, options.parts)
    if len(span.ticks) > MAX_TICKS:
        raise ConfigurationError(
            f"{span} has {len(span.ticks):,} steps of {step} s, more than {MAX_TICKS:,}: "
            "widen --step, or narrow --since and --until"
        )
    return span


# Any: the settings model differs per collector, and only the collector itself uses it.
def check_history(collector: Collector[Any]) -> None:
    """Raise NoBackfillError for a collector that can only measure the present."""
    if not collector.has_history:
        raise NoBackfillError(f"{collector.name} cannot answer for the past: it can only measure the present")


def _windows(session: Session, span: Window) -> list[Window]:
    """Return the windows that are collected one by one, oldest first.

    Sums over records are computed per window, and an hour bounds the records in memory and what is repeated
    after an interruption. A collector that evaluates ticks gets the complete span at once.
    """
    return [*span.split(HOUR)] if session.collector.adds_up else [span]


def _batches(session: Session, window: Window, memory: dict[str, object]) -> Iterator[list[Series]]:
    """Yield the series of a window in batches of about MAX_BATCH_POINTS points; the last one may be empty.

    Metrics that are only known live are left out: a value of now is not true for the past.
    """
    live_only = {metric.name for metric in session.collector.live_only}
    batch: list[Series] = []
    points = 0
    for series in session.series(window, memory, live_only):
        if series.times:
            batch.append(series)
            points += len(series.times)
        if points >= MAX_BATCH_POINTS:
            yield batch
            batch, points = [], 0
    yield batch


class _Sending:
    """A backfill that is sent: whether it was confirmed, and which metrics accept old points.

    The sets of metric names only grow: each name is queried, and turned on or left out, once per backfill.
    """

    def __init__(
        self, session: Session, options: Backfill, span: Window, agree: Callable[[str], bool]
    ) -> None:
        self._session, self._options, self._span, self._agree = session, options, span, agree
        self._is_confirmed = False
        self._sent_any = False  # whether something was sent
        self._checked: frozenset[str] = frozenset()  # metrics whose historical ingestion is known
        self._left_out: frozenset[str] = frozenset()  # metrics that are not sent, because it is off

    def send_all(self) -> None:
        """Send all batches; where that fails, log the command that continues."""
        session, span = self._session, self._span
        # Fail on a missing application key now, and not after the source was read.
        if span.since < session.clock() - MAX_AGE:
            session.historical_ingestion()  # raises without its key, before everything is read for nothing
        session.sink = sink = session.intake(since=span.since)
        try:
            memory: dict[str, object] = {}
            for window in _windows(session, span):
                self._advise(window)
                for batch in _batches(session, window, memory):
                    self._send(sink, window, batch)
        # On SIGTERM `common.signals` prints the advice; on an error it is logged here.
        except Exception:
            if signals.advice:
                log.warning("%s", signals.advice)
            raise
        finally:
            signals.advice = ""
        if self._left_out and not sink.points_sent:
            raise ConfigurationError("Historical Metrics Ingestion is off for all metrics: nothing was sent")

    def _send(self, sink: DatadogSink, window: Window, batch: list[Series]) -> None:
        """Send some series, once Datadog is known to accept them and a person agreed.

        Raises ConfigurationError for metrics whose old points would be dropped, DeclinedError, and
        DeliveryError also where recent points became too old while the person was deciding.
        """
        session = self._session
        batch = [series for series in batch if series.metric.name not in self._left_out]
        if not batch:
            return
        oldest = min(series.times[0] for series in batch)
        # Which metrics accept old points, one request per new name. Recent points need no permission, so that
        # a backfill of less than an hour works without an application key.
        is_old = oldest < session.clock() - MAX_AGE + SECONDS_TO_AGREE
        names = {series.metric.name for series in batch} - self._checked if is_old else set()
        off = self._names_off(names) if names else []
        # The order matters: confirm before turning anything on, because historical ingestion may change how a
        # metric is billed.
        if not self._is_confirmed:
            self._confirm(window, batch, off)
            self._is_confirmed = True
        refused = self._turn_on(off) if off and self._options.enable else frozenset(off)
        self._checked |= names
        self._left_out |= refused
        # Recent points must arrive before they are an hour old: retries may not take longer than that.
        left = oldest + MAX_AGE - AGE_MARGIN - session.clock()
        if not is_old and left <= 0:
            raise DeliveryError("points became older than an hour before they were sent: run it again")
        for series in batch:
            if series.metric.name not in refused:
                sink.add(series)
        # From here a failure leaves points in Datadog, so that the advice must already name this window.
        self._sent_any = True
        self._advise(window)
        session.report.progress(f"sending {window}", sink.points_sent, None)
        sink.flush(None if is_old else left)

    def _names_off(self, names: set[str]) -> list[str]:
        """Return which of these metrics have no historical ingestion, sorted: Datadog drops their old points.

        Raises ConfigurationError with the command that turns it on, unless an option states what to do with
        them.
        """
        from common.datadog.historical import refusal

        session, options = self._session, self._options
        ingestion = session.historical_ingestion()
        off = sorted(names - ingestion.enabled(names))
        session.report.requests += ingestion.client.requests
        if off and not options.enable and not options.only_enabled:
            command = session.options.command(session.name, *options.typed, "--push", "--enable-historical")
            raise _about(off, refusal(len(off), command))
        return off

    def _confirm(self, window: Window, batch: list[Series], off: list[str]) -> None:
        """Show what will be sent and, where a person is there, wait for a yes; DeclinedError otherwise.

        The number of points is an estimate: the first batch, extrapolated to the span.
        """
        from common.datadog.historical import visibility_delay

        session, span, options = self._session, self._span, self._options
        sent = [series for series in batch if options.enable or series.metric.name not in off]
        # A batch that was cut off covers its window only up to its newest point.
        cut_off = sum(len(series.times) for series in batch) >= MAX_BATCH_POINTS
        until = max(series.times[-1] for series in batch) if cut_off else window.until
        share = (until - span.since) / span.seconds
        points = round(sum(len(series.times) for series in sent) / share)
        windows = len(_windows(session, span))
        parts = f"{windows:,} windows" if windows > 1 else f"{len(span.ticks):,} ticks"
        age = session.clock() - min(series.times[0] for series in batch)
        lines = [f"about {points:,} points, {span}, {parts}; visible {visibility_delay(age)}"]
        if session.collector.adds_up:
            lines.append("where files were deleted since, this lowers sums that were sent live")
        if off:
            verb = "will be turned on for" if options.enable else "is off, so that these are left out:"
            lines += [f"Historical Metrics Ingestion {verb} {len(off)} metrics", *off]
        if not options.confirm or not sent:
            for line in lines:
                log.info("%s", line)
        elif not self._agree("\n  ".join(lines)):
            raise DeclinedError("nothing was sent: it was not agreed to")

    def _turn_on(self, off: list[str]) -> frozenset[str]:
        """Turn Historical Metrics Ingestion on; return the metrics for which Datadog refused.

        Raises ConfigurationError for refused ones, unless --only-enabled leaves these out.
        """
        ingestion = self._session.historical_ingestion()
        refused: dict[str, str] = {}
        for name in off:
            if reason := ingestion.enable(name):
                refused[name] = reason
                log.warning("%s: Historical Metrics Ingestion was not turned on: %s", name, reason)
            else:
                log.info("%s: Historical Metrics Ingestion is on now", name)
        self._session.report.requests += ingestion.client.requests
        if refused and not self._options.only_enabled:
            raise _about(
                [f"{name}: {reason}" for name, reason in refused.items()],
                f"Historical Metrics Ingestion could not be turned on for {len(refused)} metrics. "
                "Nothing of them was sent; --only-enabled leaves these out",
            )
        return frozenset(refused)

    def _advise(self, window: Window) -> None:
        """Have the end of this process, whatever ends it, print the command that sends what remains.

        It continues at the beginning of this window: sending points again changes nothing. It has no --slice:
        the span is that part already. Before anything was sent there is no advice.
        """
        if not self._sent_any:
            return
        span, options, session = self._span, self._options, self._session
        arguments = ["--since", iso(window.since), "--until", iso(span.until), "--step", duration(span.step)]
        arguments += ["--enable-historical"] if options.enable else []
        arguments += ["--only-enabled"] if options.only_enabled else []
        command = session.options.command(session.name, *arguments, "--push")
        signals.advice = f"not everything was sent; to continue: {command}"


def _about(details: list[str], message: str) -> ConfigurationError:
    error = ConfigurationError(message)
    error.details = details
    return error
