"""What a job holds is absent, whole, from when on its clients cannot know it; everything else is sent."""

from __future__ import annotations

import os
import pickle
import tempfile
from math import inf
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
    told: dict[str, Any] = {"foreign_clears": 0, "keys_overflowed": 0, "writers": 1, "interval_s": 10} | more
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
        word(ticks, 1, seq, ago, writers=0)
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
        word(ticks, 1, seq, ago, writers=0)
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


def test_where_all_jobs_are_added_up_one_that_is_unknown_makes_the_sum_unknown(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_job="false", tag_rank="false", aggregate_interval="10")
    for seq, ago in enumerate((200, 190, 180)):
        word(ticks, 0, seq, ago, foreign_clears=int(ago == 180))
        word(ticks, 2, seq, ago, job="bees")
    ticks.tick()
    assert the(ticks.points, "keys_outstanding") == {((), 200): 10, ((), 190): 10}
    assert the(ticks.points, "foreign_clears")[(), 180] == 1


def ago(ticks: DataPlaneTicks) -> set[float]:
    """When what is held was sent."""
    return {ago for _, ago in told(ticks, "bytes_outstanding")}


def test_from_when_on_a_second_client_writes_what_the_job_holds_is_unknown(ticks: DataPlaneTicks) -> None:
    for seq, when in enumerate((200, 190, 180, 170, 160)):
        word(ticks, 0, seq, when)
        word(ticks, 1, seq, when, writers=int(when <= 170))
        word(ticks, 2, seq, when, writers=0)
    ticks.tick()
    assert ago(ticks) == {200, 190, 180}


def test_two_clients_of_one_process_make_the_job_unknown(ticks: DataPlaneTicks) -> None:
    for seq, when in enumerate((200, 190, 180)):
        word(ticks, 0, seq, when, writers=1 + (when < 200))
    ticks.tick()
    assert ago(ticks) == {200}


@pytest.mark.parametrize(
    ("end", "begins", "known"), [(True, 189, True), (False, 169, False), (False, 159, True)]
)
def test_a_client_that_writes_once_another_is_gone_is_the_only_one(
    ticks: DataPlaneTicks, end: bool, begins: float, known: bool
) -> None:
    word(ticks, 0, 0, 200)
    word(ticks, 0, 1, 190, event="end" if end else "stats")
    word(ticks, 1, 0, begins, event="start")
    word(ticks, 1, 1, 100)
    ticks.tick()
    assert ago(ticks) == {200, 190} | ({begins, 100} if known else set())


def test_a_client_may_have_written_since_its_word_before(ticks: DataPlaneTicks) -> None:
    word(ticks, 0, 0, 200)
    word(ticks, 0, 1, 185, event="end")
    word(ticks, 1, 0, 190, event="start", writers=0)
    word(ticks, 1, 1, 180)
    ticks.tick()
    assert ago(ticks) == {200, 185}


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
    """A client and its words, of which the `late` ones are not on disk yet."""

    def __init__(self, number: int, client: MetricsDataPlaneClient) -> None:
        self.number, self.client = number, client
        self.sink = JsonlEvents("/nowhere/", 10.0)  # which opens no file before its first event
        self.sink.attach(client)
        self.late: list[dict[str, Any]] = []
        self.seq = 0
        self.last_word = self.told = 0
        self.state = "lives"

    def speak(self, at: int, event: str) -> None:
        self.late.append(envelope(self.seq, NOW - at, None, event=event, run_id=f"r{self.number}"))
        self.late[-1] |= self.sink.held({"p"})
        self.seq, self.last_word = self.seq + 1, at

    def counts_at(self, at: int) -> bool:
        return self.last_word + (30 if self.state == "killed" else 0) > at or self.state == "lives"


class Job(RuleBasedStateMachine):
    """Clients of one job over one store, in which anybody may put and clear any key.

    Time goes in intervals, at the end of which all that live speak. Figures are what the store then holds. It
    loses what a client has put when that ends, or has been killed and said nothing for three intervals.
    """

    @initialize(max_keys=st.sampled_from([3, 1000, 1000]), one_writes=st.booleans(), n=st.integers(1, 3))
    def build(self, max_keys: int, one_writes: bool, n: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.one_writes = one_writes
        self.now = NOW - 3000
        self.stored: dict[str, tuple[int, Writer]] = {}
        self.truth: dict[int, int] = {}
        self.written: list[int] = []  # when writers began to
        self.ticks = DataPlaneTicks(Path(self.folder.name))
        clients = [MetricsDataPlaneClient(PicklableStore(), max_keys=max_keys) for _ in range(n)]
        self.writers = [Writer(number, client) for number, client in enumerate(clients)]

    def living(self, number: int) -> Writer | None:
        writer = self.writers[number % len(self.writers)]
        return writer if writer.state == "lives" else None

    def writing(self, number: int) -> Writer | None:
        return self.living(0 if self.one_writes else number)

    def wrote(self, writer: Writer) -> None:
        """A sink tells of the first operation that writes at once."""
        if not writer.sink.wrote:
            writer.sink.wrote = True
            self.written.append(self.now + 1)
            self.speak(writer, self.now + 1, "stats")

    def speak(self, writer: Writer, at: int, event: str) -> None:
        writer.speak(at, event)
        self.truth[at] = sum(size for size, _ in self.stored.values())
        writer.told = sum(size for size, of in self.stored.values() if of is writer)

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
        if writer := self.writing(number):
            sizes = [1 + key for key in keys]
            ids = [str(key) for key in keys]
            writer.client.put_samples(ids, "p", fields=SizedRows(*({"x": size} for size in sizes)))
            self.stored |= {key: (size, writer) for key, size in zip(ids, sizes, strict=True)}
            self.wrote(writer)

    @rule(number=numbers, keys=st.none() | some_keys)
    def clear(self, number: int, keys: list[int] | None) -> None:
        if writer := self.writing(number):
            ids = [str(key) for key in keys] if keys is not None else None
            writer.client.clear_samples(ids, "p")
            self.stored = {key: row for key, row in self.stored.items() if ids is not None and key not in ids}
            self.wrote(writer)

    @rule(number=numbers)
    def kill(self, number: int) -> None:
        if (writer := self.living(number)) and sum(one.state == "lives" for one in self.writers) > 1:
            self.stored = {key: row for key, row in self.stored.items() if row[1] is not writer}
            self.stored |= {f"killed {writer.number}": (writer.told, writer)}
            writer.state = "killed"

    @rule(ending=st.sets(numbers, max_size=1), late=st.sets(numbers, max_size=2), tick=st.booleans())
    def let_an_interval_pass(self, ending: set[int], late: set[int], tick: bool) -> None:
        self.now += 10
        self.stored = {key: row for key, row in self.stored.items() if row[1].counts_at(self.now)}
        for writer in self.writers:
            if writer.state == "lives":
                writer.state = "ended" if writer.number in ending else "lives"
                self.speak(writer, self.now, "end" if writer.state == "ended" else "stats")
        # What was sent cannot be taken back: where several write, nobody is late.
        self.write(late if self.one_writes else set())
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
        writer = self.writers[0]
        snapshot = writer.client.snapshot()
        if self.one_writes and not snapshot["keys_overflowed"] + snapshot["foreign_clears"]:
            stands = writer.last_word + (29 if writer.state == "killed" else 0)
            since = min(self.written, default=inf)
            assert found == {at: n for at, n in self.truth.items() if since <= at <= stands}

    def teardown(self) -> None:
        if hasattr(self, "ticks"):
            try:
                self.write(set())
                self.read()
            finally:
                self.folder.cleanup()


TestJob = Job.TestCase
TestJob.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
