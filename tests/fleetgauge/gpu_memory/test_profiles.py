"""Profiles in bounded memory: no peak disappears, nor either end, whatever the order of events."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.gpu_memory.events import read_event
from fleetgauge.gpu_memory.profiles import MAX_ALERTS, MAX_BINS, RankProfile, SessionProfile

Drawn = list[tuple[float, int | None]]
samples_drawn = st.lists(st.tuples(st.floats(0, 1e6), st.none() | st.integers(0, 10**12)), max_size=700)

TYPES = ("sample", "allocation", "stop", "peak", "made up")


def profile(*records: Mapping[str, object], size: int = 10**6) -> RankProfile:
    """A rank that is given its events in batches of a size."""
    rank = RankProfile(0)
    for first in range(0, len(records), size):
        rank.add([read_event(record) for record in records[first : first + size]])
    return rank


def line(drawn: Drawn, size: int = 10**6) -> list[tuple[float, float | None]]:
    return profile(
        *({"timestamp": at, "memory_allocated": value} for at, value in drawn), size=size
    ).bins.points(0)


def stats(*records: Mapping[str, object]) -> dict[str, object]:
    session = SessionProfile()
    for record in records:
        session.add([read_event(record)])
    return session.totals.as_stats()


@given(samples_drawn)
def test_line_is_bounded_ordered_and_keeps_extremes(drawn: Drawn) -> None:
    points = line(drawn)
    known = [size for _, size in drawn if size is not None]
    shown = [size for _, size in points if size is not None]
    assert len(points) <= 2 * MAX_BINS
    assert [at for at, _ in points] == sorted(at for at, _ in points)
    assert set(points) <= {(at, size) for at, size in drawn}
    assert max(shown, default=None) == max(known, default=None)
    assert min(shown, default=None) == min(known, default=None)


@given(samples_drawn, st.randoms(), st.integers(1, 300))
def test_order_and_size_of_batches_do_not_change_the_line(
    drawn: Drawn, chance: random.Random, size: int
) -> None:
    shuffled = list(drawn)
    chance.shuffle(shuffled)
    assert line(shuffled, size) == line(drawn)


def test_bins_double_only_once_they_are_too_many() -> None:
    drawn: Drawn = [(number / 1000 + 0.0005, number) for number in range(MAX_BINS + 1)]
    assert line(drawn[:-1]) == drawn[:-1]
    assert line([*drawn, (drawn[1][0] + 0.0001, 0)]) == [(0.0005, 0), drawn[1], *drawn[2:]]


def test_series_stay_aligned_where_a_value_is_missing() -> None:
    bins = profile(
        {"timestamp": 1.0, "memory_allocated": 1},
        {"timestamp": 2.0, "memory_reserved": 5},
        {"timestamp": 3.0, "memory_allocated": 3, "memory_reserved": 6, "device_used": 9},
        {"memory_allocated": 100},
    ).bins
    assert bins.points(0) == [(1.0, 1), (2.0, None), (3.0, 3)]
    assert bins.points(1) == [(1.0, None), (2.0, 5), (3.0, 6)]
    assert bins.points(2) == [(1.0, 1), (2.0, 5), (3.0, 9)]
    assert line([(1.0004, None), (1.0002, None), (1.0003, None)]) == [(1.0002, None)]


def test_alerts_are_drawn_in_place_and_merged_ones_at_the_highest() -> None:
    drawn = ((1.0, "peak", 5), (2.0, "critical", None), (2.0004, "peak", 7), (2.0005, "peak", 6))
    rank = profile(
        *({"timestamp": at, "event_type": kind, "memory_allocated": size} for at, kind, size in drawn)
    )
    assert list(rank.bins.alerts()) == [("critical", (2.0, 0)), ("peak", (1.0, 5)), ("peak", (2.0004, 7))]


def test_thousands_of_alerts_are_counted_and_the_latest_listed() -> None:
    long = {"timestamp": 0.5, "event_type": "critical", "context": "c" * 9999, "metadata": {"x": 1}}
    warnings = [{"timestamp": 1.0 + n, "event_type": "warning", "memory_allocated": n} for n in range(5000)]
    rank = profile(long, *warnings, {"event_type": "error"}, size=100)
    listed = rank.latest_alerts()
    totals = rank.totals
    assert (totals.alerts, totals.counts["warning"], totals.samples, totals.events) == (
        5002,
        5000,
        5001,
        5002,
    )
    assert [event.event_type for event in listed] == ["critical", *["warning"] * MAX_ALERTS, "error"]
    assert [event.timestamp for event in listed[1:-1]] == [5001.0 - MAX_ALERTS + n for n in range(MAX_ALERTS)]
    assert (len(listed[0].context or ""), listed[0].metadata) == (500, {})
    assert sum(kind == "warning" for kind, _ in rank.bins.alerts()) <= MAX_BINS


def test_extremes_are_absent_until_something_is_known() -> None:
    unknown = profile({"device_total": 0, "memory_allocated": 1})
    assert unknown.totals.peaks == {"allocated": 1, "used": 1}
    totals = profile(
        {"timestamp": 9.0, "memory_allocated": 4, "memory_reserved": 6, "device_total": 8},
        {"timestamp": 7.0, "memory_allocated": 2, "device_used": 8, "device_total": 16},
    ).totals
    assert (totals.first_at, totals.last_at, totals.duration) == (7.0, 9.0, 2.0)
    assert totals.peaks == {"allocated": 4, "reserved": 6, "used": 8, "utilization": 75.0, "capacity": 16}


def test_unknown_event_types_cannot_fill_the_memory() -> None:
    assert profile(*({"event_type": f"made up {n}"} for n in range(100))).totals.counts == {"other": 100}


@given(st.dictionaries(st.integers(1, 99), st.tuples(st.integers(0, 2), st.sampled_from(TYPES)), min_size=1))
def test_totals_over_ranks_are_those_of_all_their_events(drawn: dict[int, tuple[int, str]]) -> None:
    events = [
        read_event(
            {"timestamp": at, "rank": rank, "event_type": kind, "memory_allocated": at, "backend": kind}
        )
        for at, (rank, kind) in drawn.items()
    ]
    session, together = SessionProfile(), RankProfile(None)
    session.add(events)
    together.add(events)
    assert session.totals == together.totals
    assert together.totals.samples == len(events)


def test_statistics_have_the_latest_values_and_forget_a_past_error() -> None:
    records: list[dict[str, object]] = [
        {
            "timestamp": 2.0,
            "memory_allocated": 5,
            "metadata": {"collector_last_error": "lost", "backend": "cuda"},
        },
        {"timestamp": 1.0, "memory_allocated": 9, "metadata": {"collector_last_error": "old"}},
        {"timestamp": 3.0, "metadata": {"collector_health_status": "unhealthy"}},
    ]
    found = stats(*records)
    assert (found["current_memory_allocated"], found["peak_memory"], found["backend"]) == (5, 9, "cuda")
    assert (found["collector_last_error"], found["collector_health_status"]) == ("lost", "unhealthy")
    assert "current_memory_reserved" not in found
    records.append({"timestamp": 3.0, "memory_allocated": 6})
    assert stats(*records)["current_memory_allocated"] == 6
    assert "collector_last_error" not in stats(
        *records, {"timestamp": 4.0, "metadata": {"collector_last_error": None}}
    )
    measured = {"memory_capabilities": {"backend": "cpu"}}
    assert stats({"timestamp": 1.0, "metadata": measured})["backend"] == "cpu"
    assert stats({"timestamp": 1.0, "metadata": measured | {"backend": "cuda"}})["backend"] == "cuda"
