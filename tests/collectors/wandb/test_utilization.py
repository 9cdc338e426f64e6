"""GPU utilisation: system metrics in every form, tables of observations, and what is sent of them."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb import metrics
from collectors.wandb.groups import DOLLAR, Owner, Owners
from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import SECOND, Reported, Run, RunKind, RunReader, State
from collectors.wandb.utilization import (
    Memory,
    Observation,
    load_observations,
    observe,
    observed_series,
    remember,
    save_observations,
    usage_table,
    with_observed_gpus,
)
from common.metric import Metric
from support.servers.fleet import system_row
from support.wandb_ledger import ANTS, points
from support.wandb_ledger import settings as make_settings

READING = RunReader("github.sky.*", "gpus", 0, Owners())


def read(row: Any, gpus: int = 8, flaws: list[str] | None = None) -> Reported | None:
    """What is read of a row as a server sends it: as text."""
    text = row if isinstance(row, str | None) else json.dumps(row)
    node: dict[str, Any] = {
        "id": "x",
        "state": "running",
        "createdAt": "2026-11-15T00:00:00Z",
        "systemMetrics": text,
    }
    node["config"] = {"gpus": gpus}
    run = READING.read(node, [] if flaws is None else flaws)
    assert run is not None
    return run.reported


class TestKeys:
    def test_figures_of_the_process_stand_before_those_of_the_machine(self) -> None:
        said = read(system_row(50.0, 100.0, memory=25.0))
        assert said == Reported(2, 1.5, 2, 0.5, 100.0, None)

    def test_a_process_uses_the_gpus_that_it_says_whatever_their_index(self) -> None:
        row = {"system.gpu.process.7.gpu": 30, "system.gpu.0.gpu": 90, "system.gpu.7.gpu": 30}
        assert read(row, gpus=1) == Reported(1, 0.3, 0, 0.0, 30, None)

    def test_of_the_machine_only_as_many_count_as_the_run_has(self) -> None:
        row = {f"system.gpu.{index}.gpu": 10 * index for index in range(8)}
        assert read(row, gpus=3) == Reported(3, 0.3, 0, 0.0, 20, None)
        assert read(row, gpus=0) is None
        assert read(row, gpus=100) == Reported(8, 2.8, 0, 0.0, 70, None)

    def test_each_process_figure_replaces_that_of_the_machine(self) -> None:
        row = {"system.gpu.process.3.memoryAllocated": 40, "system.gpu.3.gpu": 90, "system.gpu.0.gpu": 10}
        assert read(row, gpus=1) == Reported(1, 0.9, 1, 0.4, 90, None)
        row |= {"system.gpu.process.2.gpu": 20, "system.gpu.2.memoryAllocated": 5, "system.gpu.2.gpu": 99}
        assert read(row, gpus=1) == Reported(2, 1.1, 2, 0.45, 90, None)

    def test_figures_may_be_written_as_text(self) -> None:
        row = {"system.gpu.0.gpu": "50", "system.gpu.1.gpu": " 1e1", "_timestamp": "1.5", "_runtime": "30"}
        flaws: list[str] = []
        assert read(row, flaws=flaws) == Reported(2, 0.6, 0, 0.0, 50, 1.5)
        assert flaws == []

    def test_one_index_under_two_labels_is_two_gpus(self) -> None:
        row = {f"system.gpu.process.{i}.gpu/l:rank-{rank}": 50 for i in (0, 1) for rank in (0, 1, 2)}
        assert read(row) == Reported(6, 3.0, 0, 0.0, 50, None)

    def test_labels_of_one_machine_are_no_more_gpus_than_the_run_has(self) -> None:
        row = {f"system.gpu.{i}.gpu/l:rank-{rank}": 100 * (rank == 0) for i in range(8) for rank in range(8)}
        assert read(row, gpus=8) == Reported(8, 8.0, 0, 0.0, 100, None)

    @pytest.mark.parametrize(
        ("written", "timestamp"), [(1.5, 1.5), (0, 0), ("7", 7), (None, None), (True, None), ("x", None)]
    )
    def test_time_of_the_row_is_taken_where_it_is_one(self, written: object, timestamp: float | None) -> None:
        assert read({"system.gpu.0.gpu": 1, "_timestamp": written}) == Reported(1, 0.01, 0, 0.0, 1, timestamp)

    @pytest.mark.parametrize(
        "key",
        [
            *(
                "system.gpu.0.gpuMemory",
                "gpu.0.gpu",
                "system.gpu.x.gpu",
                "system.gpu.-1.gpu",
                "system.gpu..gpu",
            ),
            *("system.gpu.0.temp", "system.gpu.process.gpu", "system.gpu.0.gpu.extra", "system.gpu.1٣.gpu"),
            *("system.gpu.0.smActive", "system.gpu.0.gpu/rank", "SYSTEM.gpu.0.gpu", "system.gpu.9999999.gpu"),
        ],
    )
    def test_another_key_says_nothing_of_how_busy_a_gpu_is(self, key: str) -> None:
        flaws: list[str] = []
        assert read({key: 50, "x/l:y": 1}, flaws=flaws) is None
        assert flaws == []


class TestNothing:
    @pytest.mark.parametrize("text", [None, "", "{}", '{"system.cpu": 3}', '{"system.gpu.0.gpu": null}'])
    def test_who_says_nothing_is_unknown_without_a_flaw(self, text: str | None) -> None:
        flaws: list[str] = []
        assert read(text, flaws=flaws) is None
        assert flaws == []

    @pytest.mark.parametrize("text", ["{", "[]", "7", '"x"', '{"system.gpu.0.gpu": 3', "[" * 100_000])
    def test_what_cannot_be_read_costs_itself(self, text: str) -> None:
        flaws: list[str] = []
        assert read(text, flaws=flaws) is None
        assert flaws == ["bad_system_metrics"]

    @pytest.mark.parametrize(
        "value", ['"NaN"', "NaN", "Infinity", "-1", "100.1", "true", "[]", "{}", "1e400"]
    )
    def test_a_figure_that_is_none_costs_itself_and_not_its_neighbour(self, value: str) -> None:
        flaws: list[str] = []
        said = read(f'{{"system.gpu.0.gpu": {value}, "system.gpu.1.gpu": 40}}', flaws=flaws)
        assert said == Reported(1, 0.4, 0, 0.0, 40, None)
        assert flaws == ["bad_system_metrics"]


def test_shares_are_added_up_alike_in_every_python() -> None:
    found = read({f"system.gpu.process.{index}.gpu": 0.1 for index in range(10)}, gpus=10)
    assert found is not None
    assert found.busy == 1.0 / 100  # by steps it is 0.9999999999999999 before 3.12


def truth(row: dict[str, Any], gpus: int) -> tuple[int, float] | None:
    """How many GPUs say how busy they are and the sum, straight from the words of the specification."""
    found: dict[bool, dict[str, dict[tuple[str, int], float]]] = {
        process: {"gpu": {}, "memoryAllocated": {}} for process in (True, False)
    }
    for key, value in row.items():
        name, _, label = key.partition("/l:")
        parts = name.split(".")
        process = "process" in parts
        index = parts[-2]
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if good and 0 <= value <= 100:
            found[process][parts[-1]][label, int(index)] = value
    of_process = {device for figures in found[True].values() for device in figures}
    own: dict[str, dict[tuple[str, int], float]] = {}
    for measure, figures in found[False].items():
        if of_process:
            every = figures | found[True][measure]
            own[measure] = {device: every[device] for device in of_process if device in every}
        else:
            own[measure] = dict(sorted(item for item in figures.items() if item[0][1] < gpus)[:gpus])
    busy = own["gpu"].values()
    return (len(busy), sum(busy)) if busy or own["memoryAllocated"] else None


keys = st.builds(
    "system.gpu.{}{}.{}{}".format,
    st.sampled_from(["", "process."]),
    st.integers(0, 12),
    st.sampled_from(["gpu", "memoryAllocated"]),
    st.sampled_from(["", "/l:", "/l:rank-1", "/l:a/l:b"]),
)
figures = st.one_of(
    st.integers(0, 100),
    st.floats(0, 100),
    st.floats(),
    st.none(),
    st.text(max_size=3),
    st.integers(),
    st.booleans(),
)


class TestAnyRow:
    @settings(max_examples=300, deadline=None)
    @given(st.dictionaries(keys, figures, max_size=40), st.integers(0, 12))
    def test_it_is_read_as_specified(self, row: dict[str, Any], gpus: int) -> None:
        said, expected = read(row, gpus), truth(row, gpus)
        assert (said is None) == (expected is None)
        if said is not None and expected is not None:
            assert said.gpus == expected[0]
            assert said.busy == pytest.approx(expected[1] / 100)
            assert 0 <= said.busy <= said.gpus
            assert 0 <= said.memory_filled <= said.memory_gpus

    @settings(max_examples=200, deadline=None)
    @given(
        st.text(max_size=80)
        | st.dictionaries(st.text(max_size=30) | keys, st.text() | figures).map(json.dumps)
    )
    def test_no_text_raises(self, text: str) -> None:
        read(text)


# Idle runs.

STEP = 900
T0 = 1_794_700_800


class See(NamedTuple):
    """What one look shows: how busy the busiest GPU is (None: no figures), the row's time, the runtime."""

    busiest: float | None = 0.0
    timestamp: float | None = None
    runtime: float | None = None  # by default as long ago as the first look, and an hour


