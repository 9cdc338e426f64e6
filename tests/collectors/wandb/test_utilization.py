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
from collectors.wandb.groups import DOLLAR, Owner
from collectors.wandb.runs import SECOND, Reported, Run, RunKind, RunReader, State
from collectors.wandb.utilization import MEMORY_KEY, load_observations, observe
from common.metric import Metric
from support.servers.fleet import system_row
from support.wandb_ledger import ANTS, ledger_points
from support.wandb_ledger import settings as make_settings

READING = RunReader("github.sky.*", "gpus", 0)


def read(row: Any, gpus: int = 8) -> tuple[Reported | None, list[str]]:
    """Return what is read of a row as a server sends it, as text, and its flaws."""
    node: dict[str, Any] = {
        "id": "x",
        "state": "running",
        "createdAt": "2026-11-15T00:00:00Z",
        "systemMetrics": row if isinstance(row, str | None) else json.dumps(row),
        "config": json.dumps({"gpus": {"value": gpus}}),
    }
    flaws: list[str] = []
    run = READING.read(node, flaws)
    assert run is not None
    return run.reported, flaws


LABELS = [f"l:rank-{rank}" for rank in range(8)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (system_row(50.0, 100.0, memory=25.0), Reported(2, 1.5, 2, 0.5, 100.0)),
        # labels of one machine are no more GPUs than the run has
        (
            {f"system.gpu.{i}.gpu/{label}": 100 * (label == LABELS[0]) for i in range(8) for label in LABELS},
            Reported(8, 8.0, busiest=100),
        ),
        # shares are added up exactly: step by step it is 0.9999999999999999 before Python 3.12
        ({f"system.gpu.process.{i}.gpu": 0.1 for i in range(10)}, Reported(10, 0.01, busiest=0.1)),
        ({"system.gpu.0.gpu": " 1e1", "_timestamp": "1.5"}, Reported(1, 0.1, busiest=10, timestamp=1.5)),
        ({"_timestamp": 0}, Reported(timestamp=0)),
        # nothing is unknown, and no flaw
        *((row, Reported()) for row in (None, "", "{}", {"system.cpu": 3}, {"system.gpu.0.gpu": None})),
    ],
)
def test_figures_of_a_run_are_those_of_its_gpus(row: Any, expected: Reported) -> None:
    assert read(row) == (expected, [])


@pytest.mark.parametrize(
    "key",
    [
        *("system.gpu.0.gpuMemory", "gpu.0.gpu", "system.gpu.x.gpu", "system.gpu.-1.gpu", "system.gpu..gpu"),
        *("system.gpu.0.temp", "system.gpu.process.gpu", "system.gpu.0.gpu.extra", "system.gpu.1٣.gpu"),
        *("system.gpu.0.smActive", "system.gpu.0.gpu/l:", "SYSTEM.gpu.0.gpu", "system.gpu.9999999.gpu"),
    ],
)
def test_another_key_is_ignored(key: str) -> None:
    assert read({key: 50, "x/l:y": 1}) == (Reported(), [])


@pytest.mark.parametrize("text", ["{", "[]", "7", '"x"', '{"system.gpu.0.gpu": 3', "[" * 100_000])
def test_row_that_cannot_be_read_is_dropped_and_counted(text: str) -> None:
    assert read(text) == (Reported(), ["bad_system_metrics"])


@pytest.mark.parametrize("value", ['"NaN"', "NaN", "Infinity", "-1", "100.1", "true", "[]", "{}", "1e400"])
def test_figure_that_is_no_percentage_is_dropped_and_counted(value: str) -> None:
    row = f'{{"system.gpu.0.gpu": {value}, "system.gpu.1.gpu": 40}}'
    assert read(row) == (Reported(1, 0.4, busiest=40), ["bad_system_metrics"])


@pytest.mark.parametrize("value", [True, "x", -1])
def test_time_of_a_row_that_is_none_is_dropped_and_counted(value: object) -> None:
    assert read({"_timestamp": value}) == (Reported(), ["bad_system_metrics"])


