"""Datadog's own validator of integrations takes what is generated, and would say so where it did not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.project import ROOT
from support.requirements import needs

DDEV = ROOT / ".venv-ddev" / "bin" / "ddev"
GENERATED = ROOT / "docs" / "datadog"
pytestmark = [pytest.mark.slow, needs("ddev", DDEV.exists(), "scripts/ddev-environment has not been run")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of integrations as ddev wants one: a folder per prefix, the dashboards in one of them."""
    (tmp_path / ".ddev").mkdir()
    (tmp_path / ".ddev" / "config.toml").touch()
    for found in sorted(GENERATED.glob("*/metadata.csv")):
        name = found.parent.name
        assets = tmp_path / name / "assets" / "dashboards"
        assets.mkdir(parents=True)
        for board in GENERATED.glob("dashboards/*.json") if name == "collector" else ():
            shutil.copy(board, assets)
        shutil.copy(found, tmp_path / name)
        manifest = {
            "manifest_version": "2.0.0",
            "app_uuid": "00000000-0000-4000-8000-000000000000",
            "app_id": name,
            "assets": {
                "integration": {"metrics": {"prefix": f"{name}."}},
                "dashboards": {path.stem: f"assets/dashboards/{path.name}" for path in assets.iterdir()},
            },
        }
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)  # noqa: S607
    return tmp_path


@pytest.mark.parametrize("what", ["metadata", "dashboards"])
def test_metadata_and_dashboards_are_valid(tree: Path, what: str) -> None:
    home = tree / "home"
    home.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "DDEV_SELF_TESTS": "1"}
    command = [str(DDEV), "-x", "validate", what]
    ran = subprocess.run(
        command, cwd=tree, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = f"Passed: {len([*GENERATED.glob('*/metadata.csv')])}"
    assert what != "metadata" or passed in ran.stdout + ran.stderr
