"""A thousand kills of parent and child, from the first millisecond to the last: nothing lost, nothing left.

SIGKILL, SIGTERM and SIGINT come at chosen events of a push: an import, a file, a socket; at least half of
them at or after its first request. No kill may show a traceback, leave a process or end with a wrong exit
code, and after one more run the intake must hold what it holds without any.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, smallest  # noqa: E402
from support.kill_harness import killing, plan  # noqa: E402

KILLS, FEWEST = 1000, 12
PER_STORE = 100  # then another one, so that no point grows too old to be sent


def kill_all(kills: int) -> tuple[Counter[str], int, list[str]]:
    """Return how many kills of each kind came to pass, how many after a request, and what was wrong."""
    done: Counter[str] = Counter()
    requested = 0
    problems: list[str] = []
    with killing() as harness:
        events = {clock: harness.events(clock) for clock in ("parent", "child")}
    kinds = list(plan(events, kills))
    for first in range(0, len(kinds), PER_STORE):
        with killing() as harness:
            for kill in kinds[first : first + PER_STORE]:
                killed = harness.kill(kill)
                done[f"{kill.whom}, {signal.Signals(kill.signal).name}"] += killed.happened
                requested += killed.requested
                problems += killed.problems
                print(f"\r{done.total():,} kills, {len(problems)} problems", end="", file=sys.stderr)
            problems += harness.settle()
    print(file=sys.stderr)
    return done, requested, problems


def main(argv: Sequence[str]) -> int:
    """Kill, and judge what is left."""
    kills = FEWEST if smallest(argv, __doc__) else KILLS
    done, requested, problems = kill_all(kills)
    for kind, count in sorted(done.items()):
        print(f"{count:>6,} kills: {kind}")
    print(f"{requested:>6,} of them at or after the first request")
    for problem in problems:
        print(problem)
    return judge(
        [
            Claim("kills that came to pass", done.total(), 0.75 * kills, at_least=True),
            Claim("tracebacks, orphans, wrong exit codes, lost or wrong points", len(problems), 0),
            Claim("kills at or after the first request", requested, done.total() / 2, at_least=True),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
