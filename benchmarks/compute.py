"""What a job pays for describing itself, as a share of what it pays for `import wandb` anyway.

Each statement runs in interpreters of its own; what is compared is their processor time above that of an
empty one, the best of several rounds in which all take turns. Meant for a machine without a GPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROUNDS = 10
STATEMENTS = {
    "nothing": "pass",
    "collecting": "from fleetgauge.compute import collect_compute_metadata as collect; collect()",
    "import wandb": "import wandb",
}


def processor_seconds(statement: str) -> float:
    """User and system time of one interpreter that runs the statement, and of nothing else."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", statement], os.environ)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"{statement!r} failed with status {status}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    os.chdir(Path(__file__).resolve().parent.parent)
    rounds = [{name: processor_seconds(code) for name, code in STATEMENTS.items()} for _ in range(ROUNDS)]
    best = {name: min(times[name] for times in rounds) for name in STATEMENTS}
    above = {name: best[name] - best["nothing"] for name in STATEMENTS}
    for name in ("collecting", "import wandb"):
        print(f"{name:<14}{1000 * above[name]:8.1f} ms of processor time")
    print(f"collecting / import wandb = {above['collecting'] / above['import wandb']:.3f}")


if __name__ == "__main__":
    main()
