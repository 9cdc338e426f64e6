"""W&B runs around the stages of a job, written by the real client offline and read back from disk."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
import wandb
import yaml
from omegaconf import OmegaConf

from fleetgauge.wandb_logger import WandbLogger, merge
from support.project import ROOT
from support.xenna_pipeline import offline

CASES = yaml.safe_load((ROOT / "tests" / "data" / "wandb-logger.yaml").read_text())
NOON = datetime(2026, 11, 16, 12, 30, 5, tzinfo=UTC)
JOB = {"SLURM_JOB_ID": "4711", "SLURM_CPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "USER": "ada"}


class Written:
    """What a run left on disk, as W&B would upload it."""

    def __init__(self, path: Path) -> None:
        self.folder, self.run = path.parent, offline.run(path)
        self.history = [row for _, row in offline.history(path)]
        self.summary = offline.summary(path)
        self.config: dict[str, Any] = {}
        self.artifacts: list[tuple[str, str, list[str]]] = []
        for record in offline.records(path):
            match record.WhichOneof("record_type"):
                case "run":
                    offline.update(self.config, record.run.config.update)
                case "config":
                    offline.update(self.config, record.config.update)
                case "artifact":
                    made = record.artifact
                    paths = [entry.path for entry in made.manifest.contents]
                    self.artifacts.append((made.name, made.type, paths))
                case "exit":
                    self.exit_code = record.exit.exit_code

    def table(self, key: str) -> Any:
        (path,) = self.folder.glob(f"files/media/table/{key}_*.table.json")
        return json.loads(path.read_text())


def read_back(folder: Path) -> dict[str, Written]:
    """All runs below a folder, by the name of their stage."""
    # A run that is finished may not be on disk yet; what W&B's own process leaves behind is.
    end_service()
    runs = map(Written, folder.glob("wandb/offline-run-*/*.wandb"))
    return {written.run.job_type: written for written in runs}


def end_service() -> None:
    """Have W&B's own process end. It may lose the request, and the client would wait for it for ever."""
    ending = threading.Thread(target=wandb.teardown, daemon=True)
    ending.start()
    ending.join(120)
    assert not ending.is_alive(), "W&B's own process does not end"


def logger(folder: Path, stage: str, cfg: dict[str, Any] | None = None, **arguments: Any) -> WandbLogger:
    settings = {"project": "ants", "mode": "offline", "dir": str(folder)}
    given = {**(cfg or {}), "wandb": settings | (cfg or {}).get("wandb", {})}
    return WandbLogger(given, stage, **{"env": JOB, "now": lambda: NOON, **arguments})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("fleetgauge")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


# With the real client: every stage is a run, all are written and read back once.


FRAME = pd.DataFrame({"id": range(100), "text": ["x"] * 100, "score": [0.5] * 100})
SHAPES: dict[str, tuple[object, list[str] | None]] = {
    "dataframe": (pd.DataFrame({"text": ["a", "b"], "score": [1, None]}, dtype=object), None),
    "mappings": ([{"text": "a", "score": 1}, {"text": "b"}], None),
    "lists": ([["a", 1], ("b", None)], ["text", "score"]),
    "chosen": (iter([{"text": "a", "score": 1}, {"text": "b", "other": 9}]), ["text", "score"]),
}
SERVERS = {
    "compute": {"gpu_count": 8, "gpu_type": "NVIDIA H100 80GB HBM3", "rack": "r1"},
    "slurm": {"slurm_job_id": "1", "slurm_partition": "old"},
    "system": {"hostname": "elsewhere", "kernel": "5"},
    "model": {"batch_size": 2, "layers": 12},
    "seed": 7,
}


def describe(folder: Path) -> None:
    cfg = {
        "wandb": {"entity": "acme", "tags": ["x"]},
        "model": {"batch_size": 4},
        "runtime": {"debug": False},
    }
    with logger(folder, "described", cfg, run_id="001") as stage:
        stage.log_metrics({"accuracy": 0.95})
        stage.log_metrics({"accuracy": 0.97}, step=7)
        assert stage.enabled
        settings = stage.run.settings
        assert (settings.init_timeout, settings.login_timeout, settings.finish_timeout) == (30, 30, 300)
    with logger(folder, "patient", env={**JOB, "WANDB_FINISH_TIMEOUT": "0"}) as stage:
        assert (stage.run.settings.init_timeout, stage.run.settings.finish_timeout) == (30, 0)


