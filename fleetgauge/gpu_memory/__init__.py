"""GPU memory sessions, read as they are on disk: events, statistics, a page, and an export to W&B.

Standard library only; W&B is imported when an export is enabled, and nothing is ever unpickled.
"""

from __future__ import annotations

from .events import BadEventError as BadEvent
from .events import MemoryEvent, event_int_value, event_timestamp_seconds, event_value, parse_event
from .loader import LoadedRecording, LoadedSession, load_recording
from .recording import RecordingError
from .sessions import ManifestError, SessionSummary
from .timeline import TimelineRow, sample_timeline_rows, tracking_timeline_rows
from .wandb_export import (
    WandbExportConfig,
    export_tracking_run_to_wandb,
    session_slug,
    tracking_metrics,
    tracking_summary_fields,
)
from .wandb_tracking import log_alerts_table, log_tracking_time_series, log_tracking_visualizations

__all__ = [
    "BadEvent",
    "LoadedRecording",
    "LoadedSession",
    "ManifestError",
    "MemoryEvent",
    "RecordingError",
    "SessionSummary",
    "TimelineRow",
    "WandbExportConfig",
    "event_int_value",
    "event_timestamp_seconds",
    "event_value",
    "export_tracking_run_to_wandb",
    "load_recording",
    "log_alerts_table",
    "log_tracking_time_series",
    "log_tracking_visualizations",
    "parse_event",
    "sample_timeline_rows",
    "session_slug",
    "tracking_metrics",
    "tracking_summary_fields",
    "tracking_timeline_rows",
]
