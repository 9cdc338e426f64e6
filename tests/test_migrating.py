"""The page for those who come from elsewhere: its examples run."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetgauge import xenna
from support.data_plane_fakes import CALLS, Store
from support.project import ROOT
from support.xenna_pipeline import offline, standin


def examples(title: str, page: str = "docs/migrating.md") -> list[str]:
    """The blocks of Python of a section."""
    section = (ROOT / page).read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_a_recipe_of_nemotron_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = standin.install(monkeypatch)
    of_the_tables = """wandb_log_plan_table wandb_log_progress_table wandb_progress_table_interval_s
        wandb_log_stage_table wandb_stage_table_interval_s"""
    given = {
        "observability_cfg": SimpleNamespace(
            wandb_log_pipeline_stats=False,
            pipeline_logging_interval_s=30,
            pipeline_stats_jsonl_path=f"{tmp_path}/",
            **dict.fromkeys(of_the_tables.split(), 1),
        ),
        "context": SimpleNamespace(run_hash="abc123", run_dir=str(tmp_path), dataset_names=["one"]),
        "pipelines_v1": SimpleNamespace(run_pipeline=lambda spec: monitor(spec).update()),
        "pipeline_spec": [standin.one()],
    }
    [example] = examples("Nemotron's xenna hook")
    exec(compile(example, "migrating.md", "exec"), given)  # noqa: S102
    assert [record["event"] for record in standin.read(tmp_path)] == ["start", "stats", "end"]
    assert xenna.flatten_stats(standin.one())["xenna/progress"] >= 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def offline_runs(folder: Path, title: str, before: str, after: str) -> tuple[int, list[Path]]:
    """Run the examples of a section; return the number that is printed last, and the files of their runs."""
    ran = subprocess.run(
        [sys.executable, "-c", "".join([before, *examples(title), after])],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    paths = folder.glob("wandb/offline-run-*/run-*.wandb")
    return int(ran.stdout.splitlines()[-1]), sorted(paths, key=lambda path: path.stat().st_mtime_ns)


CONFIGURED = """
import pandas
cfg, df = {"wandb": {"project": "UAIR", "mode": "offline"}}, pandas.DataFrame({"text": ["a"]})
"""


@pytest.mark.slow
def test_the_usage_of_uairs_logger_runs(tmp_path: Path) -> None:
    cpus = 'print(metadata["compute.cpu_count"])'
    number, paths = offline_runs(tmp_path, "UAIR's wandb_logger", CONFIGURED, cpus)
    assert number >= 1
    rows = [[row.get("accuracy", "table") for _, row in offline.history(path)] for path in paths]
    assert rows == [[0.95, "table"], [0.95]]
    assert all(offline.run(path).display_name.endswith("-classify-001") for path in paths)


TRACKED = """
from stormlog import CPUMemoryTracker
tracker = CPUMemoryTracker(sampling_interval=0.01)
tracker.start_tracking()
while len(tracker.get_events()) < 3:
    pass
tracker.stop_tracking()
"""


@pytest.mark.slow
def test_the_export_of_a_stormlog_tracker_runs(tmp_path: Path) -> None:
    number, [path] = offline_runs(
        tmp_path, "stormlog's W&B export", TRACKED, "print(len(tracker.get_events()))"
    )
    found = [row for _, row in offline.history(path) if "stormlog_timeline_elapsed_seconds" in row]
    assert len(found) == number >= 3
    assert all(row["stormlog_timeline_allocated_bytes"] > 0 for row in found)


def test_the_example_for_nemo_rl_records_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    module = SimpleNamespace(build_data_plane_client=lambda cfg, bootstrap: Store())
    monkeypatch.setitem(sys.modules, "nemo_rl.data_plane", module)
    monkeypatch.setitem(sys.modules, "nemo_rl", SimpleNamespace(data_plane=module))
    [example] = examples("In NeMo-RL", "docs/data-plane.md")
    given: dict[str, Any] = {"cfg": {}}
    program = example.replace("/shared/data-plane", str(tmp_path))
    exec(compile(program, "data-plane.md", "exec"), given)  # noqa: S102
    for call in CALLS.values():
        call(given["client"])
    given["sink"].close()
    written = [record for record in standin.read(tmp_path) if "op" in record]
    assert sorted((one["op"], one["rank"], one["job"], one["count"]) for one in written) == [
        (op, 3, "ants-7", 1) for op in sorted(CALLS)
    ]
