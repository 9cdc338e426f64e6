"""Every point of what a job holds that ever leaves is the truth at its second, whoever writes and is late."""

from __future__ import annotations

import copy
import pickle
import tempfile
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.data_plane.collector import COLLECTOR
from common.metric import Mark, Sample
from common.span import Span
from fleetgauge.data_plane import DataPlaneEvent, JsonlEvents, MetricsDataPlaneClient, peers
from fleetgauge.data_plane.events import WRITES
from support.data_plane_fakes import PicklableStore, SizedRows
from support.data_plane_ticks import DataPlaneTicks, envelope
from support.xenna_ticks import NOW

HELD = {f"data_plane.{name}" for name in ("bytes_outstanding", "keys_outstanding", "peak_bytes_outstanding")}


class Sink(JsonlEvents):
    """Its words are put on disk by the test, one by one, and not by a thread."""

    begins = False

    def __call__(self, event: DataPlaneEvent) -> None:
        self.begins = event["op"] in WRITES and not self.wrote
        self.wrote = self.wrote or self.begins


class Process:
    """A process with a client, and its words that have not arrived yet."""

    def __init__(self, number: int, client: MetricsDataPlaneClient, sink: Sink) -> None:
        self.number, self.client, self.sink = number, client, sink
        self.lives = True
        self.late: list[dict[str, Any]] = []
        self.seqs = count()

    def speak(self, at: int, event: str = "stats") -> dict[str, Any]:
        word = envelope(next(self.seqs), NOW - at, None, event=event, run_id=f"r{self.number}")
        self.late.append(word | self.sink.held({"p"}))
        return self.late[-1]


def built(job: str, **promise: Any) -> tuple[MetricsDataPlaneClient, Sink]:
    sink = Sink("/nowhere/", job=job)
    return MetricsDataPlaneClient(PicklableStore(), sink, **promise), sink


