"""Whatever writers do to their files and wherever the ingestor is killed, the intake ends with the truth."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from growing_file import KEY
from project import Project
from servers.datadog import Intake

RUNS = ("r1", "r2")
Truth = dict[tuple[str, str, int], float]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    root = tmp_path_factory.mktemp("service")
    project = Project(root, {"DD_ENV": "test", "DD_API_KEY": KEY})
    project.keep("xenna")
    project.set_constant("intake.py", "BATCH_SIZE", "5")
    project.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
    with Intake() as unused, CrashHarness(project, unused, "xenna") as harness:
        yield harness


class Writers:
    """Two pipelines that write to one directory, and what they have said in whole lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.truth: Truth = {}
        self._second = int(time.time()) - 3000
        self._seq = dict.fromkeys(RUNS, 0)
        self._torn: dict[str, str] = {}
        self._rotations = 0

    def path(self, run: str) -> Path:
        return self.folder / f"xenna-{run}.jsonl"

    def append(self, run: str, values: list[int], *, torn: bool) -> None:
        """Write records, two to a second; the last one perhaps only in part."""
        with self.path(run).open("a") as file:
            file.write(self._torn.pop(run, ""))
            for place, value in enumerate(values):
                self._second += place % 2 == 0
                line = json.dumps(self._record(run, value)) + "\n"
                self.truth["xenna.stage.tasks_completed", run, self._second] = value
                self.truth["xenna.pipeline.progress", run, self._second] = value / 2
                cut = len(line) // 2 if torn and place == len(values) - 1 else len(line)
                file.write(line[:cut])
                if line[cut:]:
                    self._torn[run] = line[cut:]

    def _record(self, run: str, value: int) -> dict[str, object]:
        self._seq[run] += 1
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

    def finish_lines(self) -> None:
        for run in list(self._torn):
            self.append(run, [], torn=False)

    def rotate(self, run: str) -> None:
        self.finish_lines()
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


def held(intake: Intake) -> Truth:
    found: Truth = {}
    for name in ("xenna.stage.tasks_completed", "xenna.pipeline.progress"):
        for (tags, _), points in intake.series(name).items():
            [run] = [tag.removeprefix("run_hash:") for tag in tags if tag.startswith("run_hash:")]
            found |= {(name, run, second): value for second, value in points.items()}
    return found


KILLS = st.builds(Kill, st.sampled_from(AT_THE_INTAKE + AT_THE_STORE), st.just(1))
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
    shared: CrashHarness, rounds: list[tuple[str, list[int], bool, str, Kill]]
) -> None:
    with tempfile.TemporaryDirectory() as name, Intake(key=KEY) as intake:
        folder = Path(name)
        (folder / "records").mkdir()
        (folder / "checkpoints").mkdir()
        shared.at(
            intake,
            FLEETGAUGE_XENNA_PATHS=str(folder / "records"),
            FLEETGAUGE_CHECKPOINTS=str(folder / "checkpoints"),
        )
        writers = Writers(folder / "records")
        for run, values, torn, change, kill in rounds:
            writers.append(run, values, torn=torn)
            assert shared.run(kill) is None, f"{kill} did not happen"
            if change in {"truncate", "replace"}:
                # What is thrown away before anyone read it is nobody's to know.
                writers.finish_lines()
                assert shared.run() is not None
            if change != "nothing":
                getattr(writers, change)(run)
        writers.finish_lines()
        outcome = shared.run()
        assert outcome is not None
        assert outcome["status"] == "ok", outcome
        assert held(intake) == writers.truth
