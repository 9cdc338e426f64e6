"""W&B beside the records: what it gets, and that nothing it does reaches the pipeline or the file."""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from fleetgauge.xenna import patch
from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import Pool, metrics, one, read, warnings


class Wandb(ModuleType):
    """A stand-in for the module, with a run unless told otherwise."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: object = object()
        self.logged: list[dict[str, float]] = []
        self.calls: list[tuple[Any, ...]] = []

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.calls.append((name, step_metric))

    def log(self, values: dict[str, float]) -> None:
        self.calls.append(("log",))
        self.logged.append(values)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


hook = partial(standin.hook, wandb=True)


def test_wandb_gets_the_same_metrics_with_a_prefix_and_a_step_of_their_own(
    monitor: Any, wandb: Wandb, tmp_path: Path
) -> None:
    with hook(tmp_path), monitor([one(), one()], pools=[Pool("Stage 00 - X", 9)]) as watched:
        watched.update()
        watched.update()
    assert wandb.logged == [
        {f"xenna/{key}": value for key, value in stats.items()} for stats in metrics(tmp_path)
    ]
    assert len(wandb.logged) == 3
    assert all("xenna/pipeline_duration_s" in values for values in wandb.logged)
    assert wandb.calls == [
        ("xenna/pipeline_duration_s", None),
        ("xenna/*", "xenna/pipeline_duration_s"),
        *[("log",)] * 3,
    ]


def failing(*_: object, **__: object) -> None:
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("trouble", "lost", "warned"),
    [
        (lambda wandb, _: setattr(wandb, "run", None), 0, "wandb.init() was not called"),
        (lambda _, patch: patch.setitem(sys.modules, "wandb", None), 0, "pip install 'fleetgauge[wandb]'"),
        (lambda wandb, _: setattr(wandb, "log", failing), 3, "RuntimeError: not today; further losses"),
        (lambda wandb, _: setattr(wandb, "define_metric", failing), 0, "by its own step: not today"),
    ],
)
def test_wandb_that_does_not_work_is_one_warning_and_the_records_go_on(
    monitor: Any,
    wandb: Wandb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: Any,
    lost: int,
    warned: str,
) -> None:
    trouble(wandb, monkeypatch)
    answers = [one(), one(), one()]
    with hook(tmp_path):
        opened: Any = patch.registered()[0]
        watched = monitor(answers)
        assert [watched.update() for _ in answers] == answers
    [warning] = warnings(caplog)
    assert warned in warning
    assert (opened.wandb.worker.lost, len(wandb.logged)) == (lost, 3 if "step" in warned else 0)
    assert [record["event"] for record in read(tmp_path)] == ["start", "stats", "stats", "stats", "end"]


def test_wandb_is_never_imported(monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with hook(tmp_path):
        monitor([one()]).update()
    assert "wandb" not in sys.modules


def _drain() -> None:
    """Wait until the recording's own thread has done what it was given."""
    done = threading.Event()
    opened: Any = patch.registered()[0]
    opened.worker.put(done.set, last=True)
    done.wait()


class Run:
    """A run of the stand-in below: what it was asked for, and what came of it."""

    def __init__(self, module: Any, **options: Any) -> None:
        self.options, self.url, self.id = options, None, f"run{len(module.runs)}"
        self.name, self.project, self.entity, self.group = options.get("name"), "ants", "acme", "night"
        self.settings = SimpleNamespace(mode="offline", root_dir="/jobs/7")
        self.summary: dict[str, Any] = {}
        self.rows: list[dict[str, float]] = []
        self.steps: list[str] = []
        self.finished = 0

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.steps.append(name)

    def finish(self) -> None:
        self.finished += 1


class Recent(Wandb):
    """A module that can have a second run."""

    def __init__(self, refuse: bool = False) -> None:
        super().__init__()
        self.runs: list[Run] = []
        self.refuse = refuse
        self.run: Any = Run(self, name="job")

    class Settings(SimpleNamespace):
        model_fields: ClassVar[dict[str, Any]] = {
            **dict.fromkeys(("console", "x_disable_stats", "init_timeout")),
        }

    def init(self, **options: Any) -> Run:
        if self.refuse:
            raise ConnectionError("nobody there")
        self.runs.append(Run(self, **options))
        return self.runs[-1]


def test_by_default_the_statistics_have_a_run_of_their_own(
    monitor: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = Recent()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with hook(tmp_path, wandb_run="own"), monitor([one(), one()]) as watched:
        watched.update()
        watched.update()
    [own] = module.runs
    assert {
        key: own.options[key] for key in ("name", "group", "project", "entity", "mode", "dir", "reinit")
    } == {
        "name": "job-xenna",
        "group": "night",
        "project": "ants",
        "entity": "acme",
        "mode": "offline",
        "dir": "/jobs/7",
        "reinit": "create_new",
    }
    settings = {"console": "off", "x_disable_stats": True, "init_timeout": 30.0}
    assert vars(own.options["settings"]) == settings  # those that this release has
    assert own.rows == [{f"xenna/{key}": value for key, value in row.items()} for row in metrics(tmp_path)]
    assert (own.steps, own.finished) == (["xenna/pipeline_duration_s", "xenna/*"], 1)
    assert module.run.summary == {"xenna/run": own.id}
    assert (module.logged, module.run.rows, module.run.finished) == ([], [], 0)


def test_however_much_waits_the_end_is_recorded_and_its_own_run_finished(
    monitor: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = Recent()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with hook(tmp_path, wandb_run="own"):
        monitor([one()]).update()
        _drain()
        opened: Any = patch.registered()[0]
        opened.worker.max_waiting = opened.wandb.worker.max_waiting = 0
    [own] = module.runs
    assert (len(own.rows), own.finished, len(read(tmp_path)), opened.worker.lost) == (1, 1, 3, 0)


def test_a_second_run_of_the_job_gets_one_of_its_own(monitor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Recent()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with hook(None, wandb_run="own"):
        opened: Any = patch.registered()[0]
        watched = monitor([one()] * 3)
        for name in ("first", "second", None):
            module.run = Run(module, name=name) if name else None
            watched.update()
            _drain()
            logged = threading.Event()
            opened.wandb.worker.put(logged.set)
            logged.wait()
    first, second = module.runs
    assert [(run.options["name"], len(run.rows), run.finished) for run in (first, second)] == [
        ("first-xenna", 1, 1),
        ("second-xenna", 2, 1),
    ]


def test_run_that_cannot_start_takes_no_steps_of_the_jobs(
    monitor: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = Recent(refuse=True)
    monkeypatch.setitem(sys.modules, "wandb", module)
    with hook(None, wandb_run="own"):
        opened: Any = patch.registered()[0]
        watched = monitor([one()] * 3)
        for _ in range(3):
            watched.update()
    assert (module.logged, module.run.rows) == ([], [])
    assert opened.wandb.worker.lost == 3
    [warning] = warnings(caplog)
    assert "ConnectionError: nobody there" in warning