class Job:
    """Processes of one job over one store, in which any client may put and clear any key.

    The one assumption: clients that are built apart, in processes that live at the same time, were told that
    they are not alone. A client that promises to be the only one that writes is. The store goes with the job.
    """

    def __init__(self, folder: Path, how: str, max_keys: int) -> None:
        self.ticks = DataPlaneTicks(folder)
        self.name, self.how = str(folder), how
        self.options: dict[str, Any] = {"max_keys": max_keys}
        if how in {"built apart", "others only read"}:
            self.options["alone"] = how == "others only read"
        self.now = NOW - 3000
        self.stored: dict[str, int] = {}
        self.truth: dict[int, tuple[int, int]] = {}  # bytes and keys by second
        self.known: set[int] = set()  # seconds at which a client that nothing is doubtful of spoke
        self.others_may_write = self.doubted = False
        self.processes: list[Process] = []
        for _ in range(2 if how in {"one process", "built apart"} else 1):
            self.first = self.join(*built(self.name, **self.options))

    def join(self, client: MetricsDataPlaneClient, sink: Sink) -> Process:
        self.leave_the_process()
        self.processes.append(Process(len(self.processes), client, sink))
        return self.processes[-1]

    def leave_the_process(self) -> None:
        """What is built from here on is in another one, and does not find what this one knows."""
        if self.how != "one process":
            peers.known.clear()

    def living(self) -> list[Process]:
        return [process for process in self.processes if process.lives]

    def one(self, number: int) -> Process:
        return self.living()[number % len(self.living())]

    def writing(self, number: int) -> Process | None:
        if self.how == "others only read":
            return self.first if self.first.lives else None
        return self.one(number)

    # What processes do

    def sent(self, what: Any) -> Any:
        """A copy of it, as another process has it."""
        self.others_may_write = True
        pickled = pickle.dumps(what)
        self.leave_the_process()
        return pickle.loads(pickled)  # noqa: S301  # our own bytes

    def spread(self, number: int, what: str) -> None:
        """Have another process with a copy, which reads; of a sink alone, each builds a client around it."""
        if len(self.living()) > 3:
            return
        process = self.one(number)
        if what == "client":
            client, sink = self.sent((process.client, process.sink))
        elif what == "fork":
            client, sink = forked(process)
        else:
            sink = self.sent(process.sink)
            client = MetricsDataPlaneClient(PicklableStore(), sink)
        client.get_samples(["0"], "p", ["x"])
        self.join(client, sink)

    def put(self, number: int, keys: list[int], size: int, late: set[int]) -> None:
        if process := self.writing(number):
            rows = SizedRows(*({"x": size + key} for key in keys))
            self.stored |= {str(key): size + key for key in keys}
            process.client.put_samples([str(key) for key in keys], "p", fields=rows)
            self.wrote(process, late)

    def clear(self, number: int, keys: list[int] | None, late: set[int]) -> None:
        if process := self.writing(number):
            ids = [str(key) for key in keys] if keys is not None else None
            self.stored = {
                key: size for key, size in self.stored.items() if ids is not None and key not in ids
            }
            process.client.clear_samples(ids, "p")
            self.wrote(process, late)

    def die(self, number: int, *, killed: bool) -> None:
        if len(self.living()) == 1:
            self.start_again()
            return
        process = self.one(number)
        if not killed:
            self.now += 1
            self.spoken(process, "end")
            process.sink.close()
        process.lives = False

    def start_again(self) -> None:
        """All are killed. A job that is started again has an empty store, and a first process."""
        self.leave_the_process()
        self.now += 1
        self.stored, self.others_may_write = {}, False
        for process in self.living():
            process.lives = False
        self.first = self.join(*built(self.name, **self.options))

    # What is told of it, and when it is read

    def wrote(self, process: Process, late: set[int]) -> None:
        """A sink tells of the first operation that writes at once, and all do at the end of the interval."""
        self.now += 1
        self.others_may_write = self.others_may_write or process is not self.first
        if process.sink.begins:
            self.spoken(process)
        self.now += 9
        for one in self.living():
            self.now += 1
            self.spoken(one)
        self.read(late)

    def spoken(self, process: Process, event: str = "stats") -> None:
        word = process.speak(self.now, event)
        self.truth[self.now] = (sum(self.stored.values()), len(self.stored))
        counted = process.client.snapshot()
        if not word["writes"]:
            return
        if (
            ((self.how == "one" and not self.others_may_write) or self.how == "others only read")
            and process is self.first
            and not counted["foreign_clears"] + counted["keys_overflowed"] + self.doubted
        ):
            self.known.add(self.now)
        else:
            self.doubted = True

    def read(self, late: set[int]) -> None:
        """A tick comes, and the files of some are late."""
        for process in self.processes:
            if process.late and process.number % 3 not in late:
                self.ticks.write(*process.late, to=f"{process.number}.jsonl")
                process.late = []
        self.ticks.now = self.now + 60
        self.ticks.tick()
        self.check(self.ticks.items)

    def check(self, items: list[Sample | Mark]) -> set[int]:
        found: dict[int, dict[str, float]] = {}
        for item in items:
            if isinstance(item, Sample) and item.metric.name in HELD:
                found.setdefault(item.timestamp, {})[item.metric.name] = item.value
        for at, values in found.items():
            n_bytes, n_keys = self.truth[at]
            assert values["data_plane.bytes_outstanding"] == n_bytes
            assert values["data_plane.keys_outstanding"] == n_keys
            assert values["data_plane.peak_bytes_outstanding"] >= n_bytes
        return set(found)

    def end(self) -> None:
        """All files have arrived: nothing that was known is absent, and a replay tells nothing else."""
        self.read(set())
        sent = {at for name, _, at in self.ticks.points if name == "data_plane.keys_outstanding"}
        assert sent >= self.known
        assert COLLECTOR.backfill
        self.ticks.state, self.ticks.now = {}, NOW + 100_000
        span = Span(NOW // 900 * 900 - 3600, NOW // 900 * 900 + 900, 900)
        assert self.check(list(COLLECTOR.backfill(self.ticks.context(), span)())) >= self.known


def forked(process: Process) -> tuple[MetricsDataPlaneClient, Sink]:
    """A child has all that its parent had, and shares a page of memory with it, until it is renewed."""
    client, sink, known = (copy_of(one) for one in (process.client, process.sink, process.sink.peers))
    client.on_event, sink.peers = sink, known
    sink.clients = type(sink.clients)({client: {}})
    for one in (client, sink, known):
        one.after_fork()
    return client, sink


def copy_of(one: Any) -> Any:
    """With the same attributes, as after a fork, without what pickling would do."""
    twin = object.__new__(type(one))
    twin.__dict__.update(
        {name: copy.copy(value) if isinstance(value, set) else value for name, value in vars(one).items()}
    )
    return twin


STEPS = {"put": 6, "clear": 3, "spread": 3, "end": 1, "be killed": 1}


def some_of(chance: Random, keys: list[int]) -> list[int]:
    return chance.sample(keys, chance.randint(1, len(keys)))


@pytest.mark.parametrize("how", ["one", "one process", "built apart", "others only read"])
@given(seed=st.integers(0, 2**32 - 1), max_keys=st.sampled_from([1000, 1000, 3]))
@settings(deadline=None, max_examples=50)
def test_a_figure_is_the_truth_or_absent(how: str, seed: int, max_keys: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), how, max_keys)
        for what in ["put", *chance.choices(list(STEPS), list(STEPS.values()), k=8)]:
            number, late = chance.randrange(4), chance.choice((set(), {0}, {1}, {1, 2}))
            stored = [int(key) for key in job.stored]
            if what == "put":
                job.put(number, some_of(chance, [0, 1, 2, 3, 4]), chance.randint(1, 9), late)
            elif what == "clear":  # mostly what is there
                cleared = some_of(chance, chance.choice((stored, stored, stored, [0, 1, 2, 3, 4])) or [0])
                job.clear(number, chance.choice((cleared, cleared, None)), late)
            elif what == "spread":
                job.spread(number, chance.choice(("client", "sink", "fork")))
            else:
                job.die(number, killed=what == "be killed")
        job.end()
        peers.known.clear()
