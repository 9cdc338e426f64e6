"""However sinks grow and wherever the ingestor is killed, the intake ends with what the sessions measured."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from growing_file import KEY
from project import Project
from servers.datadog import Intake

RANKS = ("0", "1")
MEASURED = {"allocated": "gpu_memory.allocated_bytes", "peak": "gpu_memory.peak_allocated_bytes"}
WARNINGS = "gpu_memory.alerts"
INTERVAL = 10
Truth = dict[tuple[str, str, int], float]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    root = tmp_path_factory.mktemp("service")
    project = Project(root, {"DD_ENV": "test", "DD_API_KEY": KEY})
    project.keep("gpu_memory")
    project.set_constant("intake.py", "BATCH_SIZE", "5")
    project.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
    with Intake() as unused, CrashHarness(project, unused, "gpu_memory") as harness:
        yield harness


class Trackers:
    """Two ranks, each with a sink and a device of its own, and what they have said in whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[tuple[str, int, int]] = []  # rank, second and bytes, each with a warning
        self._second = int(time.time()) - 3000
        self._segment = dict.fromkeys(RANKS, 1)
        self._torn: dict[str, str] = {}

    def append(self, rank: str, values: list[int], *, torn: bool) -> None:
        """Write events, three to a second; the last one perhaps only in part."""
        sink = self.folder / f"sink-{rank}"
        sink.mkdir(exist_ok=True)
        with (sink / f"segment-{self._segment[rank]:06d}.jsonl").open("a") as file:
            file.write(self._torn.pop(rank, ""))
            for place, value in enumerate(values):
                self._second += place % 3 == 2  # so that rounds, and segments, share a second
                line = json.dumps(self._event(rank, value)) + "\n"
                self.said.append((rank, self._second, value))
                cut = len(line) // 2 if torn and place == len(values) - 1 else len(line)
                file.write(line[:cut])
                if line[cut:]:
                    self._torn[rank] = line[cut:]

    def _event(self, rank: str, value: int) -> dict[str, object]:
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
        self.finish_lines()
        self._segment[rank] += 1

    def finish_lines(self) -> None:
        for rank in list(self._torn):
            self.append(rank, [], torn=False)

    def truth(self, interval: int) -> Truth:
        """A straight read: the last value of each interval, the peak by then, and warnings by the second."""
        found: Truth = {}
        peaks: Counter[str] = Counter()
        for rank, second, value in self.said:
            peaks[rank] = max(peaks[rank], value)
            at = second // interval * interval
            found[MEASURED["allocated"], rank, at] = value
            found[MEASURED["peak"], rank, at] = peaks[rank]
            found[WARNINGS, rank, second] = found.get((WARNINGS, rank, second), 0) + 1
        return found


def held(intake: Intake) -> Truth:
    found: Truth = {}
    for name in (*MEASURED.values(), WARNINGS):
        for (tags, _), points in intake.series(name).items():
            [rank] = [tag.removeprefix("rank:") for tag in tags if tag.startswith("rank:")]
            found |= {(name, rank, second): value for second, value in points.items()}
    return found


KILLS = st.builds(Kill, st.sampled_from(AT_THE_INTAKE + AT_THE_STORE), st.just(1))
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
    shared: CrashHarness, rounds: list[tuple[str, list[int], bool, bool, Kill]], tag_job_id: bool
) -> None:
    with tempfile.TemporaryDirectory() as name, Intake(key=KEY) as intake:
        folder = Path(name)
        (folder / "sinks").mkdir()
        (folder / "checkpoints").mkdir()
        shared.at(
            intake,
            FLEETGAUGE_GPU_MEMORY_PATHS=str(folder / "sinks"),
            FLEETGAUGE_GPU_MEMORY_TAG_JOB_ID=str(tag_job_id).lower(),
            FLEETGAUGE_GPU_MEMORY_AGGREGATE_INTERVAL=str(INTERVAL),
            FLEETGAUGE_CHECKPOINTS=str(folder / "checkpoints"),
        )
        trackers = Trackers(folder / "sinks")
        for rank, values, torn, rolls_over, kill in rounds:
            trackers.append(rank, values, torn=torn)
            assert shared.run(kill) is None, f"{kill} did not happen"
            assert shared.run() is not None
            if rolls_over:
                trackers.roll_over(rank)
        trackers.finish_lines()
        outcome = shared.run()
        assert outcome is not None
        assert outcome["status"] == "ok", outcome
        assert held(intake) == trackers.truth(1 if tag_job_id else INTERVAL)
