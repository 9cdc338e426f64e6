"""A tracking session as a W&B run: summary, time series, tables, plots, a page and artifacts.

Nothing is imported and nothing happens unless the export is enabled. A run that is already active belongs to
the job: it is used and left open. Any other run is ours, and finished whatever happens.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetgauge import wandb_package

from .attribution import log_attribution
from .events import MemoryEvent, read_event
from .profiles import SessionProfile, batches
from .timeline import MAX_ROWS, TimelineIndex
from .wandb_tracking import (
    log_alerts_table,
    log_artifact,
    log_tracking_time_series,
    log_tracking_visualizations,
)

_STATISTICS = (
    *("peak_memory", "total_events", "alert_count", "current_memory_allocated", "current_memory_reserved"),
    *("memory_utilization_percent", "total_allocations", "total_deallocations", "total_allocation_bytes"),
    *("total_deallocation_bytes", "tracking_duration_seconds", "allocations_per_second"),
    *("bytes_allocated_per_second", "history_retained_events", "history_dropped_events", "rollover_count"),
    *("pruned_segment_count", "pruned_bytes", "final_retained_files", "final_retained_bytes"),
)
_RENAMED = {
    "peak_memory": "peak_memory_bytes",
    "current_memory_allocated": "current_memory_allocated_bytes",
    "current_memory_reserved": "current_memory_reserved_bytes",
    "rollover_count": "sink_rollover_count",
    "pruned_segment_count": "sink_pruned_segment_count",
    "pruned_bytes": "sink_pruned_bytes",
    "final_retained_files": "sink_retained_files",
    "final_retained_bytes": "sink_retained_bytes",
}
_MAX_SLUG = 100
_MODES = (None, "online", "offline")


@dataclass(frozen=True)
class WandbExportConfig:
    """Whether and where to export. Disabled by default."""

    enabled: bool = False
    project: str | None = None
    entity: str | None = None
    mode: str | None = None
    run_id: str | None = None
    run_name: str | None = None
    group: str | None = None
    job_type: str | None = None
    log_tables: bool = True
    log_artifacts: bool = False
    log_attribution: bool = False

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(f"W&B mode must be 'online', 'offline' or None, not {self.mode!r}")


# session_summary is any object with the fields of SessionSummary: trackers bring their own class.
def export_tracking_run_to_wandb(
    config: WandbExportConfig,
    *,
    command_name: str,
    session_summary: Any,
    stats: Mapping[str, Any],
    events: Iterable[object],
    output_path: str | Path | None = None,
    telemetry_sink_dir: str | Path | None = None,
    oom_dump_path: str | Path | None = None,
    attribution_bundle_dir: str | Path | None = None,
) -> None:
    """Export one session to W&B; its events are mappings or objects, in either shape.

    They are iterated twice; an iterator, which cannot be, is read into a list. Raises ImportError without
    W&B, and what W&B raises.
    """
    if not config.enabled:
        return
    events = list(events) if iter(events) is events else events
    index, profile = TimelineIndex(), SessionProfile()
    alerts: deque[MemoryEvent] = deque(maxlen=MAX_ROWS)
    for batch in batches(map(read_event, events)):
        profile.add(batch)
        for event in batch:
            index.add(event.timestamp, event.event_type)
        alerts.extend(event._replace(metadata={}) for event in batch if event.is_alert)
    rows = index.rows(events)
    wandb = wandb_package.load()
    slug = session_slug(session_summary)
    output, sink = _existing(output_path, Path.is_file), _existing(telemetry_sink_dir, Path.is_dir)
    oom_dump = _existing(oom_dump_path, Path.is_dir)
    bundle = _existing(attribution_bundle_dir, Path.is_dir)
    with _run(wandb, config, command_name, session_summary) as run:
        _update_summary(
            run,
            tracking_metrics(stats)
            | {"stormlog_chart_point_count": len(rows)}
            | _session_fields(session_summary)
            | tracking_summary_fields(stats, output_path=output_path),
        )
        log_tracking_time_series(run, rows)
        if config.log_tables:
            log_alerts_table(wandb, run, alerts)
            beside = None if output is None or _inside(output, sink) else output.parent
            fields = log_tracking_visualizations(
                wandb,
                run,
                rows,
                session_slug=slug,
                dashboard_root=beside,
                allow_artifact_logging=config.log_artifacts,
                profile=profile,
                session_summary=session_summary,
            )
            _update_summary(run, fields)
        if config.log_artifacts:
            same = bundle is not None and oom_dump is not None and bundle.samefile(oom_dump)
            artifacts = {"track-output": output, "telemetry-sink": sink, "oom-dump": oom_dump}
            for kind, path in (artifacts | {"attribution-bundle": None if same else bundle}).items():
                if path is not None:
                    log_artifact(wandb, run, f"stormlog-{kind}", slug, path)
        attribution = bundle or oom_dump
        if config.log_attribution and attribution is not None:
            _update_summary(run, log_attribution(wandb, run, attribution, slug, config.log_artifacts))


def tracking_metrics(stats: Mapping[str, Any]) -> dict[str, int | float]:
    """The twenty statistics as summary fields: numbers only, and only finite ones."""
    found = {_RENAMED.get(name, name): stats.get(name) for name in _STATISTICS}
    return {
        f"stormlog_{name}": value
        for name, value in found.items()
        if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    }


def tracking_summary_fields(stats: Mapping[str, Any], *, output_path: str | Path | None) -> dict[str, object]:
    """Return the texts of the statistics, and the base name of the output file if there is one."""
    names = ("backend", "collector_health_status", "collector_last_error", "session_status")
    fields = {f"stormlog_{name}": stats[name] for name in names if stats.get(name) is not None}
    output = _existing(output_path, Path.is_file)
    return fields if output is None else fields | {"stormlog_output_file": output.name}


def session_slug(session_summary: Any) -> str:
    """A session's part of an artifact name: at most 100 characters, different for different sessions."""
    session_id = "session" if session_summary is None else str(session_summary.session_id)
    slug = re.sub(r"[^a-zA-Z0-9._-]+", "-", session_id) or "session"
    if len(slug) <= _MAX_SLUG:
        return slug
    digest = hashlib.sha256(session_id.encode(errors="replace")).hexdigest()[:8]
    return f"{slug[: _MAX_SLUG - 9]}-{digest}"


