"""The page for those who come from elsewhere: its names exist, ours is what it says, and its examples run."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from stormlog import wandb_integration as stormlog  # type: ignore[import-untyped]

from fleetgauge import xenna
from old_systems import Ours, matches, same_names, stand_in
from support.project import ROOT, Project
from support.servers.aws import Aws
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


@pytest.fixture
def ours(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    nothing_said_yet: None,
) -> Ours:
    return Ours(monkeypatch, caplog, capsys, tmp_path)


def quoted(system: str, column: int) -> list[str]:
    """What the left (1) or right (2) column of a system's table quotes."""
    lines = [line for line in section(SYSTEMS[system]).splitlines() if line.startswith("| ")][2:]
    return [name for line in lines for name in re.findall(r"`([^`]+)`", line.split(" | ")[column - 1])]


def exists(name: str, system: str) -> bool:
    """Whether a name is one of ours, of those that the system's introduction names, with its parameters."""
    name, _, parameters = name.rstrip(")").partition("(")
    for owner in re.findall(r"`(fleetgauge\.[^`]+)`", section(SYSTEMS[system]).partition("```")[0]):
        with suppress(AttributeError):
            found = find(f"{owner}.{name}")
            return not parameters or set(parameters.split(", ")) <= set(inspect.signature(found).parameters)
    return False


def section(title: str, page: str = PAGE) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def examples(title: str, page: str = PAGE, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(title, page), re.DOTALL)


def find(name: str) -> Any:
    """What a dotted name stands for: a module, something of one, or what its instances have."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            if inspect.isclass(found) and re.search(rf"self\.{attribute}(:| =) ", inspect.getsource(found)):
                return found
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


# Named on the right side though they are others' names.
FOREIGN = {"s3://", "cfg", "build_data_plane_client", "xenna/"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_not_in_a_table_is_called_the_same_here(system: str, ours: Ours) -> None:
    produced = getattr(ours, system)()
    assert [name for name in same_names(system) if not matches(name, produced)] == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_name_on_the_right_is_ours(system: str, ours: Ours) -> None:
    produced = getattr(ours, system)()
    named = set(quoted(system, 2)) - FOREIGN
    unknown = {name for name in named if not exists(name, system) and not matches(name, produced)}
    assert unknown - ({"wandb: ok in <seconds> s"} if system == "collector" else set()) == set()


CALLS = {
    "xenna": "make_xenna_wandb_stats_hook(observability, pipeline_kind, run_hash, run_dir, dataset_names)",
    "uair": """
        WandbLogger(cfg, stage, run_id, run_config); enabled; start; finish
        log_metrics(metrics, step, commit); log_table(key, prefer_cols, max_rows, panel_group)
        log_plot(key, figure); log_artifact(artifact_path, name, type); set_summary(key, value)
        set_config(allow_val_change); collect_compute_metadata(cfg)
    """,
    "nemo": """
        MetricsDataPlaneClient(inner, on_event); snapshot; bytes_outstanding_by_partition; DataPlaneEvent
        EventStatus; DataPlaneStats; log_event(event)
    """,
}


@pytest.mark.parametrize("system", CALLS)
def test_calls_and_keywords_of_the_originals_are_ours(system: str) -> None:
    calls = re.split(r";|\n", CALLS[system].strip())
    assert [call for call in calls if not exists(call.strip(), system)] == []


def test_everything_of_stormlogs_export_is_ours_or_in_its_table(ours: Ours) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    stormlog.add_wandb_arguments(parser)
    offered = {option for action in parser._actions for option in action.option_strings} - {"--wandb"}
    offered |= set(stormlog.__all__)
    for module in ("tracking", "core", "attribution", "dashboard"):
        source = importlib.import_module(f"stormlog._wandb.{module}")
        offered |= set(re.findall(r'"(stormlog[_-]\w[\w-]*\w)"', inspect.getsource(source)))
    in_table = {name.partition("(")[0] for name in quoted("stormlog", 1)}
    produced = ours.stormlog()
    assert {name for name in offered - in_table if not exists(name, "stormlog")} - produced == set()
    for name in set(stormlog.__all__) - in_table:
        if inspect.isfunction(theirs := getattr(stormlog, name)):
            assert exists(f"{name}({', '.join(inspect.signature(theirs).parameters)})", "stormlog"), name


def test_every_operation_of_nemo_rls_client_and_its_parameters_are_ours() -> None:
    tree = ast.parse((ROOT / "tests/nemo_rl/data_plane/interfaces.py").read_text())
    [client] = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "DataPlaneClient"]
    operations = [one for one in client.body if isinstance(one, ast.FunctionDef)]
    assert len(operations) == 8
    for operation in operations:
        shown = f"{operation.name}({', '.join(one.arg for one in operation.args.args[1:])})"
        assert exists(shown, "nemo"), shown


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
    runs = stand_in(monkeypatch)
    given: dict[str, Any] = {"cfg": {"wandb": {"project": "UAIR"}}, "df": pd.DataFrame({"text": ["a"]})}
    for example in examples(SYSTEMS["uair"]):
        exec(compile(example, "migrating.md", "exec"), given)  # noqa: S102
    first, second = runs
    assert [row.get("accuracy", "table") for row in first.rows] == [0.95, "table"]
    assert [row["accuracy"] for row in second.rows] == [0.95]
    assert [run.ended for run in runs] == [1, 1]
    assert all(run.options["name"].endswith("-classify-001") and "id" not in run.options for run in runs)
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


def run_python(program: str, directory: Path, **variables: str) -> str:
    """What a fresh interpreter prints."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "WANDB_SILENT": "true"} | variables
    command = [sys.executable, "-c", program]
    ran = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_the_export_of_a_stormlog_tracker_runs(tmp_path: Path) -> None:
    [example] = examples(SYSTEMS["stormlog"])
    counted = run_python(TRACKED + example, tmp_path)
    [path] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = [row for _, row in offline.history(path) if "stormlog_timeline_elapsed_seconds" in row]
    assert len(found) == int(counted) >= 3
    assert all(row["stormlog_timeline_allocated_bytes"] > 0 for row in found)


