"""A live run: answer for the present and for what was missed.

`common/window.py` and the collector decide which window that is, `state.py` has up to when points were sent.
The past beyond an hour is for `backfill.py`.
"""

from __future__ import annotations

import logging

from common.options import Mode
from common.run.session import Session, lose_beyond_cap
from common.run.state import Document, SavedState
from common.times import iso
from common.window import MAX_AGE, MAX_AHEAD, Window

log = logging.getLogger(__name__)


def live(session: Session, state: SavedState) -> int | None:
    """Send the points that are due, or add them to the sink of a dry run.

    Returns the newest second of a point that can be sent, None where there is none. A collector that fails
    sends nothing: the next run computes the same points again. Raises what the collector raises,
    DeliveryError and ConfigurationError.
    """
    # The window. A dry run shows this tick, whatever earlier pushes sent.
    push = session.options.mode is Mode.PUSH
    document = state.document
    window = session.due(document.sent_until if push else None)
    memory = document.copy_memory()
    if push:
        state.gap = _note_gap(session, document.sent_until, window)
    if session.sink is None:
        session.sink = session.intake()
    log.debug("the window is %s", window)
    newest, last = session.now - MAX_AGE, session.now + MAX_AHEAD
    # Collect everything before anything is sent, so that a failure leaves no half of a tick in Datadog.
    for series in session.series(window, memory):
        if series.times and newest < series.times[-1] <= last:
            newest = series.times[-1]
        session.sink.add(series)
    # Saved before the delivery: memory is what was observed and cannot be queried again (a W&B run that was
    # busy), and stays true where Datadog refuses this tick.
    if push and memory != document.memory:
        state.save(document.model_copy(update={"now": session.now, "memory": memory}))
    session.sink.flush()
    lose_beyond_cap(session.sink, session.report)
    if push:
        _save_sent(session, state, window, memory)
    return newest if newest > session.now - MAX_AGE else None


def _save_sent(session: Session, state: SavedState, window: Window, memory: dict[str, object]) -> None:
    """Save up to when points were sent, and whether this run was complete.

    The window counts as sent although units of it were lost: a log line has the backfill command for them. A
    window that is repeated until its last unit can be read would become older than an hour.
    """
    document, reasons = state.document, session.report.lost_by_reason
    success = document.last_success
    if not reasons:
        success = int(session.clock())
    # A backfill helps neither a failed store nor the series cap.
    elif session.collector.has_history and reasons.keys() - {"state", "series_cap"}:
        command = _backfill_command(session, window)
        log.warning("some units were lost; to send them later: %s", command)
    # Of two runs that overlap the earlier one must not move the end back: the next run would report a gap.
    sent_until = max(window.until, document.sent_until or 0)
    state.save(Document(now=session.now, sent_until=sent_until, last_success=success, memory=memory))


def _note_gap(session: Session, sent_until: int | None, window: Window) -> Window | None:
    """Return the span that was missed and is too old to be sent now; None where that is not known.

    It is empty where nothing is missing, which `collector.gap_seconds` reports as 0. The log has the command
    that sends a gap, for collectors that have a history.
    """
    if sent_until is None:
        return None
    has_history = session.collector.has_history
    # Without a history only this tick is measured, so that everything before its step is missing.
    until = window.since if has_history else window.until - window.step
    gap = Window(sent_until, max(sent_until, until), window.step)
    if gap.seconds and has_history:
        command = _backfill_command(session, gap)
        log.warning("the points from %s were not sent and are too old; to send them: %s", gap, command)
    elif gap.seconds:
        log.warning("nothing was measured from %s, and it cannot be measured afterwards", gap)
    return gap


def _backfill_command(session: Session, window: Window) -> str:
    """Return the command line that sends a window later, with the step of this run."""
    options = session.options
    step = ("--step", f"{options.step}s") if options.step else ()
    span = ("--since", iso(window.since), "--until", iso(window.until))
    return options.command(session.name, *span, *step, "--push")
