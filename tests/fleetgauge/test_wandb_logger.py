"""W&B runs around the stages of a job, written by the real client offline and read back from disk."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
import wandb
from omegaconf import OmegaConf

from fleetgauge.wandb_logger import WandbLogger, merge
from support.xenna_pipeline.offline import records, update

NOON = datetime(2026, 11, 16, 12, 30, 5, tzinfo=UTC)
JOB = {"SLURM_JOB_ID": "4711", "SLURM_CPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "USER": "ada"}


@dataclass
class Written:
    """What a run left on disk, as W&B would upload it."""

    run: Any
    config: dict[str, Any]
    history: list[dict[str, Any]]
    exit_code: int | None
    folder: Path
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: list[tuple[str, str, list[str]]] = field(default_factory=list)

    def table(self, key: str) -> Any:
        (path,) = self.folder.glob(f"files/media/table/{key}_*.table.json")
        return json.loads(path.read_text())


def read_back(folder: Path) -> dict[str, Written]:
    """All runs below a folder, by the name of their stage."""
    # A run that is finished may not be on disk yet; what W&B's own process leaves behind is.
    end_service()
    runs = {}
    for path in folder.glob("wandb/offline-run-*/*.wandb"):
        written = Written(None, {}, [], None, path.parent)
        for record in records(path):
            match record.WhichOneof("record_type"):
                case "run":
                    written.run = record.run
                    update(written.config, record.run.config.update)
                case "config":
                    update(written.config, record.config.update)
                case "history":
                    written.history.append({})
                    update(written.history[-1], record.history.item)
                case "summary":
                    update(written.summary, record.summary.update)
                case "artifact":
                    made = record.artifact
                    paths = [entry.path for entry in made.manifest.contents]
                    written.artifacts.append((made.name, made.type, paths))
                case "exit":
                    written.exit_code = record.exit.exit_code
        runs[written.run.job_type] = written
    return runs


@pytest.fixture(autouse=True)
def _quiet_and_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MODE", "PROJECT", "ENTITY", "DIR", "GROUP", "API_KEY", "DISABLED"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


@pytest.fixture(autouse=True, scope="module")
def _service() -> Iterator[None]:
    yield
    end_service()


def end_service() -> None:
    """Have W&B's own process end. It may lose the request, and the client would wait for it for ever."""
    ending = threading.Thread(target=wandb.teardown, daemon=True)
    ending.start()
    ending.join(120)
    assert not ending.is_alive(), "W&B's own process does not end"


def offline(folder: Path, **settings: Any) -> dict[str, Any]:
    return {"wandb": {"project": "ants", "mode": "offline", "dir": str(folder), **settings}}


def logger(folder: Path, stage: str = "classify", **arguments: Any) -> WandbLogger:
    return WandbLogger(offline(folder), stage, env=JOB, now=lambda: NOON, **arguments)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("fleetgauge")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


@pytest.mark.slow
def test_a_run_carries_what_it_runs_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = {
        "wandb": {
            "project": "ants",
            "entity": "acme",
            "mode": "offline",
            "dir": str(tmp_path),
            "tags": ["x"],
        },
        "model": {"batch_size": 4},
        "runtime": {"debug": False},
    }
    with WandbLogger(cfg, "classify", env=JOB, now=lambda: NOON) as stage:
        stage.log_metrics({"accuracy": 0.95})
        stage.log_metrics({"accuracy": 0.97}, step=7)
    written = read_back(tmp_path)["classify"]
    assert (written.run.project, written.run.entity, list(written.run.tags)) == ("ants", "acme", ["x"])
    assert written.run.display_name == "ants-classify-20261116-123005"
    assert written.exit_code == 0
    # Nested, so that a filter on config.compute.gpu_count finds it.
    assert written.config["compute"]["gpu_count"] == 4
    assert written.config["compute"]["gpu_source"] == "CUDA_VISIBLE_DEVICES"
    assert written.config["compute"]["cpu_count"] == 1
    assert not [key for key in written.config if "." in key]
    assert written.config["slurm"] == {"slurm_job_id": "4711", "slurm_cpus_per_task": "1"}
    assert written.config["system"]["user"] == "ada"
    assert written.config["model"] == {"batch_size": 4}
    assert written.config["runtime"] == {"debug": False}
    assert [(row["_step"], row["accuracy"]) for row in written.history] == [(0, 0.95), (7, 0.97)]
    assert capsys.readouterr().out.splitlines() == [
        f"[wandb] Starting run: ants-classify-20261116-123005 (mode=offline, dir={tmp_path})",
        "[wandb] ✓ Logged compute metadata: 1 CPUs, 4 GPUs",
        "[wandb] ✓ Run started: ants-classify-20261116-123005 (OFFLINE - sync later with wandb sync)",
    ]


