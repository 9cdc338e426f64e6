"""Trouble around the hook: imports, threads, queues and upstream changes fail, and the pipeline goes on."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook, patch, recording
from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import metrics, one, read, warnings

hook = partial(standin.hook, wandb=True)


def test_a_queue_that_is_full_loses_records_says_so_once_and_never_the_end(
    monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "MAX_WAITING_STATS", 3)
    gate, held = threading.Event(), threading.Event()
    with hook(tmp_path, wandb=False):
        opened: Any = patch.registered()[0]
        opened.worker.put(held.set)
        opened.worker.put(gate.wait)
        held.wait()
        watched = monitor([one()] * 9)
        for _ in range(9):
            watched.update()
        gate.set()
    assert opened.worker.lost == 6
    assert [record["event"] for record in read(tmp_path)] == ["start", "stats", "stats", "stats", "end"]
    [said] = warnings(caplog)
    assert said.startswith("lost a record for the pipeline because 3 records are waiting already; ")


def _no_such_module(patch: pytest.MonkeyPatch) -> str:
    patch.setitem(sys.modules, "cosmos_xenna", None)
    patch.delitem(sys.modules, standin.MONITORING)
    patch.delitem(sys.modules, "cosmos_xenna.pipelines.private")
    patch.delitem(sys.modules, "cosmos_xenna.pipelines")
    return "ModuleNotFoundError"


def _import_that_fails(patch: pytest.MonkeyPatch) -> str:
    def fail(name: str) -> ModuleType:
        raise OSError("cannot load a library")

    patch.setattr(importlib, "import_module", fail)
    return "OSError: cannot load a library"


def _no_method(patch: pytest.MonkeyPatch) -> str:
    patch.delattr(sys.modules[standin.MONITORING].PipelineMonitor, "_make_stats")
    return "has no method _make_stats"


def _not_a_function(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(sys.modules[standin.MONITORING].PipelineMonitor, "_make_stats", property(lambda _: 1))
    return "has no method _make_stats"


def _no_class(patch: pytest.MonkeyPatch) -> str:
    patch.delattr(sys.modules[standin.MONITORING], "PipelineMonitor")
    return "AttributeError"


@pytest.mark.parametrize(
    "trouble", [_no_such_module, _import_that_fails, _no_method, _not_a_function, _no_class]
)
def test_an_enter_that_fails_leaves_nothing_behind_and_says_how_to_install(
    monitor: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: Any,
) -> None:
    says = trouble(monkeypatch)
    ran = False
    with hook(tmp_path / "records"):
        ran = True
        assert not patch.registered()
    assert ran
    [said] = warnings(caplog)
    assert says in said
    assert said.endswith("pip install cosmos-xenna ray tqdm")
    assert not (tmp_path / "records").exists()
    assert not [one for one in threading.enumerate() if one.name.startswith("fleetgauge")]


@pytest.mark.parametrize("nth", [0, 1])
def test_without_threads_nothing_is_recorded_or_left_behind(
    monitor: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nth: int,
) -> None:
    start, started = threading.Thread.start, iter(range(10))

    def refuse(thread: threading.Thread) -> None:
        if next(started) == nth:
            raise RuntimeError("can't start new thread")
        start(thread)

    original = monitor._make_stats
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with hook(tmp_path):
        assert monitor._make_stats is original
        monitor([one()]).update()
    assert warnings(caplog) == ["pipeline statistics are not recorded: RuntimeError: can't start new thread"]
    assert not [one for one in threading.enumerate() if one.name.startswith("fleetgauge")]
    assert not list(tmp_path.iterdir())


def test_statistics_of_another_shape_are_one_warning(
    monitor: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert warnings(caplog) == ["the end of the run is not recorded: StopIteration: "]
    assert [record["event"] for record in read(tmp_path)] == ["start"]
    assert not [one for one in threading.enumerate() if one.name.startswith("fleetgauge")]


def test_forked_child_warns_once_and_may_open_its_own_hook(monitor: Any, tmp_path: Path) -> None:
    warned = tmp_path / "warned"
    with hook(tmp_path, wandb=False):
        child = os.fork()
        if child == 0:
            log, said = logging.getLogger("fleetgauge.xenna"), list[str]()
            log.addHandler(handler := logging.Handler())
            handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
            try:
                for _ in range(2):
                    assert monitor([one()]).update() is not None
                with hook(tmp_path / "child", wandb=False):
                    monitor([one()]).update()
                warned.write_text("\n".join(said))
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        monitor([one()]).update()
    assert warned.read_text().count("forked inside an open hook") == 1
    assert [record["event"] for record in read(tmp_path)] == ["start", "stats", "end"]
    assert [record["event"] for record in read(tmp_path / "child")] == ["start", "stats", "end"]
