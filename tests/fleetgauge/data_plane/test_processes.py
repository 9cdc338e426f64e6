"""Clients that leave their process: out of a pickle, in a forked child, killed. Each counts for itself."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetgauge import records
from fleetgauge.data_plane import EventSink, JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain
from fleetgauge.data_plane.peers import Peers, rank_here, sign_of_others
from support.data_plane_fakes import PicklableStore, Tensor, in_a_process_of_its_own
from support.project import ROOT

PRELUDE = """
import json, os, pickle, sys, threading, time
from support.data_plane_fakes import Tensor
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain
class Inner:
    def put_samples(self, *arguments, **options): pass
    clear_samples = get_samples = put_samples
def put(client, *keys):
    client.put_samples(list(keys), "p", fields={"x": Tensor(len(keys))})
folder = sys.argv[1]
"""


def run(program: str, folder: Path, **environment: str) -> str:
    return in_a_process_of_its_own(PRELUDE + program, f"{folder}/", **environment)


def written(folder: Path) -> list[dict[str, Any]]:
    return [one for path in sorted(folder.glob("*.jsonl")) for one in records.read(path)]


def put_bytes(found: list[dict[str, Any]]) -> int:
    return sum(one["bytes"] for one in found if one.get("op") == "put")


def again(client: MetricsDataPlaneClient, sink: EventSink) -> tuple[MetricsDataPlaneClient, EventSink]:
    """A copy of both, as another process would have it."""
    twin, its_sink = pickle.loads(pickle.dumps((client, sink)))  # noqa: S301  # our own bytes
    return twin, its_sink


# Copies


class Run:
    """A W&B run: it has a socket, and is nothing to be sent anywhere."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []

    def log(self, data: dict[str, Any], *, commit: bool) -> None:
        assert not commit
        self.logged.append(data)

    def __reduce__(self) -> str:
        raise TypeError("a run cannot be pickled")


def test_a_thousand_copies_that_nobody_uses_leave_no_thread_and_no_file(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/", job="ants", rank=0)
    chained = chain(sink, WandbEvents(Run()))
    client = MetricsDataPlaneClient(PicklableStore(), chained)
    before = threading.enumerate()
    copies = [again(client, chained) for _ in range(1000)]
    assert [thread for thread in threading.enumerate() if thread not in before] == []
    assert list(tmp_path.iterdir()) == []
    used, its_sink = copies[7]
    used.put_samples(["a"], "p", fields={"x": Tensor(1)})
    its_sink.close()
    assert put_bytes(written(tmp_path)) == 4


def test_everything_that_the_documents_show_can_be_sent_and_the_copy_logs_nothing_to_wandb(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run()
    sink = chain(JsonlEvents(f"{tmp_path}/", job="ants", rank=3), WandbEvents(run, interval_s=0))
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    twin = again(*again(client, sink))
    for each, its_sink in ((client, sink), twin, twin):
        each.put_samples(["a"], "p", fields={"x": Tensor(1)})
        its_sink.close()
    assert [logged["data_plane/put/ops"] for logged in run.logged] == [1, 1]
    (said,) = caplog.records
    assert said.getMessage() == (
        "data plane: a copy of WandbEvents in another process logs nothing to W&B: "
        "'the run is in the process that began it'; further losses are only counted"
    )
    puts = [one for one in written(tmp_path) if one.get("op") == "put"]
    assert sorted((one.get("rank"), one["job"], one["bytes"]) for one in puts if "rank" in one) == [
        (3, "ants", 4)
    ]
    assert put_bytes(puts) == 12


def test_what_a_copy_holds_is_its_own(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/")
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    client.put_samples(["a"], "p", fields={"x": Tensor(250_000)})
    copies = [again(client, sink) for _ in range(3)]
    for copy, its_sink in copies:
        copy.get_samples(["a"], "p", ["x"])
        its_sink.close()
    sink.close()
    ends = [one for one in written(tmp_path) if one["event"] == "end"]
    assert len(ends) == len({one["source"] for one in ends}) == 4
    assert sum(sum(one["bytes_outstanding"].values()) for one in ends) == 1_000_000


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "3"}, 5),
        ({"LOCAL_RANK": "1", "GROUP_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, 25),
        ({"LOCAL_RANK": "1", "GROUP_RANK": "0"}, 1),
        ({"LOCAL_RANK": "1", "GROUP_RANK": "3"}, None),
        ({"LOCAL_RANK": "1"}, None),
        ({"RANK": "-1"}, None),
        ({"RANK": "zero", "LOCAL_RANK": "2", "GROUP_RANK": "0"}, 2),
        ({"RANK": "²"}, None),
        ({"RANK": "9" * 9}, 999_999_999),
        ({"RANK": "9" * 10}, None),
    ],
)
def test_a_rank_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], rank: int | None
) -> None:
    for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank_here() == rank


