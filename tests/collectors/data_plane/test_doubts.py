"""What a job holds is absent, whole, from when on its clients cannot know it; everything else is sent."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from data_plane_fakes import PicklableStore, SizedRows
from data_plane_ticks import DataPlaneTicks, envelope, held, the
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from xenna_ticks import NOW

from collectors.data_plane.collector import COLLECTOR
from common.metric import Mark
from common.span import Span
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient

FIGURES = ("bytes_outstanding", "peak_bytes_outstanding", "keys_outstanding")


@pytest.fixture
def ticks(tmp_path: Path) -> DataPlaneTicks:
    return DataPlaneTicks(tmp_path)


def word(ticks: DataPlaneTicks, rank: int, seq: int, ago: float, **more: Any) -> None:
    told: dict[str, Any] = {"foreign_clears": 0, "keys_overflowed": 0, "clears": 1, "interval_s": 10} | more
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
        word(ticks, 1, seq, ago)
        word(ticks, 2, seq, ago, job="bees")
    ticks.tick()
    for name in FIGURES:
        assert set(told(ticks, name)) == {
            *((rank, ago) for rank in ("rank:0", "rank:1") for ago in (200, 190)),
            *(("rank:2", ago) for ago in (200, 190, 180, 170)),
        }
    assert told(ticks, why)["rank:0", 170] == 7
    assert told(ticks, why)["rank:1", 170] == 0


def test_a_replay_leaves_out_what_live_ticks_left_out(ticks: DataPlaneTicks) -> None:
    for seq, ago in enumerate((400, 390, 380, 370)):
        word(ticks, 0, seq, ago, foreign_clears=seq)
        word(ticks, 1, seq, ago)
    ticks.tick()
    assert COLLECTOR.backfill
    ticks.now, ticks.state = NOW + 100_000, {}
    start = NOW // 900 * 900 - 900
    items = COLLECTOR.backfill(ticks.context(), Span(start, start + 1800, 900))()
    replayed = {
        (item.metric.name, item.tags, item.timestamp): item.value
        for item in items
        if not isinstance(item, Mark)
    }
    assert replayed == {key: value for key, value in ticks.points.items() if ".ingest." not in key[0]}
    assert {ago for _, ago in told(ticks, "bytes_outstanding")} == {400}


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


def test_where_all_jobs_are_added_up_one_that_is_unknown_makes_the_sum_unknown(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_job="false", tag_rank="false", aggregate_interval="10")
    for seq, ago in enumerate((200, 190, 180)):
        word(ticks, 0, seq, ago, foreign_clears=int(ago == 180))
        word(ticks, 2, seq, ago, job="bees")
    ticks.tick()
    assert the(ticks.points, "keys_outstanding") == {((), 200): 10, ((), 190): 10}
    assert the(ticks.points, "foreign_clears")[(), 180] == 1


def test_a_client_that_only_puts_beside_one_that_clears_makes_the_job_unknown_until_it_clears_too(
    ticks: DataPlaneTicks,
) -> None:
    for seq, ago in enumerate((200, 190, 180, 170, 160)):
        word(ticks, 0, seq, ago, clears=int(ago <= 190))
        word(ticks, 1, seq, ago, clears=int(ago <= 170))
        word(ticks, 2, seq, ago, clears=0, keys_outstanding=0)
    ticks.tick()
    assert {ago for _, ago in told(ticks, "bytes_outstanding")} == {200, 170, 160}


def test_a_sink_without_a_client_is_no_figure_and_no_bad_record(ticks: DataPlaneTicks) -> None:
    bare: dict[str, Any] = {"source": "s", "interval_s": 10}
    ticks.write(envelope(0, 200, event="start", **bare), envelope(1, 190, event="end", **bare))
    ticks.tick()
    assert not [key for name in FIGURES for key in told(ticks, name)]
    assert ticks.tally.dropped == {}


def test_records_of_before_these_counts_were_told_are_added_up_as_ever(ticks: DataPlaneTicks) -> None:
    ticks.write(held(0, 200, {"p": 1}), held(0, 200, {"p": 2}, rank=1, run_id="r"))
    ticks.tick()
    assert told(ticks, "bytes_outstanding") == {("rank:0", 200): 1, ("rank:1", 200): 2}
    assert told(ticks, "foreign_clears") == told(ticks, "keys_overflowed") == {}


@pytest.mark.parametrize("bad", [-1, "many", 1.5, None])
def test_a_count_that_is_none_costs_its_record(ticks: DataPlaneTicks, bad: object) -> None:
    word(ticks, 0, 0, 200, foreign_clears=bad)
    word(ticks, 0, 1, 190)
    ticks.tick()
    assert ticks.tally.dropped == {"bad_body": 1}
    assert set(told(ticks, "bytes_outstanding")) == {("rank:0", 190)}


numbers = st.integers(0, 4)
some_keys = st.lists(st.integers(0, 4), min_size=1, unique=True)


class Writer:
    """A client, its own keys in the store, and its words, of which the `late` ones are not on disk yet."""

    def __init__(self, number: int, client: MetricsDataPlaneClient) -> None:
        self.number, self.client = number, client
        self.sink = JsonlEvents("/nowhere/", 10.0)  # which opens no file before its first event
        self.sink.attach(client)
        self.stored: dict[str, int] = {}
        self.told: dict[str, int] | None = None  # what was stored at its last word
        self.late: list[dict[str, Any]] = []
        self.seq = 0
        self.last_word = 0
        self.state = "lives"

    def speak(self, at: int, event: str) -> None:
        self.late.append(envelope(self.seq, NOW - at, None, event=event, run_id=f"r{self.number}"))
        self.late[-1] |= self.sink.held({"p"})
        self.seq, self.last_word, self.told = self.seq + 1, at, dict(self.stored)

    def told_at(self, at: int) -> int:
        stands = self.last_word == at if self.state == "ended" else self.last_word + 30 > at
        return sum(self.told.values()) if self.told is not None and stands else 0


class Job(RuleBasedStateMachine):
    """Clients of one job over one store. Their keys are their own to put; anybody may clear any of them.

    Time goes in intervals, at the end of which all that live speak. Of what the store then holds, figures are
    the truth, but for one that was killed: it counts as it last spoke, for three intervals.
    """

    @initialize(
        max_keys=st.sampled_from([3, 1000, 1000]), own_keys_only=st.booleans(), n_writers=st.integers(1, 3)
    )
    def build(self, max_keys: int, own_keys_only: bool, n_writers: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.own_keys_only = own_keys_only
        self.now = NOW - 3000
        self.truth: dict[int, int] = {}
        self.known: set[int] = set()
        self.ticks = DataPlaneTicks(Path(self.folder.name))
        clients = [MetricsDataPlaneClient(PicklableStore(), max_keys=max_keys) for _ in range(n_writers)]
        self.writers = [Writer(number, client) for number, client in enumerate(clients)]

    def living(self, number: int) -> Writer | None:
        writer = self.writers[number % len(self.writers)]
        return writer if writer.state == "lives" else None

    def join(self, client: MetricsDataPlaneClient) -> None:
        if len(self.writers) < 5:
            self.writers.append(Writer(len(self.writers), client))

    @rule(number=numbers)
    def send_a_copy(self, number: int) -> None:
        if writer := self.living(number):
            self.join(pickle.loads(pickle.dumps(writer.client)))  # noqa: S301  # our own bytes

    @rule(number=numbers)
    def fork(self, number: int) -> None:
        """A child has all that its parent had, until it is renewed."""
        if writer := self.living(number):
            child = MetricsDataPlaneClient.__new__(MetricsDataPlaneClient)
            child.__dict__.update(writer.client.__dict__)
            child.after_fork()
            self.join(child)

    @rule(number=numbers, keys=some_keys)
    def put(self, number: int, keys: list[int]) -> None:
        if writer := self.living(number):
            sizes = {f"{writer.number}-{key}": 1 + key for key in keys}
            writer.client.put_samples(list(sizes), "p", fields=SizedRows(*({"x": n} for n in sizes.values())))
            writer.stored |= sizes

    @rule(number=numbers, of=numbers, keys=some_keys)
    def clear(self, number: int, of: int, keys: list[int]) -> None:
        if writer := self.living(number):
            other = writer if self.own_keys_only else self.writers[of % len(self.writers)]
            ids = [f"{other.number}-{key}" for key in keys]
            writer.client.clear_samples(ids, "p")
            other.stored = {key: size for key, size in other.stored.items() if key not in ids}

    @rule(number=numbers)
    def kill(self, number: int) -> None:
        if (writer := self.living(number)) and sum(one.state == "lives" for one in self.writers) > 1:
            writer.state = "killed"

    @rule(ending=st.sets(numbers, max_size=1), late=st.sets(numbers, max_size=2), tick=st.booleans())
    def let_an_interval_pass(self, ending: set[int], late: set[int], tick: bool) -> None:
        self.now += 10
        for writer in self.writers:
            if writer.state == "lives":
                writer.state = "ended" if writer.number in ending else "lives"
                writer.speak(self.now, "end" if writer.state == "ended" else "stats")
        self.truth[self.now] = sum(writer.told_at(self.now) for writer in self.writers)
        # What was sent cannot be taken back: where keys of others are cleared, nobody is late.
        self.write(late if self.own_keys_only else set())
        if tick:
            self.read()

    def write(self, late: set[int]) -> None:
        for writer in self.writers:
            if writer.number not in late:
                self.ticks.write(*writer.late, to=f"{writer.number}.jsonl")
                writer.late = []

    def read(self) -> None:
        self.ticks.now = self.now + 60
        self.ticks.tick()
        if not any(writer.late for writer in self.writers):
            self.check()

    def check(self) -> None:
        sent = the(self.ticks.points, "bytes_outstanding")
        found = {NOW - ago: value for (_, ago), value in sent.items()}
        assert found == {at: self.truth[at] for at in found}
        known = {NOW - ago for _, ago in the(self.ticks.points, "keys_outstanding")}
        assert known == set(found)
        snapshot = self.writers[0].client.snapshot()
        if len(self.writers) == 1 and not snapshot["keys_overflowed"] + snapshot["foreign_clears"]:
            assert found == {at: n for at, n in self.truth.items() if at <= self.writers[0].last_word}

    def teardown(self) -> None:
        if hasattr(self, "ticks"):
            try:
                self.write(set())
                self.read()
            finally:
                self.folder.cleanup()


TestJob = Job.TestCase
TestJob.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