@pytest.mark.slow
def test_the_users_own_values_win_over_what_was_collected(tmp_path: Path) -> None:
    own = {
        "model": {"batch_size": 99, "layers": 12, "dtype": None},
        "compute": {"gpu_count": 1},
        "slurm": "no",
    }
    cfg = {**offline(tmp_path), "model": {"batch_size": 4, "concurrency": 2, "model_source": "/zoo"}}
    with WandbLogger(cfg, "topic", run_config=own, env=JOB):
        pass
    config = read_back(tmp_path)["topic"].config
    assert config["model"] == {
        "batch_size": 99,
        "concurrency": 2,
        "model_source": "/zoo",
        "layers": 12,
        "dtype": None,
    }
    assert (config["compute"]["gpu_count"], config["compute"]["cpu_count"]) == (1, 1)
    assert config["slurm"] == "no"


@pytest.mark.slow
def test_set_config_merges_deeply_over_what_is_there(tmp_path: Path) -> None:
    with logger(tmp_path, run_config={"model": {"batch_size": 4, "engine": {"a": 1}}}) as stage:
        stage.set_config({"model": {"engine": {"b": 2}, "batch_size": 8}, "seed": 0})
        stage.set_config({"compute": {"rack": "r7"}, "seed": 1})
    config = read_back(tmp_path)["classify"].config
    assert config["model"] == {"batch_size": 8, "engine": {"a": 1, "b": 2}}
    assert config["seed"] == 1
    assert (config["compute"]["rack"], config["compute"]["gpu_count"]) == ("r7", 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (pd.DataFrame({"text": ["a", "b"], "score": [1, None]}, dtype=object), None),
        ([{"text": "a", "score": 1}, {"text": "b"}], None),
        ([["a", 1], ("b", None)], ["text", "score"]),
        (iter([{"text": "a", "score": 1}, {"text": "b", "other": 9}]), ["text", "score"]),
    ],
    ids=["dataframe", "mappings", "lists", "chosen columns"],
)
def test_tables(tmp_path: Path, rows: object, columns: list[str] | None) -> None:
    with logger(tmp_path) as stage:
        stage.log_table(rows, "results", columns)
    written = read_back(tmp_path)["classify"]
    table = written.table("results")
    assert table["columns"] == ["text", "score"]
    assert table["data"] == [["a", 1], ["b", None]]
    assert written.history[0]["results"]["nrows"] == 2


FRAME = pd.DataFrame({"id": range(100), "text": ["x"] * 100, "score": [0.5] * 100})


