"""checkov finds nothing in the Dockerfile and the rendered examples but what .checkov.yaml explains."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.rendering import CHART, ROOT, SCENARIOS, needs_helm, rendered_text
from support.requirements import needs

CHECKOV = ROOT / ".venv-checkov" / "bin" / "checkov"
CONFIGURATION = ROOT / ".checkov.yaml"
pytestmark = [
    pytest.mark.slow,
    needs_helm,
    needs("checkov", CHECKOV.exists(), "scripts/checkov-environment has not been run"),
]


def examined(folder: Path, *options: str) -> dict[str, Any]:
    """What checkov says of every scenario and the Dockerfile, by kind."""
    shutil.copy(ROOT / "Dockerfile", folder)
    for name in SCENARIOS:
        values = (CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8")
        (folder / f"{name}.yaml").write_text(rendered_text(values))
    command = [str(CHECKOV), "--directory", str(folder), "--output", "json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return {each["check_type"]: each for each in json.loads(ran.stdout)}


def test_nothing_is_found_that_is_not_explained(tmp_path: Path) -> None:
    found = examined(tmp_path, "--config-file", str(CONFIGURATION))
    assert set(found) == {"dockerfile", "kubernetes"}
    for each in found.values():
        assert each["results"]["failed_checks"] == []
        assert each["summary"]["parsing_errors"] == 0
        assert each["summary"]["passed"] > 50


def test_each_exception_is_needed_and_explained(tmp_path: Path) -> None:
    lines = CONFIGURATION.read_text(encoding="utf-8").splitlines()
    excepted = {line.strip().removeprefix("- ") for line in lines if re.match(r" +- CKV", line)}
    found = examined(tmp_path, "--framework", "kubernetes", "dockerfile", "--skip-download")
    failed = {check["check_id"] for each in found.values() for check in each["results"]["failed_checks"]}
    assert excepted == failed