def truth(row: dict[str, Any], gpus: int) -> list[list[float]]:
    """Return utilisation and memory of the GPUs of a run, straight from the words of the specification."""
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
    own: list[list[float]] = []
    for measure, figures in found[False].items():
        if of_process:
            every = figures | found[True][measure]
            own.append([every[device] for device in of_process if device in every])
        else:
            first = sorted(item for item in figures.items() if item[0][1] < gpus)[:gpus]
            own.append([value for _, value in first])
    return own


keys = st.builds(
    "system.gpu.{}{}.{}{}".format,
    st.sampled_from(["", "process."]),
    st.integers(0, 12),
    st.sampled_from(["gpu", "memoryAllocated"]),
    st.sampled_from(["", "/l:rank-1", "/l:a/l:b"]),
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


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(keys, figures, max_size=40), st.integers(0, 12))
def test_any_row_is_read_as_specified(row: dict[str, Any], gpus: int) -> None:
    reported, _ = read(row, gpus)
    assert reported is not None
    busy, filled = truth(row, gpus)
    assert (reported.gpus, reported.memory_gpus) == (len(busy), len(filled))
    shares = (reported.busy, reported.memory_filled, reported.busiest)
    assert shares == pytest.approx((sum(busy) / 100, sum(filled) / 100, max(busy, default=0)))


@given(
    st.text(max_size=80) | st.dictionaries(st.text(max_size=30) | keys, st.text() | figures).map(json.dumps)
)
def test_no_text_raises(text: str) -> None:
    read(text)


# Idle runs.

STEP = 900
T0 = 1_794_700_800


class See(NamedTuple):
    """What one observation shows: how busy the GPU is (None: no figures), the row's time, the runtime."""

    busy: float | None = 0.0
    timestamp: float | None = None
    runtime: float = 3600


BUSY, IDLE, SILENT = See(50.0), See(0.0), See(None)
ABSENT = None


def after(*looks: See | int | None) -> int | None:
    """Return how long the run is idle after observations a step apart; a number is so many steps without."""
    memory: dict[str, Any] = {}
    at = T0
    for seen in looks:
        if isinstance(seen, int):
            at += seen * STEP
            continue
        runs = []
        if seen is not None:
            run = active("r1", *([] if seen.busy is None else [seen.busy]), timestamp=seen.timestamp)
            runs = [run._replace(worked_from=run.seen - round(seen.runtime) * SECOND)]
        look(memory, runs, at, stale_after="86400000000")
        at += STEP
    stored = memory[MEMORY_KEY][str(ANTS)][1].get("r1")
    return None if stored is None else int(stored.counted - stored.since)


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
        # a row that is not newer does not count, unless it is busy
        ([See(0, 10.0), See(0, 10.0)], 0),
        ([See(0, 10.0), See(90, 10.0)], None),
        ([See(0, 10.0), See(0, 9.0), See(0, 11.0)], 2 * STEP),
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
        ([IDLE, -2, IDLE], 0),
        # restarted: a lower runtime
        ([IDLE, IDLE, See(0, runtime=5)], 0),
        ([IDLE, IDLE, See(None, runtime=5)], None),
        ([IDLE, IDLE, See(0, runtime=5), See(0, runtime=905)], STEP),
    ],
)
def test_what_a_look_means(looks: list[See | int | None], seconds: int | None) -> None:
    assert after(*looks) == seconds


anything = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)
numbers = st.tuples(*[st.integers() | st.floats()] * 3, st.none() | st.integers() | st.floats())


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
    assert metrics.USAGE_IDLE in look(memory, [active("r1", 0.0)], T0 + STEP)


# What is sent.

HOUR = 3600


def active(
    name: str, *busy: float, user: str = "ann", price: int | None = None, timestamp: float | None = None
) -> Run:
    """A run that is active around T0, with GPUs that are so busy."""
    reported = Reported(len(busy), math.fsum(busy) / 100, 1, 0.5, max(busy), timestamp) if busy else None
    owner = Owner((user,), user, "h100", price)
    start, seen = (T0 - 5 * HOUR) * SECOND, (T0 + HOUR) * SECOND
    return Run(
        *(name, State.RUNNING, RunKind.OTHER, start, seen, start, None, len(busy) or 4),
        *(False, None, None, {}, owner, name, f"title {name}", reported),
    )


