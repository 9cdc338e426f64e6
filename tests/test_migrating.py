"""The page for those who come from elsewhere: its names exist, and its examples run."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from data_plane_fakes import Store
from xenna_pipeline import offline, standin

from collectors.wandb.metrics import METRICS
from collectors.wandb.settings import WandbSettings
from common.config.settings import variables
from common.execution import health
from fleetgauge import xenna
from project import ROOT

PAGE = (ROOT / "docs/migrating.md").read_text()
OURS = sorted(
    {
        name
        for line in PAGE.splitlines()
        if line.startswith("| ")
        for name in re.findall(r"`(fleetgauge\.[^`]+)`", line.split(" | ")[1])
    }
)


def find(name: str) -> Any:
    """What a dotted name stands for: a module, or something of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("shown", OURS)
def test_every_name_of_ours_exists_with_its_parameters(shown: str) -> None:
    name, _, parameters = shown.rstrip(")").partition("(")
    found = find(name)
    if parameters:
        known = inspect.signature(found).parameters
        assert [one for one in parameters.split(", ") if one not in known] == []


def test_the_page_names_what_is_ours() -> None:
    assert len(OURS) > 25


def example(system: str, page: str = PAGE) -> str:
    section = page.partition(f"## {system}\n")[2].partition("\n## ")[0]
    return section.partition("```python\n")[2].partition("```")[0]


def test_a_recipe_of_nemotron_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monitor = standin.install(monkeypatch)
    given = {
        "observability_cfg": SimpleNamespace(
            wandb_log_pipeline_stats=False,
            pipeline_logging_interval_s=30,
            pipeline_stats_jsonl_path=f"{tmp_path}/",
        ),
        "context": SimpleNamespace(run_hash="abc123", run_dir=str(tmp_path), dataset_names=["one"]),
        "pipelines_v1": SimpleNamespace(run_pipeline=lambda spec: monitor(spec).update()),
        "pipeline_spec": [standin.one()],
    }
    exec(compile(example("Nemotron's xenna hook"), "migrating.md", "exec"), given)  # noqa: S102
    assert [record["event"] for record in standin.read(tmp_path)] == ["start", "stats", "end"]
    assert xenna.flatten_stats(standin.one())["xenna/progress"] >= 0


def test_the_wrapper_is_plugged_into_nemo_rls_factory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[tuple[object, bool]] = []

    def build_data_plane_client(cfg: object, *, bootstrap: bool = True) -> Store:
        built.append((cfg, bootstrap))
        return Store()

    factory: Any = ModuleType("nemo_rl.data_plane")
    factory.build_data_plane_client = build_data_plane_client
    monkeypatch.setitem(sys.modules, "nemo_rl", ModuleType("nemo_rl"))
    monkeypatch.setitem(sys.modules, "nemo_rl.data_plane", factory)
    monkeypatch.setenv("RANK", "3")
    given: dict[str, Any] = {"cfg": {"enabled": True}}
    shown = example("In NeMo-RL", (ROOT / "docs/data-plane.md").read_text())
    exec(compile(shown.replace("/shared/data-plane", str(tmp_path)), "data-plane.md", "exec"), given)  # noqa: S102
    given["client"].check_consumption_status("p", ["train"])
    given["client"].close()
    given["sink"].close()
    assert built == [({"enabled": True}, False)]
    found = [record for record in standin.read(tmp_path) if "op" in record]
    assert [(record["op"], record["rank"], record["count"]) for record in found] == [
        ("check_consumption_status", 3, 1),
        ("close", 3, 1),
    ]


TRACKED = """
from stormlog import CPUMemoryTracker
tracker = CPUMemoryTracker(sampling_interval=0.01)
tracker.start_tracking()
while len(tracker.get_events()) < 3:
    pass
tracker.stop_tracking()
print(len(tracker.get_events()))
"""


def test_the_export_of_a_stormlog_tracker_runs(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_SILENT": "true"}
    command = [sys.executable, "-c", TRACKED + example("stormlog's W&B export")]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    [path] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    rows = [row for _, row in offline.history(path) if "stormlog_timeline_elapsed_seconds" in row]
    assert len(rows) == int(ran.stdout) >= 3
    assert all(row["stormlog_timeline_allocated_bytes"] > 0 for row in rows)


def test_every_setting_and_metric_that_the_old_collectors_users_know_exists() -> None:
    section = PAGE.partition("## The W&B collector that sent to Datadog\n")[2]
    cells = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ")][2:]
    names = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    metrics = {metric.name for metric in (*METRICS, *health.METRICS)}
    known = metrics | set(variables(WandbSettings).values())
    assert names - known == set()
    assert len(names & metrics) > 15


class Run:
    """A W&B run that keeps what it is given."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.rows, self.ended = options, list[dict[str, Any]](), 0
        self.config = SimpleNamespace(as_dict=dict, update=lambda values, allow_val_change: None)

    def log(self, row: dict[str, Any], step: int | None = None) -> None:
        self.rows.append(row)

    def finish(self, exit_code: int) -> None:
        self.ended += 1


def test_the_usage_of_uairs_logger_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []

    def init(**options: Any) -> Run:
        runs.append(Run(options))
        return runs[-1]

    module: Any = ModuleType("wandb")
    module.run, module.init, module.Settings, module.Table = None, init, SimpleNamespace, SimpleNamespace
    monkeypatch.setitem(sys.modules, "wandb", module)
    given = {"cfg": {"wandb": {"project": "UAIR"}}, "df": pd.DataFrame({"text": ["a"]})}
    exec(compile(example("UAIR's wandb_logger"), "migrating.md", "exec"), given)  # noqa: S102
    first, second = runs
    assert [row.get("accuracy", "table") for row in first.rows] == [0.95, "table"]
    assert [row["accuracy"] for row in second.rows] == [0.95]
    assert [run.ended for run in runs] == [1, 1]
    assert all(run.options["name"].endswith("-classify-001") and "id" not in run.options for run in runs)
