"""A session's timeline, alerts and page in a W&B run, under the tracker's own names, and files as artifacts.

W&B is Any here: it is imported only when a run is exported.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .events import read_event
from .profiles import SessionProfile
from .timeline import MAX_ROWS, TimelineRow

_ALERT_COLUMNS = {
    "timestamp_s": "timestamp",
    "event_type": "event_type",
    "context": "context",
    "memory_allocated_bytes": "memory_allocated",
    "memory_reserved_bytes": "memory_reserved",
    "memory_change_bytes": "memory_change",
    "job_id": "job_id",
    "rank": "rank",
}
_SERIES = ("allocated_bytes", "reserved_bytes", "change_bytes", "device_used_bytes", "utilization_percent")
_STEP = "stormlog_timeline_elapsed_seconds"
_TIMELINE_COLUMNS = (
    *("sample_index", "elapsed_seconds", "event_type"),
    *("memory_allocated_bytes", "memory_reserved_bytes", "memory_change_bytes"),
    *("device_used_bytes", "utilization_percent", "context", "rank"),
)
_DASHBOARD_NAME = "stormlog_tracking_dashboard.html"


def log_tracking_time_series(run: Any, rows: Sequence[TimelineRow]) -> None:
    """One row of the run for each row of the timeline."""
    # Without a step of their own the rows would be drawn over the steps of the job whose run this is.
    define = getattr(run, "define_metric", None)
    if rows and callable(define):
        define(_STEP)
        define("stormlog_timeline_*", step_metric=_STEP)
    for row in rows:
        values = {f"stormlog_timeline_{name}": row[name] for name in _SERIES}  # type: ignore[literal-required]
        run.log(
            {_STEP: row["elapsed_seconds"]}
            | {name: value for name, value in values.items() if value is not None}
        )


def log_alerts_table(wandb: Any, run: Any, events: Iterable[object]) -> None:
    """The alerts among some events, in either shape: the latest ones; no table where there is none."""
    alerts = deque((event for event in map(read_event, events) if event.is_alert), maxlen=MAX_ROWS)
    data = [[getattr(event, field) for field in _ALERT_COLUMNS.values()] for event in alerts]
    if data:
        run.log({"stormlog_alerts": wandb.Table(columns=list(_ALERT_COLUMNS), data=data)})


def log_tracking_visualizations(
    wandb: Any,
    run: Any,
    rows: Sequence[TimelineRow],
    *,
    session_slug: str,
    dashboard_root: Path | None = None,
    allow_artifact_logging: bool = False,
    profile: SessionProfile | None = None,
    session_summary: Any = None,
) -> dict[str, object]:
    """Log the table, the plots and a page of a timeline; return what belongs into the summary.

    The page is that of the profile, or else of the rows. As an artifact it is left in
    `dashboard_root`, or else in a directory that is removed again: W&B keeps a copy of what it is given.
    """
    from .page import PageSession, render_page  # large, and needed here only

    if not rows:
        return {}
    table = wandb.Table(columns=list(_TIMELINE_COLUMNS), data=[list(row.values()) for row in rows])
    run.log({"stormlog_memory_timeline_table": table})
    _log_plots(wandb, run, rows)
    page = render_page("GPU memory session", [PageSession(profile or _profile(rows), session_summary)])
    run.log({"stormlog_tracking_dashboard": wandb.Html(page)})
    if not allow_artifact_logging:
        return {}
    where = nullcontext(dashboard_root) if dashboard_root else TemporaryDirectory(prefix="fleetgauge-")
    with where as directory:
        path = Path(directory, _DASHBOARD_NAME)
        path.write_text(page, encoding="utf-8")
        log_artifact(wandb, run, "stormlog-tracking-dashboard", session_slug, path)
    return {"stormlog_tracking_dashboard_file": _DASHBOARD_NAME}


def log_artifact(wandb: Any, run: Any, kind: str, slug: str, *paths: Path) -> None:
    """Upload files and directories as one artifact, if there is any."""
    if paths:
        artifact = wandb.Artifact(name=f"{kind}-{slug}", type=kind)
        for path in paths:
            add = artifact.add_dir if path.is_dir() else artifact.add_file
            add(local_path=str(path), name=path.name)
        run.log_artifact(artifact)


def _profile(rows: Sequence[TimelineRow]) -> SessionProfile:
    fields = {
        "event_type": "event_type",
        "timestamp": "elapsed_seconds",
        "memory_allocated": "allocated_bytes",
        "memory_reserved": "reserved_bytes",
        "memory_change": "change_bytes",
        "device_used": "device_used_bytes",
        "context": "context",
        "rank": "rank",
    }
    profile = SessionProfile()
    profile.add([read_event({name: row[key] for name, key in fields.items()}) for row in rows])  # type: ignore[literal-required]
    return profile


def _log_plots(wandb: Any, run: Any, rows: Sequence[TimelineRow]) -> None:
    line_series = getattr(getattr(wandb, "plot", None), "line_series", None)
    if not callable(line_series):
        return
    elapsed = [row["elapsed_seconds"] for row in rows]
    plots = (
        ("timeline", "Timeline", ("allocated_bytes", "reserved_bytes", "device_used_bytes")),
        ("utilization", "Utilization", ("utilization_percent",)),
    )
    for name, title, series in plots:
        lines = {key: [math.nan if row[key] is None else float(row[key]) for row in rows] for key in series}  # type: ignore[literal-required]
        known = {key: line for key, line in lines.items() if not all(map(math.isnan, line))}
        if known:
            plot = line_series(
                xs=elapsed,
                ys=list(known.values()),
                keys=list(known),
                title=f"Stormlog Memory {title}",
                xname="Elapsed Seconds",
            )
            run.log({f"stormlog_memory_{name}_plot": plot})
