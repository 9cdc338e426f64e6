"""Runs the real pipelines in a namespace of its own: no network but `lo`, and no process that outlives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from support.requirements import skip_without

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 500  # 60 to 150 for all three; Ray may need three attempts of 40 on a busy machine

_UNSHARE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Ran(NamedTuple):
    """What a pipeline left behind."""

    directory: Path
    report: dict[str, Any]
    output: str

    def tasks(self, stage: str) -> int:
        """How many tasks a stage really did."""
        path = self.directory / "tasks" / stage
        return path.stat().st_size if path.exists() else 0


def interpreter(version: str) -> Path:
    """The Python of an environment with cosmos-xenna: `XENNA_ENVIRONMENT_<version>`, or the one we make."""
    given = os.environ.get(f"XENNA_ENVIRONMENT_{version}")
    python = Path(given or ROOT / f".venv-xenna-{version}") / "bin" / "python"
    if not python.exists():
        why = f"no {python.parent.parent}: run scripts/xenna-environment {version}"
        skip_without(f"xenna-{version}", why)
    return python


def _namespace() -> list[str]:
    """A command that gives what follows it a namespace; as root, or as root of a user namespace."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        skip_without("iproute2", "a network namespace needs the commands unshare and ip")
    said = ""
    for command in (_UNSHARE, [*_UNSHARE, "--map-root-user"]):
        check = [*command, "ip", "link", "set", "lo", "up"]
        ran = subprocess.run(check, capture_output=True, text=True, timeout=30, check=False)
        if ran.returncode == 0:
            return command
        said = ran.stderr.strip()
    return skip_without("namespace-rights", f"a network namespace is not permitted: {said}")


def run_pipelines(version: str, directory: Path) -> dict[str, Ran]:
    """Run all to their end, by mode, or skip the test; with the namespace's first process go all others."""
    python, namespace = interpreter(version), _namespace()
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(ROOT)}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "WANDB_ERROR_REPORTING": "false"}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as ray_directory:  # a socket's path is short
        script = Path(__file__).with_name("pipeline.py")
        command = [str(python), str(script), str(directory), ray_directory]
        ran = subprocess.run(
            [*namespace, "sh", "-c", 'ip link set lo up && "$@"; exit $?', "sh", *command],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout[-5000:]
    return {
        path.parent.name: Ran(path.parent, json.loads(path.read_text()), ran.stdout)
        for path in directory.glob("*/report.json")
    }