def configure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = {"model": {"batch_size": 4, "concurrency": 2, "model_source": "/zoo"}}
    own = {"model": {"batch_size": 99, "dtype": None}, "compute": {"gpu_count": 1}, "slurm": "no"}
    with logger(folder, "own", cfg, run_config=own):
        pass
    with logger(folder, "set", run_config={"model": {"batch_size": 4, "engine": {"a": 1}}}) as stage:
        stage.set_config({"model": {"engine": {"b": 2}, "batch_size": 8}, "seed": 0})
        stage.set_config({"compute": {"rack": "r7"}, "seed": {"data": 1}})
        stage.set_config({"seed": 2}, allow_val_change=False)
    begin = wandb.init

    def resume(*, config: dict[str, Any], **options: Any) -> Any:
        """Begin a run that a server knew: W&B fills in what that has, below what it was given."""
        run = begin(config=merge(SERVERS, config), **options)
        vars(run)["_settings"].resumed = True
        return run

    with monkeypatch.context() as patched:
        patched.setattr(wandb, "init", resume)
        cfg = {"model": {"batch_size": 4, "concurrency": 3}}
        with logger(folder, "resumed", cfg, run_config={"compute": {"cluster": "b"}}):
            pass


def log_objects(folder: Path) -> None:
    long = [[number] for number in range(10_050)]
    preferred: dict[str, Any] = {
        "prefer_cols": ["score", "missing", "id"],
        "max_rows": 10,
        "panel_group": "inspect",
    }
    with logger(folder, "tables", {"wandb": {"table_sample_rows": 3, "table_sample_seed": 1}}) as stage:
        for key, (rows, columns) in SHAPES.items():
            stage.log_table(rows, key, columns)
        stage.log_table(FRAME, "sampled", prefer_cols=["nothing of it"])
        stage.log_table(FRAME.head(3), "complete")
    with logger(folder, "samples") as stage:
        stage.log_table(FRAME, "frame", **preferred)
        stage.log_table(FRAME.to_dict("records"), "listed", **preferred)
        stage.log_table(long, "default", ["id"])
        stage.log_table(long, "most", ["id"], max_rows=20_000)
    (folder / "rows.csv").write_text("a,b\n")
    with logger(folder, "objects") as stage:
        stage.log_metrics({"a": 1}, commit=False)
        stage.log_metrics({"b": 2})
        stage.log_plot("page", wandb.Html("<p>drawn</p>", inject=False))
        stage.log_artifact(folder / "rows.csv", "rows")
        stage.set_summary("verdict", "good")


def end_early(folder: Path) -> None:
    with pytest.raises(ValueError), logger(folder, "failed"):
        raise ValueError("no data")
    with logger(folder, "outer") as outer:
        with logger(folder, "inner") as inner:
            inner.log_metrics({"of": "inner"})
        assert wandb.run is outer.run
        outer.log_metrics({"of": "outer"})
    stage = logger(folder, "twice")
    stage.start()
    run = stage.run
    stage.start()
    assert stage.run is run
    stage.finish(2)
    stage.finish(0)
    stage.log_metrics({"too": "late"})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Written]]:
    """What every stage left on disk."""
    folder = tmp_path_factory.mktemp("runs") / "not" / "there"
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("MODE", "PROJECT", "ENTITY", "DIR", "GROUP", "API_KEY", "DISABLED"):
            monkeypatch.delenv(f"WANDB_{name}", raising=False)
        for name in ("CONFIG", "CACHE", "DATA"):
            monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path_factory.mktemp(name)))
        monkeypatch.setenv("WANDB_SILENT", "true")
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        describe(folder)
        configure(folder, monkeypatch)
        log_objects(folder)
        end_early(folder)
        yield read_back(folder)


