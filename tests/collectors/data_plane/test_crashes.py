"""From the wrapped client to the intake: wherever the collector is killed, the intake ends with the truth."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient
from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from support.data_plane_fakes import SizedRows, Store
from support.project import ROOT
from support.record_crashes import case, case_in_s3, finish, harness_of
from support.servers.aws import Aws
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow

N_RANKS = 8
AGO = 3000  # seconds, so that every point stays within the hour that the intake takes

Round = tuple[list[tuple[int, str, list[int], bool]], Kill]
Truth = dict[tuple[str, tuple[str, ...], int], float]  # by metric, tags and second
TAGS = ("env:test", "service:fleetgauge")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    with harness_of("data_plane", tmp_path_factory, MAX_CELLS="3") as harness:
        yield harness


def known(intake: Intake, *names: str) -> Truth:
    """What the intake holds of some metrics."""
    return {
        (name, tuple(tag for tag in tags if tag not in TAGS and not tag.startswith("job:")), second): value
        for name in names
        for (tags, _), points in intake.series(f"data_plane.{name}").items()
        for second, value in points.items()
    }


class Ranks:
    """Ranks that put rows in turn, and what a dashboard must show of it in the end.

    Each is the only one of a job of its own: what a job with several writers holds is not known.
    """

    def __init__(self, folder: Path, *, tag_rank: bool) -> None:
        self.now = int(time.time()) // 60 * 60 - AGO
        self.counts: Counter[tuple[str, tuple[str, ...], int]] = Counter()
        self.held: dict[tuple[int, int], dict[str, int]] = {}  # by time and rank
        self._tag_rank = tag_rank
        self._at_work: set[int] = set()
        self._store = [Store() for _ in range(N_RANKS)]
        self._sinks = [
            JsonlEvents(f"{folder}/", 10, job=f"ants-{rank}", rank=rank, clock=lambda: self.now)
            for rank in range(N_RANKS)
        ]
        self._clients = [
            MetricsDataPlaneClient(store, sink, alone=True)
            for store, sink in zip(self._store, self._sinks, strict=True)
        ]

    def work(self, rank: int, partition_id: str, sizes: list[int], *, fails: bool) -> None:
        """Put a row of each size; a call that fails moves nothing that counts."""
        store, client = self._store[rank], self._clients[rank]
        self._at_work.add(rank)
        for place, size in enumerate(sizes):
            if fails and place == 0:
                store.error = OSError("gone")
                with pytest.raises(OSError, match="gone"):
                    client.get_samples(["a"], partition_id, ["x"])
                store.error = None
                self._count("get", rank, partition_id, errors=1)
            client.put_samples([f"{self.now}-{place}"], partition_id, fields=SizedRows({"x": size}))
            self._count("put", rank, partition_id, ops=1, keys=1, bytes=size)

    def _count(self, op: str, rank: int, partition_id: str, **more: int) -> None:
        for name in ("ops", "errors", "keys", "bytes"):
            self.counts[name, self._tags(rank, f"op:{op}", f"partition_id:{partition_id}"), self._at()] += (
                more.get(name, 0)
            )

    def _tags(self, rank: int, *tags: str) -> tuple[str, ...]:
        return (*tags, f"rank:{rank}") if self._tag_rank else tags

    def _at(self) -> int:
        return self.now if self._tag_rank else self.now // 60 * 60

    def write(self) -> None:
        """Let all records reach the disk, stamped with the time it is, and go on to a later time."""
        for sink in self._sinks:
            sink.close()
        for rank in self._at_work:  # the others have been closed already
            self.held[self.now, rank] = self._store[rank].bytes_by_partition()
        self._at_work.clear()
        self.now += 7

    def truth(self) -> Truth:
        held = {
            ("bytes_outstanding", self._tags(rank, f"partition_id:{partition_id}"), at): n_bytes
            for (at, rank), by_partition in self.held.items()
            for partition_id, n_bytes in by_partition.items()
            if self._tag_rank  # and job: what jobs hold is not added up
        }
        return {**self.counts, **held}


ROUND = st.tuples(
    st.lists(
        st.tuples(
            st.integers(0, N_RANKS - 1),
            st.sampled_from(["p", "q"]),
            st.lists(st.integers(0, 99), min_size=1, max_size=4),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
    st.builds(Kill, st.sampled_from(AT_THE_INTAKE + AT_THE_STORE), st.integers(1, 2)),
)


FEW = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # making a failure smaller takes minutes
    suppress_health_check=list(HealthCheck),
)


@FEW
@given(rounds=st.lists(ROUND, min_size=4, max_size=7), tag_rank=st.booleans())
def test_the_intake_ends_with_what_the_clients_did(
    shared: CrashHarness, rounds: list[Round], tag_rank: bool
) -> None:
    with case(shared, tag_rank=str(tag_rank), tag_job=str(tag_rank)) as (folder, intake):
        ranks = Ranks(folder, tag_rank=tag_rank)
        be_killed(shared, ranks, rounds, lambda: None)
        assert known(intake, "ops", "errors", "keys", "bytes", "bytes_outstanding") == ranks.truth()


@settings(FEW, max_examples=2)
@given(rounds=st.lists(ROUND, min_size=3, max_size=4), tag_rank=st.booleans())
def test_the_intake_ends_with_what_the_clients_did_in_s3(
    shared: CrashHarness, aws: Aws, rounds: list[Round], tag_rank: bool
) -> None:
    tags = {"tag_rank": str(tag_rank), "tag_job": str(tag_rank)}
    with case_in_s3(shared, aws, **tags) as (folder, intake, upload):
        ranks = Ranks(folder, tag_rank=tag_rank)
        be_killed(shared, ranks, rounds, upload)
        assert known(intake, "ops", "errors", "keys", "bytes", "bytes_outstanding") == ranks.truth()


def be_killed(shared: CrashHarness, ranks: Ranks, rounds: list[Round], upload: Callable[[], None]) -> None:
    """Work and kill the collector, round by round; the last run is left alone."""
    for calls, kill in rounds:
        for rank, partition_id, sizes, fails in calls:
            ranks.work(rank, partition_id, sizes, fails=fails)
        ranks.write()
        upload()
        outcome = shared.run(kill)
        assert outcome is None or kill.nth > 1, f"{kill} did not happen"
    finish(shared)


RANK = """
import sys
from support.data_plane_fakes import SizedRows, Store
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient

