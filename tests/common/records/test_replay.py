"""Passes over files in the past: what each takes, what ends them, and what they count."""

from __future__ import annotations

import gzip
import itertools
import os
from pathlib import Path

import pytest

from collectors.data_plane.collector import COLLECTOR
from collectors.data_plane.metrics import LIVE_ONLY, METRICS
from common.errors import DeadlineExceededError
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.records.replay import PASS, REACHED
from common.records.tail import NOT_THERE
from support.data_plane_ticks import operations
from support.replays import BEGIN, Simulation, held, opens, split, state_after
from support.xenna_ticks import NOW

HOUR = 3600


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    simulation = Simulation(COLLECTOR, tmp_path)
    simulation.now += 12 * HOUR
    return simulation


def put(simulation: Simulation, *seconds: float, to: str = "a.jsonl", written: float | None = None) -> Path:
    """A call in each of some seconds; `written` is when the file last changed."""
    start = sum(path.read_bytes().count(b"\n") for path in simulation.folder.iterdir())
    simulation.write(to, *(operations(start + n, NOW - BEGIN - second) for n, second in enumerate(seconds)))
    path = simulation.folder / to
    if written is not None:
        os.utime(path, (BEGIN + written, BEGIN + written))
    return path


def ops(samples: list[Sample]) -> list[int]:
    """The seconds in which calls were counted, each time they were."""
    return [
        one.timestamp - BEGIN
        for one in samples
        if one.metric.name == "data_plane.ops"
        for _ in range(int(one.value))
    ]


def replayed(simulation: Simulation, since: int, until: int, now: int | None = None) -> list[int]:
    return ops(split(simulation.stream(BEGIN + since, BEGIN + until, now=now))[0])


def test_only_points_of_the_span_are_passed_on_and_none_before_its_time(simulation: Simulation) -> None:
    put(simulation, 5, PASS - 1, PASS, 7000, 7100, 7199, 7200)
    items = simulation.stream(BEGIN + 1000, BEGIN + 7200)
    assert ops(split(items)[0]) == [PASS - 1, PASS, 7000, 7100, 7199]
    waiting: list[int] = []
    for item in items:
        if isinstance(item, Sample):
            waiting.append(item.timestamp)
        elif REACHED in item.changes:
            reached = item.changes[REACHED]
            assert isinstance(reached, int)
            assert all(reached - PASS <= second < reached for second in waiting)
            waiting.clear()
    assert waiting == []
    assert simulation.tally.dropped == {}


def test_a_record_of_a_time_long_after_its_file_was_last_written_has_a_wrong_clock(
    simulation: Simulation,
) -> None:
    put(simulation, 100, 200, 2000, 300, written=1000)
    assert replayed(simulation, 0, 2 * HOUR) == [100, 200, 300]
    assert simulation.tally.dropped == {"in_future": 1}


def test_what_is_before_the_span_is_not_dropped(simulation: Simulation) -> None:
    put(simulation, 5, 10, 9 * HOUR)
    assert replayed(simulation, 8 * HOUR, 10 * HOUR) == [9 * HOUR]
    assert simulation.tally.dropped == {}


def test_a_record_that_stands_behind_a_later_one_is_found(simulation: Simulation) -> None:
    put(simulation, 1000, PASS + 1000, 1001, 2000, PASS + 3000, 1790)
    assert replayed(simulation, 0, 1800) == [1000, 1001, 1790]
    assert sorted(replayed(simulation, 0, PASS)) == [1000, 1001, 1790, 2000]
    assert simulation.tally.dropped == {}


def test_a_record_later_than_the_last_write_is_of_a_wrong_clock_and_costs_itself(
    simulation: Simulation,
) -> None:
    put(simulation, 100, 4301, 200, 4300, written=3700)
    put(simulation, 12 * HOUR + 601, 300, to="b.jsonl")
    assert replayed(simulation, 0, 2 * HOUR) == [100, 200, 300, 4300]
    assert simulation.tally.dropped == {"in_future": 2}


def test_a_record_that_had_to_wait_too_long_behind_another_is_too_old_and_counted(
    simulation: Simulation,
) -> None:
    put(simulation, 100, 5 * HOUR, 200)
    assert replayed(simulation, 0, 6 * HOUR) == [100, 5 * HOUR]
    assert simulation.tally.dropped == {"too_old": 1}


