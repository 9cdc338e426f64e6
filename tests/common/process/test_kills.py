"""Forty kills of parent and child, from the first instant on; benchmarks/kills.py has a thousand."""

from __future__ import annotations

from kill_harness import killing, plan

KILLS = 40


def test_wherever_parent_or_child_is_killed_nothing_is_left_behind_and_nothing_is_lost() -> None:
    with killing() as harness:
        events = {whom: harness.events(whom) for whom in ("parent", "child")}
        done = [harness.kill(kill) for kill in plan(events, KILLS)]
        problems = [problem for killed in done for problem in killed.problems]
        assert problems == []
        assert sum(killed.happened for killed in done) > KILLS * 3 // 4
        assert harness.settle() == []
