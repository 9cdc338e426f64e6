"""What writers hold is the sum of their last words, though they never speak in the same second."""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path

import pytest
from data_plane_ticks import START, DataPlaneTicks, held, operations, the
from xenna_ticks import NOW

from common.net.retry import Deadline

JOB = ("job:ants", "partition_id:p")


@pytest.fixture
def ticks(tmp_path: Path) -> DataPlaneTicks:
    return DataPlaneTicks(tmp_path)


def word(ticks: DataPlaneTicks, source: str, seq: int, ago: float, n_bytes: int, **more: object) -> None:
    told = {"interval_s": 10, "run_id": source} | more
    one = held(seq, ago, {"p": n_bytes}, rank=None, source=source, **told)
    ticks.write({key: value for key, value in one.items() if value is not None}, to=f"{source}.jsonl")


def sums(ticks: DataPlaneTicks) -> dict[float, float]:
    """The bytes that an intake holds, by seconds ago."""
    return {
        ago: value for (tags, ago), value in the(ticks.points, "bytes_outstanding").items() if tags == JOB
    }


@pytest.mark.parametrize("told", [10, None])
def test_four_processes_without_a_rank_hold_four_thousand_bytes(
    ticks: DataPlaneTicks, told: int | None
) -> None:
    for seq in range(8):
        for number, late in enumerate((0, 0.2, 1.1, 2.5)):
            word(ticks, str(number), seq, 200 - 10 * seq - late, 1000, interval_s=told)
    ticks.tick()
    settled = {ago: value for ago, value in sums(ticks).items() if ago <= 180}
    assert set(settled.values()) == {4000}
    assert len(settled) == 6 * 3
    assert the(ticks.points, "keys_outstanding")[("job:ants",), 150] == 20
    assert the(ticks.points, "peak_bytes_outstanding")[("job:ants",), 150] == 400


def test_a_word_stands_for_three_intervals_and_no_longer(ticks: DataPlaneTicks) -> None:
    word(ticks, "a", 0, 200, 1)
    for seq, ago in enumerate((199, 171, 170, 160)):
        word(ticks, "b", seq, ago, 10)
    ticks.tick()
    assert sums(ticks) == {200: 1, 199: 11, 171: 11, 170: 10, 160: 10}


def test_without_an_interval_the_largest_of_the_last_three_gaps_tells_it(ticks: DataPlaneTicks) -> None:
    for seq, ago in enumerate((1400, 400, 395, 385, 380)):
        word(ticks, "a", seq, ago, 1, interval_s=None)
    for seq, ago in enumerate((390, 351, 350, 349)):
        word(ticks, "b", seq, ago, 10)
    ticks.tick()
    assert {ago: sums(ticks)[ago] for ago in (390, 351, 350)} == {390: 11, 351: 11, 350: 10}


def test_one_that_ended_leaves_the_sum_until_it_speaks_again(ticks: DataPlaneTicks) -> None:
    word(ticks, "a", 0, 200, 1)
    word(ticks, "a", 1, 190, 2, event="end")
    word(ticks, "a", 0, 170, 4, run_id="another run")
    for seq, ago in enumerate((195, 185, 165)):
        word(ticks, "b", seq, ago, 10)
    ticks.tick()
    assert sums(ticks) == {200: 1, 195: 11, 190: 12, 185: 10, 170: 14, 165: 14}


def test_a_word_that_is_read_late_changes_every_sum_it_stands_in(ticks: DataPlaneTicks) -> None:
    for seq, ago in enumerate((200, 190, 180, 150)):
        word(ticks, "a", seq, ago, 1)
    ticks.tick()
    assert sums(ticks) == {200: 1, 190: 1, 180: 1, 150: 1}
    word(ticks, "b", 0, 195, 10)
    ticks.tick()
    assert sums(ticks) == {200: 1, 195: 11, 190: 11, 180: 11, 150: 1}
    assert ticks.tally.dropped == {}


def test_from_tick_to_tick_the_last_words_go_on(ticks: DataPlaneTicks) -> None:
    word(ticks, "a", 0, 30, 1)
    ticks.tick()
    word(ticks, "b", 0, 10, 10)
    ticks.now += 60
    ticks.tick()
    assert sums(ticks) == {30: 1, 10: 11}


def test_one_that_was_forgotten_and_speaks_again_is_remembered(ticks: DataPlaneTicks) -> None:
    word(ticks, "a", 0, 200, 1)
    ticks.tick()
    ticks.now += 6000
    word(ticks, "a", 1, -5900, 2)
    ticks.tick()
    assert "source:a" in ticks.parts


def test_one_that_changes_its_job_is_no_longer_in_the_sum_of_the_first(ticks: DataPlaneTicks) -> None:
    word(ticks, "a", 0, 200, 1)
    word(ticks, "a", 1, 190, 1, job="bees")
    word(ticks, "b", 0, 195, 10)
    word(ticks, "b", 1, 185, 10)
    ticks.tick()
    assert sums(ticks) == {200: 1, 195: 11, 185: 10}


def test_in_wide_buckets_a_writer_counts_where_its_word_stands_at_some_time(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_rank="false")
    word(ticks, "a", 0, NOW - START + 20, 1)  # stands until ten seconds into the next bucket
    word(ticks, "b", 0, NOW - START - 50, 10)
    word(ticks, "b", 1, NOW - START - 70, 100)
    ticks.now += 60
    ticks.tick()
    assert sums(ticks) == {NOW - START + 60: 1, NOW - START: 11, NOW - START - 60: 100}


def test_with_a_backlog_sums_are_sent_only_up_to_where_every_file_was_read(ticks: DataPlaneTicks) -> None:
    for seq, ago in enumerate((200, 190, 180)):
        word(ticks, "a", seq, ago, 1)
        word(ticks, "b", seq, ago + 5, 10)
    ticks.write(operations(0, 100, rank=None, run_id="c"), to="c.jsonl")
    times = chain([0.0, 0.0], repeat(59.0))
    ticks.deadline = Deadline(60, clock=lambda: next(times))
    points = ticks.tick()
    assert points["data_plane.ingest.backlog_bytes", (), NOW] > 0
    first = sums(ticks)
    assert all(ago > 200 for ago in first)
    ticks.deadline = None
    ticks.tick()
    assert sums(ticks) == {205: 10, 200: 11, 195: 11, 190: 11, 185: 11, 180: 11}
    assert "unsent" not in ticks.state


def test_a_writer_says_its_interval_and_that_it_ended(tmp_path: Path) -> None:
    from data_plane_fakes import SizedRows, Store

    from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient
    from fleetgauge.records import read

    now = [float(NOW - 200)]
    sink = JsonlEvents(f"{tmp_path}/", 10, job="ants", clock=lambda: now[0])
    client = MetricsDataPlaneClient(Store(), sink)
    client.put_samples(["a"], "p", fields=SizedRows({"x": 7}))
    now[0] += 11
    sink.advance()
    now[0] += 5
    sink.close()
    [path] = tmp_path.iterdir()
    words = [(one["event"], one["interval_s"]) for one in read(path) if "op" not in one]
    assert words == [("start", 10), ("stats", 10), ("end", 10)]
