"""Which hook a pipeline belongs to: threads and nested hooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from support.xenna_pipeline.standin import hook, metrics, one, read

pytestmark = pytest.mark.usefixtures("nothing_stays")


def test_nested_hooks_all_record_also_one_hook_within_itself(monitor: Any, tmp_path: Path) -> None:
    outer, inner = hook(tmp_path / "outer"), hook(tmp_path / "inner")
    with outer, inner, inner:
        monitor([one()]).update()
    assert len(metrics(tmp_path / "outer")) == 1
    found = [list(records.read(path)) for path in (tmp_path / "inner").iterdir()]
    assert [[record["event"] for record in run] for run in found] == [["start", "stats", "end"]] * 2


def test_hooks_of_many_threads_leave_the_class_as_it_was(monitor: Any, tmp_path: Path) -> None:
    original = monitor._make_stats

    def run(number: int) -> None:
        for turn in range(5):
            with hook(tmp_path / f"{number}-{turn}"):
                monitor([one()]).update()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert monitor._make_stats is original
    assert [len(metrics(path)) for path in tmp_path.iterdir()] == [1] * 40


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_pipeline_belongs_to_the_hook_of_its_thread_or_else_to_all(monitor: Any, tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with hook(tmp_path / "b"):
            entered.set()
            leave.wait()

    second = threading.Thread(target=other)
    with hook(tmp_path / "a"):
        monitor([one()]).update()
        second.start()
        entered.wait()
        monitor([one()]).update()
        in_thread(monitor([one()]).update)
        asyncio.run(asyncio.to_thread(monitor([one()]).update))
        leave.set()
        second.join()
    assert [len(metrics(tmp_path / name)) for name in "ab"] == [4, 2]


def test_pipelines_of_one_hook_have_numbers(monitor: Any, tmp_path: Path) -> None:
    with hook(tmp_path):
        first, second = monitor([one(), one(line=8)]), monitor([one()])
        for watched in (first, second, first):
            watched.update()
    assert [record.get("pipeline") for record in read(tmp_path)] == [None, None, 2, None, None]


def test_a_hook_left_in_another_context_than_it_was_entered_in_is_left(monitor: Any, tmp_path: Path) -> None:
    original = monitor._make_stats
    entered = hook(tmp_path)
    entered.__enter__()
    in_thread(lambda: entered.__exit__(None, None, None))
    assert monitor._make_stats is original
    monitor([one()]).update()
    assert [record["event"] for record in read(tmp_path)] == ["start", "end"]
