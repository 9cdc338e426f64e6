"""Run one collector once: live here, otherwise by `backfill.py` or `check.py`.

Every way that it can end is an outcome. `session.py` has what a run works with. `common/cli/` calls `run` for
a person, or in the child of a live push, and its parent calls `report_failure`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from common import logs, registry
from common.collector import Progress, ignore_progress
from common.errors import DeclinedError, FleetgaugeError, NotConfiguredError
from common.net.retry import Deadline
from common.options import Mode, Options
from common.outcome import ErrorSummary, Outcome, Report, Status
from common.run import health
from common.run.backfill import backfill
from common.run.check import check, explain, print_settings
from common.run.session import LOST_SERIES, Cache, Session
from common.run.state import Document
from common.text import visible
from common.window import Window

if TYPE_CHECKING:
    from common.show.points import Points

# Lost units that an outcome names; the log names them all. The parent of a child reads at most a megabyte.
MAX_LISTED_UNITS = 20
# Seconds for the self-metrics of a run whose deadline has passed. They must fit into the grace in which its
# parent waits (`common/cli/supervise.py`).
HEALTH_TIMEOUT = 2.0
REPORT_TIMEOUT = 10.0  # seconds for the self-metrics of a child that could not send them

log = logging.getLogger(__name__)


def run(
    name: str,
    options: Options,
    environ: Mapping[str, str] = os.environ,
    *,
    points: dict[str, Points] | None = None,
    agree: Callable[[str], bool] = lambda _: False,
    progress: Progress = ignore_progress,
    clock: Callable[[], float] = time.time,
    cache: Cache | None = None,
) -> Outcome:
    """Run a collector in the mode of the options; return its outcome, whatever it raises.

    `environ` is what settings are read from. A dry run leaves its points in `points`, under the name of the
    collector. `agree` requests confirmation of a backfill by a person. `progress` is called with what is
    done, how much of it and of how much. `cache` is for a process that runs the collector again.

    The outcome is skipped where the collector is not configured and was not named, or a person declined.
    After a live push the self-metrics are sent too.
    """
    started = time.monotonic()
    session: Session | None = None
    raised: BaseException | None = None
    try:
        session = Session(name, options, environ, clock, cache, progress)
        if options.mode is Mode.CHECK:
            check(session)
        elif options.mode is Mode.PRINT_CONFIG:
            print_settings(session)
        elif options.backfill:
            backfill(session, options.backfill, agree)
        else:
            session.load_state()
            (explain if options.mode is Mode.EXPLAIN else live)(session)
    # Libraries are imported where they are used, so that a Python without them fails only here.
    except ImportError as error:
        raised = registry.missing_library(error)
    # A defect of a collector or a library, also one that calls sys.exit, does not end the process: it becomes
    # a failed outcome. SIGINT never arrives as KeyboardInterrupt: `common.signals` handles it.
    except (Exception, SystemExit) as error:
        raised = error
        if not isinstance(error, FleetgaugeError):
            log.exception("%s: unexpected error", name)
    if points is not None and session and session.sink and options.mode is Mode.DRY_RUN:
        points[name] = cast("Points", session.sink)
    outcome = _outcome(name, options, session, raised, seconds=round(time.monotonic() - started, 3))
    # Self-metrics are about live pushes. Without a session there are no settings to send them with.
    is_live_push = options.mode is Mode.PUSH and options.backfill is None
    if session and is_live_push and outcome.status is not Status.SKIPPED:
        return _send_health(outcome, session)
    return outcome


def live(session: Session) -> None:
    """Send the points that are due, or add them to the sink of a dry run.

    A collector that fails sends nothing: the next run computes the same points again. Raises what the
    collector raises, DeliveryError and ConfigurationError.
    """
    # The window. It is this tick for a dry run, whatever was sent, and for a collector that only measures.
    push = session.options.mode is Mode.PUSH
    document = session.cache.document
    window = session.due(document.sent_until if push and session.collector.has_history else None)
    memory = session.copy_memory()
    if push:
        _note_gap(session, document.sent_until, window)
    sink = session.open_sink()
    log.debug("the window is %s", window)
    # Collect everything before anything is sent, so that a failure leaves no half of a tick in Datadog.
    for series in session.series(window, memory):
        sink.add(series)
    # Saved before the delivery: memory is what was observed and cannot be queried again (a W&B run that was
    # busy), and stays true where Datadog refuses this tick. The next run begins where this one did.
    if push and memory != document.memory:
        begin = document.sent_until or window.since
        session.save_state(
            document.model_copy(update={"now": session.now, "sent_until": begin, "memory": memory})
        )
    sink.flush()
    session.lose_series(sink)
    if push:
        _save_sent(session, document, window, memory)


def _save_sent(session: Session, before: Document, window: Window, memory: dict[str, object]) -> None:
    """Save up to when points were sent, and whether this run was complete.

    The window counts as sent although units of it were lost: a log line has the backfill command for them. A
    window that is repeated until its last unit can be read would become older than an hour.
    """
    reasons, success = session.report.lost_by_reason, before.last_success
    if not reasons:
        success = int(session.clock())
    # A backfill helps neither a failed store nor what is lost of complete series.
    elif session.collector.has_history and reasons.keys() - {"state", *LOST_SERIES}:
        command = session.backfill_command(window)
        log.warning("some units were lost; to send them later: %s", command)
    # Not moved back where `settle` was raised since: what adds up is sent once. A time in the future is of a
    # clock that was wrong.
    earlier = before.sent_until or 0
    sent_until = max(window.until, earlier) if earlier <= session.now else window.until
    session.save_state(Document(now=session.now, sent_until=sent_until, last_success=success, memory=memory))


def _note_gap(session: Session, sent_until: int | None, window: Window) -> None:
    """Report the span that was missed and is too old to be sent now; nothing where that is not known.

    It is 0 where nothing is missing. The log has the command that sends a gap, for collectors that have a
    history.
    """
    if sent_until is None:
        return
    gap = Window(sent_until, max(sent_until, window.since), window.step)
    session.report.gap = gap.seconds
    if gap.seconds and session.collector.has_history:
        command = session.backfill_command(gap)
        log.warning("the points from %s were not sent and are too old; to send them: %s", gap, command)
    elif gap.seconds:
        log.warning("nothing was measured from %s, and it cannot be measured afterwards", gap)


def _outcome(
    name: str, options: Options, session: Session | None, raised: BaseException | None, *, seconds: float
) -> Outcome:
    """Return the outcome of a run from its report, its sink and its error, without secrets.

    An error makes it failed, or skipped; otherwise a lost unit makes it partial, and a run that found nothing
    is empty, which is not a failure: a quiet weekend is no outage.
    """
    report, as_of = session.report if session else Report(), None
    is_absent = isinstance(raised, NotConfiguredError) and not options.named
    if is_absent or isinstance(raised, DeclinedError):
        status = Status.SKIPPED
    elif raised:
        status = Status.FAILED
    elif report.lost:
        status = Status.PARTIAL
    else:
        found = report.samples or report.findings or options.mode is Mode.PRINT_CONFIG
        status = Status.OK if found else Status.EMPTY
    # Records are dropped by the collector, points by the sink: both are reported together.
    if session and (sink := session.sink):
        report.points_sent = sink.points_sent
        report.dropped += sink.dropped
        report.examples |= sink.examples
        if options.mode is Mode.DRY_RUN and options.backfill is None:
            as_of = max((series.times[-1] for series in cast("Points", sink)), default=None)
    report.examples = {reason: _printable(text) for reason, text in report.examples.items()}
    report.findings = [*map(_printable, report.findings)]
    # A backfill may lose the same unit in each of its windows.
    report.lost = [*dict.fromkeys(map(_printable, report.lost))]
    if len(report.lost) > MAX_LISTED_UNITS:
        report.lost[MAX_LISTED_UNITS:] = [f"and {len(report.lost) - MAX_LISTED_UNITS} more"]
    return Outcome(name, status, seconds, report, _summary(raised) if raised else None, as_of)


def _summary(error: BaseException) -> ErrorSummary:
    """Return an error as an outcome contains it: class, printable message, details.

    `configuration` decides the exit code. `status` is set only for a response of Datadog itself, which has an
    error document; that of a proxy does not count as a refused key.
    """
    configuration = isinstance(error, FleetgaugeError) and error.configuration
    status = getattr(error, "status", None) if getattr(error, "problems", ()) else None
    details = [*map(_printable, getattr(error, "details", ()))]
    return ErrorSummary(type(error).__name__, _printable(str(error)), configuration, status, details)


def _printable(text: str) -> str:
    """Return a text that others may have written, without secrets, on one line, as any encoding can write."""
    return visible(logs.redact(text))


def _send_health(outcome: Outcome, session: Session) -> Outcome:
    """Send the self-metrics of an outcome; return it, as failed where that was not possible.

    An error that the run had already takes precedence.
    """
    # A run that used up its deadline is the one whose failure must be reported, so it gets a little more.
    session.deadline = Deadline(max(HEALTH_TIMEOUT, session.deadline.remaining()))
    try:
        from common.datadog.intake import DatadogSink

        # A sink of its own: that of the run may contain series that were not accepted, or have reached the
        # cap.
        sink = DatadogSink(session.client(), session.core)
        for series in health.self_metrics(outcome, session):
            sink.add(series)
        sink.flush()
    except Exception as error:
        expected = isinstance(error, FleetgaugeError | ImportError)
        log.warning("the self-metrics were not delivered: %s", error, exc_info=None if expected else error)
        if outcome.error is None:
            return replace(outcome, status=Status.FAILED, error=_summary(error))
    return outcome


def report_failure(
    outcome: Outcome,
    options: Options,
    environ: Mapping[str, str],
    clock: Callable[[], float] = time.time,
) -> None:
    """Send the self-metrics of a child that died or hung without an outcome of its own.

    It runs in the parent, with its environment. It raises nothing expected: a failure is logged.
    """
    try:
        options = replace(options, timeout=REPORT_TIMEOUT)
        session = Session(outcome.collector, options, environ, clock)
        # The tick in which the run began, as the child would have stated it. One that stays had runs before.
        if options.every is None:
            session.now -= int(outcome.seconds)
        session.load_state()
    except FleetgaugeError as error:
        log.warning("the self-metrics were not delivered: %s", error)
        return
    _send_health(outcome, session)
