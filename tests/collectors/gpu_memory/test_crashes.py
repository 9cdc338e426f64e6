"""However sinks grow and wherever the ingestor is killed, the intake ends with what the sessions measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.crash_harness import CrashHarness, Kill
from support.record_crashes import KILLS, TornLines, Truth, case, case_in_s3, finish, harness_of, held
from support.servers.aws import Aws

pytestmark = pytest.mark.slow

RANKS = ("0", "1")
Round = tuple[str, list[int], bool, bool, Kill]
ALLOCATED, PEAK = "gpu_memory.allocated_bytes", "gpu_memory.peak_allocated_bytes"
WARNINGS = "gpu_memory.alerts"
INTERVAL = 10


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    with harness_of("gpu_memory", tmp_path_factory) as harness:
        yield harness


class Trackers:
    """Two ranks, each with a sink and a device of its own, and what they have said in whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[tuple[str, int, int]] = []  # rank, second and bytes, each with a warning
        self.lines = TornLines()
        self._second = int(time.time()) - 3000
        self._segment = dict.fromkeys(RANKS, 1)

    def append(self, rank: str, values: list[int], *, torn: bool) -> None:
        """Write events, three to a second; the last one perhaps only in part."""
        path = self.folder / f"sink-{rank}" / f"segment-{self._segment[rank]:06d}.jsonl"
        self.lines.append(path, [self._event(rank, *one) for one in enumerate(values)], torn=torn)

    def _event(self, rank: str, place: int, value: int) -> dict[str, object]:
        self._second += place % 3 == 2  # so that rounds, and segments, share a second
        self.said.append((rank, self._second, value))
        return {
            "schema_version": 4,
            "event_type": "warning",
            "timestamp_ns": self._second * 10**9 + len(self.said),
            "session_id": f"session-{rank}",
            "host": "node-1",
            "job_id": f"job-{rank}",
            "rank": int(rank),
            "device_id": int(rank),
            "allocator_allocated_bytes": value,
        }

    def roll_over(self, rank: str) -> None:
        """Go on in the next segment, as trackers do between two lines."""
        self.lines.finish()
        self._segment[rank] += 1

    def truth(self, interval: int) -> Truth:
        """A straight read: the last value of each interval, the peak by then, and warnings by the second."""
        found: Truth = {}
        peaks: Counter[str] = Counter()
        for rank, second, value in self.said:
            peaks[rank] = max(peaks[rank], value)
            at = second // interval * interval
            found[ALLOCATED, rank, at] = value
            found[PEAK, rank, at] = peaks[rank]
            found[WARNINGS, rank, second] = found.get((WARNINGS, rank, second), 0) + 1
        return found


ROUND = st.tuples(
    st.sampled_from(RANKS),
    st.lists(st.integers(0, 99), min_size=3, max_size=12),
    st.booleans(),
    st.booleans(),
    KILLS,
)


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(ROUND, min_size=3, max_size=6), tag_job_id=st.booleans())
def test_the_intake_ends_with_a_straight_read_of_all_whole_events(
    shared: CrashHarness, rounds: list[Round], tag_job_id: bool
) -> None:
    with case(shared, **tagged(tag_job_id)) as (folder, intake):
        trackers = Trackers(folder)
        be_killed(shared, trackers, rounds, lambda: None)
        truth = trackers.truth(1 if tag_job_id else INTERVAL)
        assert held(intake, "rank", ALLOCATED, PEAK, WARNINGS) == truth


@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(ROUND, min_size=2, max_size=3), tag_job_id=st.booleans())
def test_the_intake_ends_with_a_straight_read_of_all_whole_events_in_s3(
    shared: CrashHarness, aws: Aws, rounds: list[Round], tag_job_id: bool
) -> None:
    with case_in_s3(shared, aws, **tagged(tag_job_id)) as (folder, intake, upload):
        trackers = Trackers(folder)
        be_killed(shared, trackers, rounds, upload)
        truth = trackers.truth(1 if tag_job_id else INTERVAL)
        assert held(intake, "rank", ALLOCATED, PEAK, WARNINGS) == truth


def tagged(tag_job_id: bool) -> dict[str, Any]:
    return {"tag_job_id": str(tag_job_id).lower(), "aggregate_interval": str(INTERVAL)}


def be_killed(
    shared: CrashHarness, trackers: Trackers, rounds: list[Round], upload: Callable[[], None]
) -> None:
    """Write, kill the ingestor and let it go on, round by round; the last run is left alone."""
    for rank, values, torn, rolls_over, kill in rounds:
        trackers.append(rank, values, torn=torn)
        upload()
        assert shared.run(kill) is None, f"{kill} did not happen"
        assert shared.run() is not None
        if rolls_over:
            trackers.roll_over(rank)
    trackers.lines.finish()
    upload()
    finish(shared)
