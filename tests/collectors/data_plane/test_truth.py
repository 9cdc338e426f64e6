"""Every point of what a job holds that ever leaves is the truth at its second, whoever writes and is late."""

from __future__ import annotations

import copy
import pickle
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from data_plane_fakes import PicklableStore, SizedRows
from data_plane_ticks import DataPlaneTicks, envelope
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from xenna_ticks import NOW

from collectors.data_plane.collector import COLLECTOR
from common.metric import Mark, Sample
from common.span import Span
from fleetgauge.data_plane import DataPlaneEvent, JsonlEvents, MetricsDataPlaneClient, peers
from fleetgauge.data_plane.events import WRITES

numbers = st.integers(0, 4)
some_keys = st.lists(st.integers(0, 4), min_size=1, unique=True)
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


class Job(RuleBasedStateMachine):
    """Processes of one job over one store, in which any client may put and clear any key.

    The one assumption: clients that are built apart, in processes that live at the same time, were told that
    they are not alone. A client that promises to be the only one that writes is. The store goes with the job.
    """

    jobs = count()

    @initialize(
        how=st.sampled_from(["one", "one process", "built apart", "others only read"]),
        max_keys=st.sampled_from([3, 1000, 1000]),
        n=st.integers(2, 3),
    )
    def build(self, how: str, max_keys: int, n: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ticks = DataPlaneTicks(Path(self.folder.name))
        self.name, self.how = f"job-{next(self.jobs)}", how
        self.options: dict[str, Any] = {"max_keys": max_keys}
        if how in {"built apart", "others only read"}:
            self.options["alone"] = how == "others only read"
        self.now = NOW - 3000
        self.stored: dict[str, int] = {}
        self.n_started = 0
        self.truth: dict[int, tuple[int, int]] = {}  # bytes and keys by second
        self.known: set[int] = set()  # seconds at which a client that nothing is doubtful of spoke
        self.ever_copied = False
        self.processes: list[Process] = []
        for _ in range(n if how in {"one process", "built apart"} else 1):
            self.join(*built(self.name, **self.options))

    def join(self, client: MetricsDataPlaneClient, sink: Sink) -> None:
        self.leave_the_process()
        self.n_started += 1
        if len(self.living()) < 5:
            self.processes.append(Process(self.n_started, client, sink))

    def leave_the_process(self) -> None:
        """What is built from here on is in another one, and does not find what this one knows."""
        if self.how != "one process":
            peers._known.clear()

    def living(self) -> list[Process]:
        return [process for process in self.processes if process.lives]

    def one(self, number: int) -> Process | None:
        living = self.living()
        return living[number % len(living)] if living else None

    def writing(self, number: int) -> Process | None:
        if self.how == "others only read":
            first = self.processes[0]
            return first if first.lives else None
        return self.one(number)

    # What processes do

    def sent(self, what: Any) -> Any:
        """A copy of it, as another process has it."""
        self.ever_copied = True
        pickled = pickle.dumps(what)
        self.leave_the_process()
        return pickle.loads(pickled)  # noqa: S301  # our own bytes

    @rule(number=numbers)
    def send_a_copy(self, number: int) -> None:
        if process := self.one(number):
            client, sink = self.sent((process.client, process.sink))
            self.join(client, sink)

    @rule(number=numbers)
    def send_its_sink(self, number: int) -> None:
        """As NeMo-RL's configuration does: each process builds a client around a copy."""
        if (process := self.one(number)) and self.how != "others only read":
            sink = self.sent(process.sink)
            self.join(MetricsDataPlaneClient(PicklableStore(), sink), sink)

    @rule(number=numbers)
    def fork(self, number: int) -> None:
        """A child has all that its parent had, and shares a page of memory with it, until it is renewed."""
        if process := self.one(number):
            client, sink = (copy_of(one) for one in (process.client, process.sink))
            sink._peers = copy_of(process.sink._peers)
            client._on_event = sink
            sink._clients = type(sink._clients)({client: {}})
            for one in (client, sink, sink._peers):
                one.after_fork()
            self.join(client, sink)

    @rule(number=numbers, keys=some_keys, size=st.integers(1, 9))
    def put(self, number: int, keys: list[int], size: int) -> None:
        if process := self.writing(number):
            rows = SizedRows(*({"x": size + key} for key in keys))
            self.stored |= {str(key): size + key for key in keys}
            process.client.put_samples([str(key) for key in keys], "p", fields=rows)
            self.wrote(process)

    @rule(number=numbers, keys=st.none() | some_keys)
    def clear(self, number: int, keys: list[int] | None) -> None:
        if process := self.writing(number):
            ids = [str(key) for key in keys] if keys is not None else None
            self.stored = {
                key: size for key, size in self.stored.items() if ids is not None and key not in ids
            }
            process.client.clear_samples(ids, "p")
            self.wrote(process)

    @rule(number=numbers)
    def read(self, number: int) -> None:
        if process := self.one(number):
            process.client.get_samples(["0"], "p", ["x"])

    @rule(number=numbers)
    def kill(self, number: int) -> None:
        if process := self.one(number):
            process.lives = False

    @rule(number=numbers)
    def end(self, number: int) -> None:
        if process := self.one(number):
            self.now += 1
            self.spoken(process, "end")
            process.lives = False
            process.sink.close()

    @rule()
    def start_again(self) -> None:
        """A job that is started again has an empty store, and a first process."""
        if not self.living() and self.how in {"one", "others only read"}:
            self.now += 1
            self.stored, self.ever_copied = {}, False
            self.processes = [one for one in self.processes if one.late]
            self.leave_the_process()
            self.n_started += 1
            self.processes.insert(0, Process(self.n_started, *built(self.name, **self.options)))

    # What is told of it, and when it is read

    def wrote(self, process: Process) -> None:
        """A sink tells of the first operation that writes at once."""
        self.now += 1
        if process.sink.begins:
            self.spoken(process)

    def spoken(self, process: Process, event: str = "stats") -> None:
        word = process.speak(self.now, event)
        self.truth[self.now] = (sum(self.stored.values()), len(self.stored))
        counted = process.client.snapshot()
        if (
            ((self.how == "one" and not self.ever_copied) or self.how == "others only read")
            and process is self.processes[0]
            and word["writes"]
            and not counted["foreign_clears"] + counted["keys_overflowed"]
        ):
            self.known.add(self.now)

    @rule()
    def let_an_interval_pass(self) -> None:
        self.now += 9
        for process in self.living():
            self.now += 1
            self.spoken(process)

    @rule(number=numbers)
    def arrive(self, number: int) -> None:
        if late := [process for process in self.processes if process.late]:
            process = late[number % len(late)]
            self.ticks.write(*process.late, to=f"{process.number}.jsonl")
            process.late = []

    @rule()
    def tick(self) -> None:
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

    def teardown(self) -> None:
        if not hasattr(self, "ticks"):
            return
        try:
            for number in range(len(self.processes)):
                self.arrive(number)
            self.tick()
            sent = {at for name, _, at in self.ticks.points if name == "data_plane.keys_outstanding"}
            assert sent >= self.known, "a figure is absent that was known"
            assert COLLECTOR.backfill
            self.ticks.state, self.ticks.now = {}, NOW + 100_000
            replay = COLLECTOR.backfill(
                self.ticks.context(), Span(NOW // 900 * 900 - 3600, NOW // 900 * 900 + 900, 900)
            )
            assert self.check(list(replay())) >= self.known
        finally:
            peers._known.clear()
            self.folder.cleanup()


def copy_of(one: Any) -> Any:
    """With the same attributes, as after a fork, without what pickling would do."""
    twin = object.__new__(type(one))
    twin.__dict__.update(
        {name: copy.copy(value) if isinstance(value, set) else value for name, value in vars(one).items()}
    )
    return twin


TestJob = Job.TestCase
TestJob.settings = settings(deadline=None, max_examples=80, stateful_step_count=25)
