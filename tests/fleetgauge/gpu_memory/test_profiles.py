"""A picture in bounded memory: no peak disappears, nor either end, whatever the order."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.gpu_memory import RankProfile, load_recording, read_event
from fleetgauge.gpu_memory.profiles import MAX_ALERTS, MAX_BINS, Picture, Statistics

moments = st.floats(0, 1e6)
samples_drawn = st.lists(st.tuples(moments, st.none() | st.integers(0, 10**12)), max_size=700)


def picture(drawn: list[tuple[float, int | None]]) -> Picture:
    made = Picture()
    for at, size in drawn:
        made.add(read_event({"timestamp": at, "memory_allocated": size}))
    return made


@given(samples_drawn)
def test_a_line_is_bounded_ordered_and_keeps_extremes(drawn: list[tuple[float, int | None]]) -> None:
    points = picture(drawn).points(0)
    known = [size for _, size in drawn if size is not None]
    shown = [size for _, size in points if size is not None]
    assert len(points) <= 2 * MAX_BINS
    assert [at for at, _ in points] == sorted(at for at, _ in points)
    assert set(points) <= {(at, size) for at, size in drawn}
    assert max(shown, default=None) == max(known, default=None)
    assert min(shown, default=None) == min(known, default=None)


@given(samples_drawn, st.randoms())
def test_the_order_of_events_does_not_change_the_picture(
    drawn: list[tuple[float, int | None]], chance: random.Random
) -> None:
    shuffled = list(drawn)
    chance.shuffle(shuffled)
    assert picture(shuffled).points(0) == picture(drawn).points(0)


def test_a_long_session_is_drawn_over_its_whole_span() -> None:
    points = picture([(float(second), second) for second in range(10_000)]).points(0)
    assert MAX_BINS / 2 < len(points) <= 2 * MAX_BINS
    assert (points[0], points[-1]) == ((0.0, 0), (9999.0, 9999))


def test_bins_double_only_once_they_are_too_many() -> None:
    drawn: list[tuple[float, int | None]] = [
        (number / 1000 + 0.0005, number) for number in range(MAX_BINS + 1)
    ]
    made = picture(drawn[:-1])
    assert (made.bin_seconds, made.points(0)) == (0.001, drawn[:-1])
    made.add(read_event({"timestamp": drawn[-1][0], "memory_allocated": MAX_BINS}))
    made.add(read_event({"timestamp": drawn[1][0] + 0.0001, "memory_allocated": 0}))
    assert made.bin_seconds == 0.002
    assert made.points(0) == [(0.0005, 0), drawn[1], *drawn[2:]]


def test_a_gap_is_where_it_began() -> None:
    assert picture([(1.0004, None), (1.0002, None), (1.0003, None)]).points(0) == [(1.0002, None)]


def test_series_stay_aligned_where_a_value_is_missing() -> None:
    made = Picture()
    made.add(read_event({"timestamp": 1.0, "memory_allocated": 1}))
    made.add(read_event({"timestamp": 2.0, "memory_reserved": 5}))
    made.add(read_event({"timestamp": 3.0, "memory_allocated": 3, "memory_reserved": 6, "device_used": 9}))
    made.add(read_event({"memory_allocated": 100}))
    assert made.points(0) == [(1.0, 1), (2.0, None), (3.0, 3)]
    assert made.points(1) == [(1.0, None), (2.0, 5), (3.0, 6)]
    assert made.points(2) == [(1.0, 1), (2.0, 5), (3.0, 9)]


def test_alerts_are_drawn_where_they_happened_and_merged_ones_at_the_highest() -> None:
    made = Picture()
    for at, kind, size in (
        (1.0, "peak", 5),
        (2.0, "critical", None),
        (2.0004, "peak", 7),
        (2.0005, "peak", 6),
    ):
        made.add(read_event({"timestamp": at, "event_type": kind, "memory_allocated": size}))
    assert list(made.alerts()) == [("critical", (2.0, 0)), ("peak", (1.0, 5)), ("peak", (2.0004, 7))]


def test_thousands_of_alerts_stay_countable_and_the_latest_of_each_kind_is_listed() -> None:
    rank = RankProfile(0)
    rank.add(
        read_event({"timestamp": 0.5, "event_type": "critical", "context": "c" * 9999, "metadata": {"x": 1}})
    )
    for number in range(5000):
        rank.add(read_event({"timestamp": 1.0 + number, "event_type": "warning", "memory_allocated": number}))
    rank.add(read_event({"event_type": "error"}))
    listed = rank.latest_alerts()
    assert (rank.alerts, rank.counts["warning"], rank.samples, rank.events) == (5002, 5000, 5001, 5002)
    assert [event.event_type for event in listed] == ["critical", *["warning"] * MAX_ALERTS, "error"]
    assert [event.timestamp for event in listed[1:-1]] == [
        float(5001 - MAX_ALERTS + n) for n in range(MAX_ALERTS)
    ]
    assert (len(listed[0].context or ""), listed[0].metadata) == (500, {})
    assert sum(kind == "warning" for kind, _ in rank.picture.alerts()) <= MAX_BINS


def test_alerts_of_all_kinds_are_listed_in_time_order_from_the_first_moment_on() -> None:
    rank = RankProfile(None)
    for at, kind in ((None, "critical"), (0.5, "error"), (0.0, "warning")):
        rank.add(read_event({"timestamp": at, "event_type": kind, "context": "c" * 501}))
    assert [event.event_type for event in rank.latest_alerts()] == ["warning", "error", "critical"]
    assert {event.context for event in rank.latest_alerts()} == {"c" * 500}


def test_extremes_are_unknown_until_something_is_known() -> None:
    rank = RankProfile(None)
    rank.add(read_event({"device_total": 0}))
    assert (rank.duration, rank.peak_allocated, rank.peak_utilization, rank.capacity) == (
        None,
        None,
        None,
        None,
    )
    rank.add(read_event({"timestamp": 9.0, "memory_allocated": 4, "memory_reserved": 6, "device_total": 8}))
    rank.add(read_event({"timestamp": 7.0, "memory_allocated": 2, "device_used": 8, "device_total": 16}))
    assert (rank.first_at, rank.last_at, rank.duration) == (7.0, 9.0, 2.0)
    assert (rank.peak_allocated, rank.peak_reserved, rank.peak_used, rank.capacity) == (4, 6, 8, 16)
    assert rank.peak_utilization == 75.0
    rank = RankProfile(None)
    rank.add(read_event({"device_total": 1}))
    assert rank.capacity == 1


def test_made_up_event_types_cannot_fill_the_memory() -> None:
    rank = RankProfile(None)
    for number in range(100):
        rank.add(read_event({"event_type": f"made up {number}"}))
    assert rank.counts == {"other": 100}


def test_statistics_hold_the_latest_by_time_and_forget_an_error_that_is_over() -> None:
    statistics = Statistics()
    for record in (
        {
            "timestamp": 2.0,
            "memory_allocated": 5,
            "metadata": {"collector_last_error": "lost", "backend": "cuda"},
        },
        {
            "timestamp": 1.0,
            "memory_allocated": 9,
            "memory_reserved": 7,
            "metadata": {"collector_last_error": "old"},
        },
        {"timestamp": 3.0, "metadata": {"collector_health_status": "unhealthy"}},
    ):
        statistics.add(read_event(record))
    found = statistics.as_mapping()
    assert (found["current_memory_allocated"], found["peak_memory"], found["backend"]) == (5, 9, "cuda")
    assert (found["collector_last_error"], found["collector_health_status"]) == ("lost", "unhealthy")
    assert "current_memory_reserved" not in found
    statistics.add(read_event({"timestamp": 3.0, "memory_allocated": 6}))
    assert statistics.as_mapping()["current_memory_allocated"] == 6
    statistics.add(read_event({"timestamp": 4.0, "metadata": {"collector_last_error": None}}))
    assert "collector_last_error" not in statistics.as_mapping()


def test_the_backend_is_the_one_named_and_else_the_one_that_measured() -> None:
    measured = {"memory_capabilities": {"backend": "cpu"}}
    for metadata, backend in ((measured, "cpu"), (measured | {"backend": "cuda"}, "cuda")):
        statistics = Statistics()
        statistics.add(read_event({"timestamp": 1.0, "metadata": metadata}))
        assert statistics.as_mapping()["backend"] == backend


def test_statistics_count_bytes_both_ways_and_peaks_are_no_alerts() -> None:
    statistics = Statistics()
    for kind, change in (
        ("allocation", 5),
        ("allocation", 7),
        ("deallocation", -4),
        ("sample", 100),
        ("allocation", None),
        ("deallocation", None),
    ):
        statistics.add(read_event({"timestamp": 1.0, "event_type": kind, "memory_change": change}))
    for kind in ("peak", "warning", "critical", "error"):
        statistics.add(read_event({"timestamp": 1.0, "event_type": kind}))
    found = statistics.as_mapping()
    assert (found["total_allocations"], found["total_allocation_bytes"]) == (3, 12)
    assert (found["total_deallocations"], found["total_deallocation_bytes"]) == (2, 4)
    assert (found["total_events"], found["alert_count"], found["tracking_duration_seconds"]) == (10, 3, 0.0)
    assert "allocations_per_second" not in found
    assert Statistics().as_mapping()["total_events"] == 0


def test_the_real_session_has_its_peaks_in_its_picture(samples: Path) -> None:
    [session] = load_recording(samples / "gpu-sink").sessions
    [rank] = session.profile.ranks.values()
    assert (rank.rank, rank.samples, rank.counts["sample"], rank.alerts) == (1, 327, 115, 78)
    assert (rank.peak_allocated, rank.peak_reserved, rank.peak_used) == (6971635275, 7668798802, 7883547166)
    assert rank.capacity == 17179869184
    for series, peak in enumerate((rank.peak_allocated, rank.peak_reserved, rank.peak_used)):
        assert max(size for _, size in rank.picture.points(series) if size is not None) == peak
