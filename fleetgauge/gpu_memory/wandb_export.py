"""A tracking session as a W&B run: summary, time series, tables, plots, a page and artifacts.

Nothing is imported and nothing happens unless the export is enabled. A run that is already active belongs to
the job: it is used and left open. Any other run is ours, and finished whatever happens. Keys are those of the
tracker's own exporter.

An attribution bundle lists which tensors used the memory. It may contain a pickle of the allocator's state.
Loading a pickle runs whatever its author wrote, so that nothing here opens it: tables and page are made of
the JSON beside it. `timeline` selects the rows, `page` draws the dashboard.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fleetgauge import wandb_package

from .events import batches, read_event
from .profiles import SessionProfile
from .sessions import integer, read_object
from .timeline import MAX_TIMELINE_ROWS, Timeline, TimelineRow

# The names of the tracker's own exporter, of which its users have charts.
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
# W&B limits artifact names to 128 characters, of which the type takes up to 28.
_MAX_SLUG = 100
_MODES = (None, "online", "offline")
# Columns of the table, each with the field of `MemoryEvent` it shows.
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
_ANNOTATED_NAME = "cuda_allocator_state_history_annotated.html"
_TENSORS_NAME = "cuda_tensor_attribution.json"
_METADATA_NAME = "cuda_native_debug_metadata.json"
# Every file of a bundle but the pickle: a user of the artifact might load that.
_FILES = (
    _ANNOTATED_NAME,
    "cuda_allocator_state_history.html",
    _TENSORS_NAME,
    "cuda_allocation_attribution.json",
    _METADATA_NAME,
)
_COLUMNS = ["name", "storage_ptr", "tensor_count", "total_size_bytes", "shape", "dtype"]
_MAX_ROWS_LOGGED = 200
_MAX_ROWS_SHOWN = 12
TensorRow = tuple[str, str, int, int, str, str]


@dataclass(frozen=True)
class WandbExportConfig:
    """Whether and where to export. Disabled by default.

    `mode` is "online", "offline" or None for W&B's own default; anything else raises ValueError. A `run_id`
    resumes that run. Artifacts and attribution are uploaded only on request.
    """

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


class ReadEvents(NamedTuple):
    """What an export needs of the events of a session."""

    profile: SessionProfile
    timeline: Timeline


def read_events(events: Iterable[object]) -> ReadEvents:
    """Read events, mappings or objects, in either shape. Never raises for an event."""
    found = ReadEvents(SessionProfile(), Timeline())
    for batch in batches(map(read_event, events)):
        found.profile.add(batch)
        found.timeline.add(batch)
    return found


# session_summary is any object with the fields of SessionSummary: trackers bring their own class.
def export_tracking_run_to_wandb(
    config: WandbExportConfig,
    *,
    command_name: str,
    session_summary: Any,
    stats: Mapping[str, Any],
    events: Iterable[object] | ReadEvents,
    output_path: str | Path | None = None,
    telemetry_sink_dir: str | Path | None = None,
    oom_dump_path: str | Path | None = None,
    attribution_bundle_dir: str | Path | None = None,
) -> None:
    """Export one session to W&B; its events are mappings or objects, in either shape, or read already.

    `stats` are statistics by the tracker's names, `command_name` is part of the run's name. Paths that do not
    exist are ignored. Raises ImportError without W&B, and what W&B raises; a run of ours is finished then,
    too.
    """
    if not config.enabled:
        return
    # Before W&B is started: an error in the events must not leave a run behind.
    profile, timeline = events if isinstance(events, ReadEvents) else read_events(events)
    rows = timeline.rows()
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
            log_alerts_table(wandb, run, timeline.alerts)
            # A sink is read by its tracker, which does not expect a page in it.
            inside = output and sink and output.resolve().is_relative_to(sink.resolve())
            beside = None if output is None or inside else output.parent
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
            # The bundle may be the dump itself, which is uploaded once.
            same = bundle is not None and oom_dump is not None and bundle.samefile(oom_dump)
            artifacts = {"track-output": output, "telemetry-sink": sink, "oom-dump": oom_dump}
            for kind, path in (artifacts | {"attribution-bundle": None if same else bundle}).items():
                if path is not None:
                    _log_artifact(wandb, run, f"stormlog-{kind}", slug, path)
        # A dump contains the same files where attribution was recorded.
        attribution = bundle or oom_dump
        if config.log_attribution and attribution is not None:
            _update_summary(run, _log_attribution(wandb, run, attribution, slug, config.log_artifacts))


def tracking_metrics(stats: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the twenty statistics as summary fields: numbers only, and only finite ones."""
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
    """Return a session's part of an artifact name: at most 100 characters, and another for each session."""
    session_id = "session" if session_summary is None else str(session_summary.session_id)
    slug = re.sub(r"[^a-zA-Z0-9._-]+", "-", session_id) or "session"
    if len(slug) <= _MAX_SLUG:
        return slug
    # Cut names may be equal at their start: a hash of the complete id distinguishes them.
    digest = hashlib.sha256(session_id.encode(errors="replace")).hexdigest()[:8]
    return f"{slug[: _MAX_SLUG - 9]}-{digest}"


