"""Describing itself costs a job at most a quarter of the CPU that `import wandb` costs it anyway.

Each statement runs in interpreters of its own, which take turns; what is compared is their CPU above that
of an empty one. Meant for a machine without a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.measure import Claim, cost, judge, medians, python, smallest  # noqa: E402

STATEMENTS = {
    "nothing": "pass",
    "collecting": "from fleetgauge.compute import collect_compute_metadata as collect; collect()",
    "import wandb": "import wandb",
}


def processor_seconds(statement: str) -> float:
    return cost(python(statement)).cpu


def main(argv: Sequence[str]) -> int:
    """All three take turns."""
    rounds = 1 if smallest(argv, __doc__) else 9
    cpu = medians(rounds, {name: partial(processor_seconds, code) for name, code in STATEMENTS.items()})
    above = {name: cpu[name] - cpu["nothing"] for name in ("collecting", "import wandb")}
    for name, seconds in above.items():
        print(f"{name:<14}{1000 * seconds:8.1f} ms of CPU")
    return judge([Claim("collecting / import wandb", above["collecting"] / above["import wandb"], 0.25)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
