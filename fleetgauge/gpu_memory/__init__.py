"""GPU memory sessions, read as they are on disk: statistics, a page to look at, and an export to W&B.

Standard library only; W&B is imported when an export is enabled, and nothing is ever unpickled.
"""

from __future__ import annotations

from .events import (
    ALERT_TYPES,
    MemoryEvent,
    event_int_value,
    event_timestamp_seconds,
    event_value,
    parse_event,
    read_event,
)
from .events import BadEventError as BadEvent
from .loader import Loaded, LoadedSession, SessionProfile, load_recording
from .oom import OomDump, find_oom_dumps, is_oom_dump, read_oom_dump
from .page import PageSession, render_page, render_recording
from .profiles import RankProfile
from .recording import Recording, RecordingError, open_recording, segments
from .sessions import Manifest, ManifestError, SessionSummary, parse_session, read_manifest
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
    "ALERT_TYPES",
    "BadEvent",
    "Loaded",
    "LoadedSession",
    "Manifest",
    "ManifestError",
    "MemoryEvent",
    "OomDump",
    "PageSession",
    "RankProfile",
    "Recording",
    "RecordingError",
    "SessionProfile",
    "SessionSummary",
    "TimelineRow",
    "WandbExportConfig",
    "event_int_value",
    "event_timestamp_seconds",
    "event_value",
    "export_tracking_run_to_wandb",
    "find_oom_dumps",
    "is_oom_dump",
    "load_recording",
    "log_alerts_table",
    "log_tracking_time_series",
    "log_tracking_visualizations",
    "open_recording",
    "parse_event",
    "parse_session",
    "read_event",
    "read_manifest",
    "read_oom_dump",
    "render_page",
    "render_recording",
    "sample_timeline_rows",
    "segments",
    "session_slug",
    "tracking_metrics",
    "tracking_summary_fields",
    "tracking_timeline_rows",
]
