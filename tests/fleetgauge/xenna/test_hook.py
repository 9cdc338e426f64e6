"""The hook around a pipeline: what it patches, for how long, and that the pipeline never notices."""

from __future__ import annotations

import gc
import logging
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import Pool, hook, metrics, one, read

pytestmark = pytest.mark.usefixtures("nothing_stays")


def test_what_the_original_takes_returns_and_raises_passes_through(monitor: Any, tmp_path: Path) -> None:
    answer, error = one(), KeyError("its own")
    with hook(tmp_path):
        watched = monitor([answer, error])
        assert watched.update(60, [1, 2], task_metadata_per_pool=[], something_new=3) is answer
        with pytest.raises(KeyError) as raised:
            watched.update()
    assert raised.value is error
    assert watched.asked[0] == ((60, [1, 2]), {"task_metadata_per_pool": [], "something_new": 3})
    assert len(metrics(tmp_path)) == 1


def test_monitor_keeps_its_own_close_or_has_none(monitor: Any, tmp_path: Path) -> None:
    with hook(tmp_path):
        watched = monitor([one()])
        watched.close = own = object()
        watched.update()
        assert watched.close is own
        del monitor.close
        watched = monitor([one()])
        watched.update()
        assert not hasattr(watched, "close")


def test_the_first_hook_installs_and_the_last_restores(
    monitor: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    original = monitor._make_stats
    first, second = hook(tmp_path / "a"), hook(tmp_path / "b")
    first.__enter__()
    wrapper = monitor._make_stats
    assert wrapper is not original
    said = [record.getMessage() for record in caplog.records if record.name == "fleetgauge.xenna"]
    assert said == ["Installed PipelineMonitor._make_stats patch"]
    caplog.clear()
    second.__enter__()
    assert monitor._make_stats is wrapper
    first.__exit__(None, None, None)
    assert monitor._make_stats is wrapper
    monitor([one()]).update()
    second.__exit__(None, None, None)
    assert monitor._make_stats is original
    assert not [record for record in caplog.records if record.name == "fleetgauge.xenna"]
    assert [len(metrics(tmp_path / name)) for name in "ab"] == [0, 1]


def test_an_inherited_method_is_taken_away_again(
    monkeypatch: pytest.MonkeyPatch, monitor: Any, tmp_path: Path
) -> None:
    class PipelineMonitor(monitor):  # type: ignore[misc]
        pass

    monkeypatch.setattr(sys.modules[standin.MONITORING], "PipelineMonitor", PipelineMonitor)
    with hook(tmp_path):
        assert "_make_stats" in vars(PipelineMonitor)
    assert "_make_stats" not in vars(PipelineMonitor)


def test_a_foreign_wrapper_is_left_alone_and_ours_beneath_it_sleeps(monitor: Any, tmp_path: Path) -> None:
    with hook(tmp_path / "a"):
        ours = monitor._make_stats

        def foreign(*args: Any) -> Any:
            return ours(*args)

        monitor._make_stats = foreign
    assert monitor._make_stats is foreign
    assert monitor([one()]).update() is not None
    with hook(tmp_path / "b"):
        monitor([one()]).update()
    assert monitor._make_stats is foreign
    assert [len(metrics(tmp_path / name)) for name in "ab"] == [0, 1]


def test_last_record_of_a_pipeline_has_its_totals(monitor: Any, tmp_path: Path) -> None:
    pools = [Pool("Stage 00 - DownloadStage", 60), Pool("Stage 01 - HTTPTokenizeStage", 30)]
    times = [100.0, 1794786520.0, 1794786530.0, 1794786531.0]
    with hook(tmp_path, clock=iter(times).__next__), monitor([one()], pools=pools) as watched:
        watched.update()
    assert watched.closed == 1
    *_, totals, end = read(tmp_path)
    assert (end["status"], end["metrics"]) == ("ok", {})
    assert totals["metrics"]["pipeline_duration_s"] == times[2] - one().start_time
    assert totals["metrics"]["stage/http_tokenize_stage/tasks_completed"] == 30
    assert [record["timestamp"] for record in read(tmp_path)] == times


def test_a_monitor_is_not_kept_alive_and_its_close_is_its_own_again(monitor: Any, tmp_path: Path) -> None:
    with hook(tmp_path):
        watched = monitor([one(), one()], pools=[Pool("Stage 00 - X", 1)])
        watched.update()
        gone = weakref.ref(watched)
        gc.disable()
        try:
            assert watched.close() == "closed"
            assert "close" not in vars(watched)
            watched = monitor([one()])
            assert gone() is None
            watched.update()
            gone = weakref.ref(watched)
            del watched
            assert gone() is None
        finally:
            gc.enable()


def test_pools_that_cannot_be_read_cost_only_the_totals(monitor: Any, tmp_path: Path) -> None:
    with hook(tmp_path), monitor([one()], pools=[object()]) as watched:
        watched.update()
    assert watched.closed == 1
    assert read(tmp_path)[-1]["metrics"] == {}


def test_the_extra_question_on_leaving_is_answered_but_not_recorded(monitor: Any, tmp_path: Path) -> None:
    class Metered(monitor):  # type: ignore[misc]
        def __exit__(self, *_: object) -> None:
            self.last = self._make_stats(0, [0], [[]])
            self.close()

    answer = one()
    with hook(tmp_path):
        watched = Metered([one(), answer], pools=[Pool("Stage 00 - X", 9)])
        with watched:
            watched.update()
    assert watched.last is answer
    assert metrics(tmp_path)[1]["stage/x/tasks_completed"] == 9
    assert len(metrics(tmp_path)) == 2


def test_failing_pipeline_raises_its_error_and_has_an_end_record(monitor: Any, tmp_path: Path) -> None:
    class OddError(Exception):
        pass

    def run(directory: Path, error: BaseException) -> Any:
        def fail() -> None:
            with hook(tmp_path / directory), monitor([one()]) as watched:
                watched.update()
                raise error

        with pytest.raises(type(error)) as raised:
            fail()
        assert raised.value is error
        end = read(tmp_path / directory)[-1]
        assert end["event"] == "end"
        return end["status"], end.get("error")

    assert run(Path("a"), ValueError("bad sample")) == ("error", "ValueError")
    status, name = run(Path("b"), OddError())
    assert (status, name.rpartition(".")[2]) == ("error", "OddError")
    assert name.startswith(f"{OddError.__module__}.")
    assert run(Path("c"), KeyboardInterrupt()) == ("error", "KeyboardInterrupt")
    assert run(Path("d"), SystemExit(0)) == ("ok", None)
    assert run(Path("e"), SystemExit(3)) == ("error", "SystemExit")