@pytest.mark.slow
@pytest.mark.parametrize("rows", [FRAME, FRAME.to_dict("records")], ids=["dataframe", "mappings"])
def test_a_long_table_is_sampled_into_its_panel_by_the_preferred_columns(
    tmp_path: Path, rows: object
) -> None:
    with logger(tmp_path) as stage:
        stage.log_table(
            rows, "results", prefer_cols=["score", "missing", "id"], max_rows=10, panel_group="inspect"
        )
    [row] = read_back(tmp_path)["classify"].history
    assert (row["results/rows"], row["results/total_rows"]) == (10, 100)
    assert (row["results/sampled"], row["results/sample_seed"]) == (True, 777)
    [path] = tmp_path.glob("wandb/offline-run-*/files/media/table/inspect/results_*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == ["score", "id"]
    chosen = [identity for _, identity in table["data"]]
    assert len(set(chosen)) == 10
    assert chosen == sorted(chosen)
    assert chosen != list(range(10))


@pytest.mark.slow
def test_the_configuration_says_how_many_rows_of_any_table_are_logged(tmp_path: Path) -> None:
    cfg = offline(tmp_path, table_sample_rows=3, table_sample_seed=1)
    with WandbLogger(cfg, "classify", env=JOB) as stage:
        stage.log_table(FRAME, "long", prefer_cols=["nothing of it"])
        stage.log_table(FRAME.head(3), "short")
    long, short = read_back(tmp_path)["classify"].history
    assert (long["long/rows"], long["long/total_rows"], long["long/sample_seed"]) == (3, 100, 1)
    assert long["long"]["ncols"] == 3
    assert (short["short/rows"], short["short/total_rows"], "short/sampled" in short) == (3, 3, False)


@pytest.mark.slow
@pytest.mark.parametrize(("max_rows", "logged"), [(None, 1000), (20_000, 10_000)])
def test_table_has_a_thousand_rows_by_default_and_10000_at_most(
    tmp_path: Path, max_rows: int | None, logged: int
) -> None:
    with logger(tmp_path) as stage:
        stage.log_table([[number] for number in range(10_050)], "long", ["id"], max_rows=max_rows)
    written = read_back(tmp_path)["classify"]
    [row] = written.history
    assert (row["long/rows"], row["long/total_rows"], row["long/sampled"]) == (logged, 10_050, True)
    shown = [identity for [identity] in written.table("long")["data"]]
    assert len(shown) == logged
    assert shown == sorted(set(shown))
    assert shown[-1] > 10_000


@pytest.mark.slow
def test_summary_artifact_plot_and_commit_are_w_and_bs_own(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n")
    with logger(tmp_path) as stage:
        assert stage.enabled
        stage.log_metrics({"a": 1}, commit=False)
        stage.log_metrics({"b": 2})
        stage.log_plot("page", wandb.Html("<p>drawn</p>", inject=False))
        stage.log_artifact(tmp_path / "rows.csv", "rows")
        stage.set_summary("verdict", "good")
    written = read_back(tmp_path)["classify"]
    assert (written.history[0]["a"], written.history[0]["b"]) == (1, 2)
    assert written.history[1]["page"]["_type"] == "html-file"
    assert written.summary["verdict"] == "good"
    assert written.artifacts == [("rows", "dataset", ["rows.csv"])]


def test_a_figure_that_can_be_saved_is_logged_as_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    recorder = Recorder(log=logged.append)
    vars(recorder)["Image"] = lambda figure: ("image", figure)
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    drawn, other = SimpleNamespace(savefig=None), object()
    with WandbLogger(None, "classify", env={}) as stage:
        stage.log_plot("drawn", drawn)
        stage.log_plot("other", other)
    assert logged == [{"drawn": ("image", drawn)}, {"other": other}]


@pytest.mark.slow
def test_a_value_may_be_held_against_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with logger(tmp_path, run_config={"seed": 1}) as stage:
        stage.set_config({"seed": 2}, allow_val_change=False)
    assert read_back(tmp_path)["classify"].config["seed"] == 1
    assert "configuration could not be logged to W&B" in warnings(caplog)[0]


@pytest.mark.parametrize(
    ("cfg", "enabled"), [({}, True), ({"enabled": False}, False), ({"mode": "disabled"}, False)]
)
def test_enabled_is_what_the_configuration_says(cfg: dict[str, Any], enabled: bool) -> None:
    assert WandbLogger({"wandb": cfg}, "classify", env={}).enabled is enabled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (ValueError("no data"), 1),
        (KeyboardInterrupt(), 1),
        (SystemExit(), 0),
        (SystemExit(0), 0),
        (SystemExit(3), 3),
        (SystemExit("no data"), 1),
    ],
    ids=repr,
)
def test_an_exception_finishes_the_run_and_goes_on(
    tmp_path: Path, error: BaseException, exit_code: int
) -> None:
    with pytest.raises(type(error)) as raised, logger(tmp_path) as stage:
        raise error
    assert raised.value is error
    assert stage.run is None
    assert read_back(tmp_path)["classify"].exit_code == exit_code