@pytest.mark.slow
def test_run_has_what_it_runs_on_and_its_settings(written: dict[str, Written]) -> None:
    found = written["described"]
    run, config = found.run, found.config
    assert (run.project, run.entity, list(run.tags)) == ("ants", "acme", ["x"])
    assert run.display_name == "ants-described-20261116-123005-001"
    assert (found.exit_code, run.run_id == "001") == (0, False)
    # Nested, so that a filter on config.compute.gpu_count finds it.
    assert not [key for key in config if "." in key]
    compute = config["compute"]
    assert (compute["gpu_count"], compute["gpu_source"], compute["cpu_count"]) == (
        4,
        "CUDA_VISIBLE_DEVICES",
        1,
    )
    assert config["slurm"] == {"slurm_job_id": "4711", "slurm_cpus_per_task": "1"}
    assert (config["system"]["user"], config["model"]) == ("ada", {"batch_size": 4})
    assert config["runtime"] == {"debug": False}
    assert [(row["_step"], row["accuracy"]) for row in found.history] == [(0, 0.95), (7, 0.97)]


@pytest.mark.slow
def test_configuration_is_merged_deeply_and_the_users_values_win(written: dict[str, Written]) -> None:
    own = written["own"].config
    assert own["model"] == {"batch_size": 99, "concurrency": 2, "model_source": "/zoo", "dtype": None}
    assert (own["compute"]["gpu_count"], own["compute"]["cpu_count"], own["slurm"]) == (1, 1, "no")
    changed = written["set"].config
    assert changed["model"] == {"batch_size": 8, "engine": {"a": 1, "b": 2}}
    assert (changed["seed"], changed["compute"]["rack"]) == ({"data": 1}, "r7")
    assert changed["compute"]["gpu_count"] == 4


@pytest.mark.slow
def test_resumed_run_has_the_machine_it_runs_on_now(written: dict[str, Written]) -> None:
    config = written["resumed"].config
    assert (config["compute"]["gpu_count"], config["compute"]["cluster"]) == (4, "b")
    assert {"rack", "gpu_type"} & config["compute"].keys() == set()
    assert config["slurm"] == {"slurm_job_id": "4711", "slurm_cpus_per_task": "1"}
    assert config["system"]["hostname"] == os.uname().nodename
    assert "kernel" not in config["system"]
    assert (config["model"], config["seed"]) == ({"batch_size": 2, "layers": 12, "concurrency": 3}, 7)


@pytest.mark.slow
def test_table_may_have_any_shape_and_is_sampled_as_configured(written: dict[str, Written]) -> None:
    found = written["tables"]
    for key in SHAPES:
        table = found.table(key)
        assert (table["columns"], table["data"]) == (["text", "score"], [["a", 1], ["b", None]])
    *_, sampled, complete = found.history
    rows, total, seed = (sampled[f"sampled/{name}"] for name in ("rows", "total_rows", "sample_seed"))
    assert (rows, total, seed, sampled["sampled/ncols"]) == (3, 100, 1, 3)
    assert (complete["complete/rows"], "complete/sampled" in complete) == (3, False)


@pytest.mark.slow
def test_long_table_is_a_sample_in_order_of_the_preferred_columns(written: dict[str, Written]) -> None:
    found = written["samples"]
    for row, key, shown, total in zip(
        found.history,
        ("frame", "listed", "default", "most"),
        (10, 10, 1000, 10_000),
        (100, 100, 10_050, 10_050),
        strict=True,
    ):
        assert (row[f"{key}/rows"], row[f"{key}/total_rows"], row[f"{key}/sampled"]) == (shown, total, True)
        assert row[f"{key}/sample_seed"] == 777
        table = found.table(f"inspect/{key}" if shown == 10 else key)
        assert table["columns"] == (["score", "id"] if shown == 10 else ["id"])
        chosen = [cells[-1] for cells in table["data"]]
        assert (len(chosen), chosen) == (shown, sorted(set(chosen)))
        assert chosen[-1] >= shown