@contextmanager
def _run(wandb: Any, config: WandbExportConfig, command: str, session: Any) -> Iterator[Any]:
    """Yield the active run, or one of ours that is finished on leaving, with an error as well."""
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
    # Only what is set is passed: W&B's own defaults and variables apply to the others.
    run = wandb.init(**{key: value for key, value in options.items() if value is not None})
    try:
        yield run
    finally:
        run.finish()


def _update_summary(run: Any, fields: Mapping[str, object]) -> None:
    if fields:
        run.summary.update(fields)


def _session_fields(session: Any) -> dict[str, object]:
    """Return the fields of a session for the summary; none without a session."""
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
    """Return the path if it is given and `exists` is true of it, else None."""
    return Path(given) if given is not None and exists(Path(given)) else None


def log_tracking_time_series(run: Any, rows: Sequence[TimelineRow]) -> None:
    """Log one row of the run for each row of the timeline; unknown values are left out."""
    # Without a step of their own the rows would be drawn over the steps of the job whose run this is.
    if rows:
        run.define_metric(_STEP)
        run.define_metric("stormlog_timeline_*", step_metric=_STEP)
    for row in rows:
        values = {f"stormlog_timeline_{name}": row[name] for name in _SERIES}  # type: ignore[literal-required]
        run.log(
            {_STEP: row["elapsed_seconds"]}
            | {name: value for name, value in values.items() if value is not None}
        )


