"""What a backfill of xenna records knows of runs, and when it lets their records go."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.xenna.collector import COLLECTOR
from collectors.xenna.metrics import CLUSTER, LIVE_ONLY, METRICS, PIPELINE, STAGE
from common.metric import Mark
from common.records.replay import PASS, REACHED
from support.replays import BEGIN, Simulation, split
from support.xenna_ticks import NOW, record


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(COLLECTOR, tmp_path)


def at(second: int) -> float:
    """The age that the builder of records wants."""
    return NOW - BEGIN - second


def progress(simulation: Simulation, since: int, until: int) -> dict[int, float]:
    found = simulation.replay(BEGIN + since, BEGIN + until)
    return {second - BEGIN: v for (name, _, _, second), v in found.items() if name.endswith(".progress")}


def test_the_end_of_a_run_lets_nothing_go_before_its_time(simulation: Simulation) -> None:
    simulation.pass_time(9000)
    seconds = (PASS - 2, PASS - 1, PASS + 1)
    simulation.write("a.jsonl", *(record(seq, at(second)) for seq, second in enumerate(seconds)))
    simulation.write("a.jsonl", record(3, at(PASS + 3), event="end", status="ok"))
    items = simulation.stream(BEGIN, BEGIN + 2 * PASS)
    place = items.index(Mark({REACHED: BEGIN + PASS}))
    assert [sample.timestamp - BEGIN for sample in split(items[:place])[0]] == [PASS - 2, PASS - 1]
    assert [sample.timestamp - BEGIN for sample in split(items[place:])[0]] == [PASS + 1, PASS + 3]


def test_a_run_that_fell_silent_before_the_span_owns_its_series_until_it_is_stalled(
    simulation: Simulation,
) -> None:
    simulation.pass_time(1000)
    simulation.write("old.jsonl", record(0, at(900)))
    simulation.write("new.jsonl", record(0, at(1000), run_id="r2"))
    simulation.pass_time(3000)
    later = (record(seq, at(second), {"progress": float(seq)}) for seq, second in ((1, 1600), (2, 1601)))
    simulation.write("old.jsonl", *later)
    assert progress(simulation, 1500, 3600) == {1601: 2.0}


def test_a_rival_that_is_read_later_is_known_from_before_the_span(simulation: Simulation) -> None:
    simulation.pass_time(9000)
    seconds = (100, PASS - 100, PASS + 100)
    simulation.write("old.jsonl", *(record(seq, at(second)) for seq, second in enumerate(seconds)))
    simulation.pass_time(10)
    simulation.write("young.jsonl", record(0, at(PASS - 50), {"progress": 1.0}, run_id="r2"))
    assert progress(simulation, PASS, 2 * PASS) == {}
    assert progress(simulation, 0, PASS) == {100: 50.0, PASS - 100: 50.0, PASS - 50: 1.0}


def test_when_a_run_began_is_known_from_files_that_it_has_long_left(simulation: Simulation) -> None:
    simulation.pass_time(1000)
    simulation.write("first.jsonl", record(0, at(900), {"progress": 1.0}))
    simulation.rotate("first.jsonl")
    simulation.pass_time(40_000)
    simulation.write("second.jsonl", record(0, at(40_900), {"progress": 2.0}, run_id="r2"))
    simulation.pass_time(3000)
    simulation.write("first.jsonl", *(record(seq, at(40_900 + seq), {"progress": 1.0}) for seq in (1, 2)))
    assert progress(simulation, 40_000, 50_000) == {40_900: 2.0}


def test_without_run_hash_each_bucket_is_sent_once_and_whole(tmp_path: Path) -> None:
    simulation = Simulation(COLLECTOR, tmp_path, stage_run_hash="false", aggregate_interval="7")
    simulation.pass_time(6000)
    for run in range(3):
        lines = (
            record(seq, at(5 * seq + run), {"stage/a/queue_in": 1}, run_id=f"r{run}") for seq in range(900)
        )
        simulation.write(f"{run}.jsonl", *lines)
    since, until = BEGIN + 100, BEGIN + 4000
    samples = split(simulation.stream(since, until))[0]
    first, last = -(-since // 7) * 7, (until - 1) // 7 * 7
    assert [sample.timestamp for sample in samples] == list(range(first, last + 1, 7))
    assert {sample.value for sample in samples} == {3}
    over = BEGIN // 7 * 7 + 700
    for now, last in ((over + 4, over - 14), (over + 5, over - 7)):  # settle is 5
        samples = split(simulation.stream(since, until, now=now))[0]
        assert samples[-1].timestamp == last
        assert {sample.value for sample in samples} == {3}


def test_a_backfill_knows_every_metric_but_those_of_the_tick_itself(simulation: Simulation) -> None:
    keys = (*PIPELINE, *(f"cluster/{key}" for key in CLUSTER), *(f"stage/a/{key}" for key in STAGE))
    simulation.pass_time(4000)
    simulation.write("a.jsonl", record(0, at(100), dict.fromkeys(keys, 1)))
    found = {name for name, _, _, _ in simulation.replay(BEGIN, BEGIN + 3600)}
    assert found == {metric.name for metric in METRICS if metric not in LIVE_ONLY}
    assert {metric.name.split(".")[1] for metric in LIVE_ONLY} == {"run", "runs", "ingest"}
    assert COLLECTOR.live_only == LIVE_ONLY
