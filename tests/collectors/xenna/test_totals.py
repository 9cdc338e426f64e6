"""Without run_hash the values of runs are added up or averaged, by bucket and in whatever order they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.record_folder import NOW, START, Folder, Short, named, xenna

TAGS = ("pipeline_kind:curate", "stage:a")
BODY = {"stage/a/queue_in": 2, "stage/a/speed_tasks_per_s": 1.5, "progress": 10.0}
OTHER = {"stage/a/queue_in": 5, "stage/a/speed_tasks_per_s": 2.5, "progress": 30.0}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("xenna", tmp_path, stage_run_hash="false")


def of_stages(points: Short) -> dict[tuple[str, int], float]:
    """The values of stages, by their metric and the seconds from START on."""
    return {
        (name.removeprefix("stage."), NOW - START - ago): value
        for (name, tags, ago), value in points.items()
        if tags == TAGS
    }


def since(start: int, second: float) -> float:
    """How long ago a second of a bucket was."""
    return NOW - start - second


def test_a_run_counts_once_in_a_bucket_with_its_last_values(folder: Folder) -> None:
    folder.write(xenna(0, since(START, -50), BODY), xenna(1, since(START, -1), OTHER))
    folder.write(xenna(2, since(START, 0), BODY))
    assert of_stages(folder.points_at()) == {
        ("queue_in", -60): 5,
        ("speed_tasks_per_s", -60): 2.5,
        ("queue_in", 0): 2,
        ("speed_tasks_per_s", 0): 1.5,
    }


def test_runs_are_summed_or_averaged_by_pipeline_kind(folder: Folder) -> None:
    folder.write(xenna(0, since(START, 10), BODY))
    folder.write(xenna(0, since(START, 59.5), OTHER, run_id="r2", run_hash="x"), to="b.jsonl")
    points = folder.points_at()
    assert of_stages(points) == {("queue_in", 0): 7, ("speed_tasks_per_s", 0): 2.0}
    assert len(named(points, "pipeline.progress")) == 2


def test_a_clock_that_went_back_leaves_the_later_value(folder: Folder) -> None:
    folder.write(xenna(0, since(START, 20), BODY), xenna(1, since(START, 10), OTHER))
    folder.write(xenna(2, since(START, -10), OTHER))
    assert of_stages(folder.points_at()) == {
        ("queue_in", -60): 5,
        ("speed_tasks_per_s", -60): 2.5,
        ("queue_in", 0): 2,
        ("speed_tasks_per_s", 0): 1.5,
    }
    assert folder.ran[-1].report.dropped == {}


def test_a_bucket_is_sent_once_it_is_complete_and_only_once(folder: Folder) -> None:
    folder.write(xenna(0, since(START, 59), BODY), xenna(1, since(START, 61), OTHER))
    assert of_stages(folder.points_at()) == {("queue_in", 0): 2, ("speed_tasks_per_s", 0): 1.5}
    assert of_stages(folder.points_at(NOW + 30)) == {}
    assert of_stages(folder.points_at(NOW + 60)) == {("queue_in", 60): 5, ("speed_tasks_per_s", 60): 2.5}


def test_values_that_are_not_finite_do_not_spoil_a_sum(folder: Folder) -> None:
    folder.write(xenna(0, since(START, 5), {"stage/a/queue_in": float("inf"), "stage/b/queue_in": 1}))
    folder.write(xenna(0, since(START, 6), {"stage/a/queue_in": 3}, run_id="r2"), to="b.jsonl")
    points = folder.points_at()
    assert named(points, "stage.queue_in") == {
        (TAGS, NOW - START): 3,
        (("pipeline_kind:curate", "stage:b"), NOW - START): 1,
    }
    assert folder.ran[-1].report.dropped == {"not_finite": 1}


@pytest.mark.parametrize("names", [("a.jsonl", "b.jsonl"), ("b.jsonl", "a.jsonl")])
def test_the_order_of_files_does_not_change_the_points(folder: Folder, names: tuple[str, str]) -> None:
    for number, name in enumerate(names):
        body = {"stage/a/speed_tasks_per_s": 0.1 + number / 3, "stage/a/throughput_tasks_per_s": 0.1}
        folder.write(xenna(0, since(START, 5), body, run_id=f"r{number}"), to=name)
    assert of_stages(folder.points_at()) == {
        ("speed_tasks_per_s", 0): round((0.1 + 0.1 + 1 / 3) / 2, 9),
        ("throughput_tasks_per_s", 0): 0.2,
    }
