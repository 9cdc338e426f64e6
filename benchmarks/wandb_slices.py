"""Reading W&B by slices of creation time: 20,000 listings that change while they are read, and their cost.

There is no network: a simulated server answers the requests in any order. A run that was there throughout
must be listed, or the project is lost with an error, or its second is named. Costs are requests, with pages
of 500 rows and four connections, where answers fail by chance, by size, or because of one run.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # without this folder, whose wandb.py is not the client

from benchmarks.measure import Claim, judge, smallest  # noqa: E402
from support.wandb_listings import CLASSES, COMBINED, Listing, evenly, listing, missed, requests  # noqa: E402

LISTINGS, FEWEST = 20_000, 100
SEEDS, FEWEST_SEEDS = 500, 5
PAGE = 500


def fuzz(listings: int) -> int:
    """Read listings of every class; return in how many a run is missing without a word."""
    kinds = [*CLASSES, *[COMBINED] * len(CLASSES)]  # half of them are combinations
    silent = 0
    for kind in dict.fromkeys(kinds):
        ended: Counter[str] = Counter()
        requests = 0
        number = -(-listings * kinds.count(kind) // len(kinds))
        for seed in range(number):
            made = listing(kind, 10**6 + seed)
            runs, how = missed(made)
            ended[how] += 1
            requests += made.requests
            if runs:
                silent += 1
                print(f"missed {len(runs)} runs: listing({kind!r}, {10**6 + seed})")
        ends = ", ".join(f"{count:,} {how}" for how, count in ended.most_common())
        print(f"{kind:<26} {number:>6,} listings, {requests / number:>5.1f} requests each: {ends}")
    return silent


def cost(name: str, seeds: int, make: Callable[[int], Listing]) -> list[int]:
    """Return the requests of complete listings, the fewest first."""
    counts = requests(make, seeds)
    print(f"{name:<44} mean {statistics.mean(counts):>6.1f}, most {counts[-1]}")
    return counts


def main(argv: Sequence[str]) -> int:
    """Measure everything in one run."""
    tiny = smallest(argv, __doc__)
    seeds, many = (FEWEST_SEEDS, 5_000) if tiny else (SEEDS, 100_000)
    silent = fuzz(FEWEST if tiny else LISTINGS)

    def failing(rate: float) -> Callable[[int], Listing]:
        return lambda seed: evenly(seed, 3_000, quick=rate)

    def unservable(seed: int) -> Listing:
        made = evenly(seed, 600)
        made.runs[seed % 600].unservable = True
        return made

    plain = statistics.mean(cost("3,000 runs", seeds, failing(0.0)))
    fifth = statistics.mean(cost("3,000 runs, 20 % quick failures", seeds, failing(0.2)))
    half = cost("3,000 runs, 50 % quick failures", seeds, failing(0.5))
    large = cost(f"{many:,} runs", 1, lambda seed: evenly(seed, many))
    heavy = cost("504 beyond 200", seeds, lambda seed: evenly(seed, 3_000, heavy_above=200))
    return judge(
        [
            Claim("listings that miss a run without a word", silent, 0),
            Claim("requests for 600 runs", cost("600 runs", seeds, lambda seed: evenly(seed, 600))[-1], 2),
            Claim(f"requests for {many:,} runs / pages", large[-1] / (many / PAGE), 1.15),
            Claim("requests at 20 % failures / at none", fifth / plain, 1.5),
            Claim("requests at 50 % failures, 99th percentile", half[int(0.99 * len(half))], 60),
            Claim("requests / pages of 200, 504 beyond 200", heavy[-1] / 15, 2.5),
            Claim(
                "requests, one of 600 unservable", cost("one unservable of 600", seeds, unservable)[-1], 80
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
