"""However many shards read a fleet, its numbers are those of a single reader."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.data_plane.collector import COLLECTOR as DATA_PLANE
from collectors.gpu_memory.collector import COLLECTOR as GPU_MEMORY
from collectors.xenna.collector import COLLECTOR as XENNA
from collectors.xenna.collector import XennaIngest
from common.shards import Shard, slot
from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from support.data_plane_ticks import held as holding
from support.data_plane_ticks import operations
from support.record_crashes import TornLines, case, harness_of, held
from support.replay_writers import event
from support.replays import Held
from support.xenna_ticks import NOW, record

from .shard_fleets import (
    KINDS,
    SHARING,
    Fleet,
    Kind,
    Layouts,
    combined,
    own_series,
    undisputed,
    without_shard,
)

SEEDS = st.integers(0, 2**32 - 1)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)


def assert_the_same(kind: Kind, points: Held, live: Held) -> None:
    """What shards sent is what one reader did: series of one unit as they are, others as they combine."""
    own = {key: points[key] for key in undisputed(own_series(points))}
    assert own == {key: live.get(key) for key in own}
    parts = combined(kind.collector, points)
    together = {key: parts[key] for key in undisputed(parts)}
    assert together == pytest.approx({key: live.get(key) for key in together}, rel=1e-9, abs=1e-9)
    sent = {(name, without_shard(tags), host, at) for name, tags, host, at in points}
    # Where a file tells of several runs, only the first of them is known to go on nowhere else.
    unknown = {key for key in live if key[0].startswith("xenna.run.") and {*SHARING} & {*key[1]}}
    assert undisputed(sent) | unknown == undisputed(live) | unknown


@each_kind
@given(seed=SEEDS, shards=st.integers(1, 16))
@settings(deadline=None, max_examples=8, derandomize=True)
def test_any_number_of_shards_sends_what_one_reader_sends(kind: Kind, seed: int, shards: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(kind.collector, Path(folder), shards, **kind.settings(chance))
        kind.go_on(fleet, chance, 40)
        assert_the_same(kind, fleet.sharded, fleet.live)


def in_both_shards(folder: Path, name: str) -> list[str]:
    """Two names by which files or directories are of the first and of the second shard of two."""
    names = [name.format(number) for number in range(64)]
    units = {one: slot(str(folder / one.removesuffix(".jsonl"))) for one in names}
    return [next(one for one in names if Shard(index, 2).owns_slot(units[one])) for index in range(2)]


def test_runs_of_one_hash_in_files_of_two_shards_do_not_overwrite_each_other(tmp_path: Path) -> None:
    fleet, seqs, written = Fleet(XENNA, tmp_path, 2), count(), "xenna.pipeline.progress"
    names = in_both_shards(tmp_path, "file-{}.jsonl")
    for index, name in enumerate(names):
        long = {"progress": index, **{f"key-{number}": 1 for number in range(900)}}  # a line of over 10 kB
        fleet.write(name, record(next(seqs), NOW - fleet.now + 10, long, run_id=f"run-{index}"))
    fleet.tick()
    series = ("pipeline_kind:curate", "run_hash:abc")
    points = {key[1]: value for key, value in fleet.sharded.items() if key[0] == written}
    assert points == {(*series, "shard:0"): 0, (*series, "shard:1"): 1}
    stalled = {key[1] for key in fleet.sharded if key[0] == "xenna.run.stalled"}
    assert stalled == set()  # either may have gone on as the other
    assert {key[1] for key in fleet.live if key[0] == "xenna.run.stalled"} == {series}
    (tmp_path / names[0]).unlink()
    fleet.now += 60
    fleet.write(name, record(next(seqs), NOW - fleet.now + 10, {"progress": 7}, run_id="run-1"))
    fleet.sharded = {}
    fleet.tick()
    assert {key[1]: value for key, value in fleet.sharded.items() if key[0] == written} == {series: 7}
    assert (("xenna.run.stalled", series, None, fleet.now), 0) in fleet.sharded.items()


def test_a_run_is_told_by_shard_from_a_file_that_begins_with_another_and_as_it_is_from_its_own(
    tmp_path: Path,
) -> None:
    fleet, series = Fleet(XENNA, tmp_path, 2), ("pipeline_kind:curate", "run_hash:second")
    index = int(not Shard(0, 2).owns_slot(slot(f"{tmp_path}/all")))
    for seq, name in enumerate(("first", "second", "second")):
        if seq == 2:
            fleet.tick()
            fleet.rotate("all.jsonl")
        fleet.now += 60
        fleet.write("all.jsonl", record(seq, NOW - fleet.now, {"progress": seq}, run_id=name, run_hash=name))
    fleet.now += 60
    fleet.tick()
    told = {key[1]: value for key, value in fleet.sharded.items() if key[0] == "xenna.pipeline.progress"}
    assert {tags: value for tags, value in told.items() if series[1] in tags} == {
        (*series, f"shard:{index}"): 1,
        series: 2,
    }


def test_sinks_of_one_rank_of_a_job_in_two_shards_do_not_overwrite_each_other(tmp_path: Path) -> None:
    fleet = Fleet(GPU_MEMORY, tmp_path, 2)
    for index, name in enumerate(in_both_shards(tmp_path, "sink-{}")):
        measured = [event(fleet.now - 10, 100 + index, kind, session_id=name) for kind in ("sample", "peak")]
        other_rank = event(fleet.now - 10, 5, rank=1 + index, session_id=name)
        fleet.write(f"{name}/segment-000001.jsonl", *measured)
        fleet.write(f"{name}/segment-000002.jsonl", other_rank)
    fleet.tick()
    series, others = ("gpu:0", "job_id:j1", "rank:0"), [("gpu:0", "job_id:j1", f"rank:{n}") for n in (1, 2)]
    points = {key[1]: value for key, value in fleet.sharded.items() if key[0] == "gpu_memory.allocated_bytes"}
    assert points == {(*series, "shard:0"): 100, (*series, "shard:1"): 101, others[0]: 5, others[1]: 5}
    alerts = {key[1]: value for key, value in fleet.sharded.items() if key[0] == "gpu_memory.alerts"}
    assert alerts == {(*series, "type:peak", f"shard:{index}"): 1 for index in range(2)}


def test_a_file_is_of_the_same_unit_under_every_name_that_rotation_gives_it() -> None:
    first = {"run_hash": "abc", "run_id": "r1"}
    units = {
        name: XennaIngest.unit(f"/data/{name}", first)
        for name in (
            "all.jsonl",
            "all.r1.000001.jsonl",
            "all.jsonl.2.gz",
            "x-r1.jsonl",
            "x-r1.000001.jsonl.zst",
        )
    }
    assert [*units.values()] == ["/data/all"] * 3 + ["run_hash:abc"] * 2
    assert XennaIngest.unit("/data/abc/all.000001.jsonl", first) == "run_hash:abc"
    assert XennaIngest.unit("/data/abcd.jsonl", first) == "/data/abcd"


def test_what_a_job_holds_is_believed_of_its_own_files_alone(tmp_path: Path) -> None:
    fleet, name = Fleet(DATA_PLANE, tmp_path, 2), "data_plane.keys_outstanding"
    ants, bees = (next(n for n in "abcdefgh" if Shard(one, 2).owns(f"job:{n}")) for one in range(2))
    for seq, (to, job) in enumerate(((ants, ants), (bees, bees), (bees, ants))):
        word = holding(seq, NOW - fleet.now + 60, {"p": 100}, rank=seq, job=job, run_id=f"{to}-{job}")
        fleet.write(f"{to}.jsonl", word)
    fleet.tick()
    told_of = {key[1] for key in fleet.sharded if key[0] == name}
    assert told_of == {(f"job:{ants}", "rank:0"), (f"job:{bees}", "rank:1")}


@each_kind
@given(seed=SEEDS, shards=st.integers(2, 8))
@settings(deadline=None, max_examples=4, derandomize=True)
def test_the_shards_of_a_backfill_send_what_one_sends(kind: Kind, seed: int, shards: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(kind.collector, Path(folder), 0, **kind.settings(chance))
        kind.go_on(fleet, chance, 40)
        assert_the_same(kind, fleet.replay_of(shards), fleet.replay_of(1))


@each_kind
@given(seed=SEEDS, counts=st.just([1, 4, 3]) | st.lists(st.integers(1, 5), min_size=2, max_size=4))
@settings(deadline=None, max_examples=8, derandomize=True)
def test_another_number_of_shards_goes_on_where_the_last_was_killed(
    kind: Kind, seed: int, counts: list[int]
) -> None:
    """What one unit feeds ends as one reader has it; what several feed is of one layout in each second."""
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Layouts(kind.collector, Path(folder), chance, **kind.settings(chance))
        for fleet.count in counts:
            fleet.kills = 0.3
            kind.go_on(fleet, chance, 15)
        fleet.kills = 0.0
        fleet.now += 60
        fleet.tick()
        assert max(map(len, fleet.sent_by.values())) == 1
        own = {key: fleet.sharded[key] for key in undisputed(fleet.sharded) if key[:3] in fleet.own}
        assert own == {key: fleet.live.get(key) for key in own}
        sent = {(name, without_shard(tags), host, at) for name, tags, host, at in fleet.sharded}
        missing = fleet.live_in(0, fleet.now).keys() - sent
        # What a job holds is no longer told once later words, read together with it, put it in doubt.
        missing = {key for key in undisputed(missing) if not key[0].endswith("_outstanding")}
        assert not {key for key in missing if key[:3] in fleet.own}
        assert not missing or fleet.dropped["late"]


@pytest.mark.parametrize("interval", ["7", "60"])
def test_no_operation_is_lost_where_the_number_of_shards_changes_and_jobs_are_added_up(
    tmp_path: Path, interval: str
) -> None:
    """What was too young for the last number of shards is left for the next."""
    fleet = Layouts(DATA_PLANE, tmp_path, Random(0), tag_job="false", aggregate_interval=interval)
    seqs = count()
    for fleet.count in (1, 4, 3):
        for _, job in product(range(60), "abc"):
            fleet.now += job == "a"
            one = operations(next(seqs), NOW - fleet.now, (1, 1, 1.0), job=job, run_id=job)
            fleet.write(f"{job}.jsonl", one)
        fleet.tick()
    fleet.now += 200
    fleet.tick()
    assert sum(value for key, value in fleet.sharded.items() if key[0] == OPS) == 3 * 60 * 3
    assert fleet.dropped == {}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHarness]:
    with harness_of("data_plane", tmp_path_factory) as harness:
        yield harness


KILL = st.builds(Kill, st.sampled_from(AT_THE_INTAKE + AT_THE_STORE), st.integers(1, 4))
OPS = "data_plane.ops"


@pytest.mark.slow
@given(kills=st.lists(KILL | st.none(), min_size=8, max_size=8))
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_jobs_are_counted_once_whatever_is_killed_as_the_number_of_shards_changes(
    shared: CrashHarness, kills: list[Kill | None]
) -> None:
    second, truth, seqs, left = int(time.time()) - 3000, Counter[tuple[str, str, int]](), count(), [*kills]
    with case(shared) as (folder, intake):
        now = (
            int(time.time()) - 10
        )  # each number of shards at a second of its own, however quick the machine is
        for shards in (1, 4, 3):
            now += 1
            for job, _ in product("abcdef", range(4)):
                second += next(seqs) % 3 == 0
                calls = [(1, 1, 1.0)] * (1 + second % 3)
                one = operations(next(seqs), NOW - second, *calls, job=job, run_id=job)
                TornLines().append(folder / f"{job}.jsonl", [one])
                truth[OPS, job, second] += len(calls)
            for index in range(shards):
                shared.run(left.pop(), now=now, shard={"index": index, "count": shards})
        for index in range(3):
            outcome = shared.run(now=now + 1, shard={"index": index, "count": 3})
            assert outcome is not None
            assert (outcome["status"], outcome["dropped"]) == ("ok", {}), outcome
        assert held(intake, "job", OPS) == truth
        assert {tags for (tags, _), _ in intake.series("collector.up").items() if "shard:2" in tags}
