"""Live runs over random fleets of record files send the truth, or name what is missing.

1,000 fleets, whose files grow, are rotated, compressed, deleted, unreadable or silent, under runs that are
killed anywhere, repeated and left out, with and without a store: see `tests/support/record_model.py`. A fleet
that fails is played again by its number: `python benchmarks/record_fleets.py NUMBER`.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, smallest  # noqa: E402

FLEETS = 1000


def broken(seed: int) -> str:
    """Play one fleet; return which promise it broke, or nothing."""
    from support.record_model import check

    logging.disable(logging.CRITICAL)  # what is lost is checked, and a great deal is
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(seed, Path(folder, "records"))
        except Exception as error:
            return f"{seed}: {type(error).__name__}: {str(error)[:1000]}"
    return ""


def main(argv: list[str]) -> int:
    """Play all fleets, or one."""
    if len(argv) == 1 and argv[0].isdecimal():
        print(broken(int(argv[0])) or "holds")
        return 0
    fleets = 6 if smallest(argv, __doc__) else FLEETS
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        failed = [found for found in pool.map(broken, range(fleets), chunksize=4) if found]
    for found in failed:
        print(found)
    return judge([Claim(f"fleets of {fleets:,} that broke a promise", len(failed), 0)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
