"""Who holds the GPUs: every group against its runs alone, and sums against the project, at every instant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb import metrics
from collectors.wandb.evaluate import Rules, evaluate
from collectors.wandb.owners import DOLLAR, Owner
from collectors.wandb.runs import SECOND, Run, RunKind, State
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.usage import OTHER, Group, Shares, Usage
from common.config.settings import ConfigurationFile, load
from common.metric import Metric

AT = 1_794_700_800
HOUR = 3600
WINDOW, STALE = 100, 20
PARTS = {
    metrics.USAGE_ACTIVE: metrics.ACTIVE,
    metrics.USAGE_GPUS: metrics.GPUS_IN_USE,
    metrics.USAGE_HOURS: metrics.GPU_HOURS,
    metrics.USAGE_COMPLETED: metrics.COMPLETED,
    metrics.USAGE_FAILED: metrics.FAILED,
}
PROJECTS = (Project("acme", "ants"), Project("acme", "bees"))


@lru_cache
def made(
    max_groups: int = 200, *, priced: bool = False, window: int = WINDOW, stale: int = STALE
) -> WandbSettings:
    environ = {
        "WANDB_API_KEY": "k",
        "WANDB_PROJECTS": "acme/ants,acme/bees",
        "FLEETGAUGE_WANDB_WINDOW": str(window),
        "FLEETGAUGE_WANDB_STALE_AFTER": str(stale),
        "FLEETGAUGE_WANDB_MAX_GROUPS": str(max_groups),
        "FLEETGAUGE_WANDB_GROUP_BY": "user",
        **({"FLEETGAUGE_WANDB_GPU_PRICES": "default=1"} if priced else {}),
    }
    return load(WandbSettings, "wandb", environ=environ, file=ConfigurationFile())


halves = st.integers(0, 800).map(lambda half: AT * SECOND + half * SECOND // 2)


@st.composite
def a_run(draw: st.DrawFn) -> tuple[Project, Run]:
    start, seen = draw(halves), draw(halves)
    computed = draw(st.sampled_from([0, 0, 3, 60, 900])) * SECOND
    run = Run(
        id="r",
        state=draw(st.sampled_from([*State])),
        kind=RunKind.OTHER,
        start=start,
        seen=seen,
        worked_from=start if not computed or seen - computed <= start else seen - computed,
        duration=None,
        gpus=draw(st.integers(0, 8)),
        gpus_assumed=False,
        sweep=None,
        target=None,
        throughput={},
        owner=Owner((draw(st.sampled_from("abc")),), draw(st.sampled_from([None, 0, 350_000, 2_490_000]))),
    )
    return draw(st.sampled_from(PROJECTS)), run


fleets = st.lists(a_run(), max_size=14)
instants = st.lists(st.integers(AT - 10, AT + 550), min_size=1, max_size=8, unique=True).map(sorted)


def shares_of(fleet: Iterable[tuple[Project, Run]], at: list[int], options: WandbSettings) -> list[Shares]:
    usage = Usage(at, options)
    for project, run in fleet:
        usage.enter(project, [run])
    told = list(usage.shares())
    assert [shares.at for shares in told] == sorted(set(at))
    return told


def by_group(fleet: Iterable[tuple[Project, Run]]) -> dict[Group, list[Run]]:
    found: defaultdict[Group, list[Run]] = defaultdict(list)
    for project, run in fleet:
        found[project, run.owner.group].append(run)
    return found


def figures(runs: Iterable[Run], at: int) -> Mapping[Metric, float]:
    return evaluate(runs, at, Rules(WINDOW, STALE)).values


def failed_time(run: Run, at: int) -> int:
    """The GPU time of a failed run in the window, once it has ended, in microseconds."""
    if run.state not in (State.FAILED, State.CRASHED) or run.seen > at * SECOND:
        return 0
    return run.gpus * max(0, run.seen - max(run.worked_from, (at - WINDOW) * SECOND))


class TestGroups:
    @settings(max_examples=200, deadline=None)
    @given(fleets, instants)
    def test_a_group_is_what_its_runs_alone_would_be(
        self, fleet: list[tuple[Project, Run]], at: list[int]
    ) -> None:
        groups = by_group(fleet)
        for shares in shares_of(fleet, at, made()):
            for group, runs in groups.items():
                told, alone = shares.groups.get(group, {}), figures(runs, shares.at)
                for part, whole in PARTS.items():
                    assert told.get(part, 0) == alone[whole]
                lost = sum(failed_time(run, shares.at) for run in runs)
                assert told.get(metrics.USAGE_FAILED_HOURS, 0) == lost / SECOND / HOUR
            assert shares.groups.keys() <= groups.keys()

    @settings(max_examples=200, deadline=None)
    @given(fleets, instants, st.integers(0, 6))
    def test_sums_over_groups_are_the_figures_of_the_project_also_with_others(
        self, fleet: list[tuple[Project, Run]], at: list[int], max_groups: int
    ) -> None:
        for shares in shares_of(fleet, at, made(max_groups)):
            assert sum(group[1] != (OTHER,) for group in shares.groups) <= max_groups
            for project in PROJECTS:
                expected = figures([run for owner, run in fleet if owner == project], shares.at)
                for part, whole in PARTS.items():
                    told = sum(told[part] for group, told in shares.groups.items() if group[0] == project)
                    exact = part is not metrics.USAGE_HOURS
                    assert told == (expected[whole] if exact else pytest.approx(expected[whole], rel=1e-12))

    @settings(max_examples=100, deadline=None)
    @given(fleets, instants)
    def test_an_instant_has_one_answer_whatever_else_is_asked(
        self, fleet: list[tuple[Project, Run]], at: list[int]
    ) -> None:
        options = made(3, priced=True)
        alone = [shares_of(fleet, [one], options) for one in at]
        assert [[shares] for shares in shares_of(fleet, at, options)] == alone

    @settings(max_examples=100, deadline=None)
    @given(fleets, st.integers(AT, AT + 500), st.integers(1, 4))
    def test_the_largest_by_gpu_hours_and_then_by_name_stand(
        self, fleet: list[tuple[Project, Run]], at: int, max_groups: int
    ) -> None:
        [whole] = shares_of(fleet, [at], made())
        [cut] = shares_of(fleet, [at], made(max_groups))
        order = sorted(whole.groups, key=lambda group: (-whole.groups[group][metrics.USAGE_HOURS], group))
        standing = {group for group in cut.groups if group[1] != (OTHER,)}
        assert standing == set(order[:max_groups])
        assert cut.full == (len(order) > max_groups)
        for group in order:
            place = cut.place(group)
            assert place == (group if group in standing else (group[0], (OTHER,)))
            assert place in cut.groups

    @pytest.mark.parametrize(
        ("state", "ended"), [(State.FINISHED, (1, 0)), (State.FAILED, (0, 1)), (State.CRASHED, (0, 1))]
    )
    def test_a_group_is_told_from_the_start_of_its_run_until_the_window_has_passed_its_end(
        self, state: State, ended: tuple[int, int]
    ) -> None:
        run, failed = run_of("a", 2, state=state), 2 * (state is not State.FINISHED)
        expected = {
            -51: None,
            -50: (1, 2, 0, 0, 0, 0),
            -20: (1, 2, 2 * 30, 0, 0, 0),
            0: (0, 0, 2 * 50, failed * 50, *ended),
            60: (0, 0, 2 * 40, failed * 40, *ended),
            WINDOW: (0, 0, 0, 0, *ended),
            WINDOW + 1: None,
        }
        together = shares_of([(PROJECTS[0], run)], [AT + second for second in expected], made())
        alone = [shares_of([(PROJECTS[0], run)], [AT + second], made())[0] for second in expected]
        for shares in together + alone:
            told = shares.groups.get((PROJECTS[0], ("a",)))
            assert (told and in_seconds(told)) == expected[shares.at - AT]
        sooner = run._replace(seen=run.seen - 1)
        [shares] = shares_of([(PROJECTS[0], sooner)], [AT + WINDOW], made())
        assert shares.groups == {}

    def test_a_group_that_comes_between_two_readings_has_a_place_while_there_is_room(self) -> None:
        fleet = [(PROJECTS[0], run_of(user, 1)) for user in "ab"]
        new = (PROJECTS[0], ("new",))
        assert [shares.place(new) for shares in shares_of(fleet, [AT], made(2))] == [new]
        assert [shares.place(new) for shares in shares_of(fleet, [AT], made(1))] == [(PROJECTS[0], (OTHER,))]

    def test_a_user_who_is_called_other_is_added_to_the_others(self) -> None:
        runs = [run_of(OTHER, 8), run_of("a", 4), run_of("b", 2)]
        [shares] = shares_of([(PROJECTS[0], run) for run in runs], [AT], made(1))
        assert {group[1]: told[metrics.USAGE_GPUS] for group, told in shares.groups.items()} == {(OTHER,): 14}


def in_seconds(told: Mapping[Metric, float]) -> tuple[float, ...]:
    """Runs and GPUs, seconds of GPUs and those that failed, and how many runs completed and failed."""
    hours = (metrics.USAGE_HOURS, metrics.USAGE_FAILED_HOURS)
    return (
        *(told[metric] for metric in (metrics.USAGE_ACTIVE, metrics.USAGE_GPUS)),
        *(round(told[metric] * HOUR, 6) for metric in hours),
        *(told[metric] for metric in (metrics.USAGE_COMPLETED, metrics.USAGE_FAILED)),
    )


def run_of(user: str, gpus: int, price: int | None = None, state: State = State.RUNNING) -> Run:
    """A run that has worked for the 50 seconds before AT."""
    start, seen = (AT - 50) * SECOND, AT * SECOND
    owner = Owner((user,), price)
    return Run("r", state, RunKind.OTHER, start, seen, start, None, gpus, False, None, None, {}, owner)


class TestCosts:
    @settings(max_examples=150, deadline=None)
    @given(fleets, instants, st.sampled_from([1, 200]))
    def test_a_run_is_priced_by_itself_and_unpriced_gpus_are_counted(
        self, fleet: list[tuple[Project, Run]], at: list[int], max_groups: int
    ) -> None:
        for shares in shares_of(fleet, at, made(max_groups, priced=True)):
            for project in PROJECTS:
                runs = [run for owner, run in fleet if owner == project]
                told = [told for group, told in shares.groups.items() if group[0] == project]
                cost, rate, unpriced = costs(runs, shares.at)
                assert sum(one.get(metrics.USAGE_COST, 0) for one in told) == pytest.approx(cost, rel=1e-9)
                per_hour = sum(one.get(metrics.USAGE_COST_PER_HOUR, 0) for one in told)
                assert per_hour == pytest.approx(rate, rel=1e-9)
                assert sum(one[metrics.USAGE_UNPRICED] for one in told) == unpriced

    def test_without_prices_nothing_is_said_of_costs(self) -> None:
        [shares] = shares_of([(PROJECTS[0], run_of("a", 8))], [AT], made())
        [told] = shares.groups.values()
        assert not {metrics.USAGE_COST, metrics.USAGE_COST_PER_HOUR, metrics.USAGE_UNPRICED} & told.keys()

    def test_what_nobody_has_a_price_for_costs_nobody_knows_what(self) -> None:
        [shares] = shares_of([(PROJECTS[0], run_of("a", 8))], [AT], made(priced=True))
        [told] = shares.groups.values()
        assert told[metrics.USAGE_UNPRICED] == 8
        assert not {metrics.USAGE_COST, metrics.USAGE_COST_PER_HOUR} & told.keys()

    def test_a_price_of_nothing_is_known(self) -> None:
        [shares] = shares_of([(PROJECTS[0], run_of("a", 8, 0))], [AT], made(priced=True))
        [told] = shares.groups.values()
        assert (told[metrics.USAGE_COST], told[metrics.USAGE_COST_PER_HOUR]) == (0, 0)

    def test_two_types_of_one_user_add_up(self) -> None:
        runs = [run_of("a", 2, 3 * DOLLAR), run_of("a", 1, DOLLAR), run_of("a", 5, None)]
        [shares] = shares_of([(PROJECTS[0], run) for run in runs], [AT], made(priced=True))
        [told] = shares.groups.values()
        assert told[metrics.USAGE_COST_PER_HOUR] == 7
        assert told[metrics.USAGE_COST] == pytest.approx(7 * 50 / HOUR)
        assert told[metrics.USAGE_HOURS] == pytest.approx(8 * 50 / HOUR)
        assert told[metrics.USAGE_UNPRICED] == 5


def costs(runs: Iterable[Run], at: int) -> tuple[float, float, float]:
    """Dollars in the window and per hour, each run at its own price, and the GPUs that have none."""
    cost, rate, unpriced = Fraction(0), Fraction(0), 0.0
    for run in runs:
        alone = figures([run], at)
        if run.owner.price is None:
            unpriced += alone[metrics.GPUS_IN_USE]
        else:
            cost += Fraction(alone[metrics.GPU_HOURS]) * run.owner.price / DOLLAR
            rate += Fraction(alone[metrics.GPUS_IN_USE]) * run.owner.price / DOLLAR
    return float(cost), float(rate), unpriced
