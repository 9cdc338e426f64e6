"""Kills a process of the service at the n-th event that Python audits: an import, a file, a socket.

The kill harness has the first line of a copy of the service import this file, in parent and child; without a
plan it changes nothing. What it met is written first, so that whoever
planned it knows what to expect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).parent
PLAN, MET, COUNTED = HERE / "kill_plan.json", HERE / "kill_met.json", HERE / "kill_counted"
NEVER = 1_000_000_000  # the number of an event that does not come


def children() -> list[int]:
    """Return the children of this process, by every thread that may have started one."""
    return [
        int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
    ]


def is_handled() -> bool:
    """Return whether our handler is in place."""
    return signal.getsignal(signal.SIGTERM) != signal.SIG_DFL


class Switch:
    """Counts events, and kills this process or its parent at one of them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._is_busy = False
        self.seen = self.handled = self.request = 0  # numbers of events: the last, and two that matter

    def __call__(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if self._is_busy:
            return
        self.seen += 1
        if not self.handled and is_handled():
            self.handled = self.seen
        if not self.request and event == "socket.connect":
            self.request = self.seen
        if self.seen == self._plan["nth"]:
            self._is_busy = True
            self.kill(os.getpid() if self._plan["whom"] == self._plan["clock"] else os.getppid())
        elif self._plan["nth"] == NEVER and self.request:
            self.count()  # each time: a child is ended as soon as it has printed its outcome

    def count(self) -> None:
        """Write the numbers down."""
        self._is_busy = True
        numbers = {"seen": self.seen, "handled": self.handled, "request": self.request}
        with COUNTED.open("a") as file:
            file.write(json.dumps(numbers) + "\n")
        self._is_busy = False

    def kill(self, victim: int) -> None:
        """Write what is met, then kill."""
        met = {
            "handled": is_handled() or victim == os.getppid(),
            "requested": bool(self.request),
            "groups": [victim, os.getpid(), *children()] if victim == os.getppid() else [victim, *children()],
        }
        MET.write_text(json.dumps(met))
        os.kill(victim, self._plan["signal"])


def _kill_at_birth(switch: Switch) -> None:
    """Kill the child when it was just started, and has not run a line of Python."""
    start = subprocess.Popen.__init__

    def started(self: subprocess.Popen[bytes], *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        switch.kill(self.pid)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign,assignment]


def _count_at_exit(switch: Switch) -> None:
    """Write the numbers down when the process ends by itself, which skips what `atexit` registers."""
    end = os._exit

    def counted(status: int) -> NoReturn:
        switch.count()
        end(status)

    os._exit = counted


def load() -> None:
    """Do as the plan says, where it is about this process."""
    plan = json.loads(PLAN.read_text())
    me = "child" if "FLEETGAUGE_CHILD" in os.environ else "parent"
    switch = Switch(plan)
    if plan["nth"] == 0:
        if me == "parent":
            _kill_at_birth(switch)
    elif plan["clock"] == me:
        sys.addaudithook(switch)
        _count_at_exit(switch)


if __name__ == "kill_switch" and PLAN.exists():
    load()
