"""What the benchmarks share: the CPU and the peak memory of a child process and all it started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple


class Cost(NamedTuple):
    """What one process and its children took."""

    cpu: float
    peak_mb: float


def cost(command: list[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end; its children count once they were waited for."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def python(code: str) -> list[str]:
    """A command that runs a piece of Python."""
    return [sys.executable, "-c", code]


def claim(text: str, value: float, limit: float) -> bool:
    """Print a measured value beside its limit, and whether it holds."""
    holds = value <= limit
    print(f"{'holds' if holds else 'FAILS'}: {text}: {value:.3g} (limit {limit:g})")
    return holds
