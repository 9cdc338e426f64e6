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


def test_wherever_parent_or_child_is_killed_nothing_is_left_behind_and_nothing_is_lost() -> None:
    with killing() as harness:
        events = {whom: harness.events(whom) for whom in ("parent", "child")}
        done = [harness.kill(kill) for kill in plan(events, KILLS)]
        problems = [problem for killed in done for problem in killed.problems]
        assert problems == []
        assert sum(killed.happened for killed in done) > KILLS * 3 // 4
        assert harness.settle() == []


@needs("namespace-rights", _may_be_first(), "process 1 takes a process namespace")
def test_as_process_1_a_signal_counts_from_the_first_import_on() -> None:
    with killing(*FIRST) as harness:
        events = harness.events("parent")
        places = [1, *(events * place // 10 for place in range(1, 10))]
        done = [harness.kill(Kill("parent", signal.SIGTERM, nth)) for nth in places]
        assert [problem for killed in done for problem in killed.problems] == []
        assert [killed.standing for killed in done] == ["default", *9 * ["ours"]]
        assert harness.settle() == []
