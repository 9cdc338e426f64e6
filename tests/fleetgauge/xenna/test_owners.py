"""Whose pipeline is it: threads, tasks and nested hooks each have their own records."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
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


def test_a_hook_that_two_tasks_use_at_once_ends_the_run_of_the_one_that_leaves(
    monitor: Any, tmp_path: Path
) -> None:
    shared, one_task, other = hook(tmp_path), copy_context(), copy_context()
    one_task.run(shared.__enter__)
    other.run(shared.__enter__)
    one_task.run(monitor([one()]).update)
    one_task.run(shared.__exit__, None, None, None)
    runs = sorted([record["event"] for record in records.read(path)] for path in tmp_path.iterdir())
    other.run(shared.__exit__, None, None, None)
    assert [run for run in runs if "end" in run] == [["start", "stats", "end"]]


def test_an_outer_hook_goes_on_after_an_inner_one_though_others_are_open_elsewhere(
    monitor: Any, tmp_path: Path
) -> None:
    elsewhere = copy_context()
    stranger = hook(tmp_path / "stranger")
    elsewhere.run(stranger.__enter__)
    with hook(tmp_path / "outer"):
        with hook(tmp_path / "inner"):
            pass
        monitor([one()]).update()
    elsewhere.run(stranger.__exit__, None, None, None)
    counts = {name: len(metrics(tmp_path / name)) for name in ("outer", "inner", "stranger")}
    assert counts == {"outer": 1, "inner": 0, "stranger": 0}


def test_a_task_that_outlives_its_hook_belongs_to_the_only_one_that_is_open(
    monitor: Any, tmp_path: Path
) -> None:
    with hook(tmp_path / "closed"):
        task = copy_context()
    with hook(tmp_path / "open"):
        task.run(monitor([one()]).update)
    assert [len(metrics(tmp_path / name)) for name in ("closed", "open")] == [0, 1]


def test_two_pipelines_at_once_in_two_threads_are_recorded_under_their_own_hooks(
    monitor: Any, tmp_path: Path
) -> None:
    both = threading.Barrier(2, timeout=30)

    def run(name: str, line: int) -> None:
        with hook(tmp_path / name):
            watched = monitor([one(line=line)] * 3)
            for _ in range(3):
                both.wait()
                watched.update()
            both.wait()

    with ThreadPoolExecutor() as pool:
        for job in [pool.submit(run, "a", 7), pool.submit(run, "b", 9)]:
            job.result()
    key = "stage/download_stage/tasks_completed"
    assert [one[key] for one in metrics(tmp_path / "a")] == [36] * 3
    assert [one[key] for one in metrics(tmp_path / "b")] == [57] * 3


def test_hooks_entered_and_left_from_many_threads_leave_the_class_as_it_was(
    monitor: Any, tmp_path: Path
) -> None:
    original = monitor._make_stats

    def run(number: int) -> None:
        for turn in range(5):
            with hook(tmp_path / f"{number}-{turn}"):
                monitor([one()]).update()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert monitor._make_stats is original
    assert [len(metrics(path)) for path in tmp_path.iterdir()] == [1] * 40


def test_a_pipeline_in_a_plain_thread_goes_to_the_only_hooks_there_are(monitor: Any, tmp_path: Path) -> None:
    def run() -> None:
        with monitor([one()]) as watched:
            watched.update()

    with hook(tmp_path / "outer"), hook(tmp_path / "inner"):
        for _ in range(2):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
    assert [len(metrics(tmp_path / name)) for name in ("outer", "inner")] == [2, 2]


def test_a_pipeline_of_a_thread_without_hooks_is_nobodys_where_it_could_be_anothers(
    monitor: Any, tmp_path: Path
) -> None:
    stranger = monitor([one()])
    with hook(tmp_path / "a"):
        mine = monitor([one()])
        mine.update()
        thread = threading.Thread(target=stranger.update)
        thread.start()
        thread.join()
    assert len(metrics(tmp_path / "a")) == 1
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with hook(tmp_path / "c"):
            entered.set()
            leave.wait()

    with hook(tmp_path / "b"):
        second = threading.Thread(target=other)
        second.start()
        entered.wait()
        third = threading.Thread(target=monitor([one()]).update)
        third.start()
        third.join()
        leave.set()
        second.join()
    assert [len(metrics(tmp_path / name)) for name in "bc"] == [0, 0]


def test_tasks_of_one_event_loop_have_their_own_hooks(monitor: Any, tmp_path: Path) -> None:
    async def run(name: str, barrier: asyncio.Barrier) -> None:
        with hook(tmp_path / name):
            await barrier.wait()
            await asyncio.to_thread(monitor([one(line=7 if name == "a" else 9)]).update)
            await barrier.wait()

    async def both() -> None:
        barrier = asyncio.Barrier(2)
        await asyncio.gather(run("a", barrier), run("b", barrier))

    asyncio.run(both())
    key = "stage/download_stage/tasks_completed"
    assert [one[key] for name in "ab" for one in metrics(tmp_path / name)] == [36, 57]


def test_a_hook_left_in_another_context_than_it_was_entered_in_is_left(monitor: Any, tmp_path: Path) -> None:
    original = monitor._make_stats
    entered = hook(tmp_path)
    entered.__enter__()
    thread = threading.Thread(target=entered.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert monitor._make_stats is original
    monitor([one()]).update()
    assert [record["event"] for record in read(tmp_path)] == ["start", "end"]
