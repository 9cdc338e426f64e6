"""Clients and sinks out of a pickle: each counts for itself. Forked children are in `test_hostile_hosts`."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from fleetgauge.data_plane import EventSink, JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain
from fleetgauge.data_plane.events import environment_rank
from support.data_plane_fakes import Run, Store, Tensor, held


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
