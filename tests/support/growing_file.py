"""A toy collector that reads numbers from a growing file, and the truth it must arrive at.

A line is `<second> <kind> <number>`, seconds never falling; `end` closes the file. The numbers of one kind
and second are one count, so that a second sent in two parts would show as a wrong number.
"""

from __future__ import annotations

import time
from pathlib import Path

from support.project import KEY as KEY
from support.project import Project
from support.servers.datadog import Intake

START = 3000  # seconds ago, so that every point stays within the hour that the intake takes

BODY = """
totals, second, lines = {}, None, 0
for line in open(context.settings.path):
    if not line.endswith("\\n"):
        break
    lines += 1
    if line == "end\\n":
        second = None
        continue
    stamp, kind, number = line.split()
    second = int(stamp)
    totals[second, kind] = totals.get((second, kind), 0) + int(number)
context.memory["lines"] = lines
for (at, kind), total in totals.items():
    if at != second:  # more may follow
        yield TOTAL(total, at, kind=kind)
"""


def add_numbers(project: Project) -> None:
    """Add the collector `numbers`, in payloads of a few points so that one run means several of them."""
    project.add("numbers", BODY, settings="path: Text")
    project.set_constant("datadog/payloads.py", "POINT_LIMIT", "4")


def truth(path: Path) -> dict[tuple[str, int], int]:
    """What a straight read of all complete lines adds up to."""
    totals: dict[tuple[str, int], int] = {}
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n") and line != "end\n":
            second, kind, number = line.split()
            totals[kind, int(second)] = totals.get((kind, int(second)), 0) + int(number)
    return totals


def held(intake: Intake) -> dict[tuple[str, int], float]:
    """What the intake has of them."""
    return {
        (kind, second): value
        for (tags, _), points in intake.series("numbers.total").items()
        for kind in (tag.removeprefix("kind:") for tag in tags if tag.startswith("kind:"))
        for second, value in points.items()
    }


class Writer:
    """Appends lines to the file, second after second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._second = int(time.time()) - START

    def append(self, numbers: list[int], per_second: int = 3) -> None:
        with self._path.open("a") as file:
            for place, number in enumerate(numbers):
                self._second += place % per_second == 0
                file.write(f"{self._second} {'ab'[number % 2]} {number}\n")

    def end(self) -> None:
        with self._path.open("a") as file:
            file.write("end\n")