@pytest.mark.slow
def test_host_pid_and_rank_are_those_of_the_process_where_the_client_runs(tmp_path: Path) -> None:
    """Four processes are handed one pickle, as Ray's actors are."""
    sink = JsonlEvents(f"{tmp_path}/", job="ants", rank=9)
    (tmp_path / "pickle").write_bytes(pickle.dumps(sink))
    program = """
sink = pickle.loads(open(folder + "pickle", "rb").read())
put(MetricsDataPlaneClient(Inner(), sink), "a")
print(os.getpid())
"""
    pids = [int(run(program, tmp_path, RANK=str(rank))) for rank in range(4)]
    starts = [one for one in written(tmp_path) if one["event"] == "start"]
    assert sorted((one["rank"], one["pid"]) for one in starts) == list(enumerate(pids))
    MetricsDataPlaneClient(PicklableStore(), sink).put_samples(["a"], "p")
    sink.close()
    assert {one["rank"] for one in written(tmp_path) if one["pid"] == os.getpid()} == {9}


# Start and end


def test_a_writer_that_ended_can_be_told_from_one_that_was_killed(tmp_path: Path) -> None:
    program = """
client = MetricsDataPlaneClient(Inner(), JsonlEvents(folder, 0.01, job="ants"))
put(client, "a")
while sys.argv[2:] and not list(os.scandir(folder)): time.sleep(0.01)
if sys.argv[2:]: os.kill(os.getpid(), 9)
"""
    run(program, tmp_path)
    first, *_, last = written(tmp_path)
    assert (first["event"], first["seq"], first["interval_s"]) == ("start", 0, 0.01)
    assert (last["event"], last["interval_s"], last["source"]) == ("end", 0.01, first["source"])
    (tmp_path / "killed").mkdir()
    command = [sys.executable, "-c", PRELUDE + program, f"{tmp_path}/killed/", "be killed"]
    importable = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    assert subprocess.run(command, check=False, timeout=120, env=importable).returncode == -9
    events = {one["event"] for one in written(tmp_path / "killed")}
    assert "end" not in events


def test_a_sink_without_a_client_says_that_it_began_and_ended_and_nothing_of_what_is_held(
    tmp_path: Path,
) -> None:
    sink = JsonlEvents(f"{tmp_path}/", 60.0)
    sink({"op": "put", "partition_id": "p", "n_keys": 1, "n_bytes": 4, "wall_ms": 1.0, "status": "ok"})
    sink.close()
    start, operation, end = written(tmp_path)
    assert (start["event"], operation["op"], end["event"]) == ("start", "put", "end")
    assert all("bytes_outstanding" not in one and one["interval_s"] == 60 for one in (start, end))