def look(memory: dict[str, object], runs: list[Run], at: int, **variables: str) -> dict[Metric, Any]:
    """Return what is sent of observations, by the tags beside entity and project; state is stored as JSON."""
    options = make_settings(**{"group_by": "user", **variables})
    stored = load_observations(json.loads(json.dumps(memory)), at, 2 * STEP)
    listed = [run._replace(reported=None) for run in runs]
    observed = observe(ANTS, listed, runs, at, options, stored)
    memory[MEMORY_KEY] = stored
    found: dict[Metric, dict[str, float]] = {}
    for (metric, tags, _), value in ledger_points(observed, range(at, at + 1), options, live=True).items():
        if metric in metrics.OBSERVED:
            rest = [tag for tag in tags if not tag.startswith(("entity:", "project:"))]
            found.setdefault(metric, {})[" ".join(rest)] = value
    return found


def looks(runs: list[Run], count: int = 5, **variables: str) -> list[dict[Metric, Any]]:
    """Return what is sent at ticks one after another, each with what the last one stored."""
    memory: dict[str, object] = {}
    return [look(memory, runs, T0 - STEP * (count - 1 - n), **variables) for n in range(count)]


class TestUtilization:
    def test_group_without_figures_is_unknown(self) -> None:
        assert look({}, [active("a")], T0) == {metrics.USAGE_REPORTING: {"user:ann": 0}}

    def test_project_that_was_not_queried_has_none(self) -> None:
        options = make_settings(group_by="user")
        found = ledger_points([active("a")], range(T0, T0 + 1), options, live=True)
        assert not {metric for metric, _, _ in found} & {*metrics.OBSERVED}

    @pytest.mark.parametrize(("age", "reporting"), [(899, 1), (900, 0)])
    def test_row_as_old_as_a_stale_heartbeat_is_unknown(self, age: int, reporting: int) -> None:
        found = look({}, [active("a", 50.0, timestamp=T0 - age)], T0)
        assert found[metrics.USAGE_REPORTING] == {"user:ann": reporting}

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
        assert look({}, [active("a", 50.0)._replace(**change)], T0) == {}

    def test_gpus_in_system_metrics_are_those_of_a_run_without_any(self) -> None:
        listed = [active("a")._replace(gpus=0), active("b")._replace(gpus=0), active("c")]
        queried = [active("a", 50.0, 50.0), active("c", 50.0), active("new", 50.0)]
        found = observe(ANTS, listed, queried, T0, make_settings(), {})
        assert [(run.name, run.gpus) for run in found] == [("a", 2), ("b", 0), ("c", 4)]


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

    def test_run_without_figures_is_not_idle_at_that_tick(self) -> None:
        memory: dict[str, object] = {}
        for n in range(5):
            found = look(memory, [active("r1", 0.0), active("r2", 50.0)], T0 + (n - 5) * STEP)
        assert found[metrics.USAGE_IDLE] == {"user:ann": 1}
        found = look(memory, [active("r1"), active("r2", 50.0)], T0)
        assert found[metrics.USAGE_IDLE] == {"user:ann": 0}
        assert metrics.IDLE_GPUS not in found

    def test_named_are_those_with_most_gpus_and_time(self) -> None:
        runs = [active("broad", 0.0, 0.0), active("long", 0.0), active("busy", 50.0)]
        hours = {"long": 8, "broad": 3}
        memories = {run: [T0 - hours[run] * HOUR, T0 - STEP, 0, None] for run in hours}
        found = look({"idle": {"acme/ants": [T0 - STEP, memories]}}, runs, T0, idle_runs="1")
        assert found[metrics.IDLE_SECONDS] == {"run:title long run_id:long user:ann": 8 * HOUR}
        assert found[metrics.USAGE_IDLE] == {"user:ann": 3}

    def test_cost_of_idle_gpus_without_a_price_is_absent(self) -> None:
        last = looks([active("r1", 0.0)], gpu_prices="t4=1")[-1]
        assert last[metrics.USAGE_IDLE] == {"user:ann": 1}
        assert metrics.IDLE_COST not in last
