"""Windows: their ticks, their parts, and which one a live run answers for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.window import Window, due

SECONDS = st.integers(1_700_000_000, 1_700_200_000)
STEPS = st.sampled_from([1, 7, 60, 900, 3600, 86_400])
HOUR = 3600


@st.composite
def spans(draw: st.DrawFn) -> Window:
    since, until = sorted((draw(SECONDS), draw(SECONDS)))
    return Window(since, until, draw(STEPS.filter(lambda step: step >= 60)))


def follow(parts: list[Window], span: Window) -> bool:
    """Whether parts cover a span without gap or overlap."""
    ends = parts[0].since == span.since and parts[-1].until == span.until
    return ends and all(one.until == following.since for one, following in pairwise(parts))


def test_ticks_are_the_multiples_of_the_step_after_since_up_to_until() -> None:
    assert list(Window(900, 3600, 900).ticks) == [1800, 2700, 3600]
    assert list(Window(899, 3599, 900).ticks) == [900, 1800, 2700]
    assert list(Window(901, 1799, 900).ticks) == []
    assert list(Window(900, 900, 900).ticks) == []


@given(spans())
def test_ticks_are_all_multiples_of_the_step_in_the_window(span: Window) -> None:
    first = span.since // span.step * span.step
    expected = [at for at in range(first, span.until + 1, span.step) if span.since < at <= span.until]
    assert list(span.ticks) == expected


def test_a_window_shows_its_two_ends_and_is_live_with_an_earliest_second() -> None:
    window = Window(1_794_700_800, 1_794_704_400, 900)
    assert str(window) == "2026-11-15T00:00:00Z to 2026-11-15T01:00:00Z"
    assert (window.seconds, window.is_live) == (HOUR, False)
    assert Window(0, 1, 1, earliest=0).is_live


@given(span=spans(), count=st.integers(1, 40))
def test_slices_follow_each_other_and_share_all_ticks(span: Window, count: int) -> None:
    slices = [span.slice(index, count) for index in range(count)]
    assert follow(slices, span)
    assert not any(one.is_live for one in slices)
    ticks = [list(one.ticks) for one in slices]
    assert [tick for some in ticks for tick in some] == list(span.ticks)
    assert all(one.until % span.step == 0 for one in slices[:-1] if span.since < one.until < span.until)


@given(span=spans(), count=st.integers(1, 40))
def test_slices_are_about_equally_long(span: Window, count: int) -> None:
    ticks = [len(span.slice(index, count).ticks) for index in range(count)]
    assert max(ticks) - min(ticks) <= 2


@given(span=spans(), width=st.sampled_from([60, 900, HOUR, 86_400]))
def test_parts_of_a_split_follow_each_other_cut_at_multiples_of_the_width(span: Window, width: int) -> None:
    parts = [*span.split(width)]
    if not span.seconds:
        assert parts == []
        return
    assert follow(parts, span)
    assert all(0 < part.seconds <= width and part.step == span.step for part in parts)
    assert all(part.until % width == 0 for part in parts[:-1])


def test_without_a_known_last_tick_a_live_run_answers_for_this_tick() -> None:
    assert due(14_407, 900, None, 10_900) == Window(13_500, 14_400, 900, 10_900)


@pytest.mark.parametrize(
    ("sent_until", "ticks"),
    [
        (13_500, [14_400]),
        (11_700, [12_600, 13_500, 14_400]),
        (9_000, [11_700, 12_600, 13_500, 14_400]),  # 10,800 is older than the earliest second
        (14_400, []),
        (14_401, []),
        (14_407, []),
        (14_408, [14_400]),  # in the future: not known
        (99_999, [14_400]),
    ],
)
def test_a_live_run_answers_for_the_ticks_since_the_last_one_sent(sent_until: int, ticks: list[int]) -> None:
    assert list(due(14_407, 900, sent_until, 10_900).ticks) == ticks


def test_a_tick_exactly_at_the_earliest_second_is_sent() -> None:
    assert list(due(11_700, 900, 9_000, 9_900).ticks) == [9_900, 10_800, 11_700]
    assert list(due(11_700, 900, 9_000, 9_901).ticks) == [10_800, 11_700]


def test_this_tick_is_due_even_where_it_is_older_than_the_earliest_second() -> None:
    assert list(due(14_407, 900, 9_000, 20_000).ticks) == [14_400]
    assert list(due(14_407, 900, None, 20_000).ticks) == [14_400]


@given(
    start=SECONDS,
    step=STEPS,
    delays=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 0.999)), min_size=1, max_size=30),
)
def test_windows_of_successive_runs_tile_whatever_the_delays(
    start: int, step: int, delays: list[tuple[int, float]]
) -> None:
    """A run starts at any instant of a step, and up to five steps after the one before it."""
    at, sent_until = start // step * step, None
    answered: list[int] = []
    for missed, delay in delays:
        at += missed * step
        now = at + int(delay * step)
        window = due(now, step, sent_until, now - 100 * step)
        answered += window.ticks
        sent_until = max(window.until, sent_until or 0)
    assert answered == list(range(answered[0], at + 1, step))


@given(last=SECONDS, now=SECONDS, step=STEPS, reach=st.integers(0, 7200))
def test_each_tick_since_the_last_one_is_sent_or_too_old(last: int, now: int, step: int, reach: int) -> None:
    window = due(now, step, last, now - reach)
    at = now // step * step
    assert (window.until, window.earliest) == (at, now - reach)
    assert window.since <= at
    if last <= now:
        between = range((last // step + 1) * step, at + 1, step)
        assert list(window.ticks) == [tick for tick in between if tick >= now - reach or tick == at]
    else:
        assert list(window.ticks) == [at]
