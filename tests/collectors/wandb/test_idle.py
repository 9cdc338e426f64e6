"""Who idles: a table of looks with the answer to each, and the same however looks and saves are cut short."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb.idle import Memory, look_again, remembered
from collectors.wandb.utilization import Look, Reported

STEP = 900
T0 = 1_794_700_800


class See(NamedTuple):
    """What one look shows: how busy the busiest GPU is (None: no figures), the row's time, the runtime."""

    busiest: float | None = 0.0
    timestamp: float | None = None
    runtime: float | None = None  # by default as long ago as the first look, and an hour
    row_runtime: float | None = None


BUSY, IDLE, SILENT = See(50.0), See(0.0), See(None)
ABSENT = None


def look(seen: See, at: int) -> tuple[Look, float]:
    reported = None
    if seen.busiest is not None:
        reported = Reported(4, 0.0, 0, 0.0, seen.busiest, seen.timestamp, seen.row_runtime)
    runtime = 3600 + at - T0 if seen.runtime is None else seen.runtime
    return Look("r", "run", "ann", reported), runtime


def after(*looks: See | int | None) -> int | None:
    """How long the run is known to idle after looks a step apart; a number is so many steps without one."""
    memories: dict[str, Memory] = {}
    at = T0
    for seen in looks:
        if isinstance(seen, int):
            at += seen * STEP
            continue
        shown = {} if seen is None else {"r": look(seen, at)}
        memories = look_again(remembered(json.loads(json.dumps(memories))), shown, at, 5.0, 2 * STEP)
        at += STEP
    return memories["r"].seconds if "r" in memories else None


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        ([IDLE], 0),
        ([IDLE, IDLE], STEP),
        ([IDLE] * 5, 4 * STEP),
        ([BUSY], None),
        ([BUSY, IDLE], 0),
        ([IDLE, IDLE, BUSY], None),
        ([IDLE, IDLE, BUSY, IDLE], 0),
        ([See(4.9), See(4.9)], STEP),
        ([IDLE, See(5.0)], None),
        # absent at one look is a restart
        ([IDLE, IDLE, ABSENT], None),
        ([IDLE, IDLE, ABSENT, IDLE], 0),
        # without figures: neither counts nor forgets
        ([SILENT], None),
        ([SILENT, IDLE], 0),
        ([IDLE, SILENT], 0),
        ([IDLE, SILENT, IDLE], 2 * STEP),
        ([IDLE, SILENT, SILENT, SILENT, SILENT, IDLE], 5 * STEP),
        ([IDLE, SILENT, BUSY], None),
        # a row that is not newer: neither counts nor forgets
        ([See(0, 10.0), See(0, 10.0)], 0),
        ([See(0, 10.0), See(90, 10.0)], 0),
        ([See(0, 10.0), See(0, 9.0), See(0, 11.0)], 2 * STEP),
        ([See(0, 10.0), See(0, 10.0), See(90, 11.0)], None),
        # but for a busy one of a clock that was set back
        ([See(0, 10.0), See(90, 9.0)], None),
        ([See(0, 10.0), See(5.0, 9.0)], None),
        ([See(0, 10.0), See(4.9, 9.0)], 0),
        ([See(0, 10.0), IDLE], STEP),
        ([IDLE, See(0, 10.0)], STEP),
        # late: a gap of two steps is bridged, a longer one is not
        ([IDLE, 1, IDLE], 2 * STEP),
        ([IDLE, 2, IDLE], 0),
        ([IDLE, SILENT, 1, IDLE], 3 * STEP),
        ([IDLE, SILENT, 2, IDLE], 0),
        ([IDLE, IDLE, 9, SILENT], None),
        # restarted: a lower runtime, of the run or of its row
        ([IDLE, IDLE, See(0, runtime=5)], 0),
        ([IDLE, IDLE, See(None, runtime=5)], None),
        ([IDLE, IDLE, See(0, runtime=5), See(0, runtime=905)], STEP),
        ([See(0, row_runtime=50), See(0, row_runtime=40)], 0),
        ([See(0, row_runtime=50), See(0, row_runtime=50)], STEP),
        ([See(0, row_runtime=50), SILENT, See(0, row_runtime=40)], 0),
        ([See(0, 10.0, row_runtime=50), See(0, 9.0, row_runtime=40)], 0),
    ],
)
def test_what_a_look_means(looks: list[See | int | None], seconds: int | None) -> None:
    assert after(*looks) == seconds


