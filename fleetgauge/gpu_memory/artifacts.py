"""Files and directories of a session as W&B artifacts, and the page as a file among them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DASHBOARD_NAME = "stormlog_tracking_dashboard.html"
_DASHBOARD_TYPE = "stormlog-tracking-dashboard"


# W&B is Any here: it is imported only when a run is exported.
def log_path(wandb: Any, run: Any, kind: str, slug: str, path: Path | None) -> None:
    """Upload one file or directory, if there is one."""
    if path is not None:
        artifact = wandb.Artifact(name=f"{kind}-{slug}", type=kind)
        add = artifact.add_dir if path.is_dir() else artifact.add_file
        add(local_path=str(path), name=path.name)
        run.log_artifact(artifact)


def log_dashboard(
    wandb: Any, run: Any, page: str, slug: str, output: Path | None, sink: Path | None
) -> dict[str, object]:
    """Upload the page; answers what belongs into the summary.

    It is left beside the output file. Where there is none, or that place is inside the sink (whose reader
    would then find a file that the tracker never wrote), it goes into a directory that is removed again: W&B
    keeps a copy of what it is given.
    """
    beside = None if output is None or _inside(output, sink) else output.parent
    with nullcontext(beside) if beside else TemporaryDirectory(prefix="fleetgauge-") as directory:
        path = Path(directory, DASHBOARD_NAME)
        path.write_text(page, encoding="utf-8")
        log_path(wandb, run, _DASHBOARD_TYPE, slug, path)
    return {"stormlog_tracking_dashboard_file": DASHBOARD_NAME}


def _inside(path: Path, directory: Path | None) -> bool:
    return directory is not None and path.resolve().is_relative_to(directory.resolve())
