"""The crash harness: runs a collector's job again and again, killing it at chosen instants.

A job can be killed where the intake stands (request received, read, applied, answered) and where the store
stands (around each write, fsync and rename). Most runs are forked from a process that has done the imports
already, so that hundreds of kills take seconds; the process that is killed is a real one all the same.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from support.project import Project
from support.servers.datadog import Intake

AT_THE_INTAKE = ("received", "read", "applied", "answered")
AT_THE_STORE = ("half a write", "before fsync", "after fsync", "before rename", "after rename")


@dataclass(frozen=True)
class Kill:
    """SIGKILL to the child or to its parent, when the n-th event of this kind happens."""

    point: str
    nth: int = 1
    whom: str = "child"


class CrashHarness:
    """Runs one collector of a project against an intake, and kills it as told.

    `at` points it at another intake and other settings, so that many cases share one set of imports.
    """

    def __init__(self, project: Project, intake: Intake, collector: str, **environment: str) -> None:
        self.project = project
        self.collector = collector
        self.at(intake, **environment)
        here = Path(__file__).parent
        for name in ("crash_faults.py", "crash_zygote.py"):
            shutil.copy(here / name, project.root)
        shutil.copy(project.root / "crash_faults.py", project.root / "sitecustomize.py")
        self._plan = project.root / "crash_plan.json"
        self._zygote: subprocess.Popen[str] | None = None

    def at(self, intake: Intake, **environment: str) -> None:
        """Begin a new case."""
        self.intake = intake
        self.environment = {
            **self.project.environment,
            "FLEETGAUGE_DD_URL": intake.url,
            **environment,
        }
        self.kills = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._zygote is not None:
            assert self._zygote.stdin is not None
            assert self._zygote.stdout is not None
            self._zygote.stdin.close()
            self._zygote.stdout.close()
            self._zygote.wait(timeout=30)

    # Any: fields of a job, as JSON
    def run(self, kill: Kill | None = None, **more: Any) -> dict[str, Any] | None:
        """One forked run of the child; its outcome, or None where it was killed."""
        zygote = self._start_zygote()
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        job = {"collector": self.collector, "mode": "push", "now": int(time.time()), "timeout": 30, **more}
        plan = asdict(kill) if kill and kill.point in AT_THE_STORE else None
        with self._at_the_intake(kill, lambda: pid) if kill else _nothing():
            print(json.dumps({"job": job, "plan": plan, "environment": self.environment}), file=zygote.stdin)
            zygote.stdin.flush()
            pid = int(zygote.stdout.readline())
            print("go", file=zygote.stdin)
            zygote.stdin.flush()
            ended = json.loads(zygote.stdout.readline())
        if ended["signal"] == signal.SIGKILL:
            self.kills += 1
            return None
        assert ended["signal"] == 0, ended
        outcome: dict[str, Any] = json.loads(ended["said"].splitlines()[-1])  # behind what it said on its way
        return outcome

    def run_whole(self, kill: Kill | None = None) -> int:
        """One run of the whole command line, parent and all; its exit code, negative where it was killed."""
        at_the_store = kill is not None and kill.point in AT_THE_STORE
        self._plan.write_text(json.dumps(asdict(kill) if kill and at_the_store else None))
        run = self.project.start(self.collector, "--push", **self.environment)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")

        def victim() -> int:
            return run.pid if kill and kill.whom == "parent" else int(children.read_text().split()[0])

        with self._at_the_intake(kill, victim) if kill else _nothing():
            run.communicate(timeout=60)
        self._plan.unlink()
        if run.returncode != 0:
            self.kills += 1
        return run.returncode

    def _at_the_intake(self, kill: Kill, victim: Callable[[], int]) -> _Trap:
        return _Trap(self.intake, kill, victim)

    def _start_zygote(self) -> subprocess.Popen[str]:
        if self._zygote is None:
            self._zygote = subprocess.Popen(
                [sys.executable, "-P", str(self.project.root / "crash_zygote.py")],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.project.root)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._zygote


class _Trap:
    """Kills once, when the n-th request reaches a point at the intake."""

    def __init__(self, intake: Intake, kill: Kill, victim: Callable[[], int]) -> None:
        self._kill = kill
        self._victim = victim
        self._seen = 0
        self._armed = kill.point in AT_THE_INTAKE
        # A request of a child that was killed may still be under way, and must not spring this trap.
        self._earlier = {id(request) for request in intake.requests}
        if self._armed:
            intake.on(kill.point, self._reached)  # type: ignore[arg-type]  # checked just before

    def _reached(self, request: object) -> None:
        if not self._armed or id(request) in self._earlier:
            return
        self._seen += 1
        if self._seen == self._kill.nth:
            self._armed = False
            os.kill(self._victim(), signal.SIGKILL)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._armed = False


class _nothing:  # noqa: N801  # a context manager like contextlib.nullcontext, typed as the trap is
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
