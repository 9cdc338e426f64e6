"""On a real Ray: pipelines of cosmos-xenna with the hook, and a data-plane client in four actors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from support.project import Project
from support.record_runs import Runs
from support.servers.datadog import Intake
from support.xenna_pipeline import namespace, offline
from support.xenna_pipeline.standin import read

pytestmark = pytest.mark.slow

INPUTS = 24
STAGES = {
    "download_stage": "DownloadStage",
    "http_tokenize_stage": "HTTPTokenizeStage",
    "write_stage": "WriteStage",
}
VERSIONS = {"311": "0.3.0", "312": "0.5.12"}
PUTS, KEYS = 4 * 5, 50  # of each of four actors in five steps

Ended = dict[str, namespace.Ran]


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ended(version: str, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All pipelines of one release, and the actors, run once: starting Ray takes longest."""
    return namespace.run_pipelines(version, tmp_path_factory.mktemp(version))


def pushed(project: Project, directory: Path) -> None:
    """Have the real service push the records of the last hour, also those that have not settled."""
    project.keep("xenna")
    ran = project.run("xenna", "--since", "55m", "--push", "--yes", FLEETGAUGE_XENNA_PATHS=str(directory))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "dropped: nothing" in ran.stdout


def completed(intake: Intake, stage: str, mode: str) -> float | None:
    tags = [f"stage:{stage}", f"run_hash:{mode}", "pipeline_kind:curate"]
    return intake.value("xenna.stage.tasks_completed", tags)


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_the_intake_holds_the_totals_that_a_real_pipeline_reached(
    ended: Ended, version: str, mode: str, project: Project, intake: Intake
) -> None:
    ran = ended[mode]
    assert ran.report["error"] is None
    assert ran.report["outputs"] == list(range(INPUTS))
    assert [ran.tasks(name) for name in STAGES.values()] == [INPUTS, INPUTS / 2, INPUTS]
    assert "Installed PipelineMonitor._make_stats patch" in ran.output
    written = read(ran.directory / "records")
    _check_records(written, VERSIONS[version], ran.report["calls"])
    pushed(project, ran.directory / "records")
    assert {stage: completed(intake, stage, mode) for stage in STAGES} == {
        stage: ran.tasks(name) for stage, name in STAGES.items()
    }
    assert intake.value("xenna.pipeline.progress_stages") == 100.0
    assert intake.value("xenna.runs.ended", ["status:ok"]) == 1
    _check_wandb(ran.directory, written)


def _check_records(written: list[dict[str, Any]], version: str, calls: int) -> None:
    assert [record["seq"] for record in written] == list(range(len(written)))
    assert [record["event"] for record in written] == ["start", *["stats"] * (calls + 1), "end"]
    assert {record["xenna_version"] for record in written} == {version}
    assert (written[-1]["status"], "error" in written[-1]) == ("ok", False)
    assert any("stage/write_stage/resource/cpu_util_pct" in record["metrics"] for record in written)


def _check_wandb(directory: Path, written: list[dict[str, Any]]) -> None:
    """W&B has what the records have, in a run of its own; the job's values stand where the job put them."""
    runs = {offline.run(path).display_name: path for path in directory.glob("wandb/offline-run-*/*.wandb")}
    assert runs.keys() == {"job", "job-xenna"}
    path = runs["job-xenna"]
    ours = [
        {key: value for key, value in row.items() if key.startswith("xenna/")}
        for _, row in offline.history(path)
    ]
    expected = [
        {f"xenna/{key}": value for key, value in record["metrics"].items()} for record in written[1:-1]
    ]
    assert ours == [pytest.approx(values) for values in expected]
    assert offline.step_metrics(path)["xenna/*"] == "xenna/pipeline_duration_s"
    own, job = offline.run(path), offline.run(runs["job"])
    assert (own.run_group, own.job_type, own.project) == (job.run_group, "xenna", job.project)
    rows = [
        (step, {key: value for key, value in row.items() if not key.startswith("_")})
        for step, row in offline.history(runs["job"])
    ]
    assert rows == [(0, {"mine": 1}), (1, {"mine": 2}), (2, {"mine": 3})]
    assert offline.summary(runs["job"])["xenna/run"] == own.run_id


def test_real_pipeline_that_fails_raises_its_error_and_has_an_end(
    ended: Ended, project: Project, intake: Intake
) -> None:
    ran = ended["failing"]
    *_, totals, end = read(ran.directory / "records")
    assert ran.report["outputs"] is None
    assert ran.report["error"] is not None
    assert "sample 11 is bad" in ran.output + ran.report["message"]
    assert end["event"] == "end"
    assert end["status"] == "error"
    assert end["error"].rpartition(".")[2] == ran.report["error"]
    pushed(project, ran.directory / "records")
    assert intake.value("xenna.runs.ended", ["status:error"]) == 1
    assert 0 < ran.tasks("WriteStage") < INPUTS
    assert (
        completed(intake, "write_stage", "failing") == totals["metrics"]["stage/write_stage/tasks_completed"]
    )
    assert totals["metrics"]["stage/write_stage/tasks_completed"] <= ran.tasks("WriteStage")


def test_client_handed_to_actors_counts_in_each_for_itself(ended: Ended) -> None:
    ran = ended["actors"]
    driver, actors = ran.report["driver"], ran.report["actors"]
    written = [one for path in sorted((ran.directory / "records").iterdir()) for one in records.read(path)]
    for op, n_bytes in (("put", 5 * KEYS * 4 * (10 + 11 + 12 + 13)), ("clear", 0)):
        found = [one for one in written if one.get("op") == op]
        totals = [sum(one[name] for one in found) for name in ("count", "keys", "bytes")]
        assert totals == [PUTS, PUTS * KEYS, n_bytes]
    ranks = {(one["pid"], one.get("rank")) for one in written}
    assert ranks == {*zip(actors, range(4), strict=True), (driver, 99)}
    foreign = Counter(dict.fromkeys(actors, 0))
    for one in written:
        foreign[one["pid"]] += one.get("foreign_clears", 0)
    assert foreign == dict.fromkeys(actors, 0) | {driver: PUTS * KEYS}

    times = [int(one["timestamp"]) for one in written]
    runs = Runs("data_plane", ran.directory / "records")
    points = runs.backfill(min(times), max(times) + 1, max(times) + 60)
    assert {reason for each in runs.ran for reason in each.report.dropped} == set()
    assert [key for key in points if "outstanding" in key[0]] == []
    assert sum(n for key, n in points.items() if key[0] == "data_plane.foreign_clears") == PUTS * KEYS
    assert sum(value for key, value in points.items() if key[0] == "data_plane.keys") == 2 * PUTS * KEYS
