"""A backfill: the points of one collector for a span of the past, confirmed and sent window by window.

It has no state: one that was cut off prints the command that continues it. It sends no self-metrics: those
are about live runs.

Points older than an hour are stored only for metrics with Historical Metrics Ingestion
(`common/datadog/historical.py`); that is checked before points of a metric are sent. The live counterpart is
`live` of `common/run/run.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from common import signals
from common.collector import Collector
from common.errors import ConfigurationError, DeclinedError, NotConfiguredError
from common.metric import Series
from common.options import Backfill, Mode
from common.run.session import AGE_MARGIN, Session
from common.times import HOUR, duration
from common.window import MAX_AGE, Window

if TYPE_CHECKING:
    from common.datadog.client import DatadogClient

# Every tick is computed: a mistyped --step or --since is refused before the source is read.
MAX_TICKS = 500_000
# Bounds the memory of a backfill: points that are collected before some are sent.
MAX_BATCH_POINTS = 500_000
# Seconds that collecting, a person at the prompt and sending need at least, before points of the last hour
# are too old: with less left they count as old already.
SECONDS_TO_SEND = 120

log = logging.getLogger(__name__)


def backfill(session: Session, past: Backfill, agree: Callable[[str], bool]) -> None:
    """Send the points of a span, or add them to the sink of a dry run.

    `agree` shows a text to a person and returns whether to send; it is called at most once, before the first
    request that writes. Raises NotConfiguredError for a collector without history, ConfigurationError for a
    bad span or metrics without historical ingestion, DeclinedError where the person declined, and
    DeliveryError. Where that ends it on the way, it logs the command that continues.
    """
    _ = session.settings  # one that is not configured is skipped, whatever else is missing
    check_history(session.collector)
    span = _span(session, past)
    permission = _Permission(session, past, span, agree) if session.options.mode is Mode.PUSH else None
    sink = session.open_sink()
    # The state of live runs is neither read nor changed: it is about the present.
    memory: dict[str, object] = {}  # of this backfill only
    # Sums over records are computed per window, and an hour bounds the records in memory and what is repeated
    # after an interruption. A collector that evaluates ticks gets the complete span at once.
    windows = span.split(HOUR) if session.collector.adds_up else [span]
    # It continues at the beginning of a window: sending points again changes nothing.
    how = [*["--enable-historical"] * past.enable, *["--only-enabled"] * past.only_enabled]
    try:
        for window in windows:
            remaining = session.backfill_command(Window(window.since, span.until, span.step), *how)
            advice = f"not everything was sent; to continue: {remaining}"
            if signals.advice:
                signals.advice = advice
            for collected in _batches(session, window, memory):
                batch = permission.select(window, collected) if permission else collected
                for series in batch:
                    sink.add(series)
                # From here a failure leaves points in Datadog; before anything was sent there is no advice.
                if permission and batch:
                    signals.advice = advice
                    session.progress(f"sending {window}", sink.points_sent, None)
                sink.flush()
    # On SIGTERM `common.signals` prints the advice; on an error it is logged here.
    except Exception:
        if signals.advice:
            log.warning("%s", signals.advice)
        raise
    finally:
        signals.advice = ""
    session.lose_series(sink)
    if permission and permission.left_out and not sink.points_sent:
        raise ConfigurationError("Historical Metrics Ingestion is off for all metrics: nothing was sent")


def _span(session: Session, past: Backfill) -> Window:
    """Return the part of the span that this process sends.

    Raises ConfigurationError where the requested span has no tick, or more than MAX_TICKS for each part.
    """
    span = Window(past.since, past.until, session.step)
    # Collectors that add up records send seconds, and need no tick.
    fewest, most = 0 if session.collector.adds_up else 1, MAX_TICKS * past.parts
    if not fewest <= len(span.ticks) <= most:
        raise ConfigurationError(
            f"{span} has {len(span.ticks):,} ticks at a step of {duration(span.step)}, and not {fewest} to "
            f"{most:,}: change --step, --since or --until"
        )
    return span.slice(past.part, past.parts)


# Any: the settings model differs per collector, and only the collector itself uses it.
def check_history(collector: Collector[Any]) -> None:
    """Raise NotConfiguredError, which under `all` is a skip, for one that can only measure the present."""
    if not collector.has_history:
        raise NotConfiguredError(
            f"{collector.name} cannot answer for the past: it can only measure the present"
        )


def _batches(session: Session, window: Window, memory: dict[str, object]) -> Iterator[list[Series]]:
    """Yield the series of a window in batches of about MAX_BATCH_POINTS points; the last one may be empty."""
    batch: list[Series] = []
    points = 0
    for series in session.series(window, memory):
        if series.times:
            batch.append(series)
            points += len(series.times)
        if points >= MAX_BATCH_POINTS:
            yield batch
            batch, points = [], 0
    yield batch


class _Permission:
    """What may be sent: what a person agreed to, of metrics whose old points Datadog stores.

    Each name is queried, and turned on or left out, once per backfill. A span of the last hour needs neither
    that nor an application key, but must be sent before it is older: that is its deadline.

    Raises ConfigurationError where the application key is missing, before everything is read for nothing.
    """

    def __init__(self, session: Session, past: Backfill, span: Window, agree: Callable[[str], bool]) -> None:
        from common.datadog.historical import BACKFILL_PERMISSIONS

        self.left_out: set[str] = set()  # metrics
        self._session, self._past, self._span, self._agree = session, past, span, agree
        self._checked: set[str] = set()  # metrics
        self._client: DatadogClient | None = None  # where old points need historical ingestion
        seconds_left = session.first_second(span.since) + MAX_AGE - AGE_MARGIN - session.clock()
        if seconds_left < SECONDS_TO_SEND:
            log.info("points older than 57 minutes need Historical Metrics Ingestion, and with it DD_APP_KEY")
            self._client = session.new_client(BACKFILL_PERMISSIONS)
        else:
            session.deadline = session.deadline.within(seconds_left)

    def select(self, window: Window, batch: list[Series]) -> list[Series]:
        """Return the series that may be sent. The first that are not empty are confirmed by a person.

        Raises ConfigurationError for metrics whose old points would be dropped, unless an option states what
        to do with them, and DeclinedError.
        """
        from common.datadog import historical

        past, client = self._past, self._client
        names = {series.metric.name for series in batch} - self._checked
        off = sorted(names - historical.enabled(client, names)) if client else []
        if off and not past.enable and not past.only_enabled:
            command = self._session.backfill_command(self._span, "--enable-historical")
            raise ConfigurationError(
                f"Historical Metrics Ingestion is off for {len(off)} of the metrics: Datadog would drop each "
                f"point of theirs that is older than an hour, silently; to turn it on: {command}",
                details=off,
            )
        # The order matters: confirm before turning anything on, because historical ingestion may change how a
        # metric is billed.
        if batch and not self._checked:
            self._confirm(window, batch, off)
        self._checked |= names
        if client and past.enable:
            refused = {name: reason for name in off if (reason := historical.enable(client, name))}
            if refused and not past.only_enabled:
                raise ConfigurationError(
                    f"Historical Metrics Ingestion could not be turned on for {len(refused)} metrics. "
                    "Nothing of them was sent; --only-enabled leaves these out",
                    details=[f"{name}: {reason}" for name, reason in refused.items()],
                )
            off = [*refused]
        if off:
            log.warning("Historical Metrics Ingestion is off, so that these are left out: %s", ", ".join(off))
        self.left_out.update(off)
        return [series for series in batch if series.metric.name not in self.left_out]

    def _confirm(self, window: Window, batch: list[Series], off: list[str]) -> None:
        """Show what will be sent and, where a person is there, wait for a yes; DeclinedError otherwise.

        The number of points is an estimate: the first batch, extrapolated to the span.
        """
        from common.datadog.historical import visibility_delay

        session, span, past = self._session, self._span, self._past
        sent = [series for series in batch if past.enable or series.metric.name not in off]
        # A batch that was cut off covers its window only up to its newest point.
        cut_off = sum(len(series.times) for series in batch) >= MAX_BATCH_POINTS
        until = max(series.times[-1] for series in batch) if cut_off else window.until
        points = sum(len(series.times) for series in sent) * span.seconds / (until - span.since)
        visible = visibility_delay(session.clock() - span.since)
        lines = [f"about {points:,.0f} points, {span}, {len(span.ticks):,} ticks; visible {visible}"]
        if session.collector.adds_up:
            lines.append("where files were deleted since, this lowers sums that were sent live")
        if off:
            verb = "will be turned on for" if past.enable else "is off, so that these are left out:"
            lines += [f"Historical Metrics Ingestion {verb} {len(off)} metrics", *off]
        if not past.confirm or not sent:
            for line in lines:
                log.info("%s", line)
        elif not self._agree("\n  ".join(lines)):
            raise DeclinedError("nothing was sent: it was not agreed to")
