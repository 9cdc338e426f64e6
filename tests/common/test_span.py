"""Spans of the past: their ticks, their parts, and what live ticks missed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from common.metric import gauge
from common.span import Span, missed

VALUE = gauge("toy.value", "item", "A value.")

SECONDS = st.integers(1_700_000_000, 1_700_200_000)
STEPS = st.sampled_from([1, 60, 900, 3600, 86400])


@st.composite
def spans(draw: st.DrawFn) -> Span:
    since, until = sorted((draw(SECONDS), draw(SECONDS)))
    return Span(since, until, draw(STEPS.filter(lambda step: step >= 60)))


def test_ticks_are_the_multiples_of_the_step_from_since_on_and_before_until() -> None:
    assert list(Span(900, 3600, 900).ticks) == [900, 1800, 2700]
    assert list(Span(901, 3601, 900).ticks) == [1800, 2700, 3600]
    assert list(Span(901, 1800, 900).ticks) == []


def test_a_sample_is_of_the_span_from_since_on_and_before_until() -> None:
    span = Span(100, 200, 900)
    assert [span.holds(VALUE(1, at)) for at in (99, 100, 199, 200)] == [False, True, True, False]


def test_a_span_reads_as_its_two_ends() -> None:
    assert str(Span(1_794_700_800, 1_794_704_400, 900)) == "2026-11-15T00:00:00Z to 2026-11-15T01:00:00Z"


@given(span=spans(), count=st.integers(1, 40))
def test_parts_follow_each_other_and_share_out_every_tick_once(span: Span, count: int) -> None:
    parts = [span.part(index, count) for index in range(count)]
    assert (parts[0].since, parts[-1].until) == (span.since, span.until)
    assert all(part.until == following.since for part, following in pairwise(parts))
    ticks = [list(part.ticks) for part in parts]
    assert [tick for some in ticks for tick in some] == list(span.ticks)
    assert max(map(len, ticks)) - min(map(len, ticks)) <= 1


def test_what_was_missed_within_reach_is_to_be_sent_and_the_rest_is_a_gap() -> None:
    found = missed(last=9000, at=14400, step=900, oldest=10900)
    assert found.ticks == [11700, 12600, 13500]
    assert found.gap == Span(9900, 11700, 900)


def test_a_tick_exactly_as_old_as_can_be_sent_is_sent() -> None:
    assert missed(last=9000, at=11700, step=900, oldest=9900).ticks == [9900, 10800]
    assert missed(last=9000, at=11700, step=900, oldest=9901).ticks == [10800]


def test_where_not_even_the_present_tick_can_be_sent_all_before_it_is_a_gap() -> None:
    found = missed(last=9000, at=11700, step=900, oldest=20_000)
    assert (found.ticks, found.gap) == ([], Span(9900, 11700, 900))


def test_the_next_tick_has_missed_nothing() -> None:
    found = missed(last=9000, at=9900, step=900, oldest=0)
    assert (found.ticks, found.gap.seconds) == ([], 0)


def test_the_same_tick_again_has_missed_nothing() -> None:
    found = missed(last=9900, at=9900, step=900, oldest=0)
    assert (found.ticks, found.gap.seconds) == ([], 0)


@given(last=SECONDS, at=SECONDS, step=STEPS, reach=st.integers(0, 7200))
def test_every_tick_between_is_either_sent_or_in_the_gap(last: int, at: int, step: int, reach: int) -> None:
    at -= at % step
    found = missed(last, at, step, at - reach)
    between = [moment for moment in range(last + 1, at) if moment % step == 0]
    assert [*found.gap.ticks, *found.ticks] == between
    assert all(moment >= at - reach for moment in found.ticks)
    assert all(moment < at - reach for moment in found.gap.ticks)