def log_alerts_table(wandb: Any, run: Any, events: Iterable[object]) -> None:
    """Log the alerts among some events, in either shape: the latest ones; no table where there is none."""
    alerts = deque((event for event in map(read_event, events) if event.is_alert), maxlen=MAX_TIMELINE_ROWS)
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

    The page is that of the profile, or else of the rows. As an artifact it is left in `dashboard_root`, or
    else in a directory that is removed again: W&B copies what it is given.
    """
    from .page import PageSession, render_page  # large, and needed here only

    if not rows:
        return {}
    # The fields of a row are in the order of the columns.
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
        _log_artifact(wandb, run, "stormlog-tracking-dashboard", session_slug, path)
    return {"stormlog_tracking_dashboard_file": _DASHBOARD_NAME}


def _log_artifact(wandb: Any, run: Any, kind: str, slug: str, *paths: Path) -> None:
    """Upload files and directories as one artifact, if there is any."""
    if paths:
        artifact = wandb.Artifact(name=f"{kind}-{slug}", type=kind)
        for path in paths:
            add = artifact.add_dir if path.is_dir() else artifact.add_file
            add(local_path=str(path), name=path.name)
        run.log_artifact(artifact)


def _profile(rows: Sequence[TimelineRow]) -> SessionProfile:
    """Return a profile of rows, for a caller that has no events: elapsed seconds are its times."""
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
    """Log line plots of the series that have a value; a gap is NaN. Nothing where `wandb.plot` is absent."""
    if not hasattr(wandb, "plot"):
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
            plot = wandb.plot.line_series(
                xs=elapsed,
                ys=list(known.values()),
                keys=list(known),
                title=f"Stormlog Memory {title}",
                xname="Elapsed Seconds",
            )
            run.log({f"stormlog_memory_{name}_plot": plot})


def attribution_files(directory: Path) -> list[Path]:
    """Return the files of a bundle that are worth uploading, those that exist."""
    return [directory / name for name in _FILES if (directory / name).is_file()]


def _tensor_rows(directory: Path) -> list[TensorRow]:
    """Return every storage with its tensors, the largest first; empty where the bundle has none."""
    entries = read_object(directory / _TENSORS_NAME).get("attributed_storage_pointers")
    if not isinstance(entries, list):
        return []
    rows = [_tensor_row(entry) for entry in entries if isinstance(entry, Mapping)]
    return sorted(rows, key=lambda row: row[3], reverse=True)


# W&B is typed as Any in this module: it is imported only when a run is exported.
def _log_attribution(wandb: Any, run: Any, directory: Path, slug: str, artifacts: bool) -> dict[str, object]:
    """Log a bundle to a run; return what belongs into the run's summary.

    With `artifacts`, its files are uploaded as well. The table has the largest storages, the summary the full
    count.
    """
    summary: dict[str, object] = {}
    files = attribution_files(directory)
    if artifacts:
        _log_artifact(wandb, run, "stormlog-attribution", slug, *files)
    rows = _tensor_rows(directory)
    recorded = read_object(directory / _METADATA_NAME).get("history_recorded")
    if directory / _ANNOTATED_NAME in files:
        run.log({"stormlog_attribution_html": wandb.Html(attribution_page(rows, recorded))})
        summary["stormlog_attribution_html_file"] = _ANNOTATED_NAME
    if rows:
        table = wandb.Table(columns=list(_COLUMNS), data=[list(row) for row in rows[:_MAX_ROWS_LOGGED]])
        run.log({"stormlog_tensor_attribution": table})
        summary["stormlog_tensor_attribution_rows"] = len(rows)
    if isinstance(recorded, bool):
        summary["stormlog_attribution_history_recorded"] = recorded
    return summary


def attribution_page(rows: list[TensorRow], recorded: object) -> str:
    """Return the largest storages as a page without scripts.

    The annotated history itself is in the artifact.
    """
    from fleetgauge.pages.page import render_document, render_table  # large, and needed here only

    from .page import RULES

    history = "unknown" if not isinstance(recorded, bool) else "recorded" if recorded else "not recorded"
    shown = f"{len(rows):,} storages, the largest {min(len(rows), _MAX_ROWS_SHOWN)} shown"
    cells = [
        (
            ("Name", html.escape(name), "wide"),
            ("Bytes", f"{size:,}", "number"),
            ("Shape", html.escape(shape), ""),
            ("Type", html.escape(dtype), ""),
        )
        for name, _, _, size, shape, dtype in rows[:_MAX_ROWS_SHOWN]
    ]
    title = "GPU memory by tensor"
    table = render_table(cells) if cells else ""
    return render_document(
        title, RULES, f"<h1>{title}</h1><p>{shown}. Allocator history: {history}.</p>{table}"
    )


def _tensor_row(entry: Mapping[str, object]) -> TensorRow:
    """Return the row of one storage: its names, the sum of its tensors, and shape and type of the first."""
    given = entry.get("tensors")
    tensors = given if isinstance(given, list) else []
    first = tensors[0] if tensors and isinstance(tensors[0], Mapping) else {}
    sizes = [integer(tensor.get("size_bytes")) for tensor in tensors if isinstance(tensor, Mapping)]
    names, count = entry.get("names"), integer(entry.get("tensor_count"))
    return (
        ", ".join(str(name) for name in names[:3]) if isinstance(names, list) and names else "<unnamed>",
        str(entry.get("storage_ptr", "")),
        len(tensors) if count is None else count,
        sum(size for size in sizes if size is not None),
        str(first.get("shape", "")),
        str(first.get("dtype", "")),
    )