@pytest.mark.slow
def test_summary_artifact_plot_and_commit_are_w_and_bs_own(written: dict[str, Written]) -> None:
    found = written["objects"]
    assert (found.history[0]["a"], found.history[0]["b"]) == (1, 2)
    assert found.history[1]["page/_type"] == "html-file"
    assert found.summary["verdict"] == "good"
    assert found.artifacts == [("rows", "dataset", ["rows.csv"])]


@pytest.mark.slow
def test_run_is_finished_once_with_the_exit_code_of_its_stage(written: dict[str, Written]) -> None:
    codes = {stage: written[stage].exit_code for stage in ("failed", "outer", "inner", "twice")}
    assert codes == {"failed": 1, "outer": 0, "inner": 0, "twice": 2}
    assert [[row["of"] for row in written[stage].history] for stage in ("outer", "inner")] == [
        ["outer"],
        ["inner"],
    ]


# With a stand-in for the client.


class Recorder:
    """A `wandb` module that keeps what it was asked for."""

    def __init__(self, **behaviour: Any) -> None:
        self.asked: dict[str, Any] = {}
        self.run = None
        self.Settings = SimpleNamespace
        self.Table = SimpleNamespace
        self.started = SimpleNamespace(
            config=SimpleNamespace(as_dict=dict, update=lambda values, allow_val_change: None),
            log=lambda row, step=None: None,
            finish=lambda exit_code: None,
        )
        self.started.__dict__.update(behaviour)

    def init(self, **options: Any) -> SimpleNamespace:
        self.asked = options
        return self.started


def asked(
    monkeypatch: pytest.MonkeyPatch, cfg: object, env: dict[str, str], **arguments: Any
) -> dict[str, Any]:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    with WandbLogger(cfg, "classify", env=env, now=lambda: NOON, **arguments):
        return recorder.asked


@pytest.mark.parametrize("case", CASES["settings"], ids=str)
@pytest.mark.parametrize("made_of", [lambda cfg: cfg, OmegaConf.create], ids=["dict", "omegaconf"])
def test_settings_come_from_the_configuration_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, made_of: Any, case: dict[str, Any]
) -> None:
    options = asked(monkeypatch, made_of({"wandb": case.get("section", {})}), case.get("env", {}))
    assert {key: options[key] for key in case["expected"]} == case["expected"]


@pytest.mark.parametrize("case", CASES["arguments"], ids=str)
def test_what_is_not_set_is_left_to_w_and_b(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    options, expected = asked(monkeypatch, None, case.get("env", {}), **case["given"]), case["expected"]
    assert options.keys() - expected.keys() == {
        *("mode", "job_type", "config", "settings", "project"),
        *({"name"} - expected.keys()),
    }
    assert {key: options[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (KeyboardInterrupt(), 1),
        (SystemExit(), 0),
        (SystemExit(0), 0),
        (SystemExit(3), 3),
        (SystemExit("no"), 1),
    ],
    ids=repr,
)
def test_exception_finishes_the_run_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, exit_code: int
) -> None:
    codes: list[int] = []
    monkeypatch.setitem(sys.modules, "wandb", Recorder(finish=lambda exit_code: codes.append(exit_code)))
    with pytest.raises(type(error)) as raised, WandbLogger(None, "classify", env={}) as stage:
        raise error
    assert (raised.value is error, stage.run, codes) == (True, None, [exit_code])


def test_figure_that_can_be_saved_is_logged_as_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    recorder = Recorder(log=logged.append)
    vars(recorder)["Image"] = lambda figure: ("image", figure)
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    drawn, other = SimpleNamespace(savefig=None), object()
    with WandbLogger(None, "classify", env={}) as stage:
        stage.log_plot("drawn", drawn)
        stage.log_plot("other", other)
    assert logged == [{"drawn": ("image", drawn)}, {"other": other}]


def use(stage: WandbLogger) -> str:
    with stage:
        stage.log_metrics({"accuracy": 0.5})
        stage.log_metrics({"accuracy": 0.6})
        stage.log_table([{"x": 1}], "results")
        stage.set_config({"seed": 1})
        return "done"


