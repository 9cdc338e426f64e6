"""Ten thousand kills at random instants lose and double nothing.

Each case appends to a file, kills the run a few times, lets it
finish, and compares the intake with a straight read of the file.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, smallest  # noqa: E402
from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, Kill  # noqa: E402
from support.growing_file import Writer, case, held, service, truth  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402

KILLS, FEWEST = 10_000, 20
PER_CASE = 20


def main(argv: Sequence[str]) -> int:
    """Kill until it was often enough, and count the cases that did not end with the truth."""
    kills = FEWEST if smallest(argv, __doc__) else KILLS
    chance = random.Random(1)  # noqa: S311  # repeatable, not secret
    done: Counter[str] = Counter()
    wrong = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Intake() as unused,
        service(Path(folder), unused) as harness,
    ):
        while done.total() < kills:
            with case(harness) as path:
                writer = Writer(path)
                for _ in range(PER_CASE):
                    writer.append([chance.randrange(100) for _ in range(24)])
                    kill = Kill(chance.choice(AT_THE_INTAKE + AT_THE_STORE), chance.choice((1, 2)))
                    if harness.run(kill) is None:
                        done[kill.point] += 1
                writer.end()
                harness.run()
                wrong += held(harness.intake) != truth(path)
            print(f"\r{done.total():,} kills, {wrong} wrong cases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for point, count in done.most_common():
        print(f"{count:>6,} kills: {point}")
    return judge(
        [
            Claim("kills", done.total(), kills, at_least=True),
            Claim("cases that did not end with the truth", wrong, 0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
