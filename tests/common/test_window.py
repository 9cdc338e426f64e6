"""Windows: their ticks, their parts, and which one a live run answers for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from common.window import Window, due

SECONDS = st.integers(1_700_000_000, 1_700_200_000)
STEPS = st.sampled_from([1, 7, 60, 900, 3600, 86_400])


@st.composite
def spans(draw: st.DrawFn) -> Window:
    since, until = sorted((draw(SECONDS), draw(SECONDS)))
    return Window(since, until, draw(STEPS.filter(lambda step: step >= 60)))


def follow(parts: list[Window], span: Window) -> bool:
    """Whether parts cover a span without gap or overlap."""
    ends = parts[0].since == span.since and parts[-1].until == span.until
    return ends and all(one.until == following.since for one, following in pairwise(parts))


@given(spans())
def test_ticks_are_all_multiples_of_the_step_in_the_window(span: Window) -> None:
    first = span.since // span.step * span.step
    expected = [at for at in range(first, span.until + 1, span.step) if span.since < at <= span.until]
    assert list(span.ticks) == expected


@given(span=spans(), count=st.integers(1, 40))
def test_slices_follow_each_other_and_share_all_ticks_evenly(span: Window, count: int) -> None:
    slices = [span.slice(index, count) for index in range(count)]
    assert follow(slices, span)
    assert not any(one.is_live for one in slices)
    ticks = [list(one.ticks) for one in slices]
    assert [tick for some in ticks for tick in some] == list(span.ticks)
    assert all(one.until % span.step == 0 for one in slices[:-1] if span.since < one.until < span.until)
    assert max(map(len, ticks)) - min(map(len, ticks)) <= 2


@given(span=spans(), width=st.sampled_from([60, 900, 3600, 86_400]))
def test_parts_of_a_split_follow_each_other_cut_at_multiples_of_the_width(span: Window, width: int) -> None:
    parts = [*span.split(width)]
    if not span.seconds:
        assert parts == []
        return
    assert follow(parts, span)
    assert all(0 < part.seconds <= width and part.step == span.step for part in parts)
    assert all(part.until % width == 0 for part in parts[:-1])


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


@given(
    now=SECONDS,
    step=STEPS,
    age=st.none() | st.integers(-9000, 9000) | st.sampled_from([-1, 0, 1]),
    reach=st.integers(-900, 7200),
)
def test_each_tick_since_the_last_one_is_sent_or_too_old(
    now: int, step: int, age: int | None, reach: int
) -> None:
    """Where the last one is not known, or in the future, this tick alone; this tick whatever its age."""
    last = None if age is None else now - age
    window = due(now, step, last, now - reach)
    at = now // step * step
    assert (window.until, window.earliest) == (at, now - reach)
    assert window.since <= at
    if last is None or last > now:
        assert (window.since, list(window.ticks)) == (at - step, [at])
    else:
        between = range((last // step + 1) * step, at + 1, step)
        assert list(window.ticks) == [tick for tick in between if tick >= now - reach or tick == at]