BUSY, IDLE, SILENT = See(50.0), See(0.0), See(None)
ABSENT = None


def look_again(before: Memory | None, seen: See | None, at: int) -> Memory | None:
    """Return what is stored after an observation; a run that is absent is forgotten."""
    if seen is None:
        return None
    reported = None
    if seen.busiest is not None:
        reported = Reported(4, 0.0, 0, 0.0, seen.busiest, seen.timestamp)
    runtime = 3600 + at - T0 if seen.runtime is None else seen.runtime
    return remember(before, reported, runtime, at, 5.0, 2 * STEP)


def after(*looks: See | int | None) -> int | None:
    """Return how long the run is idle after observations a step apart; a number is so many steps without."""
    memory: Memory | None = None
    at = T0
    for seen in looks:
        if isinstance(seen, int):
            at += seen * STEP
            continue
        memory = look_again(memory, seen, at)
        at += STEP
    return None if memory is None else memory.counted - memory.since


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        ([IDLE], 0),
        ([IDLE, IDLE], STEP),
        ([IDLE] * 5, 4 * STEP),
        ([BUSY], None),
        ([BUSY, IDLE], 0),
        ([IDLE, IDLE, BUSY], None),
        ([IDLE, IDLE, BUSY, IDLE], 0),
        ([See(4.9), See(4.9)], STEP),
        ([IDLE, See(5.0)], None),
        # absent at one look is a restart
        ([IDLE, IDLE, ABSENT], None),
        ([IDLE, IDLE, ABSENT, IDLE], 0),
        # without figures: neither counts nor forgets
        ([SILENT], None),
        ([SILENT, IDLE], 0),
        ([IDLE, SILENT], 0),
        ([IDLE, SILENT, IDLE], 2 * STEP),
        ([IDLE, SILENT, SILENT, SILENT, SILENT, IDLE], 5 * STEP),
        ([IDLE, SILENT, BUSY], None),
        # a row that is not newer: neither counts nor forgets
        ([See(0, 10.0), See(0, 10.0)], 0),
        ([See(0, 10.0), See(90, 10.0)], 0),
        ([See(0, 10.0), See(0, 9.0), See(0, 11.0)], 2 * STEP),
        ([See(0, 10.0), See(0, 10.0), See(90, 11.0)], None),
        # but for a busy one of a clock that was set back
        ([See(0, 10.0), See(90, 9.0)], None),
        ([See(0, 10.0), See(5.0, 9.0)], None),
        ([See(0, 10.0), See(4.9, 9.0)], 0),
        ([See(0, 10.0), IDLE], STEP),
        ([IDLE, See(0, 10.0)], STEP),
        # late: a gap of two steps is bridged, a longer one is not
        ([IDLE, 1, IDLE], 2 * STEP),
        ([IDLE, 2, IDLE], 0),
        ([IDLE, SILENT, 1, IDLE], 3 * STEP),
        ([IDLE, SILENT, 2, IDLE], 0),
        ([IDLE, IDLE, 9, SILENT], None),
        # restarted: a lower runtime
        ([IDLE, IDLE, See(0, runtime=5)], 0),
        ([IDLE, IDLE, See(None, runtime=5)], None),
        ([IDLE, IDLE, See(0, runtime=5), See(0, runtime=905)], STEP),
    ],
)
def test_what_a_look_means(looks: list[See | int | None], seconds: int | None) -> None:
    assert after(*looks) == seconds


