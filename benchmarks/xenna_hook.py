"""The xenna hook costs the pipeline at most 2 % of the call it wraps.

Where scripts/xenna-environment has made an environment, real pipelines are timed, inside and outside of the
wrapper, in one run. The wrapper alone is timed everywhere, on the statistics of real dumps, next to how long
the call took when they were dumped. The smallest size leaves real pipelines out: they take a minute.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

import pytest  # noqa: E402

from benchmarks.measure import Claim, judge, smallest  # noqa: E402
from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook  # noqa: E402
from support.xenna_pipeline import namespace, standin  # noqa: E402

LIMIT = 0.02
CALLS = 300  # fewer than the queue holds, so that none is dropped


def per_call(monitor_class: Any, answer: Any) -> float:
    """The median time of one call."""
    watched = monitor_class([answer] * CALLS)
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        watched.update()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def wrapper_alone(stages: int) -> float:
    """What the wrapper adds to a call that costs nothing, for a pipeline of so many stages."""
    answer = standin.one()
    answer.actor_pools = answer.actor_pools * (stages // len(answer.actor_pools))
    for index, pool in enumerate(answer.actor_pools):
        answer.actor_pools[index] = type(pool)(**{**vars(pool), "name": f"Stage {index:02d} - SomeStage"})
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        monitor_class = standin.install(patch)
        bare = per_call(monitor_class, answer)
        with XennaWandbStatsHook(XennaObservabilityConfig(True, 30, f"{directory}/"), "benchmark"):
            return per_call(monitor_class, answer) - bare


def real_pipelines(version: str) -> Iterator[Claim]:
    """Compare the calls of real pipelines, each timed inside and outside of the wrapper."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            runs = namespace.run_pipelines(version, Path(directory))
        except namespace.MissingError as reason:
            print(f"no real pipeline for {version}: {reason}")
            return
    inside = [seconds for ran in runs.values() for seconds in ran.report["seconds_original"]]
    around = [seconds for ran in runs.values() for seconds in ran.report["seconds_wrapped"]]
    added = [outer - inner for inner, outer in zip(inside, around, strict=True)]
    print(f"{version}: {len(added)} calls, median {1000 * statistics.median(inside):.1f} ms,")
    print(
        f"  the wrapper adds {1e6 * statistics.median(added):.0f} µs (median), at most {1e6 * max(added):.0f}"
    )
    typical = statistics.median(added) / statistics.median(inside)
    yield Claim(f"{version}: the wrapper's share of the call, all calls", sum(added) / sum(inside), LIMIT)
    yield Claim(f"{version}: the wrapper's share of the call, medians", typical, LIMIT)


def main(argv: Sequence[str]) -> int:
    """The wrapper alone, then real pipelines."""
    real = () if smallest(argv, __doc__) else ("311", "312")
    took = [
        dump["make_stats_took_s"]
        for path in sorted(standin.DATA.glob("*.jsonl"))
        for dump in standin.dumps(path.stem)
    ]
    quickest, median = min(took), statistics.median(took)
    print(f"{len(took)} dumped calls took {1e3 * quickest:.1f} ms and more, median {1e3 * median:.1f} ms")
    claims = []
    for stages in (3, 30):
        own = wrapper_alone(stages)
        print(f"{stages} stages: the wrapper takes {1e6 * own:.0f} µs")
        claims.append(
            Claim(f"the wrapper, {stages} stages / the quickest dumped call", own / quickest, LIMIT)
        )
    for version in real:
        claims += real_pipelines(version)
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
