"""One self-contained page about GPU memory sessions: nothing loaded, everything escaped.

It is a function of profiles; `recording` reads the files, and the caller writes the page. A script is in it
only on request: in a file to open, not in what is logged to W&B. It stays readable for hundreds of sessions
by drawing only `MAX_DRAWN` of them and listing the others. `fleetgauge.pages` has the elements.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fleetgauge.pages.axes import byte_axis, format_bytes, format_duration, plural, time_axis
from fleetgauge.pages.charts import Limit, Line, Marker, Reading, draw_chart
from fleetgauge.pages.page import HINT, name_span, render_cards, render_document, render_table

from .events import ALERT_TYPES, MemoryEvent
from .oom import OomDump
from .profiles import MIN_PEAK_BYTES, SERIES, RankProfile, SessionProfile
from .recording import LoadedRecording

# Charts are most of a page's size, so that only so many are drawn.
MAX_DRAWN = 32
MAX_LISTED = 256
RULES = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_CSS_CLASSES = ("allocated", "reserved", "used")
# Painted in this order: what contains the others lies below them.
_PAINTED = (2, 1, 0)
_FACTS = {"session": "session_id", "job": "job_id", "host": "host", "process": "pid", "source": "source"}

Row = tuple[tuple[str, str, str], ...]


class PageSession(NamedTuple):
    """A session to show; `summary` is any object with the fields of SessionSummary, or None."""

    profile: SessionProfile
    summary: Any  # trackers bring their own class


class _Section(NamedTuple):
    """One rank of a session, as the page shows it; `number` is its anchor."""

    number: int
    rank: RankProfile
    summary: Any  # as in PageSession


def recording_title(loaded: LoadedRecording) -> str:
    """Return the title: the recording and its span, as far as known."""
    totals = [session.profile.totals for session in loaded.sessions]
    first = min((one.first_at for one in totals if one.first_at is not None), default=None)
    last = max((one.last_at for one in totals if one.last_at is not None), default=None)
    begin, end = _clock(first)[:19], _clock(last)[:19]
    span = f", {name_span(begin, end)}" if begin and end else ""
    return f"GPU memory of {loaded.path.resolve().name}{span}"


def render_recording(loaded: LoadedRecording, *, script: bool = False) -> str:
    """Return the page of a recording: its sessions, its notes and what was left out. See `render_page`."""
    notes = list(loaded.notes)
    if loaded.losses:
        lost = sorted(loaded.losses.items())
        reasons = ", ".join(f"{reason.replace('_', ' ')} ({count:,})" for reason, count in lost)
        notes.append(f"Left out because it could not be read: {reasons}")
    sessions = [PageSession(session.profile, session.summary) for session in loaded.sessions]
    return render_page(recording_title(loaded), sessions, notes, loaded.oom_dumps, script=script)


def render_page(
    title: str,
    sessions: Sequence[PageSession],
    notes: Iterable[str] = (),
    oom_dumps: Sequence[OomDump] = (),
    *,
    script: bool = False,
) -> str:
    """Return the page of some sessions, each of their ranks with its own cards, chart and alerts.

    `notes` are sentences without a full stop. With `script`, charts and tables are interactive.
    """
    sections: list[_Section] = []
    for profile, summary in sessions:
        ranks = sorted(profile.ranks.values(), key=lambda rank: (rank.rank is None, rank.rank or 0))
        # A session without events has a section too: its status is worth knowing.
        for rank in ranks or [RankProfile(None)]:
            sections.append(_Section(len(sections) + 1, rank, summary))
    events = sum(section.rank.totals.events for section in sections)
    jobs = {str(job) for session in sessions if (job := getattr(session.summary, "job_id", None))}
    scope = [plural(len(sessions), "session"), plural(events, "event")]
    scope += [f"job {', '.join(sorted(jobs)[:8])}"] if jobs else []
    listed = "".join(f"<p>{html.escape(note)}.</p>" for note in notes)
    body = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(' · '.join(scope))}</p>"]
    body += [f"<p>{HINT}</p>"] if script else []
    body += [f'<div class="note">{listed}</div>'] if listed else []
    body += [_oom_table(oom_dumps)] if oom_dumps else []
    body += [_overview(sections)] if len(sections) > 1 else []
    body += [_section(section, script) for section in sections[:MAX_DRAWN]]
    return render_document(title, RULES, "".join(body), script=script)


def _overview(sections: Sequence[_Section]) -> str:
    """Return the table of all sections, with links to those that are drawn."""
    rows = [_overview_row(section) for section in sections[:MAX_LISTED]]
    hidden = len(sections) - MAX_DRAWN
    more = f"<p>The first {MAX_DRAWN} are drawn below, {hidden:,} are not.</p>" if hidden > 0 else ""
    return f"<section><h2>Sessions</h2>{render_table(rows, 'listed')}{more}</section>"


def _overview_row(section: _Section) -> Row:
    totals, name = section.rank.totals, html.escape(_name(section.summary))
    link = f'<a href="#s{section.number}">{name}</a>'
    return (
        ("Session", link if section.number <= MAX_DRAWN else name, "short"),
        ("Rank", html.escape(_rank(section)), "number"),
        ("Status", html.escape(_status(section)), ""),
        ("Start (UTC)", _clock(totals.first_at), "number"),
        ("Duration", format_duration(totals.duration), "number"),
        ("Peak allocated", format_bytes(totals.peaks.get("allocated")), "number"),
        ("Highest utilisation", _percent(totals.peaks.get("utilization")), "number"),
        ("Alerts", f"{totals.alerts:,}", "number"),
    )


def _section(section: _Section, script: bool) -> str:
    """Return one section: heading, facts, cards, chart and alerts."""
    rank, summary = section.rank, section.summary
    status = str(getattr(summary, "status", ""))
    badge = (
        f'<span class="status {html.escape(status)}">{html.escape(_status(section))}</span>' if status else ""
    )
    facts = [
        f"{name} {value}"
        for name, attribute in _FACTS.items()
        if (value := getattr(summary, attribute, None)) is not None
    ]
    facts += [f"began {_clock(rank.totals.first_at)} UTC"] if rank.totals.first_at is not None else []
    return (
        f'<section id="s{section.number}"><div class="head"><h2>Session {html.escape(_name(summary))}'
        f" · rank {html.escape(_rank(section))}</h2>{badge}</div><p>{html.escape(' · '.join(facts))}</p>"
        f"{_cards(rank)}{_chart(rank, script)}{_alert_table(rank)}</section>"
    )


def _cards(rank: RankProfile) -> str:
    """Return the figures of a rank; what no event states is shown as unknown."""
    totals, peaks = rank.totals, rank.totals.peaks
    used = f"{format_bytes(peaks.get('used'))} used"
    kinds = [f"{totals.counts[kind]:,} {kind}" for kind in ALERT_TYPES if totals.counts[kind]]
    capacity = f"of {format_bytes(peaks['capacity'])}" if "capacity" in peaks else "capacity unknown"
    return render_cards(
        (
            ("Samples", f"{totals.samples:,}", f"{totals.counts['sample']:,} regular"),
            ("Duration", format_duration(totals.duration), "first to last sample"),
            ("Peak allocated", format_bytes(peaks.get("allocated")), capacity),
            ("Peak reserved", format_bytes(peaks.get("reserved")), capacity),
            ("Highest utilisation", _percent(peaks.get("utilization")), used),
            ("Alerts", f"{totals.alerts:,}", ", ".join(kinds) or "none"),
        )
    )


def _chart(rank: RankProfile, script: bool) -> str:
    """Return the chart of a rank, or a sentence where no event has both a time and a size."""
    start, duration, peaks = rank.totals.first_at, rank.totals.duration, rank.totals.peaks
    if start is None or "used" not in peaks:
        return "<p>There is nothing to draw: no event has both a time and a size.</p>"
    lines = [
        Line(
            SERIES[at],
            _CSS_CLASSES[at],
            [(when - start, size) for when, size in rank.bins.points(at)],
            at == 2,
        )
        for at in _PAINTED
    ]
    marks = [
        Marker(
            when - start, size, kind, f"{kind} after {format_duration(when - start)}: {format_bytes(size)}"
        )
        for kind, (when, size) in rank.bins.alerts()
    ]
    # The highest line that an allocation can reach; drawn where the device reports it.
    capacity = peaks.get("capacity")
    limits = [Limit(capacity, f"capacity {format_bytes(capacity)}")] if capacity else []
    names = zip(("allocated", "reserved", "used"), SERIES, strict=True)
    most = ", ".join(f"{format_bytes(peaks.get(name))} {series}" for name, series in names)
    # The text is what a screen reader gets instead of the drawing.
    text = f"Memory over {format_duration(duration)}: at most {most}; {rank.totals.alerts:,} alerts"
    # The least severe marks are painted first, so that none hides a worse one.
    highest = max(peaks.get(name, 0) for name in ("allocated", "reserved", "used", "capacity"))
    x, y = time_axis(duration or 0.0), byte_axis(highest)
    reading = Reading("elapsed", "byte", rank.bins.seconds) if script else None
    return draw_chart(x, y, lines, marks[::-1], limits, text, reading=reading)


def _alert_table(rank: RankProfile) -> str:
    """Return the latest alerts, and how many are not listed."""
    shown = rank.latest_alerts()
    rows = [_alert_row(event, rank.totals.first_at) for event in shown]
    missing = rank.totals.alerts - len(shown)
    small = f"earlier ones, and new peaks of less than {format_bytes(MIN_PEAK_BYTES)}"
    more = f"<p>{plural(missing, 'alert')} not listed: {small}.</p>" if missing else ""
    none = "" if rows or missing else "<p>There were none.</p>"
    return f"<h3>Alerts</h3>{more}{none}{render_table(rows, 'listed') if rows else ''}"


def _alert_row(event: MemoryEvent, start: float | None) -> Row:
    after = None if event.timestamp is None or start is None else event.timestamp - start
    return (
        ("After", format_duration(after), "number"),
        ("Kind", html.escape(event.event_type), f"kind {event.event_type}"),
        ("Context", html.escape(event.context or ""), "wide"),
        ("Allocated", format_bytes(event.memory_allocated), "number"),
        ("Reserved", format_bytes(event.memory_reserved), "number"),
        ("Change", format_bytes(event.memory_change), "number"),
        ("At (UTC)", _clock(event.timestamp)[11:] or "unknown", "number"),
    )


def _oom_table(dumps: Sequence[OomDump]) -> str:
    """Return the table of the latest dumps; messages are shortened."""
    rows = [
        (
            ("Dump", html.escape(dump.path.name), "wide"),
            ("At (UTC)", f"{dump.created_at:%Y-%m-%d %H:%M:%S}" if dump.created_at else "unknown", "number"),
            ("Reason", html.escape(dump.reason or "unknown"), ""),
            ("Message", html.escape((dump.message or "")[:500]), "wide"),
        )
        for dump in dumps[-MAX_DRAWN:]
    ]
    return f"<section><h2>Out of memory</h2>{render_table(rows)}</section>"


def _name(summary: Any) -> str:
    """Return enough of a session's name to distinguish it; inferred names differ in their end."""
    name = getattr(summary, "session_id", None)
    if name is None:
        return "without a name"
    return str(name)[:40] if str(name).startswith("legacy-") else str(name)[:8]


def _rank(section: _Section) -> str:
    """Return the rank of a section, its session's where events have none, and the world size if known."""
    rank = section.rank.rank if section.rank.rank is not None else getattr(section.summary, "rank", None)
    size = getattr(section.summary, "world_size", None)
    return "unknown" if rank is None else f"{rank} of {size}" if size else f"{rank}"


def _status(section: _Section) -> str:
    """Return the status of a section, with what it means where no end was recorded."""
    status = str(getattr(section.summary, "status", "unknown"))
    text = f"{status}: no end was recorded" if status in ("running", "incomplete") else status
    last = _clock(section.rank.totals.last_at)
    # The manifest of a killed process has the status running for ever.
    return f"{text}, nothing recorded since {last} UTC" if status == "running" and last else text


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} %"


def _clock(seconds: float | None) -> str:
    """Return a time in UTC with milliseconds; empty where it is unknown or beyond the calendar."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return ""
