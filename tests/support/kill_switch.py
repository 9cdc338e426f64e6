"""Kills the process that loads it at the n-th event that Python audits: an import, a file, a socket.

The kill harness copies this file beside the service as `sitecustomize`, so that parent and child of the copy
load it at their start; without a plan it changes nothing. What it met is written down first, so that whoever
planned it knows what to expect.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLAN, MET, COUNTED = HERE / "kill_plan.json", HERE / "kill_met.json", HERE / "kill_counted"


def children() -> list[int]:
    """The children of this process, by every thread that may have started one."""
    return [
        int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
    ]


def _standing(number: int) -> str:
    handler = signal.getsignal(number)
    return "default" if handler == signal.SIG_DFL else "ignored" if handler == signal.SIG_IGN else "ours"


class Switch:
    """Counts events, and kills at one of them."""

    def __init__(self, nth: int, number: int) -> None:
        self._nth = nth
        self._number = number
        self.seen = 0
        self._busy = False

    def __call__(self, _event: str, _arguments: tuple[Any, ...]) -> None:
        if self._busy:
            return
        self.seen += 1
        if self.seen == self._nth:
            self._busy = True
            self.kill(os.getpid())

    def kill(self, victim: int) -> None:
        met = {"pid": victim, "standing": _standing(self._number), "children": children()}
        MET.write_text(json.dumps(met))
        os.kill(victim, self._number)


def _kill_at_birth(switch: Switch) -> None:
    """The child has just been started, and has not run a line of Python."""
    start = subprocess.Popen.__init__

    def started(self: subprocess.Popen[bytes], *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        switch.kill(self.pid)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign,assignment]


def load() -> None:
    """Do as the plan says, where it is about this process."""
    plan = json.loads(PLAN.read_text())
    me = "child" if any(word.endswith("/child.py") for word in sys.orig_argv) else "parent"
    if plan["whom"] != me and plan["nth"]:
        return
    switch = Switch(plan["nth"], plan["signal"])
    if plan["nth"] == 0 and me == "parent":
        _kill_at_birth(switch)
    elif plan["nth"]:
        sys.addaudithook(switch)
        atexit.register(lambda: COUNTED.write_text(str(switch.seen)))


if __name__ == "sitecustomize" and PLAN.exists():
    load()
