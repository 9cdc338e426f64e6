"""Clients and sinks in other processes: out of a pickle and in a forked child. Each counts for itself."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from fleetgauge.data_plane import EventSink, JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain
from fleetgauge.data_plane.events import environment_rank
from support.data_plane_fakes import Run, Store, Tensor, held, in_a_process_of_its_own

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


def run(program: str, folder: Path) -> str:
    return in_a_process_of_its_own(PRELUDE + program, f"{folder}/")


def written(folder: Path) -> list[dict[str, Any]]:
    return [one for path in sorted(folder.glob("*.jsonl")) for one in records.read(path)]


def put_bytes(found: list[dict[str, Any]]) -> int:
    return sum(one["bytes"] for one in found if one.get("op") == "put")


def pickled(client: MetricsDataPlaneClient, sink: EventSink) -> tuple[MetricsDataPlaneClient, EventSink]:
    """Return a copy of both, as another process would have it."""
    copy, its_sink = pickle.loads(pickle.dumps((client, sink)))  # noqa: S301  # our own bytes
    return copy, its_sink


def test_unused_copies_start_no_thread_and_open_no_file(tmp_path: Path) -> None:
    chained = chain(JsonlEvents(f"{tmp_path}/", job="ants", rank=0), WandbEvents(Run()))
    client = MetricsDataPlaneClient(Store(), chained)
    before = threading.enumerate()
    copies = [pickled(client, chained) for _ in range(1000)]
    assert [thread for thread in threading.enumerate() if thread not in before] == []
    assert list(tmp_path.iterdir()) == []
    used, its_sink = copies[7]
    used.put_samples(["a"], "p", fields={"x": Tensor(1)})
    its_sink.close()
    assert put_bytes(written(tmp_path)) == 4


def test_copy_writes_its_own_records_and_logs_nothing_to_wandb(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    sink = chain(JsonlEvents(f"{tmp_path}/", job="ants", rank=3), WandbEvents(run))
    store = Store()
    client = MetricsDataPlaneClient(store, sink, max_keys=1, sole_writer=True)
    copy, its_sink = pickled(*pickled(client, sink))
    monkeypatch.setenv("RANK", "5")  # as a worker does that has its client already
    for each in (client, copy):
        each.put_samples(["a"], "p", fields={"x": Tensor(1)})
    # A put that is under way is not in a copy made meanwhile.
    copies: list[tuple[MetricsDataPlaneClient, EventSink]] = []
    store.before_return = lambda: copies.append(pickled(client, sink))
    client.put_samples(["a"], "p", fields={"x": Tensor(1)})
    [(later, its_other_sink)] = copies
    copy.put_samples(["b"], "p", fields={"x": Tensor(1)})
    assert [held(each) for each in (client, copy, later)] == [4, 4, 0]
    assert [each.snapshot()["keys_overflowed"] for each in (client, copy)] == [0, 1]
    for each_sink in (sink, its_sink, its_other_sink):
        each_sink.close()
    assert [logged["data_plane/put/ops"] for logged in run.logged] == [2]
    assert caplog.text.count("a copy in another process logs nothing") == 1
    ends = [one for one in written(tmp_path) if one["event"] == "end"]
    assert sorted((one["sole_writer"], one.get("rank"), one["job"]) for one in ends) == [
        (False, 5, "ants"),
        (True, 3, "ants"),
    ]
    assert len({one["run_id"] for one in ends}) == 2


def test_rank_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, rank in (("5", 5), ("9" * 9, 999_999_999)):
        monkeypatch.setenv("RANK", text)
        assert environment_rank() == rank
    for text in ("-1", "zero", "²", "9" * 10, ""):
        monkeypatch.setenv("RANK", text)
        assert environment_rank() is None


def test_call_during_a_fork_is_reported_by_the_parent_alone(tmp_path: Path) -> None:
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


def test_children_forked_under_busy_threads_count_from_zero_and_finish(tmp_path: Path) -> None:
    program = """
logged = []
class Run:
    def log(self, data, *, commit): logged.append(data["data_plane/put/ops"])
sink = chain(JsonlEvents(folder, 0.01, job="ants", rank=1), WandbEvents(Run(), 0))
client = MetricsDataPlaneClient(Inner(), sink, sole_writer=True)
stop = threading.Event()
def work(thread):
    step = 0
    while not stop.is_set():
        put(client, f"{thread}-{step}")
        client.snapshot()
        client.clear_samples([f"{thread}-{step}"], "p")
        step += 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
children = []
for number in range(6):
    child = os.fork()
    if not child:
        logged.clear()
        for step in range(100 + number):
            put(client, f"child-{number}-{step}")
        snapshot = client.snapshot()
        sink.close()
        right = snapshot["total_ops"] == snapshot["n_keys_outstanding"] == 100 + number
        os._exit(0 if right and not logged and not client.sole_writer else 3)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.set()
for thread in threads: thread.join()
sink.close()
print(json.dumps([os.getpid(), codes, children, logged[-1] == client.snapshot()["by_op"]["put"]["ops"]]))
"""
    parent, codes, children, is_logged = json.loads(run(program, tmp_path))
    assert (codes, is_logged) == ([0] * 6, True)
    found = written(tmp_path)
    counts = {
        pid: sum(one["count"] for one in found if one.get("op") == "put" and one["pid"] == pid)
        for pid in children
    }
    assert counts == {child: 100 + number for number, child in enumerate(children)}
    ends = [one for one in found if one["event"] == "end"]
    writers = [(one["pid"], one["sole_writer"], one.get("rank")) for one in ends]
    assert sorted(writers) == sorted([(parent, True, 1), *((child, False, None) for child in children)])
