"""Forty kills of parent and child, from the first instant on; benchmarks/kills.py has a thousand."""

from __future__ import annotations

import pytest

from support.kill_harness import killing, plan

pytestmark = pytest.mark.slow

KILLS = 40


def test_kill_of_parent_or_child_leaves_nothing_behind_and_loses_nothing() -> None:
    with killing() as harness:
        events = {clock: harness.events(clock) for clock in ("parent", "child")}
        done = [killed for kill in plan(events, KILLS) if (killed := harness.kill(kill)).happened]
        assert [problem for killed in done for problem in killed.problems] == []
        assert len(done) > KILLS * 3 // 4
        assert sum(killed.requested for killed in done) >= len(done) // 2
        assert harness.settle() == []
