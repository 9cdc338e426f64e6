"""A toy collector that reads numbers from a growing file, and the truth it must arrive at.

A line is `<second> <kind> <number>`, seconds never falling; `end` closes the file. The numbers of one kind
and second are one count, so that a second sent in two parts would show as a wrong number.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.crash_harness import CrashHarness
from support.project import Project
from support.servers.datadog import Intake

KEY = "0123456789abcdef-datadog-key"
START = 3000  # seconds ago, so that every point stays within the hour that the intake takes

BODY = """
position = context.state.get("position", 0)
with open(context.settings.path, "rb") as lines:
    lines.seek(position)
    second, waiting = None, []
    for line in lines:
        if not line.endswith(b"\\n"):
            break
        if line == b"end\\n":
            yield from waiting
            position += len(line)
            yield Mark({"position": position})
            waiting = []
            continue
        stamp, kind, number = line.decode().split()
        if second not in (None, int(stamp)):
            yield from waiting
            yield Mark({"position": position})
            waiting = []
        second = int(stamp)
        waiting.append(TOTAL(int(number), second, kind=kind))
        position += len(line)
"""


def add_numbers(project: Project) -> None:
    """Add the collector `numbers`, in batches of a few points so that one run means several payloads."""
    project.add("numbers", BODY, settings="path: Text", options=", resumes=True")
    project.set_constant("intake.py", "BATCH_SIZE", "4")
    project.set_constant("execution/delivery.py", "SAVE_EVERY", "0")  # so that a run has more than one save


def truth(path: Path) -> dict[tuple[str, int], int]:
    """What a straight read of all whole lines adds up to."""
    totals: dict[tuple[str, int], int] = {}
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n") and line != "end\n":
            second, kind, number = line.split()
            totals[kind, int(second)] = totals.get((kind, int(second)), 0) + int(number)
    return totals


def held(intake: Intake) -> dict[tuple[str, int], float]:
    """What the intake holds of them."""
    return {
        (kind, second): value
        for (tags, _), points in intake.series("numbers.total").items()
        for kind in (tag.removeprefix("kind:") for tag in tags if tag.startswith("kind:"))
        for second, value in points.items()
    }


def service(folder: Path, intake: Intake) -> CrashHarness:
    """A service with the toy collector, which gives up on an answer soon."""
    (folder / "service").mkdir()
    project = Project(folder / "service", {"DD_ENV": "test", "DD_API_KEY": KEY})
    add_numbers(project)
    project.set_constant("datadog/client.py", "READ_TIMEOUT", "0.3")
    return CrashHarness(project, intake, "numbers")


def place(folder: Path) -> dict[str, str]:
    """A file and a store in a folder, as settings."""
    (folder / "checkpoints").mkdir()
    (folder / "numbers.txt").touch()
    return {
        "FLEETGAUGE_NUMBERS_PATH": str(folder / "numbers.txt"),
        "FLEETGAUGE_CHECKPOINTS": str(folder / "checkpoints"),
    }


@contextmanager
def case(harness: CrashHarness) -> Iterator[Path]:
    """A file, a store and an intake of their own."""
    with tempfile.TemporaryDirectory() as folder, Intake(key=KEY) as intake:
        harness.at(intake, **place(Path(folder)))
        yield Path(folder, "numbers.txt")


class Writer:
    """Appends lines to the file, second after second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._second = int(time.time()) - START

    def append(self, numbers: list[int], per_second: int = 3, torn: bool = False) -> None:
        with self._path.open("a") as file:
            for place, number in enumerate(numbers):
                self._second += place % per_second == 0
                file.write(f"{self._second} {'ab'[number % 2]} {number}\n")
            if torn:
                file.write(f"{self._second} a 9")

    def mend(self) -> None:
        with self._path.open("a") as file:
            file.write("\n")

    def end(self) -> None:
        with self._path.open("a") as file:
            file.write("end\n")
