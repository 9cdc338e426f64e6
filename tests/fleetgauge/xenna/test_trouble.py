"""Trouble around the hook: imports, threads, queues and upstream changes fail, and the pipeline goes on."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook, recording
from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import metrics, one, read, warnings

hook = partial(standin.hook, wandb=True)


def test_a_queue_that_is_full_loses_records_says_so_once_and_never_the_end(
    monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "MAX_WAITING_STATS", 3)
    gate, held = threading.Event(), threading.Event()

    def version(_name: str) -> str:  # the thread that writes calls it first
        held.set()
        gate.wait()
        return "0.5.12"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with hook(tmp_path, wandb=False):
        held.wait()
        watched = monitor([one()] * 9)
        for _ in range(9):
            watched.update()
        gate.set()
    assert [record["event"] for record in read(tmp_path)] == ["start", "stats", "stats", "stats", "end"]
    [said] = warnings(caplog)
    assert said.startswith("lost a record for the pipeline because 3 records are waiting already; ")


def fail(name: str) -> ModuleType:
    raise OSError("cannot load a library")


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (lambda patch, _: patch.setitem(sys.modules, standin.MONITORING, None), "ModuleNotFoundError"),
        (lambda patch, _: patch.setattr(importlib, "import_module", fail), "OSError: cannot load a library"),
        (lambda patch, monitor: patch.delattr(monitor, "_make_stats"), "has no method _make_stats"),
        (lambda patch, monitor: patch.setattr(monitor, "_make_stats", property(id)), "has no method"),
        (
            lambda patch, _: patch.delattr(sys.modules[standin.MONITORING], "PipelineMonitor"),
            "AttributeError",
        ),
    ],
)
def test_enter_that_fails_leaves_nothing_behind_and_says_how_to_install(
    monitor: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: Any,
    reason: str,
) -> None:
    trouble(monkeypatch, monitor)
    with hook(tmp_path / "records"):
        pass
    [said] = warnings(caplog)
    assert reason in said
    assert said.endswith("pip install cosmos-xenna ray tqdm")
    assert not (tmp_path / "records").exists()
    assert not [one for one in threading.enumerate() if one.name.startswith("fleetgauge")]


def test_without_a_second_thread_all_is_lost_after_a_warning(
    monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, started = threading.Thread.start, iter(range(10))

    def refuse(thread: threading.Thread) -> None:
        if next(started) == 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with hook(tmp_path):
        monitor([one()]).update()
    assert warnings(caplog) == [
        "no records for the pipeline: no thread could be started: can't start new thread"
    ]
    assert not [one for one in threading.enumerate() if one.name.startswith("fleetgauge")]
    assert not list(tmp_path.iterdir())


def test_statistics_of_another_shape_are_one_warning(
    monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", None)  # as of a damaged installation

    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    answers = [None, Hostile(), SimpleNamespace(actor_pools=3), one()]
    with hook(tmp_path, wandb=False):
        watched = monitor(answers)
        assert [watched.update() for _ in answers] == answers
    assert warnings(caplog) == ["statistics of cosmos-xenna  have an unknown layout: they are not recorded"]
    [found] = metrics(tmp_path)
    assert found["progress"] == 70.0


def test_a_clock_that_fails_costs_records_and_nothing_else(
    monitor: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter([100.0])
    config = XennaObservabilityConfig(False, 30, f"{tmp_path}/")
    with XennaWandbStatsHook(config, "curate", clock=lambda: next(times)):
        answer = one()
        assert monitor([answer]).update() is answer
    lost, end = warnings(caplog)
    assert lost.startswith("lost a record for the pipeline because it could not be taken: StopIteration")
    assert end == "the end of the run is not recorded: StopIteration: "
    assert [record["event"] for record in read(tmp_path)] == ["start"]
    assert not [one for one in threading.enumerate() if one.name.startswith("fleetgauge")]