def test_what_has_not_settled_yet_is_left_to_live_ticks(simulation: Simulation) -> None:
    put(simulation, 12 * HOUR - 16, 12 * HOUR - 15)
    assert replayed(simulation, 11 * HOUR, 13 * HOUR) == [12 * HOUR - 16]


class TestWithoutRanks:
    """A point stands for a minute."""

    @pytest.fixture
    def simulation(self, tmp_path: Path) -> Simulation:
        simulation = Simulation(COLLECTOR, tmp_path, tag_rank="false")
        simulation.now += 12 * HOUR
        return simulation

    @pytest.mark.parametrize(
        ("since", "until", "starts"),
        [
            (600, 720, [600, 660]),
            (601, 720, [660]),
            (600, 661, [600, 660]),
            (600, 660, [600]),
            (601, 660, []),
        ],
    )
    def test_a_point_at_the_edge_of_the_span_is_whole_or_absent(
        self, simulation: Simulation, since: int, until: int, starts: list[int]
    ) -> None:
        for number in range(2):
            put(simulation, *range(590, 730), to=f"{number}.jsonl")
        found = replayed(simulation, since, until)
        assert found == [start for start in starts for _ in range(120)]

    @pytest.mark.parametrize(("now", "starts"), [(734, [600]), (735, [600, 660])])
    def test_a_point_whose_time_is_not_over_is_absent(
        self, simulation: Simulation, now: int, starts: list[int]
    ) -> None:
        put(simulation, *range(600, 730), written=730)
        found = replayed(simulation, 600, 720, BEGIN + now)
        assert sorted(set(found)) == starts
        assert {found.count(start) for start in starts} == {60}


def test_metrics_of_the_tick_itself_are_never_among_the_samples(simulation: Simulation) -> None:
    put(simulation, 100)
    found = {name for name, _, _, _ in simulation.replay(BEGIN, BEGIN + HOUR)}
    unsaid = {"foreign_clears", "keys_overflowed"}  # by records of writers that never had any
    absent = {
        metric.name
        for metric in METRICS
        if "outstanding" in metric.name or metric.name.rpartition(".")[2] in unsaid or metric in LIVE_ONLY
    }
    assert found == {metric.name for metric in METRICS} - absent
    assert COLLECTOR.live_only == LIVE_ONLY


def test_a_file_last_written_long_before_the_span_is_not_opened(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(simulation, 100, to="old.jsonl", written=-7 * 24 * HOUR)
    put(simulation, 5 * HOUR - 1, to="edge.jsonl", written=5 * HOUR - 600)
    opened = opens(monkeypatch)
    assert replayed(simulation, 5 * HOUR, 6 * HOUR) == []
    assert {path.name for path in opened} == {"edge.jsonl"}


def test_a_file_is_opened_only_when_something_of_it_is_due(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        put(simulation, number * HOUR, number * HOUR + 1, to=f"{number}.jsonl", written=number * HOUR + 2)
    opened = opens(monkeypatch)
    assert replayed(simulation, 0, 10 * HOUR) == [n * HOUR + s for n in range(10) for s in (0, 1)]
    assert len(opened) == 10 + 10  # to see when its first record is due, and then to read it


def test_a_file_that_grows_meanwhile_is_read_to_its_new_end(simulation: Simulation) -> None:
    put(simulation, 100, 5000)
    items = simulation.past(BEGIN, BEGIN + 3 * HOUR)()
    first = list(itertools.takewhile(lambda item: item != Mark({REACHED: BEGIN + PASS}), items))
    put(simulation, 5001, 6000)
    assert ops(split(first)[0]) + ops(split(items)[0]) == [100, 5000, 5001, 6000]


@pytest.mark.parametrize("compress", [False, True])
def test_a_file_that_is_rotated_meanwhile_is_read_to_its_end_and_so_is_its_successor(
    simulation: Simulation, compress: bool
) -> None:
    path = put(simulation, 100, 5000)
    items = simulation.past(BEGIN, BEGIN + 3 * HOUR)()
    first = list(itertools.takewhile(lambda item: item != Mark({REACHED: BEGIN + PASS}), items))
    target = path.rename(path.with_name("a.jsonl.1"))
    if compress:
        Path(f"{target}.gz").write_bytes(gzip.compress(target.read_bytes()))
        target.unlink()
    simulation.write("a.jsonl", operations(2, NOW - BEGIN - 6000))
    assert ops(split(first)[0]) + ops(split(items)[0]) == [100, 5000, 6000]


def test_a_file_that_is_deleted_meanwhile_costs_what_was_not_read(simulation: Simulation) -> None:
    path = put(simulation, 100, 5000)
    put(simulation, 5500, to="b.jsonl")
    items = simulation.past(BEGIN, BEGIN + 3 * HOUR)()
    first = list(itertools.takewhile(lambda item: item != Mark({REACHED: BEGIN + PASS}), items))
    path.unlink()
    assert ops(split(first)[0]) + ops(split(items)[0]) == [100, 5500]
    assert simulation.tally.lost == []


def test_damage_and_losses_are_counted_once_and_not_once_a_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation(COLLECTOR, tmp_path, paths=f"{tmp_path}/*.jsonl, {tmp_path}/gone/")
    simulation.now += 12 * HOUR
    put(simulation, 100)
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"{\n{}\n")
    put(simulation, 9 * HOUR)
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(b"[]\n") + b"no second member")
    (tmp_path / "never.jsonl.gz").write_bytes(b"not compressed")
    for name in ("torn", "never"):
        os.utime(tmp_path / f"{name}.jsonl.gz", (BEGIN + HOUR, BEGIN + HOUR))
    replay = simulation.past(BEGIN, BEGIN + 10 * HOUR)
    assert ops(split(replay())[0]) == [100, 9 * HOUR]
    assert simulation.tally.dropped == {
        "not_json": 1,
        "not_a_record": 1,
        "not_an_object": 1,
        "corrupt_gzip": 2,
    }
    assert simulation.tally.lost == [f"{tmp_path}/gone: {NOT_THERE}"]
    assert len(caplog.messages) == 1


