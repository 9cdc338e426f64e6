"""W&B beside the records: what it gets, and that nothing it does reaches the pipeline or the file."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from fleetgauge.xenna import patch
from fleetgauge.xenna.recording import PipelineRecording
from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import Pool, metrics, one, read, warnings


class Run:
    """A run: what it was asked for, and what came of it."""

    def __init__(self, name: str | None, number: int = 0, **options: Any) -> None:
        self.name, self.options, self.url, self.id = name, options, None, f"run{number}"
        self.project, self.entity, self.group = "ants", "acme", "night"
        self.settings = SimpleNamespace(mode="offline", root_dir="/jobs/7")
        self.summary: dict[str, Any] = {}
        self.rows: list[dict[str, float]] = []
        self.steps: list[tuple[str, str | None]] = []
        self.finished = 0

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        assert not self.rows
        self.steps.append((name, step_metric))

    def finish(self) -> None:
        self.finished += 1


class Wandb(ModuleType):
    """The module of a job that has a run, and can have more; its functions are those of the job's run."""

    class Settings(SimpleNamespace):
        model_fields: ClassVar[tuple[str, ...]] = ("console", "x_disable_stats", "init_timeout")

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: Any = Run("job")
        self.log, self.define_metric = self.run.log, self.run.define_metric
        self.runs: list[Run] = []

    def init(self, **options: Any) -> Run:
        self.runs.append(Run(number=len(self.runs), **options))
        return self.runs[-1]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those of all hooks that are opened."""
    found: list[Any] = []
    register = patch.register

    def noted(recording: PipelineRecording, monitor_class: type) -> None:
        found.append(recording)
        register(recording, monitor_class)

    monkeypatch.setattr(patch, "register", noted)
    return found


STEPS = [("xenna/pipeline_duration_s", None), ("xenna/*", "xenna/pipeline_duration_s")]
hook = partial(standin.hook, wandb=True)


def test_wandb_gets_the_same_metrics_with_a_prefix_and_a_step_of_their_own(
    monitor: Any, wandb: Wandb, tmp_path: Path
) -> None:
    with hook(tmp_path), monitor([one(), one()], pools=[Pool("Stage 00 - X", 9)]) as watched:
        watched.update()
        watched.update()
    assert wandb.run.rows == [
        {f"xenna/{key}": value for key, value in stats.items()} for stats in metrics(tmp_path)
    ]
    assert len(wandb.run.rows) == 3
    assert all("xenna/pipeline_duration_s" in values for values in wandb.run.rows)
    assert (wandb.run.steps, wandb.run.finished, wandb.runs) == (STEPS, 0, [])


def failing(*_: object, **__: object) -> None:
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("broken", "warned"),
    [
        ("module", "pip install 'fleetgauge[wandb]'"),
        ("run", "wandb.init() was not called"),
        ("log", "RuntimeError: not today; further losses"),
        ("define_metric", "by its own step: not today"),
        # A run of its own that cannot start takes no steps of the job's.
        ("init", "RuntimeError: not today; further losses"),
    ],
)
def test_wandb_that_does_not_work_is_one_warning_and_the_records_go_on(
    monitor: Any,
    wandb: Wandb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
    warned: str,
) -> None:
    job = wandb.run
    if broken == "module":
        monkeypatch.setitem(sys.modules, "wandb", None)
    else:
        monkeypatch.setattr(wandb, broken, None if broken == "run" else failing)
    answers = [one(), one(), one()]
    with hook(tmp_path, wandb_run="own" if broken == "init" else "shared"):
        watched = monitor(answers)
        assert [watched.update() for _ in answers] == answers
    [warning] = warnings(caplog)
    assert warned in warning
    assert len(job.rows) == (3 if broken == "define_metric" else 0)
    assert [record["event"] for record in read(tmp_path)] == ["start", "stats", "stats", "stats", "end"]


def test_wandb_is_never_imported(monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with hook(tmp_path):
        monitor([one()]).update()
    assert "wandb" not in sys.modules


def test_by_default_the_statistics_have_a_run_of_their_own(
    monitor: Any, wandb: Wandb, tmp_path: Path
) -> None:
    with hook(tmp_path, wandb_run="own"), monitor([one(), one()]) as watched:
        watched.update()
        watched.update()
    [own] = wandb.runs
    settings = {"console": "off", "x_disable_stats": True, "init_timeout": 30.0}
    assert vars(own.options.pop("settings")) == settings  # those that this release has
    assert (own.name, own.options) == (
        "job-xenna",
        {
            "group": "night",
            "project": "ants",
            "entity": "acme",
            "mode": "offline",
            "dir": "/jobs/7",
            "job_type": "xenna",
            "reinit": "create_new",
        },
    )
    assert own.rows == [{f"xenna/{key}": value for key, value in row.items()} for row in metrics(tmp_path)]
    assert (own.steps, own.finished) == (STEPS, 1)
    assert wandb.run.summary == {"xenna/run": own.id}
    assert (wandb.run.rows, wandb.run.finished) == ([], 0)


def test_however_much_waits_the_end_is_recorded_and_its_own_run_finished(
    monitor: Any, wandb: Wandb, recordings: list[Any], tmp_path: Path
) -> None:
    with hook(tmp_path, wandb_run="own"):
        monitor([one()]).update()
        [opened] = recordings
        opened.worker.flush()
        opened.worker.max_waiting = opened.wandb.worker.max_waiting = 0
    [own] = wandb.runs
    assert (len(own.rows), own.finished, len(read(tmp_path))) == (1, 1, 3)


def test_a_second_run_of_the_job_gets_one_of_its_own(
    monitor: Any, wandb: Wandb, recordings: list[Any]
) -> None:
    with hook(None, wandb_run="own"):
        [opened] = recordings
        watched = monitor([one()] * 3)
        for name in ("first", "second", None):
            wandb.run = Run(name) if name else None
            watched.update()
            opened.worker.flush()
            opened.wandb.worker.flush()
    first, second = wandb.runs
    assert [(run.name, len(run.rows), run.finished) for run in (first, second)] == [
        ("first-xenna", 1, 1),
        ("second-xenna", 2, 1),
    ]
