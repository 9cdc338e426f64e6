"""A whole dry run of the host collector costs less CPU than `import wandb` alone."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.measure import claim, cost, python  # noqa: E402

ROUNDS = 7


def main() -> int:
    """Both are measured in turns, and the cheapest of each counts."""
    run = [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "host"]
    ours, theirs, bare = [], [], []
    for _ in range(ROUNDS):
        ours.append(cost(run).cpu)
        theirs.append(cost(python("import wandb")).cpu)
        bare.append(cost(python("pass")).cpu)
    print(f"CPU s: host dry run {min(ours):.3f}, import wandb {min(theirs):.3f}, bare Python {min(bare):.3f}")
    return 0 if claim("host dry run / import wandb", min(ours) / min(theirs), 1) else 1


if __name__ == "__main__":
    sys.exit(main())
