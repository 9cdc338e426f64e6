"""The page for those who come from elsewhere: its examples run."""

from __future__ import annotations

import inspect
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from stormlog import wandb_integration as stormlog  # type: ignore[import-untyped]

from fleetgauge import data_plane, gpu_memory, xenna
from support.project import ROOT, Project
from support.servers.datadog import Intake
from support.servers.wandb import KEY, Wandb
from support.xenna_pipeline import offline, standin

PAGE = (ROOT / "docs/migrating.md").read_text()
SYSTEMS = {
    "xenna": "Nemotron's xenna hook",
    "uair": "UAIR's wandb_logger",
    "stormlog": "stormlog's W&B export",
    "nemo": "NeMo-RL's data-plane observability",
    "collector": "The W&B collector that sent to Datadog",
}


def section(title: str, page: str = PAGE) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def examples(title: str, page: str = PAGE, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(title, page), re.DOTALL)


def test_every_function_of_stormlogs_export_is_ours_or_in_its_table() -> None:
    """Its keys are compared call by call in tests/fleetgauge/gpu_memory/test_export.py."""
    lines = [line for line in section(SYSTEMS["stormlog"]).splitlines() if line.startswith("| ")][2:]
    named = [name for line in lines for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    in_table = {name.partition("(")[0] for name in named}
    for name in set(stormlog.__all__) - in_table:
        if inspect.isfunction(theirs := getattr(stormlog, name)):
            ours = inspect.signature(getattr(gpu_memory, name)).parameters
            assert inspect.signature(theirs).parameters.keys() <= ours.keys(), name


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
    [example] = examples(SYSTEMS["xenna"])
    exec(compile(example, "migrating.md", "exec"), given)  # noqa: S102
    assert [record["event"] for record in standin.read(tmp_path)] == ["start", "stats", "end"]
    assert xenna.flatten_stats(standin.one())["xenna/progress"] >= 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_usage_of_uairs_logger_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = []
    began: list[dict[str, Any]] = []
    ended: list[int] = []
    run = SimpleNamespace(
        config=SimpleNamespace(as_dict=dict, update=lambda values, allow_val_change: None),
        log=lambda row, step=None: rows.append(row),
        finish=lambda exit_code: ended.append(exit_code),
    )

    def init(**options: Any) -> SimpleNamespace:
        began.append(options)
        return run

    module = SimpleNamespace(run=None, init=init, Settings=SimpleNamespace, Table=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "wandb", module)
    given: dict[str, Any] = {"cfg": {"wandb": {"project": "UAIR"}}, "df": pd.DataFrame({"text": ["a"]})}
    for example in examples(SYSTEMS["uair"]):
        exec(compile(example, "migrating.md", "exec"), given)  # noqa: S102
    assert [row.get("accuracy", "table") for row in rows] == [0.95, "table", 0.95]
    assert ended == [0, 0]
    assert all(options["name"].endswith("-classify-001") and "id" not in options for options in began)
    assert given["metadata"]["compute.cpu_count"] >= 1


TRACKED = """
from stormlog import CPUMemoryTracker
tracker = CPUMemoryTracker(sampling_interval=0.01)
tracker.start_tracking()
while len(tracker.get_events()) < 3:
    pass
tracker.stop_tracking()
print(len(tracker.get_events()))
"""


@pytest.mark.slow
def test_the_export_of_a_stormlog_tracker_runs(tmp_path: Path) -> None:
    [example] = examples(SYSTEMS["stormlog"])
    ran = subprocess.run(
        [sys.executable, "-c", TRACKED + example],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    [path] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = [row for _, row in offline.history(path) if "stormlog_timeline_elapsed_seconds" in row]
    assert len(found) == int(ran.stdout) >= 3
    assert all(row["stormlog_timeline_allocated_bytes"] > 0 for row in found)


USED = """
from support.data_plane_fakes import Tensor
from nemo_rl.data_plane import DataPlaneClient, KVBatchMeta
client.register_partition("train", ["x"], 2, ["train"])
client.put_samples(["a", "b"], "train", fields={"x": [Tensor(4), Tensor(2, 3)]})
meta = client.claim_meta("train", "train", ["x"], 2)
assert isinstance(meta, KVBatchMeta) and client.get_data(meta, ["x"])["x"][1].shape == (2, 3)
found = [isinstance(client, DataPlaneClient), client.bootstrap, len(client.rows["train"])]
client.clear_samples(["a"], "train")
found += [client.snapshot()["bytes_outstanding"]] if hasattr(client, "snapshot") else []
client.close()
sink.close()
"""
BUILT = """
from fleetgauge.data_plane import JsonlEvents
from nemo_rl.data_plane import build_data_plane_client
sink = JsonlEvents("DIRECTORY/", rank=3)
cfg["observability"] = {"enabled": True, "callback": sink}
client = build_data_plane_client(cfg, bootstrap=False)
"""
EVERY = ["claim_meta", "clear", "close", "get_data", "put", "register"]


@pytest.mark.parametrize("wrapper", ["as documented", "in place of NeMo-RL's", "beneath NeMo-RL's"])
def test_wrapper_and_sink_work_in_nemo_rls_factory(
    wrapper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    program, expected, operations = BUILT, [True, False, 2, 24], EVERY
    if wrapper == "as documented":
        [program] = examples("In NeMo-RL", (ROOT / "docs/data-plane.md").read_text())
    elif wrapper == "in place of NeMo-RL's":
        monkeypatch.setitem(sys.modules, "nemo_rl.data_plane.observability", data_plane)
    else:
        expected, operations = [False, False, 2], ["put"]
    directory = re.sub("/shared/data-plane|DIRECTORY", str(tmp_path), program)
    given: dict[str, Any] = {"cfg": {"enabled": True, "impl": "transfer_queue"}}
    exec(compile(directory + USED, "data-plane.md", "exec"), given)  # noqa: S102
    assert given["found"] == expected
    written = [record for record in standin.read(tmp_path) if "op" in record]
    assert sorted((record["op"], record["rank"], record["count"]) for record in written) == [
        (op, 3, 1) for op in operations
    ]


@pytest.mark.slow
def test_the_old_collectors_commands_and_environment_work(
    project: Project, wandb: Wandb, intake: Intake
) -> None:
    project.keep("wandb")
    environ = {"WANDB_BASE_URL": wandb.url, "WANDB_ENTITY": "acme", "WANDB_PROJECT": "ants"}
    [shown] = examples(SYSTEMS["collector"], language="sh")
    for line in shown.splitlines():
        python, script, *arguments = line.split()
        assert (python, script) == ("python", "scripts/run_collector.py")
        ran = project.run(*arguments, WANDB_API_KEY=KEY, **environ)
        assert ran.returncode == 0, ran.stderr
    assert {key.metric for key in intake.points} >= {"wandb.runs.active", "wandb.sweep.success_rate_pct"}
    assert re.search(r"^wandb: ok in .+ s", ran.stdout + ran.stderr, re.MULTILINE)
