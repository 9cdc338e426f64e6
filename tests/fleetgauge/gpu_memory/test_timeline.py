"""At most 250 rows tell the story of any session: its whole span and its alerts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stormlog._wandb import tracking  # type: ignore[import-untyped]

from fleetgauge.gpu_memory import TimelineRow, sample_timeline_rows, tracking_timeline_rows
from fleetgauge.gpu_memory.events import ALERT_TYPES


def events(kinds: list[str]) -> list[dict[str, object]]:
    return [
        {"timestamp": 100.0 + number / 10, "event_type": kind, "memory_allocated": number}
        for number, kind in enumerate(kinds)
    ]


def kinds_of(rows: list[TimelineRow]) -> Counter[str]:
    return Counter(row["event_type"] for row in rows)


@given(st.integers(0, 1500), st.sets(st.integers(0, 1499), max_size=248))
def test_rows_are_those_of_the_trackers_exporter_in_whatever_order(count: int, alerts: set[int]) -> None:
    given = events(["warning" if number in alerts else "sample" for number in range(count)])
    assert tracking_timeline_rows(given) == tracking.tracking_timeline_rows(given)
    assert tracking_timeline_rows(reversed(given)) == tracking_timeline_rows(given)


def test_249_alerts_and_the_last_row_still_leave_the_start() -> None:
    rows = tracking_timeline_rows(events(["sample"] * 300 + ["warning"] * 249 + ["stop"]))
    assert (len(rows), rows[0]["elapsed_seconds"], rows[-1]["event_type"]) == (250, 0.0, "stop")
    assert 95 <= kinds_of(rows)["sample"] <= 101


@pytest.mark.parametrize(
    ("samples", "first", "last"),
    [
        (100, [1, 4, 6, 9], [392, 395, 397, 400]),
        (99, [1, 2, 4, 6], [392, 395, 397, 400]),
        (98, [1, 2, 4, 6], [395, 397, 399, 400]),
        (50, [1, 2, 4, 6], [395, 397, 399, 400]),
    ],
)
def test_room_that_samples_leave_goes_to_alerts(samples: int, first: list[int], last: list[int]) -> None:
    rows = tracking_timeline_rows(events(["start"] + ["warning"] * 400 + ["sample"] * samples + ["stop"]))
    alerts = [row["sample_index"] for row in rows if row["event_type"] == "warning"]
    assert kinds_of(rows) == {"start": 1, "warning": 248 - samples, "sample": samples, "stop": 1}
    assert (alerts[:4], alerts[-4:]) == (first, last)


@example(["peak"] + ["critical"] * 300)
@given(st.lists(st.sampled_from(["sample", "peak", "warning", "critical"]), max_size=900))
def test_sampling_keeps_order_ends_and_bound(kinds: list[str]) -> None:
    [blank] = tracking_timeline_rows([{"timestamp": 0.0}])
    whole = [TimelineRow(**blank) for _ in kinds]
    for number, (row, kind) in enumerate(zip(whole, kinds, strict=True)):
        row.update({"sample_index": number, "event_type": kind})
    rows = sample_timeline_rows(whole)
    numbers = [row["sample_index"] for row in rows]
    assert len(rows) == len(set(numbers)) <= 250
    assert numbers == sorted(numbers)
    assert rows[-1:] == whole[-1:]
    assert rows[:1] == whole[:1] or len(whole) <= 1
    alerts = sum(kind in ALERT_TYPES for kind in kinds)
    if alerts < 249:
        assert sum(row["event_type"] in ALERT_TYPES for row in rows) == alerts
    else:
        assert sum(row["event_type"] in ALERT_TYPES for row in rows) >= 148
