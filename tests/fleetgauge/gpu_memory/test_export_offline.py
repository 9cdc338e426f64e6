"""A real tracking session on this machine's CPU, exported into a real offline W&B run and read back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetgauge.gpu_memory import load_recording
from support.xenna_pipeline import offline

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `gpumemprof track` leaves behind."""
    directory = tmp_path_factory.mktemp("tracked")
    track = "import sys; from stormlog.cli import main; sys.exit(main())"
    options = ["track", "--duration", "1", "--interval", "0.05", "--format", "json", "--output", "track.json"]
    command = [sys.executable, "-c", track, *options, "--telemetry-sink-dir", "sink"]
    environment = os.environ | {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "SLURM_JOB_ID": "4242"}
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
    return directory


def test_real_session_exported_offline_has_its_keys_rows_and_artifacts(tracked: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in (tracked / "sink").iterdir())
    (tmp_path / "tmp").mkdir()
    options = ["--artifacts", "--attribution", "--project", "p", "--offline"]
    ran = subprocess.run(
        [sys.executable, "-m", "fleetgauge.gpu_memory", "export", tracked / "sink", *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WANDB_SILENT": "true", "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    [session] = load_recording(tracked / "sink").sessions
    events = list(session.events())
    [path] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    run = offline.run(path)
    assert (run.project, run.run_group, run.job_type) == ("p", "4242", "gpu-memory-export")
    assert run.display_name == f"gpu-memory-export-{session.summary.session_id[:8]}"

    rows = [row for _, row in offline.history(path)]
    timeline = [row for row in rows if "stormlog_timeline_elapsed_seconds" in row]
    assert len(events) > 20
    sizes = [row["stormlog_timeline_allocated_bytes"] for row in timeline]
    assert sizes == [event.memory_allocated for event in events]
    keys = {key.partition("/")[0] for row in rows for key in row}
    assert keys >= {"stormlog_memory_timeline_plot_table", "stormlog_tracking_dashboard"}
    table = "stormlog_memory_timeline_table"
    found = [(row[f"{table}/nrows"], row[f"{table}/ncols"]) for row in rows if f"{table}/nrows" in row]
    assert found == [(len(events), 10)]

    summary = offline.summary(path)
    assert summary["stormlog_total_events"] == summary["stormlog_chart_point_count"] == len(events)
    assert summary["stormlog_peak_memory_bytes"] == max(event.memory_allocated or 0 for event in events)
    identity = [summary[f"stormlog_{name}"] for name in ("rank", "world_size", "job_id", "backend")]
    assert identity == [1, 2, "4242", "cpu"]
    steps = {name: step for name, step in offline.step_metrics(path).items() if step}
    assert steps == {"stormlog_timeline_*": "stormlog_timeline_elapsed_seconds"}
    records = list(offline.records(path))
    logged = [record.request.log_artifact.artifact for record in records]
    logged += [record.artifact for record in records]
    assert {(one.type, one.name) for one in logged if one.type.startswith("stormlog")} == {
        (kind, f"{kind}-{session.summary.session_id}")
        for kind in ("stormlog-tracking-dashboard", "stormlog-telemetry-sink")
    }
    assert sorted(path.name for path in (tracked / "sink").iterdir()) == before
    assert not list((tmp_path / "tmp").glob("fleetgauge-*"))


def test_the_track_file_tells_the_same_session_as_the_sink(tracked: Path) -> None:
    [from_file], [from_sink] = (load_recording(tracked / name).sessions for name in ("track.json", "sink"))
    assert list(from_file.events()) == list(from_sink.events())
    assert from_file.summary.session_id == from_sink.summary.session_id
    assert from_file.summary.status == "completed"
    assert from_file.profile.totals.as_stats() == from_sink.profile.totals.as_stats()