def test_observation_back_in_time_forgets() -> None:
    before = look_again(None, IDLE, T0 + STEP)
    found = look_again(before, IDLE, T0)
    assert found is not None
    assert found.counted == found.since


sights = st.sampled_from([BUSY, IDLE, IDLE, IDLE, SILENT, ABSENT, See(0, runtime=7)])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(sights, st.booleans()), max_size=15))
def test_repeated_observation_changes_nothing(looks: list[tuple[See | None, bool]]) -> None:
    """A run that is killed between its observation and its save leaves what was stored before."""
    at = T0
    stored: Memory | None = None
    for seen, is_saved in looks:
        found = look_again(stored, seen, at)
        again = look_again(found, seen, at)
        assert (again and again.counted - again.since) == (found and found.counted - found.since)
        if is_saved:
            stored = found
        at += STEP


anything = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)
numbers = st.tuples(*[st.integers() | st.floats()] * 4, st.none() | st.integers() | st.floats())


@settings(max_examples=200, deadline=None)
@given(
    anything
    | st.fixed_dictionaries(
        {"acme/ants": st.tuples(st.integers(), st.dictionaries(st.text(), numbers | anything))}
    )
)
def test_whatever_the_memory_holds_an_observation_does_not_fail(saved: object) -> None:
    memory: dict[str, object] = {"idle": saved}
    look(memory, [active("r1", 0.0)], T0)
    assert look(memory, [active("r1", 0.0)], T0 + STEP).has_before


