"""What the benchmarks share: their one option, what a process costs, fair comparison, and the verdict.

Every other file of this folder is a benchmark, and has the same shape:

- It is run by `python benchmarks/NAME.py`; its `main(argv)` returns the exit code.
- `smallest(argv, __doc__)` reads the one option, `--smallest`: sizes so tiny that it only shows that the
  benchmark runs. Its claims are judged all the same, and may then fail.
- What is compared takes turns in one run (`medians`), so that both halves of a ratio had the same machine.
- It ends with `return judge(claims)`, which prints every claim beside its limit as a table, and is 1 where
  one does not hold. A benchmark that has nothing to claim is no benchmark.
- Where it cannot run at all, for want of a tool, it ends with `return cannot_run(reason)`.

`tests/benchmarks/` finds every file here and runs it at its smallest size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CANNOT_RUN = 77  # what many test tools take for "skipped"


class Claim(NamedTuple):
    """A measured value and the limit it keeps: at most so much, or at least."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether it does. What is not a number never holds."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def judge(claims: Sequence[Claim]) -> int:
    """Print the claims as a table and how many hold; the exit code is 0 where all do."""
    if not claims:
        raise ValueError("a benchmark without a claim cannot fail")
    width = max(len(claim.name) for claim in claims)
    print(f"\n{'claim':<{width}}  {'measured':>10}  limit")
    for claim in claims:
        limit = f"{'>=' if claim.at_least else '<='} {claim.limit:g}"
        verdict = "holds" if claim.holds else "FAILS"
        print(f"{claim.name:<{width}}  {claim.value:>10.4g}  {limit:<12}{verdict}")
    failed = sum(not claim.holds for claim in claims)
    print(f"claims: {len(claims)}, failed: {failed}")
    return 1 if failed else 0


def cannot_run(reason: str) -> int:
    """Say why a benchmark cannot run here."""
    print(f"cannot run: {reason}", file=sys.stderr)
    return CANNOT_RUN


def smallest(argv: Sequence[str], about: str | None) -> bool:
    """Whether the tiny sizes are asked for. The benchmark's docstring is its help."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=formatter)
    parser.add_argument("--smallest", action="store_true", help="tiny sizes: shows only that it runs")
    return bool(parser.parse_args(argv).smallest)


def medians(rounds: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The median of what each way measured, over rounds in which all take turns."""
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            measured[name].append(way())
    return {name: statistics.median(values) for name, values in measured.items()}


class Cost(NamedTuple):
    """What one process and its children took."""

    cpu: float
    peak_mb: float


def cost(
    command: list[str], environment: Mapping[str, str] | None = None, output: IO[bytes] | None = None
) -> Cost:
    """Run a command to its end, what it says into a file; its children count once they were waited for.

    The peak is no less than that of this process when it started the command: Linux counts it so.
    """
    process = subprocess.Popen(command, env=environment, stdout=output or subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def python(code: str) -> list[str]:
    """A command that runs a piece of Python, which finds this repository first, wherever it is run."""
    path = [str(ROOT), str(ROOT / "tests")]
    return [sys.executable, "-c", f"import sys; sys.path[:1] = {path!r}\n{code}"]