folder, rank, now = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ticks = 0

def wall():
    global ticks
    ticks += rank + 1
    return ticks / 1024  # seconds, without rounding

client = MetricsDataPlaneClient(
    Store(), JsonlEvents(folder, 10, job="ants", rank=rank, clock=lambda: now), clock=wall
)
print("ready", flush=True)
sys.stdin.readline()
for step in range(300):
    now += step % 3 == 0
    client.put_samples([str(step)], "p", fields=SizedRows({"x": rank + step}))
"""


@pytest.mark.parametrize("tag_rank", [True, False])
def test_eight_ranks_at_once_overwrite_nothing_of_each_other(shared: CrashHarness, tag_rank: bool) -> None:
    began = int(time.time()) // 60 * 60 - AGO
    with case(shared, tag_rank=str(tag_rank)) as (folder, intake):
        processes = [start_rank(folder, rank, began) for rank in range(N_RANKS)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for point in AT_THE_INTAKE + AT_THE_STORE:
            assert shared.run(Kill(point)) is None
        assert [process.communicate(timeout=60)[1] for process in processes] == [""] * N_RANKS
        finish(shared)

        names = ("ops", "bytes", "wall_ms.max")
        assert known(intake, *names) == eight_ranks(began, 1 if tag_rank else 60, tag_rank=tag_rank)
        total = sum(known(intake, "bytes").values())
        assert total == sum(rank + step for rank in range(N_RANKS) for step in range(300))


def start_rank(folder: Path, rank: int, began: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RANK, f"{folder}/", str(rank), str(began)],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def eight_ranks(began: int, width: int, *, tag_rank: bool) -> Truth:
    """What the program says: three puts a second, in intervals of ten; the last one ends with it."""
    truth: Truth = {}
    end = began + 100
    for rank in range(N_RANKS):
        tags = ("op:put", "partition_id:p", *((f"rank:{rank}",) if tag_rank else ()))
        for step in range(300):
            second = began + 1 + step // 3
            at = min(second // 10 * 10 + 10, end) // width * width
            for name, value in (("ops", 1), ("bytes", rank + step)):
                truth[name, tags, at] = truth.get((name, tags, at), 0) + value
            longest = truth.get(("wall_ms.max", tags, at), 0.0)
            truth["wall_ms.max", tags, at] = max(longest, (rank + 1) * 1000 / 1024)
    return truth
