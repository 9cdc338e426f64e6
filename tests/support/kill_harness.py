"""Runs the whole command line and kills parent or child at a chosen event, then looks at what is left.

Of every kill it says whether anything was printed that frightens, whether a process is left, and whether the
exit code is the right one; `settle` says whether later runs arrive at what they would have without it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from support.growing_file import KEY, Writer, add_numbers, held, truth
from support.processes import alive, ended
from support.project import Project
from support.servers.datadog import Intake, Write

NEVER = 1_000_000_000


@dataclass(frozen=True)
class Kill:
    """A signal to parent or child at its n-th event; the 0th of a child is its birth."""

    whom: str
    signal: int
    nth: int


@dataclass(frozen=True)
class Killed:
    """Whether a kill came to pass, and what was wrong then."""

    happened: bool
    standing: str = ""  # what a signal met: the handler of `signals`, or the kernel's default
    problems: tuple[str, ...] = ()


class KillHarness:
    """A copy of the service, a file that grows, a store and an intake."""

    def __init__(self, folder: Path, intake: Intake, *launcher: str) -> None:
        (folder / "service").mkdir()
        self._store = folder / "store"
        self._store.mkdir()
        self._path = folder / "numbers.txt"
        self._intake = intake
        self._launcher = launcher
        self._writer = Writer(self._path)
        self._round = 0
        self._project = Project(
            folder / "service",
            {
                "DD_ENV": "test",
                "DD_API_KEY": KEY,
                "FLEETGAUGE_DD_URL": intake.url,
                "FLEETGAUGE_STATE": str(self._store),
                "FLEETGAUGE_NUMBERS_PATH": str(self._path),
                "PYTHONPATH": str(folder / "service"),
            },
        )
        add_numbers(self._project)
        root = self._project.root
        shutil.copy(Path(__file__).parent / "kill_switch.py", root / "sitecustomize.py")
        self._plan, self._met, self._counted = (
            root / name for name in ("kill_plan.json", "kill_met.json", "kill_counted")
        )

    def events(self, whom: str) -> int:
        """How many events a run has that nobody kills."""
        for _ in range(2):  # the first one compiles
            self._grow()
            assert self._run(Kill(whom, signal.SIGTERM, NEVER)).returncode == 0
        return int(self._counted.read_text())

    def kill(self, kill: Kill) -> Killed:
        """One run with one kill."""
        self._grow()
        self._met.unlink(missing_ok=True)
        ran = self._run(kill)
        if not self._met.exists():  # it ended before
            return Killed(happened=False)
        met = json.loads(self._met.read_text())
        problems = []
        expected = _expected(kill, met["standing"], first=bool(self._launcher))
        if ran.returncode not in expected:
            problems.append(f"exit code {ran.returncode} instead of {expected}: {ran.stdout}{ran.stderr}")
        if "Traceback" in ran.stderr or "Exception ignored" in ran.stderr:
            problems.append(ran.stderr)
        victim = [] if self._launcher else [met["pid"]]  # the number is another one outside
        groups = [*victim, *met["children"]]
        problems += [f"process {pid} is left" for pid in groups if not ended(pid) or alive(pid)]
        told = tuple(f"{kill}, {met['standing']}: {one}" for one in problems)
        return Killed(happened=True, standing=met["standing"], problems=told)

    def settle(self) -> list[str]:
        """Let a run finish; what is then not as it would have been."""
        self._plan.unlink(missing_ok=True)
        self._writer.end()
        ran = self._project.run("numbers", "--push")
        found = [] if ran.returncode == 0 else [f"the last run ended with {ran.returncode}: {ran.stderr}"]
        if held(self._intake) != truth(self._path):
            found.append("the intake does not hold what stands in the file")
        [document] = self._store.glob("numbers*.json")
        state = json.loads(document.read_text())
        lines = self._path.read_text().count("\n")
        if state["memory"] != {"lines": lines} or state["last_success"] is None:
            found.append(f"the state document is {document.read_text()}")
        if any(write.replaced not in (None, write.value) for write in self._totals()):
            found.append("a second was sent with two values")
        if self._intake.value("collector.up") != 1:
            found.append("the last run is not up")
        return found

    def _totals(self) -> list[Write]:
        return [write for write in self._intake.write_log if write.key.metric == "numbers.total"]

    def _grow(self) -> None:
        self._round += 1
        self._writer.append([self._round % 7, 1, 2])

    def _run(self, kill: Kill) -> subprocess.CompletedProcess[str]:
        self._plan.write_text(json.dumps(asdict(kill)))
        return subprocess.run(
            [*self._launcher, *self._project.command("numbers", "--push")],
            env=self._project.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def _expected(kill: Kill, standing: str, *, first: bool) -> set[int]:
    """The exit codes that are right. What is left to do when signals are ignored is short, and is done.

    To the `first` process the kernel sends no signal that it does not catch.
    """
    if kill.whom == "parent":
        if standing == "default" and first:
            return {0}
        if kill.signal == signal.SIGKILL or standing == "default":
            return {-kill.signal}
        return {0} if standing == "ignored" else {128 + kill.signal}
    return {0} if standing == "ignored" and kill.signal != signal.SIGKILL and kill.nth else {1}


def plan(events: dict[str, int], kills: int) -> Iterator[Kill]:
    """So many kills of each of the four kinds in turn, half of them where a run delivers and ends."""
    each = -(-kills // 4)
    for place in range(each):
        for whom, number in ((w, s) for w in ("parent", "child") for s in (signal.SIGTERM, signal.SIGKILL)):
            total = events[whom]
            late = total // 8
            if place % 2:
                yield Kill(whom, number, total - late * place // each)
            else:
                yield Kill(whom, number, total * place // each or int(whom == "parent"))


@contextmanager
def killing(*launcher: str) -> Iterator[KillHarness]:
    """A harness of its own; the command line is started by `launcher`, where one is named."""
    with tempfile.TemporaryDirectory() as folder, Intake(key=KEY) as intake:
        yield KillHarness(Path(folder), intake, *launcher)