@pytest.mark.slow
def test_a_run_id_ends_the_name_and_two_executions_are_two_runs(tmp_path: Path) -> None:
    for _ in range(2):
        with logger(tmp_path, run_id="classify-001"):
            pass
    end_service()
    found = [
        record.run
        for path in tmp_path.glob("wandb/offline-run-*/*.wandb")
        for record in records(path)
        if record.WhichOneof("record_type") == "run"
    ]
    assert {run.display_name for run in found} == {"ants-classify-20261116-123005-classify-001"}
    assert len({run.run_id for run in found}) == 2
    assert "classify-001" not in {run.run_id for run in found}


SERVERS = {
    "compute": {"gpu_count": 8, "gpu_type": "NVIDIA H100 80GB HBM3", "rack": "r1"},
    "slurm": {"slurm_job_id": "1", "slurm_partition": "old"},
    "system": {"hostname": "elsewhere", "kernel": "5"},
    "model": {"batch_size": 2, "layers": 12},
    "seed": 7,
}


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is one that a server knew: W&B fills in what that holds, below what it was given."""
    begin = wandb.init

    def resume(*, config: dict[str, Any], **options: Any) -> Any:
        run = begin(config=merge(SERVERS, config), **options)
        vars(run)["_settings"].resumed = True
        return run

    monkeypatch.setattr(wandb, "init", resume)


@pytest.mark.slow
@pytest.mark.usefixtures("resumed")
def test_a_resumed_run_says_what_it_runs_on_now_and_keeps_the_rest(tmp_path: Path) -> None:
    cfg = {**offline(tmp_path), "model": {"batch_size": 4, "concurrency": 3}}
    with WandbLogger(cfg, "classify", run_config={"compute": {"cluster": "b"}}, env=JOB):
        pass
    config = read_back(tmp_path)["classify"].config
    assert config["compute"]["gpu_count"] == 4
    assert config["compute"]["cluster"] == "b"
    assert {"rack", "gpu_type"} & config["compute"].keys() == set()
    assert config["slurm"] == {"slurm_job_id": "4711", "slurm_cpus_per_task": "1"}
    assert config["system"]["hostname"] == os.uname().nodename
    assert "kernel" not in config["system"]
    assert config["model"] == {"batch_size": 2, "layers": 12, "concurrency": 3}
    assert config["seed"] == 7


@pytest.mark.slow
def test_a_stage_beside_another_run_leaves_that_one_alone(tmp_path: Path) -> None:
    with logger(tmp_path, "monitor") as monitor:
        with logger(tmp_path, "taxonomy") as stage:
            stage.log_metrics({"stage": 1})
        assert wandb.run is monitor.run
        monitor.log_metrics({"monitor": 1})
    runs = read_back(tmp_path)
    assert set(runs) == {"monitor", "taxonomy"}
    assert [row["monitor"] for row in runs["monitor"].history] == [1]
    assert [row["stage"] for row in runs["taxonomy"].history] == [1]
    assert [run.exit_code for run in runs.values()] == [0, 0]


@pytest.mark.slow
def test_a_run_is_started_and_finished_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = logger(tmp_path)
    stage.start()
    run = stage.run
    stage.start()
    assert stage.run is run
    stage.finish(2)
    stage.finish(0)
    # Before the start and after the end there is nothing to log to, and nothing to warn of.
    stage.log_metrics({"accuracy": 1})
    assert warnings(caplog) == []
    assert read_back(tmp_path)["classify"].exit_code == 2


@pytest.mark.slow
def test_timeouts_are_short_unless_the_user_set_them(tmp_path: Path) -> None:
    with logger(tmp_path) as stage:
        settings = stage.run.settings
        assert (settings.init_timeout, settings.login_timeout, settings.finish_timeout) == (30, 30, 300)
    own = {**JOB, "WANDB_FINISH_TIMEOUT": "0"}
    with WandbLogger(offline(tmp_path), "patient", env=own) as stage:
        assert stage.run.settings.init_timeout == 30.0
        assert stage.run.settings.finish_timeout == 0.0


@pytest.mark.slow
def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    with logger(tmp_path / "new" / "place"):
        pass
    assert read_back(tmp_path / "new" / "place")["classify"].exit_code == 0


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


@pytest.mark.parametrize(
    ("section", "env", "expected"),
    [
        ({"project": "a", "entity": "b", "group": "g"}, {}, {"project": "a", "entity": "b", "group": "g"}),
        ({}, {"WANDB_PROJECT": "a", "WANDB_ENTITY": "b"}, {"project": "a", "entity": "b"}),
        ({"project": "a"}, {"WANDB_PROJECT": "z"}, {"project": "a"}),
        ({}, {"WANDB_GROUP": "slurm-7"}, {"group": "slurm-7"}),
        ({"group": "g"}, {"WANDB_GROUP": "slurm-7"}, {"group": "g"}),
        (
            {"project": None, "entity": ""},
            {"WANDB_PROJECT": "a", "WANDB_ENTITY": "b"},
            {"project": "a", "entity": "b"},
        ),
        ({}, {}, {"project": "uncategorized", "mode": "online"}),
        ({"project": 7}, {}, {"project": "7"}),
        ({"mode": "offline"}, {"WANDB_MODE": "online"}, {"mode": "offline"}),
        ({}, {"WANDB_MODE": "offline"}, {"mode": "offline"}),
        ({"mode": " Offline "}, {}, {"mode": "offline"}),
        ({"mode": "dryrun"}, {}, {"mode": "offline"}),
        ({"mode": "run"}, {}, {"mode": "online"}),
        ({"enabled": True}, {}, {"mode": "online"}),
        ({"enabled": None}, {"WANDB_DISABLED": "false"}, {"mode": "online"}),
        ({"tags": "one"}, {}, {"tags": ["one"]}),
        ({"tags": ["one", "two"]}, {}, {"tags": ["one", "two"]}),
        ({"name": "mine"}, {}, {"name": "mine"}),
        ({"project": "a"}, {}, {"name": "a-classify-20261116-123005", "job_type": "classify"}),
    ],
)
@pytest.mark.parametrize("made_of", [lambda cfg: cfg, OmegaConf.create], ids=["dict", "omegaconf"])
def test_settings_come_from_the_configuration_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    made_of: Any,
    section: dict[str, Any],
    env: dict[str, str],
    expected: dict[str, Any],
) -> None:
    options = asked(monkeypatch, made_of({"wandb": section}), env)
    assert {key: options[key] for key in expected} == expected


def test_what_is_not_set_is_left_to_w_and_b(monkeypatch: pytest.MonkeyPatch) -> None:
    options = asked(monkeypatch, None, {})
    assert set(options) == {"name", "mode", "job_type", "config", "settings", "project"}


def test_an_id_continues_a_run_except_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    online = asked(monkeypatch, None, {}, id="abc")
    assert (online["id"], online["resume"]) == ("abc", "allow")
    offline_options = asked(monkeypatch, None, {"WANDB_MODE": "offline"}, id="abc")
    assert offline_options["id"] == "abc"
    assert "resume" not in offline_options
    assert asked(monkeypatch, None, {}, id="abc", resume="must")["resume"] == "must"
    assert asked(monkeypatch, None, {}, resume="auto")["resume"] == "auto"


def test_a_run_id_is_not_w_and_bs_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    options = asked(monkeypatch, {"wandb": {"name": "mine"}}, {}, run_id="classify-001")
    assert options["name"] == "mine-classify-001"
    assert {"id", "resume"} & options.keys() == set()


def use(stage: WandbLogger) -> str:
    with stage:
        stage.log_metrics({"accuracy": 0.5})
        stage.log_metrics({"accuracy": 0.6})
        stage.log_table([{"x": 1}], "results")
        stage.set_config({"seed": 1})
        return "done"


@pytest.mark.parametrize(
    ("cfg", "env"),
    [
        ({"wandb": {"enabled": False}}, {}),
        ({"wandb": {"enabled": 0, "mode": "online"}}, {}),
        ({"wandb": {"mode": "disabled"}}, {}),
        (None, {"WANDB_MODE": "disabled"}),
        (None, {"WANDB_DISABLED": "true"}),
    ],
)
def test_switched_off_is_one_warning_and_wandb_is_not_imported(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    cfg: object,
    env: dict[str, str],
) -> None:
    monkeypatch.delitem(sys.modules, "wandb")
    assert use(WandbLogger(cfg, "classify", env=env)) == "done"
    assert "wandb" not in sys.modules
    assert warnings(caplog) == ["[wandb] classify: W&B is switched off, so this run is not logged"]
    assert capsys.readouterr().out == ""


def test_missing_the_job_goes_on_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert use(WandbLogger(None, "classify", env={})) == "done"
    (warning,) = warnings(caplog)
    assert "could not be started, and the job goes on without it: ModuleNotFoundError" in warning


def test_refused_by_the_real_client_the_job_goes_on_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert use(WandbLogger(offline(tmp_path, mode="sideways"), "classify", env=JOB)) == "done"
    (warning,) = warnings(caplog)
    assert "could not be started" in warning
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


def test_an_exception_of_the_job_is_not_hidden_by_one_of_w_and_b(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", Recorder(finish=failing))
    with pytest.raises(ValueError, match="no data"), WandbLogger(None, "classify", env={}):
        raise ValueError("no data")
    assert len(warnings(caplog)) == 1


class Terminal:
    """A standard output that can do less than it should."""

    def __init__(self, encoding: str | None, error: Exception | None = None) -> None:
        self.encoding, self.error, self.text = encoding, error, ""

    def write(self, text: str) -> None:
        if self.error is not None:
            raise self.error
        text.encode(self.encoding or "ascii")
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("encoding", ["ascii", None])
def test_a_terminal_without_the_tick_gets_a_question_mark(
    monkeypatch: pytest.MonkeyPatch, encoding: str | None
) -> None:
    terminal = Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    asked(monkeypatch, None, JOB)
    assert "[wandb] ? Logged compute metadata: 1 CPUs, 4 GPUs\n" in terminal.text


@pytest.mark.parametrize(
    "terminal", [None, Terminal("utf-8", BrokenPipeError()), Terminal("utf-8", ValueError("closed file"))]
)
def test_without_a_terminal_the_run_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal | None
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    assert asked(monkeypatch, None, {})["job_type"] == "classify"


def test_a_stage_without_a_name_is_refused_when_built() -> None:
    with pytest.raises(ValueError, match="needs the name of its stage"):
        WandbLogger(None, "")


@pytest.mark.parametrize(
    ("under", "over", "merged"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"y": 2, "z": 2}}, {"a": {"x": 1, "y": 2, "z": 2}}),
        ({"a": {"x": 1}}, {"a": 0}, {"a": 0}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": {"x": None}}, {"a": {"x": None}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ],
)
def test_merging(under: dict[str, Any], over: dict[str, Any], merged: dict[str, Any]) -> None:
    before = json.dumps([under, over])
    assert merge(under, over) == merged
    assert json.dumps([under, over]) == before
