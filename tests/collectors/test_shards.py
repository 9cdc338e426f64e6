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
from data_plane_ticks import operations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_crashes import TornLines, case, harness_of, held
from shard_fleets import KINDS, Fleet, Kind, Layouts, combined, own_series, without_shard
from xenna_ticks import NOW

from collectors.data_plane.collector import COLLECTOR as DATA_PLANE
from crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill

SEEDS = st.integers(0, 2**32 - 1)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)


@each_kind
@given(seed=SEEDS, shards=st.integers(1, 16))
@settings(deadline=None, max_examples=8, derandomize=True)
def test_any_number_of_shards_sends_what_one_reader_sends(kind: Kind, seed: int, shards: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(kind.collector, Path(folder), shards, **kind.settings(chance))
        kind.go_on(fleet, chance, 40)
        own = own_series(fleet.sharded)
        assert own == {key: fleet.live.get(key) for key in own}
        together = combined(kind.collector, fleet.sharded)
        assert together == pytest.approx({key: fleet.live.get(key) for key in together}, rel=1e-9, abs=1e-9)
        sent = {(name, without_shard(tags), host, at) for name, tags, host, at in fleet.sharded}
        assert sent == fleet.live.keys()


@each_kind
@given(seed=SEEDS, shards=st.integers(2, 8))
@settings(deadline=None, max_examples=4, derandomize=True)
def test_the_shards_of_a_backfill_send_what_one_sends(kind: Kind, seed: int, shards: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(kind.collector, Path(folder), 0, **kind.settings(chance))
        kind.go_on(fleet, chance, 40)
        points = fleet.replay_of(shards)
        own, together = own_series(points), combined(kind.collector, points)
        whole = fleet.replay_of(1)
        assert own == {key: whole.get(key) for key in own}
        assert together == pytest.approx({key: whole.get(key) for key in together}, rel=1e-9, abs=1e-9)
        assert {(name, without_shard(tags), host, at) for name, tags, host, at in points} == whole.keys()


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
        own = {key: value for key, value in fleet.sharded.items() if key[:3] in fleet.own}
        assert own == {key: fleet.live.get(key) for key in own}
        sent = {(name, without_shard(tags), host, at) for name, tags, host, at in fleet.sharded}
        missing = fleet.live_in(0, fleet.now).keys() - sent
        # What a job holds is no longer told once later words, read together with it, put it in doubt.
        missing = {key for key in missing if not key[0].endswith("_outstanding")}
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
