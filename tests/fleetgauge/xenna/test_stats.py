"""What the statistics become: real dumps replayed through the hook, and the numbers one by one."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.xenna.metrics import CLUSTER, PIPELINE, STAGE, find
from common.records.envelope import envelope
from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook
from fleetgauge.xenna.stats import Pipeline, copy_pool, copy_stats, stage_keys
from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import dumps, metrics, one, read, stats

SAMPLES = ("batch-0.5.12", "failing-0.3.0", "streaming-0.3.0", "streaming-0.5.12")
STAGES = ("download_stage", "http_tokenize_stage", "write_stage")
CASES = yaml.safe_load((standin.DATA / "stages.yaml").read_text())


def flat(*given: Any) -> list[dict[str, float]]:
    """The metrics of statistics that come one after the other."""
    pipeline = Pipeline()
    return [pipeline.metrics(copy_stats(stats, 0.0, 30)) for stats in given]


def of(values: Mapping[str, float], key: str) -> list[float | None]:
    return [values.get(f"stage/{stage}/{key}") for stage in STAGES]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_dump_replayed_loses_nothing_and_every_record_is_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor_class, lines = standin.install(monkeypatch), dumps(name)
    config = XennaObservabilityConfig(False, 1, f"{tmp_path}/")
    with XennaWandbStatsHook(config, "curate", "h", clock=lambda: 1794786500.0):
        watched = monitor_class([stats(line) for line in lines], interval=1.0)
        for _ in lines:
            # What upstream does afterwards must not show.
            answer = watched.update()
            answer.cluster.total.num_cpus = answer.actor_pools = None
    found = read(tmp_path)
    assert [record["seq"] for record in found] == list(range(len(lines) + 2))
    for record in found:
        assert envelope(record, "xenna") is not None
        assert all(map(find, record.get("metrics", {})))
    records = metrics(tmp_path)
    assert len(records) == len(lines)
    for line, values in zip(lines, records, strict=True):
        _same(line, values)
    assert found[1]["stages"] == [
        {"index": index, "name": key, "stage": pool["name"]}
        for index, (key, pool) in enumerate(zip(STAGES, lines[0]["stats"]["actor_pools"], strict=True))
    ]


def _same(line: Mapping[str, Any], values: Mapping[str, float]) -> None:
    """Compare a record with the dump, by hand."""
    upstream = line["stats"]
    pools = upstream["actor_pools"]
    assert values["inputs_processed_per_s"] == line["inputs_processed_per_second"]
    assert values["outputs_per_s"] == line["outputs_per_second"]
    assert values["num_input_remaining"] == upstream["num_input_tasks_remaining"]
    assert values["progress"] == pytest.approx(100 * (60 - upstream["num_input_tasks_remaining"]) / 60)
    assert values["main_loop_rate_hz"] == upstream["main_loop_rate_hz"]
    assert values["pipeline_duration_s"] == upstream["pipeline_duration_s"]
    assert values["cluster/total_mem_gb"] == upstream["cluster"]["total"]["memory"] / 1e9
    assert values["cluster/total_obj_store_gb"] == upstream["cluster"]["total"]["object_store_memory"] / 1e9
    available = upstream["cluster"]["available"]
    assert values["cluster/avail_obj_store_gb"] == available["object_store_memory"] / 1e9
    assert values["num_initial_inputs"] == upstream["num_initial_input_tasks"] == 60
    assert values["cluster/avail_cpus"] == upstream["cluster"]["available"]["num_cpus"]
    assert of(values, "tasks_completed") == [pool["task_stats"]["total_completed"] for pool in pools]
    assert of(values, "actors_idle") == [pool["actor_stats"]["idle"] for pool in pools]
    assert of(values, "speed_tasks_per_s") == [pool["processing_speed_tasks_per_second"] for pool in pools]
    usage = [upstream["resource_usage_per_stage"].get(pool["name"], {}) for pool in pools]
    assert of(values, "resource/cpu_util_pct") == [one.get("cpu_utilization") for one in usage]
    assert of(values, "resource/actor_count") == [one.get("actor_count") for one in usage]
    assert of(values, "resource/mem_gb") == [one["memory_usage"] / 1e9 if one else None for one in usage]


def test_every_metric_the_service_declares_comes_from_the_dumps() -> None:
    found = {key for name in SAMPLES for values in flat(*map(stats, dumps(name))) for key in values}
    made = {keyed for keyed, _ in filter(None, map(find, found))}
    assert made == {*PIPELINE.values(), *CLUSTER.values(), *STAGE.values()}


def test_throughput_is_the_change_of_completed_tasks_over_time() -> None:
    first, second = one(line=7), one(line=8)
    before, values = flat(first, second)
    assert not [key for key in before if key.endswith("throughput_tasks_per_s")]
    seconds = second.time - first.time
    assert of(values, "throughput_tasks_per_s") == [12 / seconds, 4 / seconds, 10 / seconds]
    _, same_time, fewer = flat(first, first, one(line=6))
    assert of(same_time, "throughput_tasks_per_s") == of(fewer, "throughput_tasks_per_s") == [None] * 3
    later = copy.deepcopy(one(line=6))
    later.time = first.time + 10
    assert of(flat(first, later)[1], "throughput_tasks_per_s") == [None] * 3
    idle = copy.deepcopy(first)
    idle.time = first.time + 10
    assert of(flat(first, idle)[1], "throughput_tasks_per_s") == [0.0] * 3


@pytest.mark.parametrize("case", CASES["bottlenecks"], ids=str)
def test_what_makes_a_bottleneck(case: dict[str, Any]) -> None:
    given = one(line=8)
    for path, value in case["changes"].items():
        pool, part, name = path.split(".")
        setattr(getattr(given.actor_pools[int(pool)], part), name, value)
    assert of(flat(given)[0], "bottleneck") == case["expected"]


def test_totals_are_of_all_that_was_done_and_of_what_was_expected_before() -> None:
    given = one()
    given.num_initial_input_tasks, given.num_input_tasks_remaining, given.start_time = 10, 5, 100.0
    sizes = SimpleNamespace(total_completed=0, total_returned_none=0, input_queue_size=5, output_queue_size=0)
    for pool in given.actor_pools:
        pool.task_stats, pool.slot_stats = copy.copy(sizes), SimpleNamespace(num_used=0, num_empty=8)
    pipeline = Pipeline()
    assert pipeline.totals(130.0, []) == {}
    pools = [copy_pool(pool) for pool in given.actor_pools]
    assert "progress_stages" not in pipeline.totals(130.0, pools)
    assert pipeline.metrics(copy_stats(given, 0.0, 30))["progress_stages"] == 0.0
    assert pipeline.totals(130.0, []) == {"pipeline_duration_s": 30.0}
    for pool, completed, waiting in zip(given.actor_pools, (20, 5, 5), (0, 15, 0), strict=True):
        pool.task_stats.total_completed, pool.task_stats.input_queue_size = completed, waiting
    for pool, failed in zip(given.actor_pools, (1, 0, 3), strict=True):
        pool.task_stats.total_returned_none = failed
    assert pipeline.totals(130.0, [copy_pool(pool) for pool in given.actor_pools]) == {
        "progress_stages": pytest.approx(100 * (1 + 5 / 20 + 5 / 20) / 3),
        "tasks_failed": 4,
        "pipeline_duration_s": 30.0,
        **{f"stage/{stage}/tasks_failed": failed for stage, failed in zip(STAGES, (1, 0, 3), strict=True)},
        **{f"stage/{stage}/tasks_completed": done for stage, done in zip(STAGES, (20, 5, 5), strict=True)},
    }


@pytest.mark.parametrize("case", CASES["progress"], ids=str)
def test_progress_over_all_stages_is_the_mean_of_their_shares(case: dict[str, Any]) -> None:
    given = one()
    given.num_initial_input_tasks, given.num_input_tasks_remaining = case["inputs"]
    for pool, (completed, queue_in, used, queue_out) in zip(given.actor_pools, case["pools"], strict=True):
        pool.task_stats.total_completed, pool.slot_stats.num_used = completed, used
        pool.task_stats.input_queue_size, pool.task_stats.output_queue_size = queue_in, queue_out
    assert flat(given)[0]["progress_stages"] == pytest.approx(100 * sum(case["shares"]) / 3)


def test_progress_is_left_out_where_there_is_nothing_to_measure_it_by() -> None:
    for initial, remaining in ((0, 0), (0, 5), (60, 61), (60, -1), (None, 5), (None, 0), (60, None)):
        given = one()
        given.num_initial_input_tasks, given.num_input_tasks_remaining = initial, remaining
        [values] = flat(given)
        assert "progress" not in values
        assert "progress_stages" not in values


def test_rates_are_nothing_before_any_time_has_passed() -> None:
    given = one()
    given.time = given.start_time
    [values] = flat(given)
    assert (values["inputs_processed_per_s"], values["outputs_per_s"]) == (0.0, 0.0)


ODD = (None, math.nan, math.inf, -math.inf, "many", True, 2**70, object())


def _paths(value: Any, *path: object) -> list[tuple[object, ...]]:
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in _paths(one, *path, key))]


@example(("actor_pools", 2, "name"), [])  # a name that nothing can be looked up by
@given(st.sampled_from([path for path in _paths(one()) if path]), st.sampled_from([*ODD, "gone", [], {}]))
def test_whatever_is_missing_or_odd_costs_only_itself(path: tuple[object, ...], odd: object) -> None:
    given = one()
    holder: Any = vars(given)
    for step in path[:-1]:
        inner = holder[step]
        holder = vars(inner) if isinstance(inner, SimpleNamespace) else inner
    if odd == "gone":
        del holder[path[-1]]
    else:
        holder[path[-1]] = odd
    [values] = flat(given)
    assert len(values) > 10
    assert all(math.isfinite(value) for value in values.values())


LONG = {"names": [7, "X" * 300], "expected": ["7", "x" * 100]}


@pytest.mark.parametrize("case", [*CASES["keys"], LONG], ids=str)
def test_stage_keys_are_snake_case_with_an_index_on_collision(case: dict[str, Any]) -> None:
    assert stage_keys(case["names"]) == case["expected"]