def test_keys_that_overflowed_and_foreign_clears_are_in_the_record(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/")
    clients = [MetricsDataPlaneClient(PicklableStore(), sink, max_keys=2) for _ in range(2)]
    clients[0].put_samples(["a", "b", "c"], "p", fields={"x": Tensor(3)})
    assert sink.held(set())["keys_overflowed"] == 0  # told by the first word already
    clients[1].clear_samples(["a", "b", "c", "c"], "p")
    clients[1].clear_samples(["d"], "p")
    sink.close()
    words = [one for one in written(tmp_path) if "op" not in one]
    assert [(one["keys_overflowed"], one["foreign_clears"]) for one in words] == [(1, 0), (0, 4)]


def test_what_is_counted_in_the_first_operation_of_a_later_interval_is_told(tmp_path: Path) -> None:
    now = [1000.0]
    sink = JsonlEvents(f"{tmp_path}/", 10, clock=lambda: now[0])
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    now[0] += 60
    client.clear_samples(["a"], "p")
    sink.close()
    words = [one for one in written(tmp_path) if "op" not in one]
    assert [one["foreign_clears"] for one in words] == [1, 0]


def test_the_first_operation_that_writes_is_told_at_once(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/", 60.0)
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    client.get_samples(["a"], "p", ["x"])
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    client.clear_samples(["a"], "p")
    sink.close()
    words = [(one["event"], one["writes"]) for one in written(tmp_path) if "op" not in one]
    assert words == [("start", False), ("stats", True), ("end", True)]


# Who knows what the job holds


def unknown(sink: EventSink) -> str:
    assert isinstance(sink, JsonlEvents)
    found: str = sink.held(set())["unknown"]
    return found


NOT_ALONE = "it is not alone: so it was told, or it is a copy"


def test_one_client_in_one_process_knows_what_its_job_holds(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/", job="ants", rank=0)
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    assert unknown(sink) == ""
    sink.close()
    later = JsonlEvents(f"{tmp_path}/", job="ants", rank=0)
    another = MetricsDataPlaneClient(PicklableStore(), later)
    assert unknown(later) == ""
    another.put_samples(["b"], "p", fields={"x": Tensor(1)})  # what the first has put is still there
    assert unknown(later) == unknown(sink) == "there are several clients in this process"
    later.close()


def test_a_client_that_could_not_measure_a_put_does_not_know_what_its_job_holds(tmp_path: Path) -> None:
    class Odd:
        def numel(self) -> int:
            raise RuntimeError("no size")

        element_size = numel

    sink = JsonlEvents(f"{tmp_path}/")
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    client.put_samples(["a"], "p", fields={"x": Odd()})
    assert unknown(sink) == "it could not measure all"
    sink.close()


def test_from_when_on_a_client_or_its_sink_is_pickled_neither_it_nor_the_copy_knows(tmp_path: Path) -> None:
    program = """
sink = JsonlEvents(folder, job="ants")
client = MetricsDataPlaneClient(Inner(), sink)
put(client, "a")
said = [sink.held(set())["unknown"], pickle.dumps(sink).hex(), sink.held(set())["unknown"]]
print(json.dumps(said))
sink.close()
"""
    before, sent, after = json.loads(run(program, tmp_path))
    assert (before, after) == ("", "it was copied, or its sink was")
    received = """
sink = pickle.loads(bytes.fromhex(sys.argv[2]))
client = MetricsDataPlaneClient(Inner(), sink)
put(client, "a")
sink.close()
"""
    in_a_process_of_its_own(PRELUDE + received, f"{tmp_path}/", sent)
    said = {one["source"]: one["unknown"] for one in written(tmp_path) if "op" not in one}
    assert list(said.values()) == ["it was copied, or its sink was"] * 2


def test_a_promise_to_be_alone_holds_for_the_client_that_made_it_and_for_no_copy(tmp_path: Path) -> None:
    sink = JsonlEvents(f"{tmp_path}/", job="ants")
    client = MetricsDataPlaneClient(PicklableStore(), sink, alone=True)
    twin, its_sink = again(client, sink)
    assert (unknown(sink), unknown(its_sink)) == ("", NOT_ALONE)
    assert (client.alone, twin.alone) == (True, False)
    told = JsonlEvents(f"{tmp_path}/", job="bees")
    bees = MetricsDataPlaneClient(PicklableStore(), told, alone=False)
    assert unknown(told) == NOT_ALONE
    assert not bees.alone


@pytest.mark.parametrize(
    ("environment", "sign"),
    [
        ({}, ""),
        ({"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}, ""),
        ({"WORLD_SIZE": "8"}, "WORLD_SIZE is 8"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE is 2"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS is 2"),
        ({"SLURM_NTASKS": "2"}, ""),  # of a job, in which this may be the only process
        ({"RANK": "3"}, "its rank is 3"),
        ({"WORLD_SIZE": "many"}, ""),
    ],
)
def test_an_environment_tells_of_other_processes(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], sign: str
) -> None:
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
    for name in (*names, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    peers = Peers()
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert sign_of_others(rank_here()) == peers.unknown({}, 1, rank_here()) == sign
    assert peers.unknown({}, 1, None) == sign  # what it was once told stays true


@pytest.mark.parametrize(
    ("module", "answers", "sign"),
    [
        ("multiprocessing.process", {"parent_process": lambda: None}, ""),
        ("multiprocessing.process", {"parent_process": object}, "it is a process of multiprocessing"),
        ("multiprocessing.process", {}, ""),
        ("ray", {"is_initialized": lambda: False}, ""),
        ("ray", {"is_initialized": lambda: True}, "it is a process of Ray"),
        ("ray", {}, ""),
    ],
)
def test_a_library_that_is_loaded_tells_of_other_processes(
    module: str, answers: dict[str, Any], sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**answers))
    assert sign_of_others(None) == sign


# Forks


@pytest.mark.slow
def test_six_children_forked_under_eight_hammering_threads_finish(tmp_path: Path) -> None:
    program = """
sink = chain(JsonlEvents(folder, 0.01, job="ants", rank=1))
client = MetricsDataPlaneClient(Inner(), sink)
stop = threading.Event()
def hammer(thread):
    step = 0
    while not stop.is_set():
        put(client, f"{thread}-{step}")
        client.snapshot()
        client.clear_samples([f"{thread}-{step}"], "p")
        step += 1
threads = [threading.Thread(target=hammer, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
children = []
for number in range(6):
    child = os.fork()
    if not child:
        for step in range(100 + number):
            put(client, f"child-{number}-{step}")
        snapshot = client.snapshot()
        sink.close()
        right = snapshot["total_ops"] == snapshot["n_keys_outstanding"] == 100 + number
        os._exit(0 if right else 3)
    children.append(child)
def ended(child, until):
    while time.monotonic() < until:
        if (found := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(found[1])
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hung"
until = time.monotonic() + 60
codes = [ended(child, until) for child in children]
stop.set()
for thread in threads: thread.join()
sink.close()
snapshot = client.snapshot()
print(json.dumps([codes, os.getpid(), children, snapshot["by_op"]["put"]["ops"]]))
"""
    codes, parent, children, puts = json.loads(run(program, tmp_path))
    assert codes == [0] * 6
    found = written(tmp_path)
    counts = {
        pid: sum(one["count"] for one in found if one.get("op") == "put" and one["pid"] == pid)
        for pid in (parent, *children)
    }
    assert counts == {parent: puts, **{child: 100 + number for number, child in enumerate(children)}}
    runs = {one["run_id"]: one["pid"] for one in found}
    assert sorted(runs.values()) == sorted([parent, *children])
    assert {one.get("rank") for one in found if one["pid"] == parent} == {1}


def test_a_call_during_which_a_fork_happens_is_told_by_the_parent_alone(tmp_path: Path) -> None:
    program = """
class Forking(Inner):
    def put_samples(self, *arguments, **options): self.child = os.fork()
inner = Forking()
sink = JsonlEvents(folder)
client = MetricsDataPlaneClient(inner, sink)
put(client, "a")
if not inner.child:
    client.get_samples(["a"], "p", [])
    sink.close()
    os._exit(client.snapshot()["total_ops"])
print(os.waitstatus_to_exitcode(os.waitpid(inner.child, 0)[1]), client.snapshot()["total_ops"])
"""
    assert run(program, tmp_path).split() == ["1", "1"]
    assert sorted(one["op"] for one in written(tmp_path) if "op" in one) == ["get", "put"]


def test_a_forked_child_logs_nothing_to_the_run_of_its_parent(tmp_path: Path) -> None:
    program = """
class Run:
    def log(self, data, *, commit): print(os.getpid() == parent, data["data_plane/put/ops"], flush=True)
parent = os.getpid()
sink = WandbEvents(Run(), interval_s=0)
client = MetricsDataPlaneClient(Inner(), sink)
put(client, "a")
child = os.fork()
put(client, "b")
if not child: os._exit(0)
os.waitpid(child, 0)
sink.close()
"""
    assert run(program, tmp_path).splitlines() == ["True 1", "True 2", "True 2"]


@pytest.mark.slow
def test_a_forked_child_that_reads_changes_nothing_and_one_that_writes_is_known_at_once(
    tmp_path: Path,
) -> None:
    """Known before its first operation is over, though it is killed in it and writes no record."""
    program = """
class Dying(Inner):
    def put_samples(self, *arguments, **options):
        if os.getpid() != parent: os.kill(os.getpid(), 9)
parent = os.getpid()
sink = chain(JsonlEvents(folder, 60, job="ants"))
client = MetricsDataPlaneClient(Dying(), sink)
put(client, "a")
def child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    os.waitpid(pid, 0)
    [jsonl] = sink.callbacks
    return jsonl.held(set())["unknown"]
print(json.dumps([child(lambda: None), child(lambda: client.get_samples(["a"], "p", [])),
                  child(lambda: put(client, "b"))]))
sink.close()
"""
    assert json.loads(run(program, tmp_path)) == ["", "", "a forked process writes too"]


def test_a_child_of_multiprocessing_knows_that_it_is_one_of_several(tmp_path: Path) -> None:
    program = """
import multiprocessing
from fleetgauge.data_plane.peers import sign_of_others
def tell(): print(sign_of_others(None), flush=True)
tell()
process = multiprocessing.get_context("fork").Process(target=tell)
process.start()
process.join()
"""
    assert run(program, tmp_path).splitlines() == ["", "it is a process of multiprocessing"]