@contextmanager
def _run(wandb: Any, config: WandbExportConfig, command: str, session: Any) -> Iterator[Any]:
    active = getattr(wandb, "run", None)
    if active is not None:
        yield active
        return
    name = command if session is None else f"{command}-{str(session.session_id)[:8]}"
    options = {
        "project": config.project or "stormlog",
        "entity": config.entity,
        "mode": config.mode,
        "name": config.run_name or name,
        "group": config.group or getattr(session, "job_id", None),
        "job_type": config.job_type or command,
        "id": config.run_id,
        "resume": None if config.run_id is None else "allow",
    }
    run = wandb.init(**{key: value for key, value in options.items() if value is not None})
    try:
        yield run
    finally:
        run.finish()


def _update_summary(run: Any, fields: Mapping[str, object]) -> None:
    if fields:
        run.summary.update(fields)


def _session_fields(session: Any) -> dict[str, object]:
    if session is None:
        return {}
    fields = {
        "stormlog_session_id": session.session_id,
        "stormlog_session_source": session.source,
        "stormlog_session_status": session.status,
        "stormlog_rank": session.rank,
        "stormlog_local_rank": session.local_rank,
        "stormlog_world_size": session.world_size,
    }
    return fields if session.job_id is None else fields | {"stormlog_job_id": session.job_id}


def _existing(given: str | Path | None, exists: Any) -> Path | None:
    return Path(given) if given is not None and exists(Path(given)) else None


def _inside(path: Path, directory: Path | None) -> bool:
    """Whether a file lies in the sink, whose reader would wonder at one that the tracker never wrote."""
    return directory is not None and path.resolve().is_relative_to(directory.resolve())