# What is sent.

HOUR = 3600


def active(
    name: str, *busy: float, user: str = "ann", price: int | None = None, timestamp: float | None = None
) -> Run:
    """A run that is active around T0, with GPUs that are so busy."""
    reported = None
    if busy:
        reported = Reported(len(busy), math.fsum(busy) / 100, 1, 0.5, max(busy), timestamp)
    owner = Owner((user,), user, "h100", price)
    start, seen = (T0 - 5 * HOUR) * SECOND, (T0 + HOUR) * SECOND
    gpus = len(busy) or 4
    return Run(
        *(name, State.RUNNING, RunKind.OTHER, start, seen, start, None, gpus, False, None, None, {}, owner),
        *(name, f"title {name}", reported),
    )


def sent(observation: Observation, runs: list[Run], **variables: str) -> dict[Metric, dict[str, float]]:
    """Return what is sent, by the tags beside entity and project."""
    options = make_settings(**{"group_by": "user", **variables})
    ledger = Ledger(observation.project, runs, range(observation.at, observation.at + 1), options, live=True)
    list(ledger.stretches())
    found: dict[Metric, dict[str, float]] = {}
    for (metric, tags, at), value in points(observed_series(observation, ledger, options)).items():
        assert at == observation.at
        rest = [tag for tag in tags if not tag.startswith(("entity:", "project:"))]
        found.setdefault(metric, {})[" ".join(rest)] = value
    return found


def look(memory: dict[str, object], runs: list[Run], at: int, **variables: str) -> Observation:
    """Observe runs as a run of the collector does, whose state document is JSON."""
    options = make_settings(**{"group_by": "user", **variables})
    stored = load_observations(json.loads(json.dumps(memory)))
    found = observe(ANTS, runs, at, 2 * STEP, options, stored)
    save_observations(memory, stored, at, 2 * STEP)
    return found


def looks(runs: list[Run], count: int = 5, **variables: str) -> list[dict[Metric, dict[str, float]]]:
    """Return what is sent at ticks one after another, each with what the last one stored."""
    memory: dict[str, object] = {}
    return [
        sent(look(memory, runs, T0 - STEP * (count - 1 - n), **variables), runs, **variables)
        for n in range(count)
    ]


