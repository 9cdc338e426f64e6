"""A dry run of the host collector costs at most 0.55 of the CPU of `import wandb` alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.measure import Claim, cost, judge, medians, python, smallest  # noqa: E402


def processor_seconds(command: list[str]) -> float:
    return cost(command).cpu


def main(argv: Sequence[str]) -> int:
    """All three are measured in turns."""
    run = [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "host"]
    ways = {"host dry run": run, "import wandb": python("import wandb"), "bare Python": python("pass")}
    rounds = 1 if smallest(argv, __doc__) else 7
    cpu = medians(rounds, {name: partial(processor_seconds, command) for name, command in ways.items()})
    for name, seconds in cpu.items():
        print(f"{name:<14}{seconds:8.3f} s of CPU")
    return judge([Claim("host dry run / import wandb", cpu["host dry run"] / cpu["import wandb"], 0.55)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
