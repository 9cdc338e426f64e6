"""GPU memory sessions, read as they are on disk: events, statistics, a page, and an export to W&B.

Standard library only; W&B is imported when an export is enabled, and nothing is ever unpickled. `events`
parses one event, `sessions` and `oom` the documents beside them, `recording` finds and reads the files,
`profiles` and `timeline` reduce events to bounded memory, `page` and `wandb_export` show the result.
"""

from __future__ import annotations

from .events import BadEventError
from .events import MemoryEvent as MemoryEvent
from .events import event_int_value as event_int_value
from .events import event_timestamp_seconds as event_timestamp_seconds
from .events import event_value as event_value
from .events import parse_event as parse_event
from .recording import LoadedRecording as LoadedRecording
from .recording import LoadedSession as LoadedSession
from .recording import RecordingError as RecordingError
from .recording import load_recording as load_recording
from .sessions import ManifestError as ManifestError
from .sessions import SessionSummary as SessionSummary
from .timeline import TimelineRow as TimelineRow
from .timeline import sample_timeline_rows as sample_timeline_rows
from .timeline import tracking_timeline_rows as tracking_timeline_rows
from .wandb_export import WandbExportConfig as WandbExportConfig
from .wandb_export import export_tracking_run_to_wandb as export_tracking_run_to_wandb
from .wandb_export import log_alerts_table as log_alerts_table
from .wandb_export import log_tracking_time_series as log_tracking_time_series
from .wandb_export import log_tracking_visualizations as log_tracking_visualizations
from .wandb_export import session_slug as session_slug
from .wandb_export import tracking_metrics as tracking_metrics
from .wandb_export import tracking_summary_fields as tracking_summary_fields

# The public name; linters want the class itself to end in Error.
BadEvent = BadEventError
