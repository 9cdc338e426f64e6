"""Whatever writers do to their files and wherever the ingestor is killed, the intake ends with the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.crash_harness import CrashHarness, Kill
from support.record_crashes import KILLS, TornLines, Truth, case, case_in_s3, finish, harness_of, held
from support.servers.aws import Aws

pytestmark = pytest.mark.slow

RUNS = ("r1", "r2")
Round = tuple[str, list[int], bool, str, Kill]
COMPLETED, PROGRESS = "xenna.stage.tasks_completed", "xenna.pipeline.progress"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    with harness_of("xenna", tmp_path_factory) as harness:
        yield harness


class Writers:
    """Two pipelines that write to one directory, and what they have said in whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.truth: Truth = {}
        self.lines = TornLines()
        self._second = int(time.time()) - 3000
        self._seq = dict.fromkeys(RUNS, 0)
        self._rotations = 0

    def path(self, run: str) -> Path:
        return self.folder / f"xenna-{run}.jsonl"

    def append(self, run: str, values: list[int], *, torn: bool) -> None:
        """Write records, two to a second; the last one perhaps only in part."""
        self.lines.append(self.path(run), [self._record(run, *one) for one in enumerate(values)], torn=torn)

    def _record(self, run: str, place: int, value: int) -> dict[str, object]:
        self._second += place % 2 == 0
        self._seq[run] += 1
        self.truth[COMPLETED, run, self._second] = value
        self.truth[PROGRESS, run, self._second] = value / 2
        return {
            "schema_version": 1,
            "kind": "xenna",
            "event": "stats",
            "run_id": run,
            "seq": self._seq[run],
            "timestamp": self._second + 0.5,
            "host": "node-1",
            "pid": 7,
            "pipeline_kind": "curate",
            "run_hash": run,
            "metrics": {"progress": value / 2, "stage/sort/tasks_completed": value},
            "stages": ["sort"],
        }

    def rotate(self, run: str) -> None:
        self.lines.finish()
        self._rotations += 1
        if self.path(run).exists():
            self.path(run).rename(self.folder / f"xenna-{run}.{self._rotations:06d}.jsonl")

    def truncate(self, run: str) -> None:
        if self.path(run).exists():
            self.path(run).write_text("")

    def replace(self, run: str) -> None:
        """Another file under the same name, as a copy that keeps only the last lines."""
        if self.path(run).exists():
            kept = self.path(run).read_text().splitlines(keepends=True)[-3:]
            self.path(run).unlink()
            self.path(run).write_text("".join(kept))


ROUND = st.tuples(
    st.sampled_from(RUNS),
    st.lists(st.integers(0, 99), min_size=3, max_size=12),
    st.booleans(),
    st.sampled_from(["nothing", "nothing", "rotate", "truncate", "replace"]),
    KILLS,
)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(ROUND, min_size=4, max_size=7))
def test_the_intake_ends_with_a_straight_read_of_all_whole_records(
    shared: CrashHarness, rounds: list[Round]
) -> None:
    with case(shared) as (folder, intake):
        writers = Writers(folder)
        be_killed(shared, writers, rounds, lambda: None)
        assert held(intake, "run_hash", COMPLETED, PROGRESS) == writers.truth


@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(ROUND, min_size=4, max_size=6))
def test_the_intake_ends_with_a_straight_read_of_all_whole_records_in_s3(
    shared: CrashHarness, aws: Aws, rounds: list[Round]
) -> None:
    with case_in_s3(shared, aws) as (folder, intake, upload):
        writers = Writers(folder)
        be_killed(shared, writers, rounds, upload)
        assert held(intake, "run_hash", COMPLETED, PROGRESS) == writers.truth


def be_killed(
    shared: CrashHarness, writers: Writers, rounds: list[Round], upload: Callable[[], None]
) -> None:
    """Write, kill the ingestor and change the files, round by round; the last run is left alone."""
    for run, values, torn, change, kill in rounds:
        writers.append(run, values, torn=torn)
        upload()
        assert shared.run(kill) is None, f"{kill} did not happen"
        if change in {"truncate", "replace"}:
            # What is thrown away before anyone read it is nobody's to know.
            writers.lines.finish()
            upload()
            assert shared.run() is not None
        if change != "nothing":
            getattr(writers, change)(run)
    writers.lines.finish()
    upload()
    finish(shared)
