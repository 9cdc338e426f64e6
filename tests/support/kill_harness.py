"""Runs the command line and kills parent or child at a chosen event, then looks at what is left.

Of every kill it says whether a traceback was printed, whether a process is left, and whether the exit code is
right; `settle` says whether one more run brings the intake to what it holds without any kill.
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

from support.kill_switch import NEVER
from support.processes import alive, ended
from support.project import KEY, Project
from support.servers.datadog import Intake

KINDS = "abcdef"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# Answers for each second since the last that was sent: a second that is skipped stays missing.
BODY = f"""
context.memory["runs"] = context.memory.get("runs", 0) + 1
for tick in context.window.ticks:
    for kind in "{KINDS}":
        yield VALUE(tick % 1000, tick, kind=kind)
"""


def add_seconds(project: Project, store: Path) -> None:
    """Add the collector `seconds` and a store; its payloads are small, so that a run has several of them."""
    project.add("seconds", BODY, options=", has_history=True")
    project.set_constant("datadog/payloads.py", "POINT_LIMIT", "4")
    store.mkdir()
    project.environment |= {"FLEETGAUGE_STATE": str(store), "FLEETGAUGE_STEP": "1s"}


def wrong_seconds(intake: Intake) -> list[str]:
    """Return how its content differs from that of undisturbed runs: each kind of each second, once right."""
    found = {
        (kind, second): value
        for (tags, _), points in intake.series("seconds.value").items()
        for kind in (tag.removeprefix("kind:") for tag in tags if tag.startswith("kind:"))
        for second, value in points.items()
    }
    seconds = [second for _, second in found]
    expected = {
        (kind, second): second % 1000 for kind in KINDS for second in range(min(seconds), max(seconds) + 1)
    }
    differing = [str(key) for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
    twice = [
        str(write.key)
        for write in intake.write_log
        if write.key.metric == "seconds.value" and write.replaced not in (None, write.value)
    ]
    return differing + twice


@dataclass(frozen=True)
class Kill:
    """A signal to `whom` at the n-th event of `clock`: parent or child. The 0th of a child is its birth."""

    whom: str
    signal: int
    clock: str
    nth: int


@dataclass(frozen=True)
class Events:
    """Numbers of events of a process: all, and at which its handler is in place and it sends a request."""

    seen: int
    handled: int
    request: int


@dataclass(frozen=True)
class Killed:
    """Whether a kill came to pass, and when, and what was wrong then."""

    happened: bool
    handled: bool = False
    requested: bool = False  # whether the first request had been sent, or was being sent
    problems: tuple[str, ...] = ()


class KillHarness:
    """A copy of the service, a store and an intake."""

    def __init__(self, folder: Path, intake: Intake) -> None:
        root = folder / "service"
        root.mkdir()
        self._store = folder / "store"
        self._intake = intake
        environment = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        self._project = Project(root, environment)
        add_seconds(self._project, self._store)
        shutil.copy(Path(__file__).parent / "kill_switch.py", root)
        script = root / "scripts" / "run_collector.py"
        first = f"import sys; sys.path.insert(0, {str(root)!r}); import kill_switch; del sys.path[0]\n"
        script.write_text(first + script.read_text())
        self._plan, self._met, self._counted = (
            root / name for name in ("kill_plan.json", "kill_met.json", "kill_counted")
        )
        assert self._project.run("seconds", "--push").returncode == 0  # it also compiles

    def events(self, clock: str) -> Events:
        """Return the events of a run that nobody kills."""
        self._counted.unlink(missing_ok=True)
        assert self._run(Kill(clock, signal.SIGTERM, clock, NEVER)).returncode == 0
        return Events(**json.loads(self._counted.read_text().splitlines()[-1]))

    def kill(self, kill: Kill) -> Killed:
        """Run once, with one kill."""
        self._met.unlink(missing_ok=True)
        ran = self._run(kill)
        if not self._met.exists():  # it ended before
            return Killed(happened=False)
        met = json.loads(self._met.read_text())
        problems = []
        if not self._is_right(kill, ran, handled=met["handled"]):
            problems.append(f"exit code {ran.returncode}: {ran.stdout}{ran.stderr}")
        if "Traceback" in ran.stderr or "Exception ignored" in ran.stderr:
            problems.append(ran.stderr)
        problems += [f"process {pid} is left" for pid in met["groups"] if not ended(pid) or alive(pid)]
        named = tuple(f"{kill}, {met}: {problem}" for problem in problems)
        return Killed(happened=True, handled=met["handled"], requested=met["requested"], problems=named)

    def settle(self) -> list[str]:
        """Let one more run finish; return what is then not as without kills."""
        self._plan.unlink(missing_ok=True)
        ran = self._project.run("seconds", "--push")
        found = [] if ran.returncode == 0 else [f"the last run ended with {ran.returncode}: {ran.stderr}"]
        found += [f"wrong or missing in the intake: {key}" for key in wrong_seconds(self._intake)]
        [document] = self._store.glob("seconds*.json")
        state = json.loads(document.read_text())
        newest = max(key.second for key in self._intake.points if key.metric == "seconds.value")
        if state["sent_until"] != newest or state["last_success"] is None:
            found.append(f"the state document is {document.read_text()}")
        if [path for path in self._store.iterdir() if ".bad." in path.name]:
            found.append("a state document was damaged")
        if self._intake.value("collector.up") != 1:
            found.append("the last run is not up")
        return found

    def _is_right(self, kill: Kill, ran: subprocess.CompletedProcess[str], *, handled: bool) -> bool:
        """Return whether it ended as it should. A child that had printed its outcome is not missed."""
        if kill.whom == "child":
            expected = {1: "1 failed", 0: "1 ok"}.get(ran.returncode)
            return expected is not None and expected in ran.stdout
        if kill.signal == signal.SIGKILL or not handled:
            return ran.returncode == -kill.signal
        return ran.returncode == 128 + kill.signal

    def _run(self, kill: Kill) -> subprocess.CompletedProcess[str]:
        self._plan.write_text(json.dumps(asdict(kill)))
        return self._project.run("seconds", "--push")


def plan(events: dict[str, Events], kills: int) -> Iterator[Kill]:
    """Yield kills of each kind in turn; two of three at or after the first request, which the child sends."""
    kinds = [(whom, number) for whom in ("parent", "child") for number in SIGNALS]
    rounds = -(-kills // len(kinds))
    for number in range(kills):
        (whom, number_of_signal), turn = kinds[number % len(kinds)], number // len(kinds)
        child = events["child"]
        if turn % 3:
            yield Kill(
                whom, number_of_signal, "child", child.request + (child.seen - child.request) * turn // rounds
            )
            continue
        clock = events[whom]
        # Before our handler is in place Python itself answers SIGINT, with a traceback.
        first = clock.handled + 1 if number_of_signal == signal.SIGINT else int(whom == "parent")
        last = child.request if whom == "child" else clock.seen
        yield Kill(whom, number_of_signal, whom, first + (last - first) * turn // rounds)


@contextmanager
def killing() -> Iterator[KillHarness]:
    """Give a harness with a folder and an intake of its own."""
    with tempfile.TemporaryDirectory() as folder, Intake(key=KEY) as intake:
        yield KillHarness(Path(folder), intake)
