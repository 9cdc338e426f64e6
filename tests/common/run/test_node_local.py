"""Records on the disks of nodes, read by a run on each: nothing is shared, and nothing overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.collector import load_collector
from common.metric import Combine
from common.options import Mode, Options
from common.outcome import Outcome, Status
from common.run.run import run
from support.project import KEY
from support.record_folder import MAKERS, NOW, Folder
from support.servers.datadog import Intake

NODES = {"node-a": ("w0", "w1"), "node-b": ("w2", "w3", "w4")}  # and the writers on each
# A tag that tells writers apart: without it their points add up.
SHARED = {"data_plane": "TAG_JOB", "gpu_memory": "TAG_JOB_ID", "xenna": "STAGE_RUN_HASH"}


class Fleet:
    """Nodes with records of their own, a place that has them all, and one store."""

    def __init__(self, intake: Intake, folder: Path) -> None:
        self.intake, self.folder, self.now = intake, folder, NOW
        intake.clock = lambda: self.now
        self.store = folder / "store"
        self.store.mkdir()

    def fill(self, kind: str) -> None:
        """Give each node the records of its writers."""
        for node, writers in NODES.items():
            for place in (Folder(kind, self.folder / node), Folder(kind, self.folder / "all")):
                for writer in writers:
                    records = (MAKERS[kind](writer, number, NOW - 400 + number) for number in range(9))
                    place.write(*records, to=f"{writer}/segment-000001.jsonl")

    def push(self, kind: str, place: str, **environment: str) -> Outcome:
        """One tick over the records of a place."""
        environ = {
            "DD_ENV": "test",
            "DD_API_KEY": KEY,
            "FLEETGAUGE_DD_URL": self.intake.url,
            "FLEETGAUGE_STATE": str(self.store),
            "FLEETGAUGE_NODE_NAME": place,
        }
        if kind in MAKERS:
            environ[f"FLEETGAUGE_{kind.upper()}_PATHS"] = str(self.folder / place)
        environ |= environment
        return run(kind, Options(Mode.PUSH, timeout=60), environ, clock=lambda: self.now)

    def on_each_node(self, kind: str, **environment: str) -> list[Outcome]:
        return [self.push(kind, node, FLEETGAUGE_NODE_LOCAL="true", **environment) for node in NODES]


@pytest.fixture
def fleet(intake: Intake, tmp_path: Path) -> Fleet:
    return Fleet(intake, tmp_path)


@pytest.mark.parametrize("kind", MAKERS)
def test_what_nodes_send_combines_to_what_one_run_over_all_records_sends(fleet: Fleet, kind: str) -> None:
    fleet.fill(kind)
    shared = {f"FLEETGAUGE_{kind.upper()}_{SHARED[kind]}": "false"}
    assert fleet.push(kind, "all", **shared).status is Status.OK
    whole = dict(fleet.intake.points)
    fleet.intake.points.clear()
    assert [one.status for one in fleet.on_each_node(kind, **shared)] == [Status.OK] * len(NODES)
    parts: dict[tuple[str, tuple[str, ...], int], dict[str | None, float]] = {}
    for key, value in fleet.intake.points.items():
        parts.setdefault((key.metric, key.tags, key.second), {})[key.host] = value
    metrics = {metric.name: metric for metric in load_collector(kind).metrics if not metric.on_node}
    shared_by: set[int] = set()
    for key, value in whole.items():
        metric = metrics.get(key.metric)
        if metric and metric.combines in {Combine.SUM, Combine.MIN}:
            found = parts[key.metric, key.tags, key.second]
            assert found.keys() <= NODES.keys(), "each under its own name"
            assert metric.combines.of(list(found.values())) == pytest.approx(value)
            shared_by.add(len(found))
    assert max(shared_by) == len(NODES)


def test_node_is_the_host_and_has_a_state_document_of_its_own(fleet: Fleet) -> None:
    """Except of points whose records name a host."""
    fleet.fill("gpu_memory")
    for fleet.now in (NOW, NOW + 60):
        assert [one.status for one in fleet.on_each_node("gpu_memory")] == [Status.OK] * len(NODES)
    assert {key.host for key in fleet.intake.points if key.metric == "gpu_memory.allocated_bytes"} == {
        "node-1"
    }
    for name in ("gpu_memory.sessions", "gpu_memory.ingest.files", "collector.up"):
        assert {key.host for key in fleet.intake.points if key.metric == name} == set(NODES), name
    documents = {path.name: json.loads(path.read_text()) for path in fleet.store.glob("*.json")}
    assert {node for name in documents for node in NODES if f"-{node}-" in name} == set(NODES)
    assert [document["now"] for document in documents.values()] == [NOW + 60] * len(NODES)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("wandb", {"WANDB_API_KEY": KEY, "WANDB_PROJECTS": "acme/ants"}),
        ("xenna", {"FLEETGAUGE_XENNA_PATHS": "/records,s3://bucket/records", "AWS_REGION": "us-east-1"}),
    ],
)
def test_what_every_node_would_read_alike_is_refused(
    fleet: Fleet, kind: str, settings: dict[str, str]
) -> None:
    [outcome, _] = fleet.on_each_node(kind, **settings)
    assert outcome.error is not None
    assert outcome.error.configuration
    assert f"FLEETGAUGE_NODE_LOCAL: what {kind} reads is not on a node's own disk" in outcome.error.message
    assert fleet.intake.value("collector.up", [f"collector:{kind}"], host="node-a") == 0
