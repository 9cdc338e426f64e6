"""The xenna collector: what each record becomes, what is held back, dropped, counted and remembered."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from collectors.xenna.metrics import METRICS, STAGE
from common.config.settings import ConfigurationFile, CoreSettings, DatadogSettings, load
from common.datadog.sink import DatadogSink
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.shards import split
from support.servers.datadog import Intake
from support.xenna_ticks import NOW, Ticks, named, record

DATA = Path(__file__).parents[2] / "data" / "xenna"


@pytest.fixture
def ticks(tmp_path: Path) -> Ticks:
    return Ticks(tmp_path)


RUN = ("pipeline_kind:curate", "run_hash:abc")


def test_a_record_becomes_gauges_at_its_own_time_with_the_stage_as_a_tag(ticks: Ticks) -> None:
    metrics = {
        "progress": 12.5,
        "pipeline_duration_s": 61,
        "cluster/total_cpus": 8.0,
        "stage/http_tokenize_stage/tasks_completed": 41,
        "stage/http_tokenize_stage/resource/cpu_util_pct": 140.5,
    }
    ticks.write(record(0, 100.75, metrics))
    at = NOW - 101
    stage = (*RUN, "stage:http_tokenize_stage")
    points = ticks.tick()
    assert {key: value for key, value in points.items() if key[2] == at} == {
        ("xenna.pipeline.progress", RUN, at): 12.5,
        ("xenna.pipeline.pipeline_duration_s", RUN, at): 61,
        ("xenna.cluster.total_cpus", RUN, at): 8.0,
        ("xenna.stage.tasks_completed", stage, at): 41,
        ("xenna.stage.resource.cpu_util_pct", stage, at): 140.5,
    }
    assert ticks.tally.dropped == {}
    assert named(ticks.tick(), "xenna.pipeline") == {}


def test_the_rank_is_a_tag_where_it_is_known(ticks: Ticks) -> None:
    ticks.write(record(0, 100, rank=3), record(0, 100, {"progress": 7.0}, rank=4))
    assert named(ticks.tick(), "xenna.pipeline") == {
        ("xenna.pipeline.progress", ("pipeline_kind:curate", "rank:3", "run_hash:abc"), NOW - 100): 50.0,
        ("xenna.pipeline.progress", ("pipeline_kind:curate", "rank:4", "run_hash:abc"), NOW - 100): 7.0,
    }


@pytest.mark.parametrize(
    "stamp",
    [NOW - 100, NOW - 100.5, "2026-11-16T00:45:00Z", "2026-11-16T00:45:00+00:00", "2026-11-16T00:45:00.25"],
)
def test_the_older_plain_form_is_read_with_and_without_leading_slashes(ticks: Ticks, stamp: object) -> None:
    plain = {"timestamp": stamp, "pipeline_kind": "curate", "run_hash": "abc", "stages": ["Download"]}
    ticks.write(
        {**plain, "metrics": {"/progress": 5.0, "stage/download/queue_in": 3, "/stage/write/queue_in": 4}}
    )
    found = {(name, tags): value for (name, tags, at), value in ticks.tick().items() if at < NOW}
    assert found == {
        ("xenna.pipeline.progress", RUN): 5.0,
        ("xenna.stage.queue_in", (*RUN, "stage:download")): 3,
        ("xenna.stage.queue_in", (*RUN, "stage:write")): 4,
    }


def test_both_generations_of_nemotrons_hook_give_the_same_samples(tmp_path: Path) -> None:
    line = {"timestamp": NOW - 100, "pipeline_kind": "curate", "run_hash": None, "stages": ["Plan"]}
    sizes = {"/cluster/total_obj_store_gb": 0.2, "/cluster/avail_obj_store_gb": 0.1}
    values = {key: float(number) for number, key in enumerate(STAGE)}
    first = {f"/stage/plan/{key}": value for key, value in values.items()}
    second = {f"/stages/{key.replace('/', '_')}/plan": value for key, value in values.items()}
    found = []
    for name, of_stage in (("first", first), ("second", second)):
        ticks = Ticks(tmp_path / name)
        (tmp_path / name).mkdir()
        ticks.write({**line, "metrics": {"/num_initial_inputs": 60} | sizes | of_stage})
        found.append({(name, tags): value for (name, tags, at), value in ticks.tick().items() if at < NOW})
        assert ticks.tally.dropped == {}
    kind = ("pipeline_kind:curate",)
    assert found[0] == found[1]
    assert found[0] == {
        ("xenna.pipeline.num_initial_inputs", kind): 60,
        ("xenna.cluster.total_obj_store_gb", kind): 0.2,
        ("xenna.cluster.avail_obj_store_gb", kind): 0.1,
    } | {(STAGE[key].metric.name, (*kind, "stage:plan")): value for key, value in values.items()}


@pytest.mark.parametrize("key", ["stages", "stages/queue_in", "stages/queue_in/", "stages/nothing/plan"])
def test_a_later_stage_key_without_its_stage_or_with_an_unknown_metric_is_counted(
    ticks: Ticks, key: str
) -> None:
    ticks.write(record(0, 100, {key: 3, "progress": 50.0}))
    assert named(ticks.tick(), "xenna.stage") == {}
    assert ticks.tally.dropped == {"unknown_metric": 1}


def test_a_plain_run_has_an_age_but_is_never_called_stalled(ticks: Ticks) -> None:
    ticks.write(
        {"timestamp": NOW - 3000, "pipeline_kind": "k", "run_hash": "h", "metrics": {"progress": 5.0}}
    )
    points = ticks.tick()
    tags = ("pipeline_kind:k", "run_hash:h")
    assert named(points, "xenna.run.") == {("xenna.run.last_record_age_seconds", tags, NOW): 3000}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": 1}, "not_a_record"),
        ({"timestamp": 5, "metrics": []}, "not_a_record"),
        ({"timestamp": "soon", "metrics": {}}, "bad_timestamp"),
        ({"timestamp": True, "metrics": {}}, "bad_timestamp"),
        ({"timestamp": None, "metrics": {}}, "bad_timestamp"),
        ({"timestamp": 0, "metrics": {}}, "bad_timestamp"),
        ({"timestamp": 2**33, "metrics": {}}, "bad_timestamp"),
        (record(0, 100, schema_version=2), "unknown_schema_version"),
        (record(0, 100, schema_version=0), "unknown_schema_version"),
        (record(0, 100, schema_version="1"), "unknown_schema_version"),
        (record(0, 100, event="begin"), "not_a_record"),
        (record(0, 100, run_id=None), "not_a_record"),
        (record(0, 100, timestamp=float("nan")), "bad_timestamp"),
    ],
)
def test_a_line_that_is_no_record_costs_itself_and_is_counted(
    ticks: Ticks, value: dict[str, Any], reason: str
) -> None:
    ticks.write(value, record(7, 90))
    points = ticks.tick()
    assert ticks.tally.dropped == {reason: 1}
    assert points["xenna.pipeline.progress", RUN, NOW - 90] == 50.0
    assert points["xenna.ingest.bad_records", (), NOW] == 1
    assert points["xenna.ingest.records", (), NOW] == 1
    assert ticks.tally.lost == []


def test_records_of_another_kind_are_passed_over_in_silence(ticks: Ticks) -> None:
    ticks.write(record(0, 100), record(0, 100, kind="data_plane", run_id="r2"))
    points = ticks.tick()
    assert len(named(points, "xenna.pipeline")) == 1
    assert ticks.tally.dropped == {}
    assert points["xenna.ingest.bad_records", (), NOW] == 0
    assert points["xenna.ingest.other_kind", (), NOW] == 1
    assert points["xenna.ingest.records", (), NOW] == 1


def test_nan_passes_to_delivery_which_drops_and_counts_it(ticks: Ticks) -> None:
    (ticks.path / "a.jsonl").write_text(
        json.dumps(record(0, 100, {"progress": float("nan"), "num_outputs": 2})) + "\n"
    )
    os.utime(ticks.path / "a.jsonl", (NOW, NOW))
    points = ticks.tick()
    assert points["xenna.pipeline.num_outputs", RUN, NOW - 100] == 2
    assert str(points["xenna.pipeline.progress", RUN, NOW - 100]) == "nan"


def test_points_the_intake_would_not_take_are_dropped_and_counted_and_never_restamped(ticks: Ticks) -> None:
    two = {"progress": 1.0, "num_outputs": 2}
    ticks.write(record(0, 3601, two), record(1, 3600), record(2, -601.5, two), record(3, 50), to="a.jsonl")
    points = named(ticks.tick(), "xenna.pipeline")
    assert points == {("xenna.pipeline.progress", RUN, NOW - ago): 50.0 for ago in (3600, 50)}
    assert ticks.tally.dropped == {"too_old": 2, "in_future": 2}


def test_a_second_that_may_still_grow_waits_for_the_next_tick(ticks: Ticks) -> None:
    ages = (5.25, 5, 4.5, 3)
    ticks.write(*(record(seq, ago, {"progress": float(seq)}) for seq, ago in enumerate(ages)))
    points = ticks.tick()
    assert named(points, "xenna.pipeline") == {("xenna.pipeline.progress", RUN, NOW - 6): 0.0}
    assert points["xenna.ingest.records", (), NOW] == 1
    ticks.write(record(4, 4.25, {"progress": 2.5}))
    ticks.now += 60
    assert named(ticks.tick(), "xenna.pipeline") == {
        ("xenna.pipeline.progress", RUN, NOW - 5): 2.5,
        ("xenna.pipeline.progress", RUN, NOW - 3): 3.0,
    }
    assert ticks.tally.dropped == {}


def test_the_end_of_a_run_lets_its_last_seconds_go_at_once(ticks: Ticks) -> None:
    ticks.write(record(0, 2), {"rubbish": 1}, record(1, 1, {"progress": 100.0}, event="end", status="ok"))
    points = ticks.tick()
    assert points["xenna.pipeline.progress", RUN, NOW - 2] == 50.0
    assert points["xenna.pipeline.progress", RUN, NOW - 1] == 100.0
    assert points["xenna.runs.ended_ok_24h", (), NOW] == 1
    ticks.now += 60
    assert named(ticks.tick(), "xenna.pipeline") == {}


def test_the_end_of_one_run_does_not_let_another_in_the_same_file_go(ticks: Ticks) -> None:
    ticks.write(record(0, 2, run_id="other", run_hash="x"), record(0, 1, event="end", status="ok"))
    assert named(ticks.tick(), "xenna.pipeline") == {}
    ticks.now += 60
    assert len(named(ticks.tick(), "xenna.pipeline")) == 2


def test_a_clock_that_is_a_little_ahead_is_waited_for_whenever_the_file_was_written(ticks: Ticks) -> None:
    ticks.write(record(0, -300))
    os.utime(ticks.path / "a.jsonl", (NOW - 400, NOW - 400))
    assert named(ticks.tick(), "xenna.pipeline") == {}
    assert ticks.tally.dropped == {}
    ticks.now += 400
    assert named(ticks.tick(), "xenna.pipeline") == {("xenna.pipeline.progress", RUN, NOW + 300): 50.0}


def test_a_flood_of_records_from_a_clock_that_is_ahead_is_not_held_in_memory(ticks: Ticks) -> None:
    ticks.write(*(record(seq, -300) for seq in range(2500)))
    points = ticks.tick()
    assert points["xenna.ingest.records", (), NOW] == 0
    ticks.now += 600
    assert ticks.tick()["xenna.ingest.records", (), NOW + 600] == 2500


def test_a_run_that_writes_nothing_is_stalled_and_one_that_ended_is_not_sent(ticks: Ticks) -> None:
    ticks.write(record(0, 3000), record(1, 601))
    ticks.write(record(0, 600, run_id="r2", run_hash="going"), to="b.jsonl")
    ticks.write(record(0, 900, run_id="r3", run_hash="over", event="end", status="ok"), to="c.jsonl")
    ticks.write(record(0, 900, run_id="r4", run_hash="bad", event="end", status="error"), to="d.jsonl")
    ticks.write(record(0, 900, run_id="r5", run_hash="odd", event="end"), to="e.jsonl")
    going = ("pipeline_kind:curate", "run_hash:going")
    points = ticks.tick()
    assert named(points, "xenna.run") == {
        ("xenna.run.last_record_age_seconds", RUN, NOW): 601,
        ("xenna.run.stalled", RUN, NOW): 1,
        ("xenna.run.last_record_age_seconds", going, NOW): 600,
        ("xenna.run.stalled", going, NOW): 0,
        ("xenna.runs.active", (), NOW): 1,
        ("xenna.runs.ended_ok_24h", (), NOW): 1,
        ("xenna.runs.ended_error_24h", (), NOW): 2,
    }
    ticks.now += 86400 - 900
    later = named(ticks.tick(), "xenna.run")
    assert later["xenna.runs.ended_ok_24h", (), ticks.now] == 0
    assert later["xenna.run.stalled", RUN, ticks.now] == 1
    ticks.now += 900
    assert set(named(ticks.tick(), "xenna.run.")) == set()


def test_a_job_that_starts_again_takes_its_series_over(ticks: Ticks) -> None:
    ticks.write(record(0, 900), record(1, 800))
    ticks.write(
        *(record(seq, 500 - 100 * seq, {"progress": 1.0}, run_id="r2") for seq in range(3)), to="b.jsonl"
    )
    ticks.tick()
    ticks.write(
        record(2, 400, {"progress": 99.0}), record(3, 300, {"progress": 99.0})
    )  # the old one still twitches
    ticks.tick()
    assert ticks.tally.dropped == {"superseded": 2}
    assert named(ticks.points, "xenna.pipeline") == {
        ("xenna.pipeline.progress", RUN, NOW - ago): value
        for ago, value in {900: 50.0, 800: 50.0, 500: 1.0, 400: 1.0, 300: 1.0}.items()
    }
    points = ticks.tick()
    assert points["xenna.run.last_record_age_seconds", RUN, NOW] == 300
    assert points["xenna.runs.active", (), NOW] == 2


@pytest.mark.parametrize("name", ["a.jsonl", "c.jsonl"])
def test_of_two_runs_that_go_on_side_by_side_the_later_is_shown_whichever_is_read_first(
    ticks: Ticks, name: str
) -> None:
    ticks.now = NOW - 1000
    ticks.write(record(0, 2000), to=name)
    ticks.write(record(0, 1900, {"progress": 1.0}, run_id="r2"), to="b.jsonl")
    ticks.tick()
    ticks.now = NOW
    ticks.write(*(record(seq, 1100 - seq * 10) for seq in range(1, 100)), to=name)
    younger = (record(seq, 1105 - seq * 10, {"progress": 1.0}, run_id="r2") for seq in range(1, 100))
    ticks.write(*younger, to="b.jsonl")
    points = named(ticks.tick(), "xenna.pipeline")
    assert list(points.values()) == [1.0] * 99
    assert ticks.tally.dropped == {"superseded": 99}


def test_a_contested_record_is_marked_as_read_only_behind_what_became_of_it(ticks: Ticks) -> None:
    ticks.write(record(0, 2000))
    ticks.write(record(0, 1900, run_id="r2"), to="b.jsonl")
    ticks.tick()
    ticks.write(record(1, 100, {"progress": 7.0}))
    ticks.tick()
    [mark] = [item for item in ticks.items if isinstance(item, Mark)]
    assert ticks.points["xenna.pipeline.progress", RUN, NOW - 100] == 7.0
    assert {"run:r1", "seen:r1"} <= {split(key)[1] for key in mark.changes}
    assert ticks.items[-1] is mark


def test_an_older_run_has_its_series_back_once_the_later_one_ended_or_fell_silent(ticks: Ticks) -> None:
    ticks.write(record(0, 2000))
    ticks.write(
        record(0, 1500, run_id="r2"), record(1, 1400, run_id="r2", event="end", status="ok"), to="b.jsonl"
    )
    ticks.write(record(0, 1300, run_id="r3"), to="c.jsonl")
    ticks.tick()
    ticks.write(*(record(seq, ago, {"progress": 9.0}) for seq, ago in enumerate((1350, 1250, 700, 699), 1)))
    points = named(ticks.tick(), "xenna.pipeline")
    assert [at - NOW for (_, _, at) in points] == [-1350, -699]
    assert ticks.tally.dropped == {"superseded": 2}


def test_a_run_began_with_its_earliest_record_whichever_is_read_first(ticks: Ticks) -> None:
    ticks.write(record(5, 300), record(4, 500), record(6, 200))
    ticks.tick()
    run = ticks.parts["run:r1"]
    assert isinstance(run, dict)
    assert (run["started"], run["last"]) == (NOW - 500, NOW - 200)


def test_a_run_that_ended_hides_the_crashed_one_before_it(ticks: Ticks) -> None:
    ticks.write(record(0, 2000))
    ticks.write(record(0, 1500, run_id="r2", event="end", status="ok"), to="b.jsonl")
    assert named(ticks.tick(), "xenna.run.") == {}


def test_the_reading_reports_on_itself(ticks: Ticks) -> None:
    ticks.write(record(0, 100), record(1, 90))
    ticks.write(record(0, 90, run_id="r2", run_hash="x"), to="b.jsonl")
    size = sum(path.stat().st_size for path in ticks.path.iterdir())
    assert named(ticks.tick(), "xenna.ingest") == {
        ("xenna.ingest.files", (), NOW): 2,
        ("xenna.ingest.records", (), NOW): 3,
        ("xenna.ingest.bad_records", (), NOW): 0,
        ("xenna.ingest.other_kind", (), NOW): 0,
        ("xenna.ingest.bytes", (), NOW): size,
        ("xenna.ingest.backlog_bytes", (), NOW): 0,
        ("xenna.ingest.lag_seconds", (), NOW): 0,
    }


def test_a_backlog_is_told_and_read_in_the_next_tick(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, bytes_per_tick="1000000")
    body = {f"stage/{number}/queue_in": number for number in range(1000)}
    ticks.write(*(record(seq, 200 - seq, body) for seq in range(50)))
    os.utime(tmp_path / "a.jsonl", (NOW - 40, NOW - 40))
    points = ticks.tick()
    total = (tmp_path / "a.jsonl").stat().st_size
    read = points["xenna.ingest.bytes", (), NOW]
    assert 1_000_000 - total / 50 <= read < total  # the second that it had come to waits as a whole
    assert points["xenna.ingest.backlog_bytes", (), NOW] == total - read
    assert points["xenna.ingest.lag_seconds", (), NOW] == 40
    ticks.tick()
    assert len(named(ticks.points, "xenna.stage.queue_in")) == 50_000


def test_a_large_file_is_marked_on_the_way_between_two_seconds(ticks: Ticks) -> None:
    body = {f"stage/{number}/queue_in": number for number in range(1500)}
    ticks.write(*(record(seq, 200 - seq // 4, body) for seq in range(20)))
    ticks.tick()
    last: dict[bool, int] = {}
    for item in ticks.items:
        if isinstance(item, Mark):
            last[True] = last.get(False, 0)
        elif item.timestamp < NOW:
            assert item.timestamp > last.get(True, 0)
            last[False] = item.timestamp
    assert sum(isinstance(item, Mark) for item in ticks.items) == 4


def test_damaged_lines_are_dropped_by_name(ticks: Ticks) -> None:
    ticks.write(record(0, 100))
    with (ticks.path / "a.jsonl").open("ab") as file:
        file.write(b"{\n\xff\n")
    assert ticks.tick()["xenna.ingest.bad_records", (), NOW] == 2
    assert ticks.tally.dropped == {"not_json": 1, "not_utf8": 1}


def test_old_runs_and_what_is_not_ours_leave_the_state(ticks: Ticks) -> None:
    ticks.write(record(0, 100))
    ticks.state = {
        "run:odd": 5,
        "run:odder": {"group": [1], "started": NOW, "last": NOW},
        "run:oddest": {"group": 5, "started": NOW, "last": NOW},
        "run:late": {"group": [], "started": NOW, "last": "x"},
    }
    ticks.tick()
    assert [key.partition(":")[0] for key in sorted(ticks.parts)] == ["file", "run", "seen"]
    (ticks.path / "a.jsonl").unlink()
    ticks.now += 7 * 86400 + 1
    ticks.tick()
    assert ticks.state == {}


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


def test_real_pipelines_reach_the_intake_with_the_totals_they_had_and_every_metric_declared(
    tmp_path: Path,
) -> None:
    ticks = Ticks(tmp_path)
    truth: dict[tuple[str, str], int] = {}
    for name in ("streaming-0.5.12", "failing-0.3.0"):
        dumps = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
        shift = NOW - 200 - dumps[0]["unix"]
        for seq, dump in enumerate(dumps):
            one = record(seq, 0, flattened(dump), timestamp=dump["unix"] + shift, run_id=name, run_hash=name)
            ticks.write(one, to=f"{name}.jsonl")
        for pool in dumps[-1]["stats"]["actor_pools"]:
            truth[name, pool["name"].partition(" - ")[2].lower()] = pool["task_stats"]["total_completed"]
    points = ticks.tick()
    assert ticks.tally.dropped == {}
    assert {name for name, _, _ in points} == {metric.name for metric in METRICS}

    environ = {"DD_ENV": "test", "DD_API_KEY": "test-api-key"}
    with Intake(clock=lambda: NOW) as intake:
        environ["FLEETGAUGE_DD_URL"] = intake.url
        core = load(CoreSettings, None, environ=environ, file=ConfigurationFile())
        datadog = load(DatadogSettings, "datadog", environ=environ, file=ConfigurationFile())
        sink = DatadogSink(datadog, core, Deadline(30), clock=lambda: NOW)
        sink.send(item for item in ticks.items if isinstance(item, Sample))
        assert sink.dropped == {}
        held = {
            (run, stage): intake.value("xenna.stage.tasks_completed", [f"run_hash:{run}", f"stage:{stage}"])
            for run, stage in truth
        }
    assert held == truth


def test_unchanged_files_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks(tmp_path)
    for number in range(100):
        ticks.write(record(0, 100, run_id=f"r{number}", run_hash=str(number)), to=f"{number}.jsonl")
        os.utime(tmp_path / f"{number}.jsonl", (NOW - 100, NOW - 100))
    ticks.tick()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("common.records.local.open", refuse, raising=False)
    assert ticks.tick()["xenna.ingest.files", (), NOW] == 100
