"""The ledger: claims about single runs, and every value against brute force over random fleets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb import ledger, metrics
from collectors.wandb.groups import DOLLAR, OTHER, Owner
from collectors.wandb.ledger import BY_TARGET, Ledger
from collectors.wandb.runs import SECOND, Run, RunKind, RunReader, State
from collectors.wandb.settings import WandbSettings
from common.metric import Metric
from support.backfills import COSTS
from support.servers.fleet import text
from support.wandb_ledger import ANTS, Points, at_tick, ledger_points
from support.wandb_ledger import settings as make_settings

AT = 1_794_700_800
HOUR = 3600
DAY = 24 * HOUR


ENDED = ("finished", "failed", "crashed", "killed", "preempted")


@dataclass(frozen=True)
class Truth:
    """A run as a test knows it: in seconds, with halves, so that edges are met."""

    id: int
    state: str
    created: Fraction
    heartbeat: Fraction | None
    compute: Fraction
    name: str
    sweep: str | None
    gpus: int | None
    steps: int | None
    sps: int | None
    runtime: Fraction | None = None

    @property
    def worked(self) -> Fraction:
        """How long W&B says it computed; 0 where it does not say."""
        runtime = self.runtime or Fraction(0)
        if self.state in ENDED and self.compute > 0:
            return self.compute
        return max(Fraction(0), self.compute, runtime)

    def node(self) -> dict[str, Any]:
        summary: dict[str, Any] = {"overview/steps_per_second": self.steps, "timing_per_epoch/sps": self.sps}
        if self.runtime is not None:
            summary["_wandb"] = {"runtime": float(self.runtime)}
        return {
            "id": f"{self.id:03d}",
            "displayName": self.name,
            "state": self.state,
            "createdAt": _stamp(self.created),
            "heartbeatAt": None if self.heartbeat is None else _stamp(self.heartbeat),
            "sweepName": self.sweep,
            "computeSeconds": float(self.compute),
            "runInfo": {"gpuCount": self.gpus},
            "summaryMetrics": json.dumps({key: value for key, value in summary.items() if value is not None}),
        }


def _stamp(moment: Fraction) -> str:
    whole = int(moment)
    return text(whole).replace("Z", ".500Z" if moment != whole else "Z")


halves = st.integers(0, 800).map(lambda n: AT + Fraction(n, 2))
truths = st.builds(
    Truth,
    id=st.integers(0, 999),
    state=st.sampled_from([state.value for state in State]),
    created=halves,
    heartbeat=st.none() | halves,
    compute=st.sampled_from([Fraction(0), Fraction(-5), Fraction(7, 2), Fraction(60), Fraction(900)]),
    runtime=st.none() | st.sampled_from([Fraction(0), Fraction(-5), Fraction(9, 2), Fraction(45)]),
    name=st.sampled_from(
        [
            "train",
            "x.SWEEP.1",
            "github.sky.main.c0ffee.arena.1",
            "github.sky.pr7.c0ffee.a.b.1",
            "github.sky.sweep",
        ]
    ),
    sweep=st.none() | st.sampled_from(["s", "t"]),
    gpus=st.none() | st.integers(0, 8),
    steps=st.none() | st.integers(0, 9),
    sps=st.none() | st.integers(0, 9),
)
fleets = st.lists(truths, max_size=20, unique_by=lambda truth: truth.id)
WINDOW, STALE, PENDING = 100, 20, 150


def rules(window: int, stale_after: int) -> WandbSettings:
    return make_settings(window=str(window), stale_after=str(stale_after), pending_for=str(PENDING))


tick_ranges = st.builds(
    lambda first, step, count: range(first, first + step * count, step),
    st.integers(AT - 10, AT + 400),
    st.sampled_from([1, 7, 13, 50]),
    st.integers(1, 12),
)


def truth_at(fleet: Iterable[Truth], at: int, window: int, stale_after: int) -> dict[str, float]:
    """Return every metric by examining every run, as the specification defines it."""
    fleet = list(fleet)
    ended, active, counts, gpu_time, waits = [], [], {"pending": 0, "stale": 0}, Fraction(0), []
    for one in fleet:
        last = one.heartbeat if one.heartbeat is not None else one.created
        is_active = False
        if one.state in ENDED:
            if at - window <= last <= at:
                ended.append(one)
            is_active = one.created <= at < last
        elif one.created <= at and one.state == "pending":
            if at - one.created < PENDING:
                counts["pending"] += 1
                waits.append(at - one.created)
        elif one.created <= at:
            is_active = at - last < stale_after
            counts["stale"] += not is_active
        if is_active:
            active.append(one)
        until = Fraction(at) if is_active else min(last, Fraction(at))
        if one.state == "pending" and one.worked <= 0:
            continue
        since = max(one.created, Fraction(at - window))
        if one.worked > 0:
            since = max(since, last - one.worked)
        gpu_time += max(Fraction(0), until - since) * (1 if one.gpus is None else one.gpus)

    def number(*states: str, among: list[Truth] = ended) -> int:
        return sum(one.state in states for one in among)

    lasting = sorted(took for one in ended if (took := _took(one)) is not None)
    push = [one for one in ended if one.name.startswith("github.sky.")]
    sweep_ended = [one for one in ended if _in_sweep(one)]
    sweep_active = [one for one in active if _in_sweep(one)]
    found: dict[str, float] = {
        "runs.active": len(active),
        "runs.completed_24h": number("finished"),
        "runs.failed_24h": number("failed", "crashed"),
        "runs.crashed_24h": number("crashed"),
        "runs.killed_24h": number("killed"),
        "runs.preempted_24h": number("preempted"),
        "runs.total_recent": len(ended) + len(active),
        "runs.started_24h": sum(at - window <= one.created <= at for one in fleet),
        "runs.pending": counts["pending"],
        "runs.stale": counts["stale"],
        "training.total_gpu_hours_24h": float(gpu_time / 3600),
        "training.gpus_in_use": sum(1 if one.gpus is None else one.gpus for one in active),
        "training.gpu_count_assumed_runs": sum(one.gpus is None for one in [*ended, *active]),
        "push_to_main.runs_completed_24h": number("finished", among=push),
        "push_to_main.runs_failed_24h": number("failed", "crashed", among=push),
        "sweep.runs_total_24h": len(sweep_ended) + len(sweep_active),
        "sweep.runs_completed_24h": number("finished", among=sweep_ended),
        "sweep.runs_failed_24h": number("failed", "crashed", among=sweep_ended),
        "sweep.runs_active": len(sweep_active),
        "sweep.active_sweeps": len({one.sweep for one in sweep_active} - {None}),
    }
    for name, share in (("p50", 50), ("p95", 95), ("max", 100)) if lasting else ():
        took = lasting[math.ceil(Fraction(share * len(lasting), 100)) - 1]
        found[f"training.duration_hours.{name}"] = float(took / 3600)
    if waits:
        found["runs.oldest_pending_seconds"] = float(max(waits))
    for prefix, among in (("push_to_main", push), ("sweep", sweep_ended)):
        good, bad = number("finished", among=among), number("failed", "crashed", among=among)
        if good + bad:
            found[f"{prefix}.success_rate_pct"] = 100 * good / (good + bad)
    for name, among in (("training", ended), ("push_to_main", push)):
        if took_each := [took for one in among if (took := _took(one)) is not None]:
            found[f"{name}.avg_duration_hours"] = float(sum(took_each, Fraction(0)) / len(took_each) / 3600)
    found |= _throughput(push, at)
    return found


def _in_sweep(one: Truth) -> bool:
    named = ".sweep" in one.name.lower()
    return not one.name.startswith("github.sky.") and (one.sweep is not None or named)


def _took(one: Truth) -> Fraction | None:
    if one.worked > 0:
        return one.worked
    took = (one.created if one.heartbeat is None else one.heartbeat) - one.created
    return took if took >= 0 else None


def _throughput(push: list[Truth], at: int) -> dict[str, float]:
    def end(one: Truth) -> tuple[Fraction, int]:
        return (one.created if one.heartbeat is None else one.heartbeat), one.id

    measured = sorted((one for one in push if one.state in ("finished", "crashed")), key=end)
    found: dict[str, float] = {}
    if any_of_them := [one for one in measured if one.steps is not None or one.sps is not None]:
        latest = any_of_them[-1]
        found["push_to_main.sps_age_seconds"] = float(at - end(latest)[0])
        if latest.steps is not None:
            found["push_to_main.overview.steps_per_second"] = latest.steps
        if latest.sps is not None:
            found["push_to_main.timing_per_epoch.sps"] = latest.sps
    for one in measured:
        if one.steps is not None and ".c0ffee." in one.name:
            ref, config = ("main", "arena") if ".main." in one.name else ("pr", "a.b")
            found[f"push_to_main.config.steps_per_second[{ref},{config}]"] = one.steps
    return found


def named(
    runs: list[Run], ticks: range, options: WandbSettings, *, live: bool
) -> dict[int, dict[str, float]]:
    """Return the metrics of the project by name at each tick."""
    found: dict[int, dict[str, float]] = {at: {} for at in ticks}
    for (metric, tags, at), value in ledger_points(runs, ticks, options, live=live).items():
        name = metric.name.removeprefix("wandb.")
        if metric is metrics.PUSH_CONFIG_STEPS:
            labels = dict(tag.split(":", 1) for tag in tags)
            name += f"[{labels['ref']},{labels['config']}]"
        if not name.startswith("usage."):
            found[at][name] = value
    return found


def past(truth: dict[str, float]) -> dict[str, float]:
    """Return what can be known of the past."""
    names = {metric.name.removeprefix("wandb.") for metric in metrics.LIVE_ONLY}
    return {name: value for name, value in truth.items() if name not in names}


def read(fleet: Iterable[Truth]) -> list[Run]:
    reading = RunReader("github.sky.*", None, 1)
    runs = [reading.read(truth.node(), []) for truth in fleet]
    return [run for run in runs if run is not None]


@settings(max_examples=350, deadline=None)
@given(fleets, tick_ranges, st.just(WINDOW) | st.integers(1, 30), st.just(STALE) | st.integers(1, 60))
def test_every_value_at_every_tick_is_right(
    fleet: list[Truth], ticks: range, window: int, stale_after: int
) -> None:
    found = named(read(fleet), ticks, rules(window, stale_after), live=True)
    *before, last = ticks
    assert found[last] == truth_at(fleet, last, window, stale_after)
    for at in before:
        assert found[at] == past(truth_at(fleet, at, window, stale_after))


@pytest.mark.parametrize(("age", "counted"), [(PENDING - 1, 1), (PENDING, 0)])
def test_run_that_waits_for_too_long_is_not_pending(age: int, counted: int) -> None:
    waiting = run_of("a", 1, state=State.PENDING)._replace(start=(AT - age) * SECOND)
    assert at_tick([waiting], AT, rules(WINDOW, STALE))[metrics.PENDING] == counted


@pytest.mark.parametrize(("seen", "latest"), [((-2, -1), "b"), ((-1, -2), "a"), ((-1, -1), "b")])
def test_throughput_is_of_the_run_that_ended_last_then_by_id(seen: tuple[int, int], latest: str) -> None:
    speeds = {"a": 1.0, "b": 2.0}
    push = run_of("a", 1, state=State.FINISHED)._replace(kind=RunKind.PUSH_TO_MAIN)
    runs = [
        push._replace(id=name, seen=(AT + end) * SECOND, throughput={BY_TARGET: speeds[name]})
        for name, end in zip(speeds, seen, strict=True)
    ]
    for listed in (runs, runs[::-1]):
        assert at_tick(listed, AT)[metrics.PUSH_STEPS] == speeds[latest]


def test_stretches_are_days_of_ticks_oldest_first() -> None:
    ticks = range(AT, AT + 3 * DAY + HOUR, 900)
    spans = []
    for stretch in Ledger(ANTS, [], ticks, make_settings()).stretches():
        times = {at for series in stretch for at in series.times}
        spans.append((min(times), len(times)))
    assert spans == [(AT, 96), (AT + DAY, 96), (AT + 2 * DAY, 96), (AT + 3 * DAY, 4)]


# Usage by group.

PARTS = {
    metrics.USAGE_ACTIVE: metrics.ACTIVE,
    metrics.USAGE_GPUS: metrics.GPUS_IN_USE,
    metrics.USAGE_HOURS: metrics.GPU_HOURS,
    metrics.USAGE_COMPLETED: metrics.COMPLETED,
    metrics.USAGE_FAILED: metrics.FAILED,
}
FAILED_STATES = (State.FAILED, State.CRASHED)


def group_rules(max_groups: int = 200, *, priced: bool = False) -> WandbSettings:
    prices = {"gpu_prices": "default=1"} if priced else {}
    return make_settings(
        window=str(WINDOW), stale_after=str(STALE), max_groups=str(max_groups), group_by="user", **prices
    )


owned_runs = st.builds(
    lambda truth, user, price: read([truth])[0]._replace(owner=Owner((user,), price=price)),
    truths,
    st.sampled_from("abcd"),
    st.sampled_from([None, 0, 350_000, 2_490_000]),
)
owned_fleets = st.lists(owned_runs, max_size=14)


def usage(runs: list[Run], ticks: range, options: WandbSettings) -> dict[int, dict[str, dict[Metric, float]]]:
    """Return the metrics of each group, by its user, at each tick."""
    found: dict[int, dict[str, dict[Metric, float]]] = {at: {} for at in ticks}
    for (metric, tags, at), value in ledger_points(runs, ticks, options).items():
        if metric.name.startswith("wandb.usage."):
            [user] = [tag.removeprefix("user:") for tag in tags if tag.startswith("user:")]
            found[at].setdefault(user, {})[metric] = value
    return found


def gpu_time(run: Run, at: int) -> int:
    """Return the GPU time of a run in the window, in microseconds."""
    return round(at_tick([run], at, group_rules())[metrics.GPU_HOURS] * HOUR * SECOND)


def failed_time(run: Run, at: int) -> int:
    """Return the GPU time of a failed run in the window, once it has ended, in microseconds."""
    if run.state not in FAILED_STATES or run.seen > at * SECOND:
        return 0
    return run.gpus * max(0, run.seen - max(run.worked_from, (at - WINDOW) * SECOND))


def run_of(user: str, gpus: int, price: int | None = None, state: State = State.RUNNING) -> Run:
    """A run that has worked for the 50 seconds before AT."""
    start, seen = (AT - 50) * SECOND, AT * SECOND
    owner = Owner((user,), price=price)
    return Run("r", state, RunKind.OTHER, start, seen, start, None, gpus, False, None, None, {}, owner)


class TestGroups:
    @settings(max_examples=200, deadline=None)
    @given(owned_fleets, tick_ranges)
    def test_group_has_the_values_of_its_runs_alone(self, fleet: list[Run], ticks: range) -> None:
        for at, groups in usage(fleet, ticks, group_rules()).items():
            for user in "abcd":
                runs = [each for each in fleet if each.owner.group == (user,)]
                found, alone = groups.get(user, {}), at_tick(runs, at, group_rules())
                for part, total in PARTS.items():
                    assert found.get(part, 0) == alone[total]
                failed = sum(failed_time(each, at) for each in runs)
                assert found.get(metrics.USAGE_FAILED_HOURS, 0) == failed / SECOND / HOUR
                is_shown = any(alone[total] for total in PARTS.values())
                assert (user in groups) is is_shown

    @settings(max_examples=200, deadline=None)
    @given(owned_fleets, tick_ranges, st.integers(0, 5))
    def test_groups_add_up_to_the_project_also_beyond_the_limit(
        self, fleet: list[Run], ticks: range, max_groups: int
    ) -> None:
        for at, groups in usage(fleet, ticks, group_rules(max_groups)).items():
            assert len(groups.keys() - {OTHER}) <= max_groups
            project = at_tick(fleet, at, group_rules())
            for part, total in PARTS.items():
                found = math.fsum(values[part] for values in groups.values())
                expected = project[total]
                exact = part is not metrics.USAGE_HOURS
                assert found == (expected if exact else pytest.approx(expected, rel=1e-12))

    @settings(max_examples=100, deadline=None)
    @given(owned_fleets, tick_ranges, st.sampled_from([1, 20, 100]))
    def test_value_does_not_depend_on_other_ticks_or_stretches(
        self, fleet: list[Run], ticks: range, stretch: int
    ) -> None:
        options = group_rules(2, priced=True)
        alone: Points = {}
        for at in ticks:
            alone |= ledger_points(fleet, range(at, at + 1), options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "DAY", stretch)
            assert ledger_points(fleet, ticks, options) == alone

    @settings(max_examples=100, deadline=None)
    @given(owned_fleets, st.integers(AT, AT + 500), st.integers(1, 4))
    def test_largest_groups_by_gpu_hours_then_name_are_shown(
        self, fleet: list[Run], at: int, max_groups: int
    ) -> None:
        every = usage(fleet, range(at, at + 1), group_rules())[at]
        limited = usage(fleet, range(at, at + 1), group_rules(max_groups))[at]
        order = sorted(every, key=lambda user: (-every[user][metrics.USAGE_HOURS], user))
        shown = {*order[:max_groups], *([OTHER] if order[max_groups:] else [])}
        assert limited.keys() == shown

    @pytest.mark.parametrize(("gpus", "shown"), [(8, {OTHER: 14}), (1, {"a": 4, OTHER: 3})])
    def test_user_who_is_named_other_is_added_to_the_others(self, gpus: int, shown: dict[str, int]) -> None:
        runs = [run_of(OTHER, gpus), run_of("a", 4), run_of("b", 2)]
        groups = usage(runs, range(AT, AT + 1), group_rules(1))[AT]
        assert {user: values[metrics.USAGE_GPUS] for user, values in groups.items()} == shown


class TestCosts:
    @settings(max_examples=150, deadline=None)
    @given(owned_fleets, tick_ranges, st.sampled_from([1, 200]))
    def test_each_run_has_its_own_price_and_unpriced_gpus_are_counted(
        self, fleet: list[Run], ticks: range, max_groups: int
    ) -> None:
        for at, groups in usage(fleet, ticks, group_rules(max_groups, priced=True)).items():
            expected = dict.fromkeys(COSTS, Fraction(0))
            for each in fleet:
                in_use = Fraction(at_tick([each], at, group_rules())[metrics.GPUS_IN_USE])
                hours = Fraction(gpu_time(each, at), HOUR * SECOND)
                if each.owner.price is None:
                    expected[metrics.USAGE_UNPRICED] += in_use
                    expected[metrics.USAGE_UNPRICED_HOURS] += hours
                else:
                    price = Fraction(each.owner.price, DOLLAR)
                    expected[metrics.USAGE_COST] += hours * price
                    expected[metrics.USAGE_COST_FAILED] += (
                        Fraction(failed_time(each, at), HOUR * SECOND) * price
                    )
                    expected[metrics.USAGE_COST_PER_HOUR] += in_use * price
            for metric, cost in expected.items():
                found = math.fsum(values.get(metric, 0) for values in groups.values())
                assert found == pytest.approx(float(cost), rel=1e-9, abs=1e-12)

    @pytest.mark.parametrize("state", [State.RUNNING, State.FAILED])
    def test_cost_of_gpus_that_all_lack_a_price_is_absent(self, state: State) -> None:
        found = usage([run_of("a", 8, state=state)], range(AT, AT + 1), group_rules(priced=True))[AT]["a"]
        running = state is State.RUNNING
        assert found[metrics.USAGE_UNPRICED] == (8 if running else 0)
        assert found[metrics.USAGE_UNPRICED_HOURS] == 8 * 50 / HOUR
        assert metrics.USAGE_COST not in found
        assert (metrics.USAGE_COST_PER_HOUR in found) is not running
        assert (metrics.USAGE_COST_FAILED in found) is running
