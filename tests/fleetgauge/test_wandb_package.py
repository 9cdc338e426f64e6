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


@pytest.mark.parametrize("imported", ["", "import wandb\n"], ids=["not imported", "imported"])
@pytest.mark.parametrize("probe", [LOGGER, HOOK, EXPORT], ids=["logger", "hook", "export"])
def test_without_the_package_a_directory_of_its_name_is_not_taken_for_it(
    tmp_path: Path, probe: str, imported: str
) -> None:
    (tmp_path / "wandb").mkdir()
    paths = f"import sys\nsys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
    # Without what is installed.
    command = [sys.executable, "-S", "-c", paths + imported + probe]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    said = finished.stdout + finished.stderr
    assert "pip install 'fleetgauge[wandb]'" in said
    assert "Attribute" not in said
    assert "init" not in said


def test_beside_the_package_the_directory_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    code = "from fleetgauge.wandb_package import is_installed, load; print(is_installed(), load().__name__)"
    command = [sys.executable, "-c", f"import sys\nsys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n{code}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert finished.stdout.split() == ["True", "wandb"]