def test_called_twice_it_yields_the_same_and_counts_again(simulation: Simulation) -> None:
    path = put(simulation, 100, 5000)
    with path.open("a") as file:
        file.write("{\n")
    replay = simulation.past(BEGIN, BEGIN + 3 * HOUR)
    first, second = list(replay()), list(replay())
    assert first == second
    assert ops(split(first)[0]) == [100, 5000]
    assert simulation.tally.dropped == {"not_json": 2}


def test_a_pass_that_has_had_its_share_of_bytes_is_made_again_until_all_is_read(tmp_path: Path) -> None:
    simulation = Simulation(COLLECTOR, tmp_path, bytes_per_tick="1000000")
    simulation.now += 12 * HOUR
    lines = (operations(n, NOW - BEGIN - n // 20, source="x" * 2000) for n in range(2000))
    simulation.write("a.jsonl", *lines)
    items = simulation.stream(BEGIN, BEGIN + HOUR)
    counts = held(one for one in split(items)[0] if one.metric.name == "data_plane.ops")
    assert list(counts.values()) == [20] * 100
    assert sum("cell:" in str(mark.changes) for mark in split(items)[1]) >= 4


def test_past_the_deadline_it_says_how_far_it_came_and_goes_on_from_there(simulation: Simulation) -> None:
    put(simulation, *range(0, 4 * HOUR, 100))
    clock = itertools.count()
    replay = simulation.past(BEGIN, BEGIN + 4 * HOUR, deadline=Deadline(6, clock=lambda: float(next(clock))))
    before: list[Sample | Mark] = []
    with pytest.raises(DeadlineExceededError, match="at 2026-11-15T01:00Z; with FLEETGAUGE_CHECKPOINTS set"):
        before.extend(replay())
    after = simulation.stream(BEGIN, BEGIN + 4 * HOUR, state_after(before))
    assert 0 < len(ops(split(before)[0])) < len(ops(split(after)[0]))
    assert ops(split(before + after)[0]) == list(range(0, 4 * HOUR, 100))


def test_one_that_is_complete_has_nothing_more_to_say(simulation: Simulation) -> None:
    put(simulation, 100)
    state = state_after(simulation.stream(BEGIN, BEGIN + HOUR))
    assert simulation.stream(BEGIN, BEGIN + HOUR, state) == []


def test_an_empty_span_and_one_of_the_future_need_no_file(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(simulation, 100)
    opened = opens(monkeypatch)
    assert simulation.stream(BEGIN + 50, BEGIN + 50) == []
    assert simulation.stream(BEGIN + 13 * HOUR, BEGIN + 14 * HOUR) == []
    assert opened == []