def test_a_look_back_in_time_forgets() -> None:
    memories = look_again({}, {"r": look(IDLE, T0 + STEP)}, T0 + STEP, 5.0, 2 * STEP)
    assert look_again(memories, {"r": look(IDLE, T0)}, T0, 5.0, 2 * STEP)["r"].seconds == 0


sights = st.sampled_from([BUSY, IDLE, IDLE, IDLE, SILENT, ABSENT, See(0, runtime=7)])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(sights, st.booleans()), max_size=15))
def test_a_look_that_was_not_saved_never_makes_a_run_idle_for_longer(
    looks: list[tuple[See | None, bool]],
) -> None:
    """A run that is killed between its look and its save leaves what was remembered before."""
    at = T0
    saved: dict[str, Memory] = {}
    whole: dict[str, Memory] = {}
    for seen, is_saved in looks:
        shown = {} if seen is None else {"r": look(seen, at)}
        whole = look_again(whole, shown, at, 5.0, 2 * STEP)
        found = look_again(saved, shown, at, 5.0, 2 * STEP)
        again = look_again(found, shown, at, 5.0, 2 * STEP)
        assert {run: memory.seconds for run, memory in again.items()} == {
            run: memory.seconds for run, memory in found.items()
        }
        if is_saved:
            saved = found
        at += STEP
    if all(is_saved for _, is_saved in looks):
        assert saved == whole


@settings(max_examples=200, deadline=None)
@given(
    # A silent look tells a runtime too, so that one which falls would be something else.
    st.lists(sights.filter(lambda seen: seen is None or seen.runtime is None), min_size=1, max_size=12),
    st.integers(0, 11),
)
def test_one_unsaved_look_is_bridged_where_nothing_else_happened_at_it(
    seen: list[See | None], place: int
) -> None:
    place %= len(seen)
    looks: list[See | int | None] = [*seen]
    if looks[place] != SILENT or place == 0:
        return
    looks[place] = 1
    assert after(*looks) == after(*seen) or after(*seen) is None


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.booleans(),
        lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    )
)
def test_whatever_a_memory_holds_is_forgotten_and_costs_nothing_beside_it(saved: object) -> None:
    good = Memory(T0, T0, T0, 5.0, None, 7)
    held = saved if isinstance(saved, dict) else {"a": saved}
    assert remembered({**held, "r": list(good)}) == {**remembered(held), "r": good}
    assert isinstance(saved, dict) or remembered(saved) == {}


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("other", ["5", True, []])
def test_a_memory_that_holds_anything_but_numbers_is_forgotten(place: int, other: object) -> None:
    saved: list[object] = [T0, T0, T0, 5.0, 5.0, 7]
    assert remembered({"r": saved}) == {"r": Memory(T0, T0, T0, 5.0, 5.0, 7)}
    assert remembered({"r": saved[:-1], "s": [*saved, 7]}) == {}
    saved[place] = other
    assert remembered({"r": saved}) == {}
    saved[place] = None
    assert (remembered({"r": saved}) == {}) is (place < 4)


@given(st.tuples(*[st.integers() | st.floats()] * 4, *[st.none() | st.integers() | st.floats()] * 2))
def test_whatever_numbers_a_memory_holds_the_next_look_does_not_fail(saved: tuple[float, ...]) -> None:
    (memory,) = remembered({"r": [*saved]}).values()
    assert list(map(repr, memory)) == list(map(repr, saved))
    look_again({"r": memory}, {"r": look(IDLE, T0)}, T0, 5.0, 2 * STEP)
