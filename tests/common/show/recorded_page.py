"""A page of a dry run that has one of everything, and the golden file that it is compared with.

Run as a program it writes the golden file anew: `.venv/bin/python tests/common/show/recorded_page.py`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from common.metric import Combine, Series, count, gauge  # noqa: E402
from common.outcome import Failure, Outcome, Status  # noqa: E402
from common.show.page import write  # noqa: E402
from common.show.points import Board, Chart, Points  # noqa: E402
from common.window import Window  # noqa: E402
from support.sinks import send  # noqa: E402

GOLDEN = ROOT / "tests" / "data" / "page.txt"
_NEW_LINE = re.compile(
    r">(?=<(?:article|section|table|tr|details|figure|svg class|dl|h\d|p|/div|path class=.line))"
)
SINCE = 1_794_614_400  # a midnight, UTC
SPAN = Window(SINCE, SINCE + 3600, 900)

LOAD = gauge("jobs.load", "", "How busy it is.", "team", "job", combines=Combine.SUM)
HEAT = gauge("jobs.heat", "degree celsius", "How warm it is.", "team", "job")
HELD = gauge("jobs.held_bytes", "byte", "What is held.", "team", combines=Combine.MAX)
DRIFT = gauge("jobs.drift_bytes", "byte", "By how much it changed.", "team", combines=Combine.MAX)
DONE = count("jobs.tasks.done", "task", "Tasks that ended well.", "team", "job")
FAILED = count("jobs.tasks.failed", "task", "Tasks that ended badly.", "team", "job")
IDLE = gauge("jobs.idle", "job", "What nobody uses.", "team", combines=Combine.SUM)
TASKS = (DONE.name, FAILED.name)
BOARDS = [
    Board(
        "Jobs & tasks",
        "https://app.example/dashboard/lists?q=Jobs&more",
        (
            (
                "How it goes",
                (
                    Chart("Load by job", (LOAD.name,), ("job",)),
                    Chart("Load of all", (LOAD.name,), ()),
                    Chart(HEAT.name, (HEAT.name,), None),
                    Chart("Heat of one", (HEAT.name,), None, (), ("job:b",)),
                    Chart("Idle", (IDLE.name,), ()),
                    Chart("Hints", text="Look < here > first."),
                ),
            ),
            (
                "Nothing yet",
                (Chart("Idle by team", (IDLE.name,), ("team",)), Chart("Idle jobs", (IDLE.name,))),
            ),
            (
                "",
                (
                    Chart("Tasks", TASKS, ()),
                    Chart("Failed", (FAILED.name,), (), TASKS),
                    Chart("Held", (HELD.name,), ()),
                    Chart("Drift", (DRIFT.name,), ()),
                ),
            ),
        ),
    ),
]


def samples() -> Iterator[Series]:
    """Eight jobs, of which only some are drawn; gaps, a spike inside of a stretch, and less than nothing."""
    for place, job in enumerate("abcdefgh"):
        for tick in SPAN.ticks:
            if (job, tick) != ("d", SINCE + 1800):
                yield LOAD(3 + place + (tick - SINCE) // 900, tick, team="ants", job=job)
    for job, value in (("a", 21.5), ("b", 0.04), ("c", 1234.5)):
        for second in (0, 400, 800, 2700):
            yield HEAT(value + (second == 400) * 9, SINCE + second, team="ants", job=job)
    for tick in SPAN.ticks:
        yield HELD(2**20 * (tick - SINCE), tick, team="ants")
        yield DRIFT(tick - SINCE - 1024, tick, team="ants")
        yield DONE(3, tick, team="ants", job="a")
        yield DONE(4, tick, team="ants", job="b")
    yield FAILED(1, SINCE, team="ants", job="a")
    yield FAILED(7, SINCE + 1800, team="ants", job="b")


def page(folder: Path) -> str:
    """What stands between the look of a page, which all pages share, and its script."""
    metrics = (LOAD, HEAT, HELD, DRIFT, DONE, FAILED, IDLE)
    jobs = Points(metrics, 100, SPAN.since, SPAN.until, boards=BOARDS)
    send(jobs, samples())
    host = Points((IDLE,), 100, SPAN.since, SPAN.until)
    send(host, [IDLE(5, SINCE + 900), IDLE(6, SINCE + 900, team="bees")])
    empty = Points((IDLE,), 100, SPAN.since, SPAN.until)
    outcomes = [
        Outcome("jobs", Status.PARTIAL, lost=["ants/a: gone"], dropped={"too_old": 2000, "bad": 1}),
        Outcome("host", Status.OK, dropped={"bad": 3}),
        Outcome("empty", Status.EMPTY),
        Outcome("absent", Status.FAILED, error=Failure("SourceError", "no answer & no reason"), lost=["all"]),
    ]
    points = {"jobs": jobs, "host": host, "empty": empty}
    written = write(folder / "page.html", outcomes, points, SPAN).read_text(encoding="utf-8")
    body = written.partition("<main>")[2].partition("<script>")[0]
    return _NEW_LINE.sub(">\n", body) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(page(Path(made)), encoding="utf-8")