class TestUtilization:
    def test_group_without_figures_is_unknown(self) -> None:
        runs = [active("a")]
        found = sent(look({}, runs, T0), runs)
        assert found == {metrics.USAGE_REPORTING: {"user:ann": 0}}

    @pytest.mark.parametrize(("age", "reporting"), [(899, 1), (900, 0)])
    def test_row_as_old_as_a_stale_heartbeat_is_unknown(self, age: int, reporting: int) -> None:
        runs = [active("a", 50.0, timestamp=T0 - age)]
        assert sent(look({}, runs, T0), runs)[metrics.USAGE_REPORTING] == {"user:ann": reporting}

    @pytest.mark.parametrize(
        "change",
        [
            {"state": State.FINISHED},
            {"state": State.PENDING},
            {"seen": (T0 - 900) * SECOND},
            {"start": (T0 + 1) * SECOND},
        ],
    )
    def test_run_that_is_not_active_is_not_observed(self, change: dict[str, Any]) -> None:
        assert look({}, [active("a", 50.0)._replace(**change)], T0).runs == []

    def test_gpus_in_system_metrics_are_those_of_a_run_without_any(self) -> None:
        listed = [active("a")._replace(gpus=0), active("b")._replace(gpus=0), active("c")]
        observed = [active("a", 50.0, 50.0), active("c", 50.0)]
        assert [run.gpus for run in with_observed_gpus(listed, observed)] == [2, 0, 4]

    def test_tables_are_of_the_last_tick(self) -> None:
        runs = [active("a", 50.0, 70.0, price=2 * DOLLAR), active("b", 10.0, user="bob")]
        options = make_settings(group_by="user", gpu_prices="h100=2")
        ledger = Ledger(ANTS, runs, range(T0, T0 + 1), options, live=True)
        list(ledger.stretches())
        project = {"entity": "acme", "project": "ants"}
        assert usage_table(ledger, look({}, runs, T0)) == [
            {**project, "user": "ann", "gpus": 2, "gpu_hours_24h": 10, "cost_24h": 20, "utilization_pct": 60},
            {
                **project,
                "user": "bob",
                "gpus": 1,
                "gpu_hours_24h": 5,
                "cost_24h": None,
                "utilization_pct": 10,
            },
        ]
        assert [row["utilization_pct"] for row in usage_table(ledger, None)] == [None, None]


class TestIdle:
    def test_run_that_was_low_at_every_observation_for_an_hour_is_idle(self) -> None:
        runs = [active("r1", 0.5, 4.9, price=2 * DOLLAR), active("r2", 90.0, price=2 * DOLLAR)]
        first, *before, last = looks(runs, gpu_prices="h100=2")
        assert metrics.USAGE_IDLE not in first  # nothing was observed before
        assert [found[metrics.USAGE_IDLE] for found in before] == [{"user:ann": 0}] * 3
        assert [found[metrics.IDLE_COST] for found in before] == [{"user:ann": 0}] * 3
        assert last[metrics.USAGE_IDLE] == {"user:ann": 2}
        assert last[metrics.IDLE_COST] == {"user:ann": 4}
        tags = "run:title r1 run_id:r1 user:ann"
        assert last[metrics.IDLE_GPUS] == {tags: 2}
        assert last[metrics.IDLE_SECONDS] == {tags: HOUR}

    def test_run_that_was_busy_while_nothing_could_be_sent_is_not_idle(self) -> None:
        memory: dict[str, object] = {}
        for n, busy in enumerate([0.0, 0.0, 80.0, 0.0, 0.0]):  # the third is never sent, but is stored
            found = look(memory, [active("r1", busy)], T0 + n * STEP)
        assert [each.low_seconds for each in found.runs] == [STEP]
        assert metrics.IDLE_GPUS not in sent(found, [active("r1", 0.0)])

    def test_cost_of_idle_gpus_without_a_price_is_absent(self) -> None:
        last = looks([active("r1", 0.0)], gpu_prices="t4=1")[-1]
        assert last[metrics.USAGE_IDLE] == {"user:ann": 1}
        assert metrics.IDLE_COST not in last

    def test_one_busy_gpu_keeps_a_run_from_being_idle(self) -> None:
        assert looks([active("r1", *[0.0] * 7, 5.0)])[-1][metrics.USAGE_IDLE] == {"user:ann": 0}

    def test_observation_after_a_gap_knows_nothing_of_idle_runs(self) -> None:
        memory: dict[str, object] = {}
        look(memory, [active("r1", 50.0)], T0 - 3 * STEP)
        found = sent(look(memory, [active("r1", 50.0)], T0), [active("r1", 50.0)])
        assert metrics.USAGE_IDLE not in found
        assert metrics.USAGE_BUSY in found
