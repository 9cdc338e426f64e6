"""The xenna collector: what each record becomes, what of it is dropped, and how runs are now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.xenna.metrics import STAGE
from support.record_folder import NOW, Folder, named, xenna

DATA = Path(__file__).parents[2] / "data" / "xenna"
RUN = ("pipeline_kind:curate", "run_hash:abc")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("xenna", tmp_path)


def test_a_record_becomes_gauges_at_its_own_time_with_the_stage_as_a_tag(folder: Folder) -> None:
    metrics = {
        "progress": 12.5,
        "pipeline_duration_s": 61,
        "cluster/total_cpus": 8.0,
        "stage/http_tokenize_stage/tasks_completed": 41,
        "stage/http_tokenize_stage/resource/cpu_util_pct": 140.5,
    }
    folder.write(xenna(0, 100.75, metrics))
    stage = (*RUN, "stage:http_tokenize_stage")
    assert folder.points_at() == {
        ("pipeline.progress", RUN, 101): 12.5,
        ("pipeline.pipeline_duration_s", RUN, 101): 61,
        ("cluster.total_cpus", RUN, 101): 8.0,
        ("stage.tasks_completed", stage, 101): 41,
        ("stage.resource.cpu_util_pct", stage, 101): 140.5,
    }
    assert folder.ran[-1].report.dropped == {}


def test_the_rank_is_a_tag_where_it_is_known(folder: Folder) -> None:
    folder.write(xenna(0, 100, rank=3), xenna(0, 100, {"progress": 7.0}, rank=4))
    assert named(folder.points_at(), "pipeline.progress") == {
        (("pipeline_kind:curate", "rank:3", "run_hash:abc"), 100): 50.0,
        (("pipeline_kind:curate", "rank:4", "run_hash:abc"), 100): 7.0,
    }


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
        ({"num_outputs": 10**400, "tasks_failed": -(10**400)}, {"not_finite": 2}),
    ],
    ids=repr,
)
def test_an_invalid_value_leaves_out_only_itself(
    folder: Folder, metrics: dict[str, Any], dropped: dict[str, int]
) -> None:
    folder.write(xenna(0, 100, {**metrics, "progress": 50.0}), xenna(1, 90, {"progress": 51.0, **metrics}))
    points = folder.points_at()
    assert points == {("pipeline.progress", RUN, 100): 50.0, ("pipeline.progress", RUN, 90): 51.0}
    assert folder.ran[-1].report.dropped == {reason: 2 * number for reason, number in dropped.items()}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": 1}, "not_a_record"),
        ({"timestamp": NOW - 100, "metrics": []}, "not_a_record"),
        ({"timestamp": "soon", "metrics": {}}, "bad_timestamp"),
        ({"timestamp": True, "metrics": {}}, "bad_timestamp"),
        ({"timestamp": None, "metrics": {}}, "bad_timestamp"),
        ({"timestamp": 0, "metrics": {}}, "bad_timestamp"),
        ({"timestamp": 2**33, "metrics": {}}, "bad_timestamp"),
        (xenna(0, 100, schema_version=2), "unknown_schema_version"),
        (xenna(0, 100, schema_version=0), "unknown_schema_version"),
        (xenna(0, 100, schema_version="1"), "unknown_schema_version"),
        (xenna(0, 100, event="begin"), "not_a_record"),
        (xenna(0, 100, run_id=None), "not_a_record"),
        (xenna(0, 100, timestamp=float("nan")), "bad_timestamp"),
    ],
)
def test_an_invalid_line_is_dropped_and_counted(folder: Folder, value: dict[str, Any], reason: str) -> None:
    folder.write(value, xenna(7, 90))
    ran = folder.tick()
    points = folder.short(ran.sent)
    assert ran.report.dropped == {reason: 1}
    assert ran.report.lost == []
    assert points["pipeline.progress", RUN, 90] == 50.0
    assert (points["ingest.bad_records", (), 0], points["ingest.records", (), 0]) == (1, 1)


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


def test_without_every_file_how_many_runs_are_active_is_unknown(tmp_path: Path) -> None:
    folder = Folder("xenna", tmp_path, paths=f"{tmp_path},{tmp_path}/gone")
    folder.write(xenna(0, 100))
    points = folder.short(folder.tick().sent)
    assert named(points, "runs.active") == {}
    assert named(points, "run.last_record_age_seconds") == {(RUN, 0): 100}


def flattened(dump: dict[str, Any]) -> dict[str, Any]:
    """A real dump of the statistics, under the keys of a record."""
    stats = dump["stats"]
    metrics = {
        "pipeline_duration_s": stats["pipeline_duration_s"],
        "main_loop_rate_hz": stats["main_loop_rate_hz"],
        "progress": 100 - 100 * stats["num_input_tasks_remaining"] / stats["num_initial_input_tasks"],
        "num_initial_inputs": stats["num_initial_input_tasks"],
        "num_input_remaining": stats["num_input_tasks_remaining"],
        "num_outputs": stats["num_outputs"],
        "inputs_processed_per_s": dump["inputs_processed_per_second"],
        "outputs_per_s": dump["outputs_per_second"],
        "progress_stages": 0.0,
        "tasks_failed": 0,
    }
    for short, long in (("total", "total"), ("avail", "available")):
        resources = stats["cluster"][long]
        metrics[f"cluster/{short}_cpus"] = resources["num_cpus"]
        metrics[f"cluster/{short}_gpus"] = resources["num_gpus"]
        metrics[f"cluster/{short}_mem_gb"] = resources["memory"] / 1e9
        metrics[f"cluster/{short}_obj_store_gb"] = resources["object_store_memory"] / 1e9
    for pool in stats["actor_pools"]:
        stage = f"stage/{pool['name'].partition(' - ')[2].lower()}"
        tasks, slots = pool["task_stats"], pool["slot_stats"]
        metrics |= {f"{stage}/actors_{name}": number for name, number in pool["actor_stats"].items()}
        metrics |= {
            f"{stage}/tasks_completed": tasks["total_completed"],
            f"{stage}/tasks_failed": tasks["total_returned_none"],
            f"{stage}/queue_in": tasks["input_queue_size"],
            f"{stage}/queue_out": tasks["output_queue_size"],
            f"{stage}/slots_used": slots["num_used"],
            f"{stage}/slots_empty": slots["num_empty"],
            f"{stage}/speed_tasks_per_s": pool["processing_speed_tasks_per_second"],
            f"{stage}/throughput_tasks_per_s": 0.0,
            f"{stage}/bottleneck": 0,
        }
        usage = stats["resource_usage_per_stage"].get(pool["name"])
        if usage:
            metrics |= {
                f"{stage}/resource/cpu_util_pct": usage["cpu_utilization"],
                f"{stage}/resource/mem_gb": usage["memory_usage"] / 1e9,
                f"{stage}/resource/actor_count": usage["actor_count"],
            }
    return metrics


def test_real_pipelines_have_the_totals_they_had_and_every_metric_declared(folder: Folder) -> None:
    truth: dict[tuple[str, str], int] = {}
    for name in ("streaming-0.5.12", "failing-0.3.0"):
        dumps = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
        shift = NOW - 300 - dumps[0]["unix"]
        for seq, dump in enumerate(dumps):
            at = dump["unix"] + shift
            assert at < NOW - 60
            record = xenna(seq, 0, flattened(dump), timestamp=at, run_id=name, run_hash=name)
            folder.write(record, to=f"{name}.jsonl")
        for pool in dumps[-1]["stats"]["actor_pools"]:
            truth[name, pool["name"].partition(" - ")[2].lower()] = pool["task_stats"]["total_completed"]
    folder.write(xenna(0, 100, event="end", status="ok"))
    ran = folder.tick()
    assert ran.report.dropped == {}
    assert {name for name, *_ in ran.sent} == {metric.name for metric in folder.collector.metrics}
    last: dict[tuple[str, str], float] = {}
    for (name, tags, _, _), value in sorted(ran.sent.items(), key=lambda item: item[0][3]):
        if name == "xenna.stage.tasks_completed":
            of = dict(tag.split(":", 1) for tag in tags)
            last[of["run_hash"], of["stage"]] = value
    assert last == truth
