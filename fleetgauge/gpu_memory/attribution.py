"""Which tensors used the memory: the attribution bundle of a session, for W&B.

The bundle may hold a pickle of the allocator's state. Loading a pickle runs whatever its author wrote, so
that nothing here ever opens it: the tables and the page are made of the JSON beside it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .documents import integer, read_object
from .wandb_tracking import log_artifact

ANNOTATED_NAME = "cuda_allocator_state_history_annotated.html"
TENSORS_NAME = "cuda_tensor_attribution.json"
METADATA_NAME = "cuda_native_debug_metadata.json"
_FILES = (
    ANNOTATED_NAME,
    "cuda_allocator_state_history.html",
    TENSORS_NAME,
    "cuda_allocation_attribution.json",
    METADATA_NAME,
)
_COLUMNS = ["name", "storage_ptr", "tensor_count", "total_size_bytes", "shape", "dtype"]
_MAX_ROWS_LOGGED = 200
_MAX_ROWS_SHOWN = 12

TensorRow = tuple[str, str, int, int, str, str]


def attribution_files(directory: Path) -> list[Path]:
    """The files of a bundle that are worth uploading, those that exist."""
    return [directory / name for name in _FILES if (directory / name).is_file()]


def tensor_rows(directory: Path) -> list[TensorRow]:
    """Every storage with its tensors, the largest first; empty where the bundle has none."""
    entries = read_object(directory / TENSORS_NAME).get("attributed_storage_pointers")
    if not isinstance(entries, list):
        return []
    rows = [_tensor_row(entry) for entry in entries if isinstance(entry, Mapping)]
    return sorted(rows, key=lambda row: row[3], reverse=True)


# W&B is typed as Any here and in wandb_export: it is imported only when a run is exported.
def log_attribution(wandb: Any, run: Any, directory: Path, slug: str, artifacts: bool) -> dict[str, object]:
    """Log a bundle to a run; returns what belongs into the run's summary."""
    summary: dict[str, object] = {}
    files = attribution_files(directory)
    if artifacts:
        log_artifact(wandb, run, "stormlog-attribution", slug, *files)
    rows = tensor_rows(directory)
    recorded = read_object(directory / METADATA_NAME).get("history_recorded")
    if directory / ANNOTATED_NAME in files:
        run.log({"stormlog_attribution_html": wandb.Html(attribution_page(rows, recorded))})
        summary["stormlog_attribution_html_file"] = ANNOTATED_NAME
    if rows:
        table = wandb.Table(columns=list(_COLUMNS), data=[list(row) for row in rows[:_MAX_ROWS_LOGGED]])
        run.log({"stormlog_tensor_attribution": table})
        summary["stormlog_tensor_attribution_rows"] = len(rows)
    if isinstance(recorded, bool):
        summary["stormlog_attribution_history_recorded"] = recorded
    return summary


def attribution_page(rows: list[TensorRow], recorded: object) -> str:
    """The largest storages as a page without scripts; the annotated history itself is in the artifact."""
    from fleetgauge.pages.page import render_document, render_table  # large, and needed here only

    from .page_style import STYLE

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
        title, STYLE, f"<h1>{title}</h1><p>{shown}. Allocator history: {history}.</p>{table}"
    )


def _tensor_row(entry: Mapping[str, object]) -> TensorRow:
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
