"""What manifests and dumps say is remembered: an unchanged one costs its line in the listing and no more."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from collectors.gpu_memory.collector import COLLECTOR
from collectors.gpu_memory.sinks import Sinks
from common.metric import Mark
from common.records.saved import SavedState
from common.records.storages import Files
from common.shards import Shard, slot, slotted
from support.record_objects import BUCKET, Bucket, ObjectTicks
from support.servers.aws import Aws
from support.servers.faults import Fault
from support.xenna_ticks import NOW, Points, Ticks

SINK, DUMP = f"s3://{BUCKET}/sinks/a", f"s3://{BUCKET}/sinks/oom_dump_x"
MANIFESTS = ["sinks/a/manifest.json", "sinks/b/manifest.json", "sinks/oom_dump_x/manifest.json"]


def manifest(*statuses: str, **more: object) -> bytes:
    sessions = [{"session_id": f"s{number}", "status": status} for number, status in enumerate(statuses)]
    return json.dumps({"sessions": sessions, "segments": [], **more}).encode()


@pytest.fixture
def bucket(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(aws)
    for sink, statuses in (("a", ["running", "completed"]), ("b", [])):
        bucket.put_bytes(f"sinks/{sink}/segment-000001.jsonl", b"")
        bucket.put_bytes(f"sinks/{sink}/manifest.json", manifest(*statuses))
    bucket.put_bytes("sinks/oom_dump_x/events.json", b"[]")
    bucket.put_bytes("sinks/oom_dump_x/manifest.json", dumped(NOW - 60))
    bucket.put_bytes(f"sinks/oom_dump_{datetime.fromtimestamp(NOW, UTC):%Y%m%dT%H%M%SZ}_1/events.json", b"[]")
    return bucket


def dumped(at: int) -> bytes:
    return json.dumps({"created_at_utc": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"}).encode()


@pytest.fixture
def ticks(bucket: Bucket) -> ObjectTicks:
    return ObjectTicks(bucket.aws, f"s3://{BUCKET}/sinks", COLLECTOR)


def told(points: Points) -> dict[str, float]:
    """The statuses of sessions that there are, and the dumps."""
    said = {"/".join((name, *tags)): value for (name, tags, _), value in points.items() if value}
    return {
        name.removeprefix("gpu_memory.").removeprefix("sessions/status:"): value
        for name, value in said.items()
        if not name.startswith("gpu_memory.ingest.")
    }


ALL = {"running": 1, "completed": 1, "oom_dumps_24h": 2}


def asked(bucket: Bucket) -> tuple[list[str], list[str]]:
    """The prefixes that were listed, and the objects that were read, since this was last asked."""
    requests = [*bucket.aws.requests]
    bucket.aws.requests.clear()
    queries = [(one, parse_qs(urlsplit(one.target).query)) for one in requests]
    listed = [query.get("prefix", [""])[0] for _, query in queries if "list-type" in query]
    return listed, sorted(
        one.path.removeprefix(f"/{BUCKET}/") for one, query in queries if "list-type" not in query
    )


def saved(ticks: Ticks) -> dict[str, object]:
    return {key: value for key, value in ticks.parts.items() if key.startswith(("sink:", "dump:"))}


def written(ticks: Ticks) -> set[str]:
    """The keys that the last tick changed."""
    return {key for item in ticks.items if isinstance(item, Mark) for key in item.changes}


@pytest.mark.parametrize(
    ("path", "listed", "read", "expected"),
    [
        ("sinks", ["sinks/"], MANIFESTS, ALL),
        ("sinks/", ["sinks/"], MANIFESTS, ALL),
        ("sinks/*/segment-*.jsonl", ["sinks/"], MANIFESTS[:2], {"running": 1, "completed": 1}),
        ("*/a/segment-*.jsonl", [""], MANIFESTS[:1], {"running": 1, "completed": 1}),
        (
            "sinks/a/segment-000001.jsonl",
            ["sinks/a/segment-000001.jsonl/", "sinks/a/segment-000001.jsonl", "sinks/a/"],
            MANIFESTS[:1],
            {"running": 1, "completed": 1},
        ),
    ],
)
def test_unchanged_manifests_cost_their_line_in_the_listing_and_nothing_else(
    bucket: Bucket, path: str, listed: list[str], read: list[str], expected: dict[str, float]
) -> None:
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{path}", COLLECTOR)
    asked(bucket)
    assert told(ticks.tick()) == expected
    assert asked(bucket) == (listed, read)
    assert len(saved(ticks)) == len(read)
    state = ticks.state
    assert told(ticks.tick()) == expected
    assert asked(bucket) == (listed, [])
    assert ticks.state == state
    assert written(ticks) == set()
    assert ticks.tally.lost == []


def test_every_day_of_a_date_is_listed_once(bucket: Bucket) -> None:
    ticks = ObjectTicks(bucket.aws, f"s3://{BUCKET}/{{date}}", COLLECTOR)
    today, yesterday = (f"{datetime.fromtimestamp(NOW - ago, UTC):%Y-%m-%d}/" for ago in (0, 86400))
    bucket.put_bytes(f"{today}a/segment-000001.jsonl", b"")
    bucket.put_bytes(f"{today}a/manifest.json", manifest("running"))
    for read in ([f"{today}a/manifest.json"], []):
        assert told(ticks.tick()) == {"running": 1}
        assert asked(bucket) == ([yesterday, today], read)


def test_a_manifest_that_changed_is_read_again_and_no_other(bucket: Bucket, ticks: ObjectTicks) -> None:
    ticks.tick()
    bucket.put_bytes("sinks/a/manifest.json", manifest("interrupted", "completed"))
    bucket.put_bytes("sinks/oom_dump_x/manifest.json", dumped(NOW - 86400))
    assert told(ticks.tick()) == {"interrupted": 1, "completed": 1, "oom_dumps_24h": 1}
    assert asked(bucket)[1] == [MANIFESTS[0], MANIFESTS[2]]
    assert written(ticks) == {
        slotted(slot(SINK), f"sink:{SINK}"),
        slotted(slot(DUMP), f"dump:{DUMP}"),
    }
    ticks.tick()
    assert asked(bucket)[1] == []


def test_what_is_gone_is_forgotten(bucket: Bucket, ticks: ObjectTicks) -> None:
    ticks.tick()
    assert saved(ticks).keys() == {f"sink:{SINK}", f"sink:s3://{BUCKET}/sinks/b", f"dump:{DUMP}"}
    for key in (MANIFESTS[0], MANIFESTS[2], "sinks/oom_dump_x/events.json"):
        bucket.delete(key)
    assert told(ticks.tick()) == {"oom_dumps_24h": 1}
    assert saved(ticks).keys() == {f"sink:s3://{BUCKET}/sinks/b"}


def test_where_the_listing_fails_nothing_is_forgotten(bucket: Bucket, ticks: ObjectTicks) -> None:
    ticks.tick()
    before = saved(ticks)
    bucket.aws.faults.add(Fault(status=403, body="<Error><Code>AccessDenied</Code></Error>"), None)
    ticks.tick()
    assert len(ticks.tally.lost) == 1
    assert saved(ticks) == before
    bucket.aws.faults.clear()
    asked(bucket)
    assert told(ticks.tick()) == ALL
    assert asked(bucket) == (["sinks/"], [])


@pytest.mark.parametrize(
    "damage", [5, [], [["x"]], [[1, "x"], [[], {}, -1]], [["x"], [[["s"]], {}, 0, ""]], {}]
)
def test_a_saved_part_that_is_damaged_costs_that_it_is_read_again(
    bucket: Bucket, ticks: ObjectTicks, damage: object
) -> None:
    ticks.tick()
    state, key = dict(ticks.state), slotted(slot(SINK), f"sink:{SINK}")
    ticks.state[key] = damage
    asked(bucket)
    assert told(ticks.tick()) == ALL
    assert asked(bucket) == (["sinks/"], ["sinks/a/manifest.json"])
    assert ticks.tally.dropped == {"bad_checkpoint": 1}
    assert ticks.state == state


def test_a_broken_manifest_is_told_in_every_tick_and_read_in_one(bucket: Bucket, ticks: ObjectTicks) -> None:
    bucket.put_bytes("sinks/a/manifest.json", b"[]")
    for read in (MANIFESTS, []):
        assert told(ticks.tick()) == {"oom_dumps_24h": 2}
        why = f"cannot read the manifest {SINK}/manifest.json: it is not a JSON object"
        assert ticks.tally.lost == [f"the sessions of {SINK}: {why}"]
        assert asked(bucket)[1] == read


def test_a_manifest_that_is_denied_is_asked_for_again(bucket: Bucket, ticks: ObjectTicks) -> None:
    denied = Fault(status=403, body="<Error><Code>AccessDenied</Code></Error>")
    bucket.aws.faults.add(denied, None, match=f"/{BUCKET}/sinks/a/manifest.json")
    assert told(ticks.tick()) == {"oom_dumps_24h": 2}
    assert ticks.tally.lost[0].startswith(f"the sessions of {SINK}: cannot read the manifest")
    bucket.aws.faults.clear()
    assert told(ticks.tick()) == ALL


@pytest.mark.parametrize(
    "content",
    [
        manifest("running", segments=[{"filename": str(n), "session_id": "s"} for n in range(1001)]),
        manifest("running", sessions=[{"session_id": "s", "status": "running", "ended_at_ns": 2**63}]),
    ],
    ids=["many", "huge"],
)
def test_what_cannot_be_saved_is_read_in_every_tick(
    bucket: Bucket, ticks: ObjectTicks, content: bytes
) -> None:
    bucket.put_bytes("sinks/a/manifest.json", content)
    for _ in range(2):
        assert told(ticks.tick()) == {"running": 1, "oom_dumps_24h": 2}
        assert "sinks/a/manifest.json" in asked(bucket)[1]
        assert ticks.tally.dropped == {}
    assert f"sink:{SINK}" not in saved(ticks)


class OnDisk(Ticks):
    """Ticks over one sink in a directory."""

    collector = COLLECTOR

    def put(self, content: bytes, ago: float) -> None:
        path = self.path / "sink" / "manifest.json"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "segment-000001.jsonl").touch()
        with path.open("r+b" if path.exists() else "wb") as file:  # in place, so that it is the same file
            file.write(content)
        os.utime(path, ns=(round((NOW - ago) * 1e9),) * 2)


def test_a_local_manifest_that_was_just_written_is_read_again_though_it_looks_the_same(
    tmp_path: Path,
) -> None:
    ticks = OnDisk(tmp_path)
    ticks.put(manifest("interrupted"), 1.5)
    assert told(ticks.tick()) == {"interrupted": 1}
    assert saved(ticks) == {}
    ticks.put(manifest("incomplete "), 1.5)
    assert told(ticks.tick()) == {"incomplete": 1}
    ticks.now += 10
    assert told(ticks.tick()) == {"incomplete": 1}
    assert saved(ticks).keys() == {f"sink:{tmp_path}/sink"}


def test_a_local_manifest_that_looks_the_same_for_long_is_not_read_again(tmp_path: Path) -> None:
    ticks = OnDisk(tmp_path)
    ticks.put(manifest("interrupted"), 2.5)
    ticks.tick()
    ticks.put(manifest("incomplete "), 2.5)
    assert told(ticks.tick()) == {"interrupted": 1}
    assert written(ticks) == set()
    ticks.put(manifest("incomplete "), 2.25)
    assert told(ticks.tick()) == {"incomplete": 1}


def looked(bucket: Bucket, shard: Shard, state: Mapping[str, object]) -> tuple[Sinks, SavedState]:
    core, known = ObjectTicks(bucket.aws).core, SavedState(state)
    found = Sinks([f"s3://{BUCKET}/sinks"], Files(core), shard)
    found.recall(known, NOW)
    return found, known


def test_a_shard_reads_the_manifests_of_its_own_directories_and_keeps_them_by_slot(bucket: Bucket) -> None:
    segments = [{"filename": "segment-000001.jsonl", "session_id": "mine"}]
    bucket.put_bytes("sinks/a/manifest.json", manifest("running", segments=segments))
    own = Shard(int(slot(SINK)), 64)
    found, known = looked(bucket, own, {})
    assert asked(bucket)[1] == [MANIFESTS[0]]
    for name, session in (("segment-000001.jsonl", "mine"), ("segment-000002.jsonl", SINK)):
        assert found.session_of(f"{SINK}/{name}") == session
    saved = json.loads(json.dumps(known.placed(found.changes())))
    assert [*saved] == [slotted(slot(SINK), f"sink:{SINK}")]
    again, _ = looked(bucket, own, saved)
    assert again.session_of(f"{SINK}/segment-000001.jsonl") == "mine"
    other, _ = looked(bucket, Shard((own.index + 1) % 64, 64), {})
    assert (other.changes(), asked(bucket)[1]) == ({}, [])
