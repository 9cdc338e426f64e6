"""The chart as a release packs it: it says where it comes from, and installs the image built with it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from fleetgauge import __version__
from support.checkout import Checkout
from support.rendering import ROOT, container, needs_helm, pod_templates, render

HOME = "https://example.com/acme/fleetgauge"
REPOSITORY, DIGEST = "registry.example.com/acme/fleetgauge", f"sha256:{'0a' * 32}"
VALUES = {
    "datadog": {"env": "production"},
    "existingSecret": "keys",
    "collectors": {"host": {"enabled": True}},
}
pytestmark = [pytest.mark.slow, needs_helm]


def package(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "package_chart.py"), *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_packed_release_names_its_home_and_installs_its_image_by_digest(tmp_path: Path) -> None:
    ran = package(tmp_path, "--home", HOME, "--image", f"{REPOSITORY}@{DIGEST}")
    assert ran.returncode == 0, ran.stderr
    archive = tmp_path / f"fleetgauge-{__version__}.tgz"
    assert ran.stdout == f"{archive}\n"
    with tarfile.open(archive) as packed:
        file = packed.extractfile("fleetgauge/Chart.yaml")
        assert file is not None
        chart = yaml.safe_load(file)
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert (chart["home"], chart["sources"]) == (HOME, [HOME])
    templates = pod_templates(render(VALUES, chart=archive)).values()
    assert {container(one)["image"] for one in templates} == {f"{REPOSITORY}@{DIGEST}"}


def test_what_names_no_home_and_no_image_is_refused(tmp_path: Path) -> None:
    for option, value in (
        ("--image", f"{REPOSITORY}:{__version__}"),
        ("--image", f"{REPOSITORY}@sha256:0a"),
        ("--image", f"evil\n  x: y@{DIGEST}"),
        ("--home", "https://example.com/\nversion: 9"),
        ("--home", "http://example.com/acme"),
    ):
        ran = package(tmp_path, option, value)
        assert (ran.returncode, list(tmp_path.iterdir())) == (1, [])
        assert ran.stderr.startswith(f"{option} {value}: not ")


def test_a_chart_that_does_not_lint_is_not_packed(tmp_path: Path) -> None:
    copy = Checkout(tmp_path / "copy", "charts", "scripts")
    copy.replace("charts/fleetgauge/ci/backfill-values.yaml", "  slices: 8\n", "  slices: 8\n  slyces: 8\n")
    ran = copy.run(".venv/bin/python scripts/package_chart.py made")
    assert ran.returncode == 1
    assert "Additional property slyces is not allowed" in ran.stdout + ran.stderr
    assert not (copy.root / "made").exists()
