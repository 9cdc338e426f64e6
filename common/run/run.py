"""Run one collector once; every way that it can end is an outcome.

`session.py` has what a run works with; the modes are in `live.py`, `backfill.py`, `check.py` and
`explain.py`. `common/cli/` calls `run` for a person, or in the child of a live push, and its parent calls
`report_failure`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from common import logs, registry
from common.collector import Report
from common.errors import DeclinedError, FleetgaugeError, NotConfiguredError
from common.net.retry import Deadline
from common.options import Mode, Options
from common.outcome import ErrorSummary, Outcome, RunCounts, Status
from common.run import health
from common.run.session import Cache, Session
from common.run.state import SavedState
from common.times import tick

if TYPE_CHECKING:
    from common.show.points import Points

# Lost units that an outcome names; the log names them all. The parent of a child reads at most a megabyte.
MAX_LISTED_UNITS = 20
# Seconds for the self-metrics of a run whose deadline has passed. They must fit into the grace in which its
# parent waits (`common/cli/supervise.py`).
HEALTH_TIMEOUT = 2.0
REPORT_TIMEOUT = 10.0  # seconds for the self-metrics of a child that could not send them

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]


def run(
    name: str,
    options: Options,
    environ: Mapping[str, str] = os.environ,
    *,
    points: dict[str, Points] | None = None,
    agree: Callable[[str], bool] = lambda _: False,
    progress: Progress = lambda _doing, _done, _total: None,
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
    report = Report(progress=progress)
    session: Session | None = None
    state: SavedState | None = None
    failure: ErrorSummary | None = None
    skipped, as_of = False, None
    try:
        session = Session(name, options, environ, report, cache or Cache(), clock)
        state = session.open_state()
        as_of = _work(session, state, {} if points is None else points, agree)
    except (NotConfiguredError, DeclinedError) as error:
        failure, skipped = _failure(error), not options.named or isinstance(error, DeclinedError)
    except FleetgaugeError as error:
        failure = _failure(error)
    # Libraries are imported where they are used, so a Python without them fails only here.
    except ModuleNotFoundError as error:
        why = f"this Python ({sys.executable}) lacks {error.name}: run {registry.ROOT}/scripts/setup once"
        failure = ErrorSummary("ConfigurationError", why, configuration=True)
    # A defect of a collector or a library, also one that calls sys.exit, does not end the process: it becomes
    # a failed outcome. SIGINT never arrives as KeyboardInterrupt: `common.signals` handles it.
    except (Exception, SystemExit) as error:
        log.exception("%s: unexpected error", name)
        failure = _failure(error)
    outcome = _outcome(name, session, report, failure, skipped=skipped)
    outcome = replace(outcome, seconds=round(time.monotonic() - started, 3), as_of=as_of)
    # Self-metrics are about live pushes. Without a session there are no settings to send them with.
    if session is None or options.mode is not Mode.PUSH or options.backfill is not None or skipped:
        return outcome
    if state is not None:
        session.cache.document = state.document
    return _send_health(outcome, session, state)


def _work(
    session: Session, state: SavedState, points: dict[str, Points], agree: Callable[[str], bool]
) -> int | None:
    """Run the mode of the options; return the newest second of a dry run, None for other modes.

    Each mode imports its own modules: start-up time counts for a process that runs every few minutes.
    """
    mode = session.options.mode
    if mode in {Mode.CHECK, Mode.PRINT_CONFIG}:
        from common.run.check import check, print_settings

        (check if mode is Mode.CHECK else print_settings)(session)
        return None
    session.open_collector()
    if mode is Mode.DRY_RUN:
        session.sink = points[session.name] = session.points()
    if session.options.backfill is not None:
        from common.run.backfill import backfill

        backfill(session, session.options.backfill, agree)
        return None
    if mode is Mode.EXPLAIN:
        from common.run.explain import explain

        explain(session, state)
        return None
    from common.run.live import live

    newest = live(session, state)
    return newest if mode is Mode.DRY_RUN else None


def _outcome(
    name: str, session: Session | None, report: Report, failure: ErrorSummary | None, *, skipped: bool
) -> Outcome:
    """Return the outcome of a run from its report, its sink and its error, without secrets.

    An error makes it failed, or skipped; otherwise a lost unit makes it partial, and a run that found nothing
    is empty, which is not a failure: a quiet weekend is no outage.
    """
    sink = session.sink if session else None
    # Records are dropped by the collector, points by the sink: both are reported together.
    dropped = report.dropped.copy()
    dropped.update(sink.dropped if sink else {})
    examples = {**report.examples, **(sink.examples if sink else {})}
    units = [logs.redact(unit) for unit in report.lost[:MAX_LISTED_UNITS]]
    if len(report.lost) > MAX_LISTED_UNITS:
        units.append(f"and {len(report.lost) - MAX_LISTED_UNITS} more")
    mode = session.options.mode if session else Mode.DRY_RUN
    if skipped:
        status = Status.SKIPPED
    elif failure:
        status = Status.FAILED
    elif units:
        status = Status.PARTIAL
    else:
        found = report.samples or report.findings or mode is Mode.PRINT_CONFIG
        status = Status.OK if found else Status.EMPTY
    return Outcome(
        collector=name,
        status=status,
        counts=RunCounts(
            samples=report.samples,
            points_sent=sink.points_sent if sink else 0,
            requests=report.requests,
            dropped=dict(dropped),
            units_lost=dict(report.lost_by_reason),
        ),
        examples={reason: logs.redact(text) for reason, text in examples.items() if reason in dropped},
        lost=units,
        findings=[logs.redact(finding) for finding in report.findings],
        error=failure,
        tables={} if mode is Mode.PUSH else report.tables,
    )


def _failure(error: BaseException) -> ErrorSummary:
    """Return an error as an outcome contains it: class, redacted message, details.

    `configuration` decides the exit code. `status` is set only for a response of Datadog itself, which has an
    error document; that of a proxy does not count as a refused key.
    """
    configuration = isinstance(error, FleetgaugeError) and error.configuration
    status = getattr(error, "status", None) if getattr(error, "problems", ()) else None  # Datadog's own
    details = list(getattr(error, "details", ()))
    return ErrorSummary(type(error).__name__, logs.redact(str(error)), configuration, status, details)


def _send_health(
    outcome: Outcome, session: Session, state: SavedState | None, timeout: float = 0.0
) -> Outcome:
    """Send the self-metrics of an outcome; return it, as failed where that was not possible.

    An error that the run had already takes precedence. `timeout` replaces what is left of the deadline.
    """
    from common.datadog.intake import DatadogSink

    # A run that used up its deadline is the one whose failure must be reported, so it gets a little more.
    deadline = Deadline(timeout or max(HEALTH_TIMEOUT, session.deadline.remaining()))
    try:
        # A sink of its own: that of the run may contain series that were not accepted, or have reached the
        # cap.
        sink = DatadogSink(session.client(deadline), session.core)
        for series in health.self_metrics(
            outcome,
            tick=tick(session.now, session.step),
            began=session.now,
            ended=int(session.clock()),
            clock_skew=getattr(session.sink, "clock_skew", None),
            last_success=state.document.last_success if state else None,
            gap=state.gap.seconds if state and state.gap else None,
            host=session.host,
            shard=session.options.shard,
        ):
            sink.add(series)
        sink.flush()
    except Exception as error:
        expected = isinstance(error, FleetgaugeError)
        log.warning("the self-metrics were not delivered: %s", error, exc_info=None if expected else error)
        if outcome.error is None:
            return replace(outcome, status=Status.FAILED, error=_failure(error))
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
        session = Session(outcome.collector, options, environ, Report(), Cache(), clock)
        # The tick in which the run began, as the child would have stated it. One that stays had runs before.
        if options.every is None:
            session.now -= int(outcome.seconds)
        state = session.open_state()
    except FleetgaugeError as error:
        log.warning("the self-metrics were not delivered: %s", error)
        return
    _send_health(outcome, session, state, REPORT_TIMEOUT)
