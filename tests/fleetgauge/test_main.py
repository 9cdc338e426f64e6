"""`python -m fleetgauge`: what somebody sees who has found the package in an image."""

from __future__ import annotations

import importlib
import subprocess
import sys

from fleetgauge import __version__
from support.project import ROOT


def test_it_says_what_the_probes_are_and_their_version_with_the_standard_library_alone() -> None:
    command = [sys.executable, "-S", "-m", "fleetgauge"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    first, *lines = said.splitlines()
    assert first.startswith(f"fleetgauge {__version__}: probes")
    assert len(lines) < 10
    modules = [line.split()[0] for line in lines if line.startswith("  fleetgauge.")]
    assert len(modules) == 5
    for module in modules:
        importlib.import_module(module)