def test_switched_off_is_one_warning_and_wandb_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "wandb")
    sections: list[dict[str, Any]] = [
        {"enabled": False},
        {"enabled": 0, "mode": "online"},
        {"mode": "disabled"},
    ]
    given = [({"wandb": section}, dict[str, str]()) for section in sections]
    for cfg, env in [*given, (None, {"WANDB_MODE": "disabled"}), (None, {"WANDB_DISABLED": "true"})]:
        caplog.clear()
        assert not WandbLogger(cfg, "classify", env=env).enabled
        assert use(WandbLogger(cfg, "classify", env=env)) == "done"
        assert warnings(caplog) == ["[wandb] classify: W&B is switched off, so this run is not logged"]
    assert "wandb" not in sys.modules
    assert capsys.readouterr().out == ""


class Unprintable(Recorder, Exception):  # noqa: N818
    """Its own error, which has no text."""

    def init(self, **_: Any) -> Any:
        raise self

    __str__ = init


def test_missing_or_refusing_the_job_goes_on_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert use(logger(tmp_path, "classify", {"wandb": {"mode": "sideways"}})) == "done"
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert use(WandbLogger(None, "classify", env={})) == "done"
    monkeypatch.setitem(sys.modules, "wandb", Unprintable())
    assert use(WandbLogger(None, "classify", env={})) == "done"
    refused, missing, _ = warnings(caplog)
    assert "could not be started, and the job goes on without it: " in refused
    assert "could not be started, and the job goes on without it: ModuleNotFoundError" in missing
    assert wandb.run is None


def failing(*arguments: object, **options: object) -> None:
    raise ConnectionError("the service is gone (key 0123456789abcdef)")


@pytest.mark.parametrize("broken", ["log", "finish", "config"])
def test_out_of_order_the_job_goes_on_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    config = SimpleNamespace(as_dict=dict, update=failing)
    recorder = Recorder(**{broken: config if broken == "config" else failing})
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    caplog.set_level(logging.DEBUG, "fleetgauge")
    assert use(WandbLogger(None, "classify", env={"WANDB_API_KEY": "0123456789abcdef"})) == "done"
    (warning,) = warnings(caplog)
    assert "ConnectionError: the service is gone (key [api key])" in warning
    assert "0123456789abcdef" not in caplog.text
    # An exception of the job is not hidden by one of W&B.
    with pytest.raises(ValueError, match="no data"), WandbLogger(None, "classify", env={}):
        raise ValueError("no data")


class Broken(io.StringIO):
    """A stream of the host's own making."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise RuntimeError


def test_lines_are_printed_as_the_terminal_can_show_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(monkeypatch, {"wandb": {"project": "ants", "mode": "offline", "name": "n"}}, JOB)
    assert capsys.readouterr().out.splitlines() == [
        "[wandb] Starting run: n (mode=offline, dir=.)",
        "[wandb] ✓ Logged compute metadata: 1 CPUs, 4 GPUs",
        "[wandb] ✓ Run started: n (OFFLINE - sync later with wandb sync)",
    ]
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    asked(monkeypatch, None, JOB)
    assert b"[wandb] ? Logged compute metadata: 1 CPUs, 4 GPUs\n" in terminal.buffer.getvalue()
    closed = io.StringIO()
    closed.close()
    for broken in (None, closed, Broken()):
        monkeypatch.setattr(sys, "stdout", broken)
        assert asked(monkeypatch, None, {})["job_type"] == "classify"


def test_a_stage_without_a_name_is_refused_when_built() -> None:
    with pytest.raises(ValueError, match="needs the name of its stage"):
        WandbLogger(None, "")


def test_merging_changes_neither_side() -> None:
    under, over = {"a": {"x": 1}}, {"a": {"y": 2}}
    assert merge(under, over) == {"a": {"x": 1, "y": 2}}
    assert (under, over) == ({"a": {"x": 1}}, {"a": {"y": 2}})
