"""A directory called `wandb`, as W&B itself makes one, is not the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

LOGGER = """
from fleetgauge.wandb_logger import WandbLogger
logger = WandbLogger(None, "classify", env={})
assert not logger.enabled
with logger:
    pass
"""
HOOK = """
from fleetgauge.xenna.wandb_log import WandbLog
log = WandbLog("own", 10)
log.worker.thread.start()
log.put({"progress": 1.0})
log.worker.close(60)
"""
EXPORT = """
from fleetgauge.gpu_memory import WandbExportConfig, export_tracking_run_to_wandb
try:
    export_tracking_run_to_wandb(
        WandbExportConfig(enabled=True), command_name="track", session_summary=None, stats={}, events=[]
    )
except ImportError as error:
    print(error)
"""


def run(folder: Path, code: str, *options: str) -> str:
    """What code prints that finds a directory `wandb` first."""
    (folder / "wandb").mkdir()
    paths = f"import sys\nsys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]\n"
    command = [sys.executable, *options, "-c", paths + code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("imported", ["", "import wandb\n"], ids=["not imported", "imported"])
def test_directory_of_its_name_is_not_taken_for_the_package(tmp_path: Path, imported: str) -> None:
    printed = run(tmp_path, imported + LOGGER + HOOK + EXPORT, "-S")  # without what is installed
    assert printed.count("pip install 'fleetgauge[wandb]'") == 3
    assert "Attribute" not in printed
    assert "init" not in printed


def test_beside_the_package_the_directory_does_not_matter(tmp_path: Path) -> None:
    code = "from fleetgauge.wandb_package import is_installed, load; print(is_installed(), load().__name__)"
    assert run(tmp_path, code).split() == ["True", "wandb"]
