"""The xenna collector: what each record becomes, what of it is dropped, and how runs are now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.xenna.metrics import CLUSTER, PIPELINE, STAGE
from support.record_folder import NOW, Folder, named, xenna

RUN = ("pipeline_kind:curate", "run_hash:abc")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("xenna", tmp_path)


def test_further_pipelines_of_a_run_have_series_of_their_own(folder: Folder) -> None:
    second = xenna(1, 99, {"progress": 7.0}) | {"pipeline": 2}
    folder.write(xenna(0, 100), second, xenna(2, 98) | {"pipeline": 1}, xenna(3, 97) | {"pipeline": "x"})
    assert named(folder.points_at(), "pipeline.progress") == {
        (RUN, 100): 50.0,
        (("pipeline:2", *RUN), 99): 7.0,
        (RUN, 98): 50.0,
        (RUN, 97): 50.0,
    }


@pytest.mark.parametrize(
    "stamp",
    [NOW - 100, NOW - 99.5, "2026-11-16T00:58:20Z", "2026-11-16T01:58:20+01:00", "2026-11-16T00:58:20.25"],
)
def test_the_older_plain_form_is_read_with_and_without_leading_slashes(folder: Folder, stamp: object) -> None:
    plain = {"timestamp": stamp, "pipeline_kind": "curate", "run_hash": "abc", "stages": ["Download"]}
    metrics = {"/progress": 5.0, "stage/download/queue_in": 3, "/stage/write/queue_in": 4}
    folder.write({**plain, "metrics": metrics})
    assert folder.points_at() == {
        ("pipeline.progress", RUN, 100): 5.0,
        ("stage.queue_in", (*RUN, "stage:download"), 100): 3,
        ("stage.queue_in", (*RUN, "stage:write"), 100): 4,
    }


def test_both_generations_of_nemotrons_hook_give_the_same_points(tmp_path: Path) -> None:
    line = {"timestamp": NOW - 100, "pipeline_kind": "curate", "run_hash": None, "stages": ["Plan"]}
    sizes = {"/cluster/total_obj_store_gb": 0.2, "/cluster/avail_obj_store_gb": 0.1}
    values = {key: float(number) for number, key in enumerate(STAGE)}
    first = {f"/stage/plan/{key}": value for key, value in values.items()}
    second = {f"/stages/{key.replace('/', '_')}/plan": value for key, value in values.items()}
    found = []
    for name, of_stage in (("first", first), ("second", second)):
        folder = Folder("xenna", tmp_path / name)
        folder.write({**line, "metrics": {"/num_initial_inputs": 60} | sizes | of_stage})
        found.append(folder.points_at())
        assert folder.ran[-1].report.dropped == {}
    kind = ("pipeline_kind:curate",)
    of_stages = {
        (STAGE[key].name.removeprefix("xenna."), (*kind, "stage:plan"), 100): value
        for key, value in values.items()
    }
    assert found[0] == found[1]
    assert found[0] == of_stages | {
        ("pipeline.num_initial_inputs", kind, 100): 60,
        ("cluster.total_obj_store_gb", kind, 100): 0.2,
        ("cluster.avail_obj_store_gb", kind, 100): 0.1,
    }


@pytest.mark.parametrize(
    ("metrics", "dropped"),
    [
        ({"stages": 3}, {"unknown_metric": 1}),
        ({"stages/queue_in": 3}, {"unknown_metric": 1}),
        ({"stages/queue_in/": 3}, {"unknown_metric": 1}),
        ({"stages/nothing/plan": 3}, {"unknown_metric": 1}),
        ({"stage/a/nothing": 3, "new": "x", "newer": None}, {"unknown_metric": 2}),
        ({"num_outputs": "7"}, {"not_a_number": 1}),
        ({"num_outputs": True, "tasks_failed": [1]}, {"not_a_number": 2}),
        ({"num_outputs": None}, {}),
        ({"num_outputs": float("nan"), "tasks_failed": float("inf")}, {"not_finite": 2}),
        ({"num_outputs": float("inf"), "tasks_failed": -float("inf")}, {"not_finite": 2}),
        ({"num_outputs": 10**400, "tasks_failed": -(10**400)}, {"not_finite": 2}),
    ],
    ids=repr,
)
def test_an_invalid_value_leaves_out_only_itself(
    folder: Folder, metrics: dict[str, Any], dropped: dict[str, int]
) -> None:
    """Also in a record with the keys of a good one."""
    good = {"progress": 0, "num_outputs": 1.7e308, "tasks_failed": 1.7e308}
    folder.write(xenna(0, 100, good), xenna(1, 99, {"progress": 1, **metrics}), xenna(2, 98, good))
    folder.write(xenna(3, 90, {**metrics, "progress": 90}))
    points = folder.points_at()
    assert points["pipeline.num_outputs", RUN, 98] == points["pipeline.tasks_failed", RUN, 98] == 1.7e308
    of_bad = {(name, ago): value for (name, _, ago), value in points.items() if ago in (99, 90)}
    assert of_bad == {("pipeline.progress", 99): 1, ("pipeline.progress", 90): 90}
    assert folder.ran[-1].report.dropped == {reason: 2 * number for reason, number in dropped.items()}


def test_a_run_that_ended_is_a_count_at_its_own_second(folder: Folder) -> None:
    ended: dict[str, Any] = {"event": "end", "metrics": {}}
    folder.write(xenna(1, 300.5, {"progress": 100.0}, event="end", status="ok"))
    folder.write(xenna(0, 200, run_id="r2", run_hash="a", status="error", **ended), to="b.jsonl")
    folder.write(xenna(0, 200, run_id="r3", run_hash="b", **ended), to="c.jsonl")
    points = folder.points_at()
    assert named(points, "runs.ended") == {(("status:ok",), 301): 1, (("status:error",), 200): 2}
    assert named(points, "pipeline.progress") == {(RUN, 301): 100.0}


def test_a_silent_run_is_stalled_and_an_ended_run_is_not_sent(folder: Folder) -> None:
    folder.write(xenna(0, 3000), xenna(1, 601))
    folder.write(xenna(0, 600, run_id="r2", run_hash="going"), to="b.jsonl")
    folder.write(xenna(0, 500, run_id="r3", run_hash="over", event="end", status="ok"), to="c.jsonl")
    going = ("pipeline_kind:curate", "run_hash:going")
    points = folder.short(folder.tick().sent)
    assert {key: value for key, value in points.items() if key[0].startswith("run") and not key[2]} == {
        ("run.last_record_age_seconds", RUN, 0): 601,
        ("run.stalled", RUN, 0): 1,
        ("run.last_record_age_seconds", going, 0): 600,
        ("run.stalled", going, 0): 0,
        ("runs.active", (), 0): 1,
    }


def test_the_age_of_a_run_is_sent_for_a_day_after_its_last_record(folder: Folder) -> None:
    path = folder.write(xenna(0, 700), modified=NOW - 700)
    later = NOW - 700 + 86_400
    ran = folder.tick(later)
    assert ran.sent["xenna.run.last_record_age_seconds", RUN, None, later] == 86_400
    assert ran.sent["xenna.run.stalled", RUN, None, later] == 1
    ran = folder.tick(later + 900)
    assert {name for name, *_ in ran.sent if name.startswith("xenna.run")} == {"xenna.runs.active"}
    path.unlink()
    assert folder.tick(later + 1800).sent["xenna.runs.active", (), None, later + 1800] == 0


def test_a_plain_run_has_an_age_but_is_never_called_stalled(folder: Folder) -> None:
    plain = {"timestamp": NOW - 3000, "pipeline_kind": "k", "run_hash": "h", "metrics": {"progress": 5.0}}
    folder.write(plain)
    points = folder.short(folder.tick().sent)
    assert named(points, "run.last_record_age_seconds") == {(("pipeline_kind:k", "run_hash:h"), 0): 3000}
    assert named(points, "run.stalled") == {}


def test_a_restarted_run_has_the_age_of_its_newest_record(folder: Folder) -> None:
    folder.write(xenna(0, 900), xenna(1, 800))
    folder.write(xenna(0, 300, run_id="r2"), to="b.jsonl")
    points = folder.short(folder.tick().sent)
    assert named(points, "run.last_record_age_seconds") == {(RUN, 0): 300}
    assert points["runs.active", (), 0] == 1


def test_every_declared_metric_is_emitted_and_no_other(folder: Folder) -> None:
    keys = [*PIPELINE, *(f"cluster/{key}" for key in CLUSTER), *(f"stage/a/{key}" for key in STAGE)]
    folder.write(xenna(0, 100, dict.fromkeys(keys, 1.0)))
    folder.write(xenna(0, 100, run_id="r2", run_hash="b", event="end", status="ok"))
    ran = folder.tick()
    assert {name for name, *_ in ran.sent} == {metric.name for metric in folder.collector.metrics}
    assert ran.report.dropped == {}


@pytest.mark.parametrize("names", [("a.jsonl", "b.jsonl"), ("b.jsonl", "a.jsonl")])
def test_the_order_of_files_and_lines_does_not_change_sums(tmp_path: Path, names: tuple[str, str]) -> None:
    folder = Folder("xenna", tmp_path, stage_run_hash="false")
    for number, name in enumerate(names):
        body = {"stage/a/speed_tasks_per_s": 0.1 + number / 3, "stage/a/throughput_tasks_per_s": 0.1}
        earlier = {"stage/a/speed_tasks_per_s": 77, "stage/a/throughput_tasks_per_s": float("inf")}
        run = {"run_id": f"r{number}"}
        folder.write(xenna(1, 115, body, **run), xenna(0, 116, earlier, **run), to=name)
    tags = ("pipeline_kind:curate", "stage:a")
    assert folder.points_at() == {
        ("stage.speed_tasks_per_s", tags, 120): round((0.1 + 0.1 + 1 / 3) / 2, 9),
        ("stage.throughput_tasks_per_s", tags, 120): 0.2,
    }
    assert folder.points_at(NOW + 30) == {}  # a bucket is sent once
