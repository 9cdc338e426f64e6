"""A session's timeline and alerts in a W&B run, under the tracker's own names.

W&B is Any here: it is imported only when a run is exported.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .artifacts import DASHBOARD_NAME, log_dashboard
from .events import read_event
from .loader import SessionProfile
from .page import PageSession, render_page
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
) -> dict[str, object]:
    """The table, the plots and a page of a timeline; answers what belongs into the summary.

    The page, as an artifact, is left in `dashboard_root` where there is one.
    """
    if not rows:
        return {}
    log_timeline(wandb, run, rows)
    page = render_page("GPU memory session", [PageSession(_profile(rows), None)])
    run.log({"stormlog_tracking_dashboard": wandb.Html(page)})
    if not allow_artifact_logging:
        return {}
    beside = None if dashboard_root is None else dashboard_root / DASHBOARD_NAME
    return log_dashboard(wandb, run, page, session_slug, beside, None)


def _profile(rows: Sequence[TimelineRow]) -> SessionProfile:
    profile = SessionProfile()
    for row in rows:
        profile.add(
            read_event(
                {
                    "event_type": row["event_type"],
                    "timestamp": row["elapsed_seconds"],
                    "memory_allocated": row["allocated_bytes"],
                    "memory_reserved": row["reserved_bytes"],
                    "memory_change": row["change_bytes"],
                    "device_used": row["device_used_bytes"],
                    "context": row["context"],
                    "rank": row["rank"],
                }
            )
        )
    return profile


def log_timeline(wandb: Any, run: Any, rows: Sequence[TimelineRow]) -> None:
    """The table and the plots of a timeline."""
    columns = ["sample_index", "elapsed_seconds", "event_type"]
    columns += [f"memory_{name}_bytes" for name in ("allocated", "reserved", "change")]
    columns += ["device_used_bytes", "utilization_percent", "context", "rank"]
    table = wandb.Table(columns=columns, data=[list(row.values()) for row in rows])
    run.log({"stormlog_memory_timeline_table": table})
    _log_plots(wandb, run, rows)


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
