"""Compute metadata of a process in a real container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.containers import CONFIGURATION
from support.project import ROOT
from support.requirements import needs, skip_without

pytestmark = pytest.mark.slow

PROGRAM = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from fleetgauge.compute import collect_compute_metadata
print(json.dumps(collect_compute_metadata()))
"""


@needs("podman", shutil.which("podman"))
@needs("runc", shutil.which("runc"))
@needs("root", os.geteuid() == 0, "a container over this file system")
def test_the_limits_of_a_container_are_its_share(tmp_path: Path) -> None:
    (tmp_path / "containers.conf").write_text(CONFIGURATION)
    limits = ["--memory", "256m", "--cpus", "0.5"]
    # The container's file system is this machine's own, with writes thrown away.
    command = ["podman", "run", "--rm", "--network", "none", *limits, "--rootfs", "/:O"]
    ran = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, str(ROOT)],
        env={**os.environ, "CONTAINERS_CONF": str(tmp_path / "containers.conf")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if ran.returncode >= 125:
        skip_without("container-rights", f"podman cannot run: {ran.stderr.strip().splitlines()[-1]}")
    metadata = json.loads(ran.stdout)
    assert (metadata["compute.memory_gb"], metadata["compute.memory_source"]) == (0.25, "cgroup")
    assert (metadata["compute.cpu_count"], metadata["compute.cpu_source"]) == (1, "cgroup")