USED = """
from support.data_plane_fakes import Tensor
from nemo_rl.data_plane import DataPlaneClient, KVBatchMeta
client.register_partition("train", ["x"], 2, ["train"])
client.put_samples(["a", "b"], "train", fields={"x": [Tensor(4), Tensor(2, 3)]})
meta = client.claim_meta("train", "train", ["x"], 2)
assert isinstance(meta, KVBatchMeta) and client.get_data(meta, ["x"])["x"][1].shape == (2, 3)
print(isinstance(client, DataPlaneClient), client.bootstrap, len(client.rows["train"]))
client.clear_samples(["a"], "train")
print(client.snapshot()["bytes_outstanding"] if hasattr(client, "snapshot") else "not held")
client.close()
sink.close()
"""
CFG = 'cfg = {"enabled": True, "impl": "transfer_queue"}\n'


def operations(directory: Path) -> list[tuple[str, int, int]]:
    """What the sink wrote of each operation: its name, rank and calls."""
    found = [record for record in standin.read(directory) if "op" in record]
    return sorted((record["op"], record["rank"], record["count"]) for record in found)


EVERY = [(op, 3, 1) for op in ("claim_meta", "clear", "close", "get_data", "put", "register")]


def nemo_rl_example(directory: Path) -> str:
    [example] = examples("In NeMo-RL", (ROOT / "docs/data-plane.md").read_text())
    return example.replace("/shared/data-plane", str(directory))


def test_wrapper_works_in_nemo_rls_factory_as_documented(tmp_path: Path) -> None:
    printed = run_python(CFG + nemo_rl_example(tmp_path) + USED, tmp_path, RANK="3")
    assert printed.split() == ["True", "False", "2", "24"]
    assert operations(tmp_path) == EVERY


def test_wrapper_replaces_nemo_rls_own_in_its_factory(tmp_path: Path) -> None:
    swapped = (
        "import sys, types, fleetgauge.data_plane\n"
        'sys.modules["nemo_rl.data_plane.observability"] = fleetgauge.data_plane\n'
        "from nemo_rl.data_plane import build_data_plane_client\n"
        f'sink = fleetgauge.data_plane.JsonlEvents("{tmp_path}/", rank=3)\n'
        'cfg["observability"] = {"enabled": True, "callback": sink}\n'
        "client = build_data_plane_client(cfg)\n"
    )
    assert run_python(CFG + swapped + USED, tmp_path).split() == ["True", "True", "2", "24"]
    assert operations(tmp_path) == EVERY


def test_a_sink_of_ours_is_the_callback_of_nemo_rls_own_wrapper(tmp_path: Path) -> None:
    passed = (
        "from fleetgauge.data_plane import JsonlEvents\n"
        "from nemo_rl.data_plane import build_data_plane_client\n"
        f'sink = JsonlEvents("{tmp_path}/", rank=3)\n'
        'cfg["observability"] = {"enabled": True, "callback": sink}\n'
        "client = build_data_plane_client(cfg, bootstrap=False)\n"
    )
    assert run_python(CFG + passed + USED, tmp_path).split() == ["False", "False", "2", "not", "held"]
    assert operations(tmp_path) == [("put", 3, 1)]


@pytest.fixture
def old_environment(project: Project, wandb: Wandb) -> Project:
    """A copy of the service with what the old collector's environment held."""
    project.keep("wandb")
    project.environment |= {"WANDB_BASE_URL": wandb.url, "WANDB_ENTITY": "acme", "WANDB_PROJECT": "ants"}
    return project


@pytest.mark.slow
def test_the_old_collectors_commands_and_environment_work(old_environment: Project, intake: Intake) -> None:
    [shown] = examples(SYSTEMS["collector"], language="sh")
    for line in shown.splitlines():
        python, script, *arguments = line.split()
        assert (python, script) == ("python", "scripts/run_collector.py")
        ran = old_environment.run(*arguments, WANDB_API_KEY=KEY)
        assert ran.returncode == 0, ran.stderr
    sent = {key.metric for key in intake.points}
    assert {name for name in same_names("collector") if name.startswith("wandb.")} - sent == set()
    lines = [*ran.stdout.splitlines(), *ran.stderr.splitlines()]
    assert matches("wandb: ok in <seconds> s", lines), lines


def test_the_old_collectors_secret_works_where_it_is(old_environment: Project, aws: Aws) -> None:
    secret = {"WANDB_API_KEY": KEY, "WANDB_ENTITY": "acme", "WANDB_PROJECT": "ants"}
    aws.put_secret("dev/datadog/collectors/wandb", secret)
    old_environment.environment |= aws.environment | {"FLEETGAUGE_SECRET_PREFIX": "dev/datadog/collectors"}
    del old_environment.environment["WANDB_ENTITY"], old_environment.environment["WANDB_PROJECT"]
    [outcome] = old_environment.document("wandb")["collectors"]
    assert outcome["status"] == "ok"
    assert len(outcome["samples"]) > 20
