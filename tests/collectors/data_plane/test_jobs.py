"""What a job holds is absent, whole, from when on its clients cannot know it; everything else is sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from collectors.data_plane.collector import COLLECTOR
from common.metric import Mark
from common.span import Span
from support.data_plane_ticks import DataPlaneTicks, envelope, held, the
from support.xenna_ticks import NOW

FIGURES = ("bytes_outstanding", "peak_bytes_outstanding", "keys_outstanding")


@pytest.fixture
def ticks(tmp_path: Path) -> DataPlaneTicks:
    return DataPlaneTicks(tmp_path)


def word(ticks: DataPlaneTicks, rank: int, seq: int, ago: float, **more: Any) -> None:
    told: dict[str, Any] = {"foreign_clears": 0, "keys_overflowed": 0} | more
    job = told.get("job", "ants")
    run = {"run_id": f"{job}-{rank}", "source": f"{job}-{rank}"}
    ticks.write(held(seq, ago, {"p": 100}, rank, **(run | told)), to=f"{job}-{rank}.jsonl")


def told(ticks: DataPlaneTicks, name: str) -> dict[tuple[str, float], float]:
    """By rank and seconds ago."""
    return {(tags[-1], ago): value for (tags, ago), value in the(ticks.points, name).items()}


@pytest.mark.parametrize("why", ["foreign_clears", "keys_overflowed"])
def test_once_one_client_cannot_know_no_figure_of_its_whole_job_is_sent(
    ticks: DataPlaneTicks, why: str
) -> None:
    for seq, ago in enumerate((200, 190, 180, 170)):
        word(ticks, 0, seq, ago, **{why: 7 if ago <= 180 else 0})
        word(ticks, 1, seq, ago, writes=False)
        word(ticks, 2, seq, ago, job="bees")
    ticks.tick()
    for name in FIGURES:
        assert set(told(ticks, name)) == {
            *(("rank:0", ago) for ago in (200, 190)),
            *(("rank:2", ago) for ago in (200, 190, 180, 170)),
        }
    assert told(ticks, why)["rank:0", 170] == 7
    assert told(ticks, why)["rank:1", 170] == 0


def replayed(ticks: DataPlaneTicks) -> dict[tuple[str, tuple[str, ...], int], float]:
    """What a backfill of the last quarter of an hour and the one under way sends, much later."""
    assert COLLECTOR.backfill
    ticks.now, ticks.state = NOW + 100_000, {}
    start = NOW // 900 * 900 - 900
    items = COLLECTOR.backfill(ticks.context(), Span(start, start + 1800, 900))()
    return {
        (item.metric.name, item.tags, item.timestamp): item.value
        for item in items
        if not isinstance(item, Mark)
    }


def test_a_replay_leaves_out_what_live_ticks_left_out(ticks: DataPlaneTicks) -> None:
    for seq, ago in enumerate((400, 390, 380, 370)):
        word(ticks, 0, seq, ago, foreign_clears=seq)
        word(ticks, 1, seq, ago, writes=False)
    ticks.tick()
    assert {ago for _, ago in told(ticks, "bytes_outstanding")} == {400}
    assert replayed(ticks) == {key: value for key, value in ticks.points.items() if ".ingest." not in key[0]}


@pytest.mark.parametrize("silent", [False, True])
def test_a_replay_knows_of_a_client_that_ended_hours_before_it_begins(
    ticks: DataPlaneTicks, silent: bool
) -> None:
    """Unless the job has been silent since, and begins anew."""
    word(ticks, 0, 0, 20_000, foreign_clears=1, event="end")
    os.utime(ticks.path / "ants-0.jsonl", (NOW - 20_000, NOW - 20_000))
    for seq in range(1900 if silent else 0, 1980):
        word(ticks, 1, seq, 20_000 - 10 * seq)
    sent = {at for name, _, at in replayed(ticks) if name == "data_plane.keys_outstanding"}
    assert sent == ({NOW - 20_000 + 10 * seq for seq in range(1900, 1980)} if silent else set())


def test_a_job_stays_unknown_when_the_client_that_cleared_has_ended(ticks: DataPlaneTicks) -> None:
    word(ticks, 0, 0, 3000, foreign_clears=1)
    word(ticks, 0, 1, 2990, foreign_clears=1, event="end")
    for step in range(4):
        for seq in range(60):
            word(ticks, 1, 60 * step + seq, 3000 - 600 * step - 10 * seq)
        ticks.now = NOW - 2400 + 600 * step + 100
        ticks.tick()
    assert told(ticks, "bytes_outstanding") == {}
    assert told(ticks, "foreign_clears")["rank:0", 2990] == 1


def test_a_job_that_has_been_silent_for_long_begins_anew(ticks: DataPlaneTicks) -> None:
    word(ticks, 0, 0, 8000, foreign_clears=1)
    ticks.now = NOW - 7900
    ticks.tick()
    ticks.now = NOW
    word(ticks, 1, 0, 200)
    ticks.tick()
    assert told(ticks, "bytes_outstanding") == {("rank:1", 200): 100}


def ago(ticks: DataPlaneTicks) -> set[float]:
    """When what is held was sent."""
    return {ago for _, ago in told(ticks, "bytes_outstanding")}


def test_from_when_on_a_second_client_writes_what_the_job_holds_is_unknown(ticks: DataPlaneTicks) -> None:
    for seq, when in enumerate((200, 190, 180, 170, 160)):
        word(ticks, 0, seq, when)
        word(ticks, 1, seq, when, writes=when <= 170)
        word(ticks, 2, seq, when, writes=False)
    ticks.tick()
    assert ago(ticks) == {200, 190, 180}


def test_two_clients_of_one_process_make_the_job_unknown(ticks: DataPlaneTicks) -> None:
    for seq, when in enumerate((200, 190, 180)):
        word(ticks, 0, seq, when, unknown="several" * (when < 200))
    ticks.tick()
    assert ago(ticks) == {200}


@pytest.mark.parametrize(("begins", "known"), [(191, False), (189, True)])
def test_a_client_that_writes_once_another_is_gone_is_the_only_one(
    ticks: DataPlaneTicks, begins: float, known: bool
) -> None:
    """As in a job that is started again, whether the first was ended or killed."""
    word(ticks, 0, 0, 200)
    word(ticks, 0, 1, 190)
    word(ticks, 1, 0, begins, event="start")
    word(ticks, 1, 1, 100)
    ticks.tick()
    assert ago(ticks) == {200} | ({190, begins, 100} if known else set())


def test_a_source_that_goes_on_in_another_run_is_no_second_client(ticks: DataPlaneTicks) -> None:
    word(ticks, 0, 0, 200, source="s", event="end")
    word(ticks, 1, 0, 190, source="s")
    word(ticks, 0, 1, 180, source="s")
    ticks.tick()
    assert ago(ticks) == {200, 190, 180}


def test_a_copy_that_writes_takes_back_the_promise_that_it_would_not(ticks: DataPlaneTicks) -> None:
    for seq, when in enumerate((200, 190, 180)):
        word(ticks, 0, seq, when)
    word(ticks, 1, 0, 185, unknown="it is a copy")
    ticks.tick()
    assert ago(ticks) == {200, 190}


def test_a_reader_that_was_away_for_hours_still_knows_of_a_doubt(ticks: DataPlaneTicks) -> None:
    word(ticks, 0, 0, 20_000, foreign_clears=1, event="end")
    word(ticks, 1, 0, 20_000)
    ticks.now = NOW - 19_900
    ticks.tick()
    for seq in range(1, 1990):
        word(ticks, 1, seq, 20_000 - 10 * seq)
    ticks.now = NOW
    ticks.tick()
    assert ago(ticks) == set()


def test_a_sink_without_a_client_is_no_figure_and_no_bad_record(ticks: DataPlaneTicks) -> None:
    bare: dict[str, Any] = {"source": "s", "interval_s": 10}
    ticks.write(envelope(0, 200, event="start", **bare), envelope(1, 190, event="end", **bare))
    ticks.tick()
    assert not [key for name in FIGURES for key in told(ticks, name)]
    assert ticks.tally.dropped == {}


def test_a_record_without_a_proof_is_no_figure(ticks: DataPlaneTicks) -> None:
    """As one of 0.1.0, of a client that only reads, or of one that says why it cannot know."""
    bare = held(0, 200, {"p": 1}, job="a")
    del bare["unknown"], bare["writes"]
    ticks.write(bare, held(1, 190, {"p": 1}, job="b", writes=False))
    ticks.write(held(2, 180, {"p": 1}, job="c", unknown="copied"), held(3, 170, {"p": 1}, job="d"))
    ticks.tick()
    assert ago(ticks) == {170}
    assert told(ticks, "foreign_clears") == told(ticks, "keys_overflowed") == {}
    assert ticks.tally.dropped == {}


@pytest.mark.parametrize("bad", [-1, "many", 1.5, None])
def test_a_count_that_is_none_costs_its_record(ticks: DataPlaneTicks, bad: object) -> None:
    word(ticks, 0, 0, 200, foreign_clears=bad)
    word(ticks, 0, 1, 190)
    ticks.tick()
    assert ticks.tally.dropped == {"bad_body": 1}
    assert set(told(ticks, "bytes_outstanding")) == {("rank:0", 190)}
