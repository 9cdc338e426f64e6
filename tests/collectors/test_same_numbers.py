"""Record collectors send the points that the version before windows sent, live and backfilled."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.record_fleets import BEGIN, Disk, Shape, fleet
from support.record_runs import Runs, differences
from support.record_scenarios import EXPECTED, Scenario, compared, expected, scenarios, ticks_over

SCENARIOS = scenarios()
DAY = 86400

each_scenario = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.slow if one.fleet.records else ())
        for one in SCENARIOS
    ],
)


def live(scenario: Scenario, folder: Path, *, store: bool) -> Runs:
    """Run all ticks of a scenario over its growing files."""
    folder.mkdir()
    disk = Disk(scenario.fleet, folder)
    runs = Runs(scenario.fleet.kind, folder, scenario.fleet.settings, store=store)
    for now in scenario.ticks:
        disk.advance(now)
        runs.run(now)
    return runs


@each_scenario
@pytest.mark.parametrize("store", [True, False], ids=["with a store", "without a store"])
def test_live_ticks_leave_the_recorded_points(scenario: Scenario, store: bool, tmp_path: Path) -> None:
    runs = live(scenario, tmp_path / "records", store=store)
    assert differences(compared(scenario, runs.points), expected(scenario)) == []
    assert [ran.report.lost for ran in runs.ran if ran.report.lost] == []


@each_scenario
def test_a_backfill_leaves_the_recorded_points(scenario: Scenario, tmp_path: Path) -> None:
    disk = Disk(scenario.fleet, tmp_path)
    disk.advance(scenario.ticks[-1])
    runs = Runs(scenario.fleet.kind, tmp_path, scenario.fleet.settings)
    since, until = scenario.ticks[0] // 3600 * 3600 - 3600, scenario.ticks[-1] // 900 * 900
    points = runs.backfill(since, until, now=scenario.ticks[-1] + DAY)
    wanted = compared(scenario, expected(scenario), present=False)
    assert differences(compared(scenario, points, present=False), wanted) == []
    assert [ran.report.lost for ran in runs.ran if ran.report.lost] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("xenna", {}),
        ("xenna", {"stage_run_hash": "false", "aggregate_interval": "300"}),
        ("gpu_memory", {}),
        ("gpu_memory", {"tag_job_id": "false"}),
        ("data_plane", {}),
        ("data_plane", {"tag_job": "false", "tag_rank": "false", "aggregate_interval": "900"}),
    ],
    ids=repr,
)
def test_live_ticks_over_a_day_equal_one_backfill_of_it(
    kind: str, settings: dict[str, str], tmp_path: Path
) -> None:
    made = fleet(kind, 9, Shape(seconds=DAY, intervals=(200, 301), rivals=True, repeats=0.05), **settings)
    scenario = Scenario("a day", made, ticks_over(made))
    runs = live(scenario, tmp_path / "records", store=True)
    hidden = {metric.name for metric in runs.collector.live_only}
    sent = {key: value for key, value in runs.points.items() if key[0] not in hidden}
    until = scenario.ticks[-1] // 3600 * 3600
    points = runs.backfill(BEGIN - 3600, until, now=until + DAY)
    assert points
    assert differences(points, sent) == []


def test_every_recorded_scenario_is_compared() -> None:
    assert {path.name for path in EXPECTED.iterdir()} == {f"{one.name}.json.gz" for one in SCENARIOS}
