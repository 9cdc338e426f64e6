"""Reading one row: the odd forms a field may have, and what each costs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from collectors.wandb.groups import Owners
from collectors.wandb.runs import SECOND, Run, RunKind, RunReader, State, Target, microseconds
from support.servers.fleet import THROUGHPUT_KEYS

MIDNIGHT = 1_794_614_400
DOCUMENTS = ("config", "summaryMetrics", "systemMetrics")
READING = RunReader("github.sky.*", None, 1)
WITH_KEY = RunReader("github.sky.*", "trainer.world_size", 2)


def node(**fields: Any) -> dict[str, Any]:
    return {
        "id": "a",
        "displayName": "train",
        "state": "finished",
        "createdAt": "2026-11-14T00:00:00Z",
        "heartbeatAt": "2026-11-14T01:00:00Z",
        **fields,
    }


def read(reading: RunReader = READING, /, **fields: Any) -> tuple[Run | None, list[str]]:
    """Read a run, whose documents are sent as text."""
    flaws: list[str] = []
    texts = {
        key: json.dumps(value) if isinstance(value, dict) and key in DOCUMENTS else value
        for key, value in fields.items()
    }
    return reading.read(node(**texts), flaws), flaws


def good(reading: RunReader = READING, /, **fields: Any) -> Run:
    run, flaws = read(reading, **fields)
    assert flaws == []
    assert run is not None
    return run


class TestTimes:
    @pytest.mark.parametrize(
        ("written", "seconds"),
        [
            ("2026-11-14T00:00:00Z", 0),
            ("2026-11-14T00:00:00", 0),
            ("2026-11-14 00:00:00", 0),
            ("2026-11-14T00:00:00+00:00", 0),
            ("2026-11-14T02:30:00+02:30", 0),
            ("2026-11-13T19:00:00-0500", 0),
            ("2026-11-14T00:00:00.5Z", 0.5),
            ("2026-11-14T00:00:00.250001", 0.250001),
            ("2026-11-14T00:00:00.123456789Z", 0.123456),
            ("2026-11-14T00:00:00.5+01:00", -3599.5),
        ],
    )
    def test_every_form_is_read_and_none_at_all_is_utc(self, written: str, seconds: float) -> None:
        assert microseconds(written) == MIDNIGHT * SECOND + round(seconds * SECOND)

    def test_the_time_zone_of_the_machine_does_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "Asia/Tokyo")
            time.tzset()
            found = microseconds("2026-11-14T00:00:00")
        time.tzset()
        assert found == MIDNIGHT * SECOND

    @pytest.mark.parametrize("written", ["", "yesterday", "2026-13-14T00:00:00Z", 1_794_614_400, {}])
    def test_one_that_cannot_be_read_costs_its_run(self, written: Any) -> None:
        for fields in ({"createdAt": written}, {"heartbeatAt": written}, {"createdAt": None}):
            assert read(**fields) == (None, ["bad_timestamp"])

    def test_a_run_without_a_heartbeat_was_last_seen_at_its_start(self) -> None:
        run = good(heartbeatAt=None, state="failed")
        assert (run.start, run.seen, run.duration) == (MIDNIGHT * SECOND, MIDNIGHT * SECOND, 0)


def summary_of(runtime: Any) -> str:
    return json.dumps({"_wandb": {"runtime": runtime}})


class TestDurations:
    @pytest.mark.parametrize(
        ("computed", "runtime", "seconds"),
        [
            *((computed, None, computed) for computed in (90, 1.5, 0.5)),
            *(("90", None, 90), (" 1.5e1 ", None, 15), (90, 1800, 90)),
            *((computed, None, 3600) for computed in (0, None, "0")),
            *((computed, runtime, 90) for computed in (0, None) for runtime in (90, "90", {"last": 90})),
        ],
    )
    def test_compute_seconds_precede_the_runtime_and_both_the_times(
        self, computed: Any, runtime: Any, seconds: float
    ) -> None:
        run = good(computeSeconds=computed, summaryMetrics=summary_of(runtime))
        assert run.duration == seconds * SECOND
        assert run.worked_from == run.seen - seconds * SECOND

    @pytest.mark.parametrize("computed", [True, "", "soon", "inf", [90], {}, "9" * 500, -4, 1e300])
    def test_compute_seconds_that_are_no_duration_are_dropped_and_counted(self, computed: Any) -> None:
        run, flaws = read(computeSeconds=computed)
        assert run is not None
        assert (run.duration, flaws) == (3600 * SECOND, ["bad_compute_seconds"])

    @pytest.mark.parametrize("state", ["running", "preempting", "pending"])
    @pytest.mark.parametrize(("computed", "runtime"), [(90, 40), (40, 90), (90, 0), (0, 90)])
    def test_a_run_that_has_not_ended_worked_for_the_larger_of_both(
        self, state: str, computed: int, runtime: int
    ) -> None:
        run = good(state=state, computeSeconds=computed, summaryMetrics=summary_of(runtime))
        assert (run.duration, run.worked_from) == (None, run.seen - 90 * SECOND)

    @pytest.mark.parametrize("heartbeat", ["2026-11-14T01:00:00Z", "2026-11-13T23:00:00Z", None])
    def test_pending_run_that_computed_nothing_has_not_worked(self, heartbeat: str | None) -> None:
        run = good(state="pending", heartbeatAt=heartbeat)
        assert run.worked_from == max(run.start, run.seen)

    def test_work_does_not_begin_before_the_start(self) -> None:
        run = good(computeSeconds=7200)
        assert run.worked_from == run.start

    def test_a_negative_one_is_dropped_and_counted_and_the_run_stays(self) -> None:
        run, flaws = read(heartbeatAt="2026-11-13T23:59:59Z")
        assert run is not None
        assert (run.duration, flaws) == (None, ["negative_duration"])
        assert good(heartbeatAt="2026-11-13T23:59:59Z", computeSeconds=7).duration == 7 * SECOND


class TestStates:
    @pytest.mark.parametrize("state", [*State, "Finished"])
    def test_each_is_known_in_any_case(self, state: str) -> None:
        assert good(state=state).state == state.lower()

    @pytest.mark.parametrize("state", [None, "", "exploded", 3])
    def test_another_costs_its_run(self, state: Any) -> None:
        assert read(state=state) == (None, ["unknown_state"])


class TestNames:
    @pytest.mark.parametrize(
        ("name", "sweep", "kind"),
        [
            ("train", None, RunKind.OTHER),
            ("train", "", RunKind.OTHER),
            ("train", "s1", RunKind.SWEEP),
            ("arena.Sweep.3", None, RunKind.SWEEP),
            ("sweeping", None, RunKind.OTHER),
            ("github.sky.anything", None, RunKind.PUSH_TO_MAIN),
            ("github.sky.main.sweep", "s1", RunKind.PUSH_TO_MAIN),
            ("github.skyline", None, RunKind.OTHER),
            ("my.github.sky.x", None, RunKind.OTHER),
            ("GitHub.sky.x", None, RunKind.OTHER),
        ],
    )
    def test_they_tell_what_a_run_is_for(self, name: str, sweep: str | None, kind: RunKind) -> None:
        made = good(displayName=name, sweepName=sweep)
        assert (made.kind, made.sweep) == (kind, sweep or None)

    @pytest.mark.parametrize(
        ("name", "target"),
        [
            ("github.sky.main.abc1234.arena.20261114_1", Target("main", "arena")),
            ("github.sky.pr4711.abc1234.arena.20261114_1", Target("pr", "arena")),
            ("github.sky.main.abc1234.cvc.fixed.20261114_1", Target("main", "cvc.fixed")),
            ("github.sky.main.abc1234.Arena 2.20261114_1", Target("main", "arena_2")),
            ("github.sky.main.abc1234.arena", None),
            ("github.sky.mainline.abc1234.arena.1", None),
            ("github.sky.pr.abc1234.arena.1", None),
            ("github.sky.pr12x.abc1234.arena.1", None),
            ("github.sky.dev.abc1234.arena.1", None),
            ("github.sky.dev.main.abc1234.arena.1", None),
        ],
    )
    def test_the_name_of_a_push_to_main_run_holds_ref_and_config(
        self, name: str, target: Target | None
    ) -> None:
        assert good(displayName=name).target == target

    def test_another_pattern_has_its_own_prefix(self) -> None:
        reading = RunReader("ci.bees-*", None, 1)
        run = good(reading, displayName="ci.bees-main.c0ffee.hive.1")
        assert (run.kind, run.target) == (RunKind.PUSH_TO_MAIN, Target("main", "hive"))
        assert good(reading, displayName="github.sky.main.c0ffee.hive.1").kind is RunKind.OTHER


PUSH = "github.sky.main.abc1234.arena.1"


class TestSummaries:
    @pytest.mark.parametrize(
        ("summary", "throughput"),
        [
            *((summary, {}) for summary in (None, "", "{}", '{"other": "NaN"}')),
            ('{"overview/sps": "31.5"}', {"overview/sps": 31.5}),
            ('{"overview/sps": {"last": 4.5, "max": 9}}', {"overview/sps": 4.5}),
        ],
    )
    def test_keys_may_be_absent_or_wrapped(self, summary: str | None, throughput: dict[str, float]) -> None:
        assert good(displayName=PUSH, summaryMetrics=summary).throughput == throughput

    @pytest.mark.parametrize("summary", ['{"overview/sps": 31', "[1]", '"{}"', "null", "[" * 100_000, 7])
    def test_one_that_cannot_be_read_costs_itself(self, summary: Any) -> None:
        run, flaws = read(displayName=PUSH, summaryMetrics=summary)
        assert run is not None
        assert (run.throughput, flaws) == ({}, ["bad_summary"])

    @pytest.mark.parametrize(
        "value",
        [
            *('"NaN"', "NaN", "Infinity", "-Infinity", '"fast"', "true", "[]", "{}", "1" + "0" * 400),
            '{"max": 9}',
        ],
    )
    def test_a_value_that_is_no_finite_number_costs_itself(self, value: str) -> None:
        summary = f'{{"overview/sps": {value}, "timing_per_epoch/sps": 2.5}}'
        run, flaws = read(displayName=PUSH, summaryMetrics=summary)
        assert run is not None
        assert (run.throughput, flaws) == ({"timing_per_epoch/sps": 2.5}, ["bad_summary_value"])

    def test_summary_of_an_ended_run_with_compute_seconds_is_not_parsed(self) -> None:
        assert good(computeSeconds=90, summaryMetrics="broken").throughput == {}


def written_by(*writers: Any, **config: Any) -> dict[str, Any]:
    """A config with the metadata of these clients."""
    return {"_wandb": {"value": {"e": {f"w{n}": writer for n, writer in enumerate(writers)}}}, **config}


CPUS = {"cpu_count": 8}


class TestGpus:
    # Writers as client 0.31 writes them: a count of 0 and an empty list are left out. None: unknown.
    @pytest.mark.parametrize(
        ("fields", "gpus"),
        [
            ({"config": written_by({"gpu_count": 4})}, 4),
            ({"config": '{"_wandb": {"e": {"w1": {"gpu_count": "4"}}}}'}, 4),
            ({"config": written_by({"gpu_count": 4}, {"gpu_count": 8}, {})}, 8),
            ({"config": written_by({"os": "Linux"}, {"gpu_count": 1})}, 1),
            ({"config": written_by({"gpu_count": 0})}, 0),
            ({"runInfo": {"gpuCount": 0}}, 0),
            ({"runInfo": {"gpuCount": "2"}}, 2),
            ({"config": written_by({"gpu_count": 4}), "runInfo": {"gpuCount": 2}}, 4),
            ({"config": written_by(CPUS), "runInfo": {"gpuCount": 4}}, 4),
            ({"config": written_by({**CPUS, "cpu_count_logical": 16, "memory": {"total": "1"}})}, 0),
            ({"config": written_by({**CPUS, "tpu": {"name": "v4", "hbmGib": 32, "count": 4}})}, 0),
            ({"config": written_by({"trainium": {"name": "trn1", "neuronDeviceCount": 16}})}, 0),
            ({"config": written_by(CPUS, {"os": "Linux"})}, 0),
            ({"config": written_by({**CPUS, "gpu": "Tesla T4"})}, None),
            ({"config": written_by({**CPUS, "gpu_nvidia": [{"name": "Tesla T4"}]})}, None),
            ({"config": written_by({**CPUS, "apple": {"name": "Apple M2"}})}, None),
            ({"config": written_by(CPUS, {"gpu_amd": [{"series": "MI250"}]})}, None),
            ({"config": written_by({"os": "Linux"})}, None),
            ({}, None),
            ({"config": written_by(), "runInfo": {"gpuCount": None}}, None),
            ({"config": '{"_wandb": {"value": {"e": [1]}}, "world_size": {"value": 8}}'}, None),
            ({"config": '{"_wandb": {"value": null}}'}, None),
        ],
    )
    def test_the_first_source_counts_and_without_any_they_are_assumed(
        self, fields: dict[str, Any], gpus: int | None
    ) -> None:
        run = good(**fields)
        assert (run.gpus, run.gpus_assumed) == ((1, True) if gpus is None else (gpus, False))

    @pytest.mark.parametrize(
        ("row", "gpus"),
        [
            ({"system.gpu.0.gpu": 50, "system.gpu.1.gpu": 50}, 2),
            ({"system.gpu.0.memoryAllocated": 50, "system.gpu.1.temp": 50}, 1),
            ({"system.gpu.process.7.gpu": 50, "system.gpu.0.gpu": 50, "system.gpu.7.gpu": 50}, 1),
            ({"system.gpu.0.gpu/l:a": 50, "system.gpu.0.gpu/l:b": 50}, 2),
            ({"system.gpu.process.0.gpu/l:a": 50, "system.gpu.process.0.gpu/l:b": 50}, 2),
            ({"system.cpu": 3, "system.gpu.0.gpu": None}, 0),
        ],
    )
    def test_gpus_in_system_metrics_are_counted_before_a_run_has_none(
        self, row: dict[str, Any], gpus: int
    ) -> None:
        for source in ({"config": written_by(CPUS)}, {"runInfo": {"gpuCount": 0}}):
            assert good(**source, systemMetrics=row).gpus == gpus
        assert good(systemMetrics=row).gpus_assumed
        assert good(systemMetrics=row, runInfo={"gpuCount": 3}).gpus == 3

    @pytest.mark.parametrize(
        ("writer", "name"),
        [
            ({"gpu": "Tesla T4", "gpu_nvidia": [{"name": "NVIDIA H100"}]}, "t4"),
            ({"gpu_nvidia": [{"name": "NVIDIA H100"}, {"name": "Tesla T4"}]}, "h100"),
            ({"gpu": "", "gpu_nvidia": [], "gpu_amd": [{"name": "AMD Instinct MI300X"}]}, "mi300x"),
            ({"gpu_amd": [{"series": "AMD Instinct MI250"}]}, "mi250"),
            *(({"gpu_amd": odd}, "unknown") for odd in (None, [], [7], {"a": 1}, [{"series": 7}])),
            *((odd, "unknown") for odd in ({}, {"gpu": 7})),
        ],
    )
    def test_the_client_tells_what_its_first_gpu_is_called(self, writer: dict[str, Any], name: str) -> None:
        reading = RunReader("github.sky.*", None, 1, Owners(["gpu_type"]))
        assert good(reading, config=written_by(writer)).owner.group == (name,)

    @pytest.mark.parametrize(
        ("config", "summary"),
        [
            ('{"trainer.world_size": {"value": 16}}', None),
            ('{"trainer": {"value": {"world_size": 16.0}}}', '{"trainer.world_size": 99}'),
            ("{}", '{"trainer.world_size": 16}'),
            ("{}", '{"trainer.world_size": {"last": 16, "max": 32}}'),
            (None, '{"trainer": {"world_size": 16}}'),
            (written_by(CPUS, **{"trainer.world_size": {"value": 16}}), None),
        ],
    )
    def test_a_configured_key_wins_over_both(self, config: Any, summary: str | None) -> None:
        run = good(WITH_KEY, config=config, summaryMetrics=summary, runInfo={"gpuCount": 4})
        assert (run.gpus, run.gpus_assumed) == (16, False)

    @pytest.mark.parametrize("value", ["-1", "2.5", '"many"', "true", "1e9", "[8]"])
    def test_a_value_that_counts_no_gpus_is_counted_and_the_next_source_asked(self, value: str) -> None:
        config = f'{{"trainer.world_size": {{"value": {value}}}}}'
        run, flaws = read(WITH_KEY, config=config, runInfo={"gpuCount": 4})
        assert run is not None
        assert (run.gpus, run.gpus_assumed, flaws) == (4, False, ["bad_gpu_count"])

    def test_a_broken_config_costs_itself(self) -> None:
        run, flaws = read(WITH_KEY, config='{"_wandb"')
        assert run is not None
        assert (run.gpus, run.gpus_assumed, flaws) == (2, True, ["bad_config"])

    def test_selected_keys_are_those_that_are_read_with_their_parents(self) -> None:
        key = ["trainer.world_size", "trainer"]
        for reading, keys in ((READING, []), (WITH_KEY, key)):
            assert reading.config_keys == ["_wandb", *keys]
            assert reading.summary_keys == [*THROUGHPUT_KEYS, *keys, "_wandb"]


class TestAddresses:
    @pytest.mark.parametrize(
        ("fields", "name", "title"),
        [
            ({"name": "abc", "displayName": "my run"}, "abc", "my run"),
            ({"name": "github.sky.x", "displayName": None}, "github.sky.x", "github.sky.x"),
            ({"displayName": None}, "a", "a"),
        ],
    )
    def test_run_has_the_id_of_its_address_and_a_title(
        self, fields: dict[str, Any], name: str, title: str
    ) -> None:
        run = good(**fields)
        assert (run.name, run.title) == (name, title)
        assert (run.kind is RunKind.PUSH_TO_MAIN) is title.startswith("github.sky.")
