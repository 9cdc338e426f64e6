"""Forty kills of parent and child, from the first instant on; benchmarks/kills.py has a thousand."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest

from support.kill_harness import Kill, killing, plan
from support.requirements import needs

pytestmark = pytest.mark.slow

KILLS = 40
FIRST = (shutil.which("unshare") or "unshare", "--pid", "--fork")  # as the only process of a container is


def _may_be_first() -> bool:
    try:
        return subprocess.run([*FIRST, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_kill_of_parent_or_child_leaves_nothing_behind_and_loses_nothing() -> None:
    with killing() as harness:
        events = {clock: harness.events(clock) for clock in ("parent", "child")}
        done = [killed for kill in plan(events, KILLS) if (killed := harness.kill(kill)).happened]
        assert [problem for killed in done for problem in killed.problems] == []
        assert len(done) > KILLS * 3 // 4
        assert sum(killed.requested for killed in done) >= len(done) // 2
        assert harness.settle() == []


@needs("namespace-rights", _may_be_first(), "process 1 takes a process namespace")
def test_as_process_1_a_signal_counts_once_its_handler_is_in_place() -> None:
    with killing(*FIRST) as harness:
        events = harness.events("parent")
        numbers = [1, *(events.seen * tenth // 10 for tenth in range(1, 10))]
        done = [harness.kill(Kill("parent", signal.SIGTERM, "parent", nth)) for nth in numbers]
        assert [problem for killed in done for problem in killed.problems] == []
        assert [killed.handled for killed in done] == [False, *9 * [True]]
        assert harness.settle() == []
