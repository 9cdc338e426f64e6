"""Random fleets that one reader and shards read side by side, and what an intake holds of either."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from collectors.data_plane.collector import COLLECTOR as DATA_PLANE
from collectors.gpu_memory.collector import COLLECTOR as GPU_MEMORY
from collectors.xenna.collector import COLLECTOR as XENNA
from common.collector import Collector
from common.metric import Combine, Mark
from common.shards import Shard
from common.span import Span
from common.state.directory import DirectoryStore
from common.state.slots import SENT_UNTIL, SlotCheckpoint, layout
from support.data_plane_ticks import held as holding
from support.data_plane_ticks import operations
from support.replay_writers import event
from support.replays import BEGIN, Held, Simulation, held, saved, split
from support.xenna_ticks import NOW, record

# What is declared to combine otherwise than it is worked out of all units, and is told of each shard.
PER_SHARD = {
    *(f"data_plane.wall_ms.p{percent}" for percent in (50, 95, 99)),
    *(f"gpu_memory.{name}_bytes" for name in ("device_used", "device_total", "peak_allocated")),
    "gpu_memory.utilization_pct",
}


K = TypeVar("K", bound=tuple[Any, ...])


class Fleet(Simulation):
    """Files that grow, read by one reader and by shards, each with a state of its own."""

    def __init__(self, collector: Collector[Any], folder: Path, count: int, **settings: str) -> None:
        super().__init__(collector, folder, **settings)
        self.states: list[dict[str, object]] = [{} for _ in range(count)]
        self.sharded: Held = {}

    def tick(self) -> None:
        super().tick()
        by_others: set[object] = set()
        for index, state in enumerate(self.states):
            context = replace(self.context(self.now, state), shard=Shard(index, len(self.states)))
            samples, marks = split(self.collector.collect(context))
            points = held(samples)
            own = {key for key in points if shard_of(key[1]) in (None, str(index))}
            assert own == points.keys()
            assert not points.keys() & by_others, "shards overwrite each other"
            by_others |= points.keys()
            self.sharded |= points
            for mark in marks:
                self.states[index] = saved(self.states[index], mark)

    def replay_of(self, count: int) -> Held:
        """What an intake holds after so many shards have replayed all of it."""
        points: Held = {}
        for index in range(count):
            context = replace(self.context(self.now, {}), shard=Shard(index, count))
            assert self.collector.backfill
            samples, _ = split(self.collector.backfill(context, Span(BEGIN - 100, self.now, 900))())
            points |= held(samples)
        return points


def shard_of(tags: tuple[str, ...]) -> str | None:
    return next((tag.removeprefix("shard:") for tag in tags if tag.startswith("shard:")), None)


def own_series(points: Held) -> Held:
    """What is told of series that no shard has a part of under its tag."""
    parts = {(name, without_shard(tags), host) for name, tags, host, _ in points if shard_of(tags)}
    return {key: value for key, value in points.items() if key[:3] not in parts and not shard_of(key[1])}


def without_shard(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(tag for tag in tags if not tag.startswith("shard:"))


def combined(collector: Collector[Any], points: Held) -> Held:
    """What shards say of a series, as one number; what cannot be one is left out."""
    series: dict[tuple[str, tuple[str, ...], str | None, int], list[float]] = defaultdict(list)
    for (name, tags, host, at), value in points.items():
        series[name, without_shard(tags), host, at].append(value)
    how = {metric.name: metric.combines for metric in collector.metrics}
    return {
        key: found
        for key, values in series.items()
        if (len(values) == 1 or (how[key[0]] is not Combine.MEAN and key[0] not in PER_SHARD))
        and (found := how[key[0]].of(values)) is not None
    }


class Layouts(Simulation):
    """Files that grow, read by one reader, and by a number of shards that changes; any may be killed.

    Shards remember in a real store.
    """

    def __init__(self, collector: Collector[Any], folder: Path, chance: Random, **settings: str) -> None:
        (folder / "store").mkdir()
        (folder / "records").mkdir()
        super().__init__(collector, folder / "records", **settings)
        self.place = DirectoryStore(folder / "store")
        self.chance = chance
        self.count = 1
        self.kills = 0.0  # of each shard's chance in a tick
        self.sharded: Held = {}
        self.sent_by: defaultdict[tuple[object, ...], set[int]] = defaultdict(set)  # by series and second
        self.own: set[tuple[str, tuple[str, ...], str | None]] = set()  # series that one shard feeds
        self.dropped: Counter[str] = Counter()

    def tick(self) -> None:
        super().tick()
        for index in range(self.count):
            self._tick(Shard(index, self.count))
        self.now += 1  # no two ticks are in one second

    def _tick(self, shard: Shard) -> None:
        with SlotCheckpoint(self.place, "key", shard) as checkpoint:
            sent_until, _ = layout(self.place, "key", shard, hold=True)
            context = replace(
                self.context(self.now, checkpoint.saved.state),
                shard=shard,
                sent_until=sent_until,
                about_to_send=lambda until: checkpoint.change({SENT_UNTIL: until}),
            )
            items = [*self.collector.collect(context)]
            self.dropped += context.tally.dropped
            if self.chance.random() < self.kills:  # somewhere, perhaps with more sent than is remembered
                items = items[: self.chance.randrange(len(items))]
            marks = [place for place, item in enumerate(items) if isinstance(item, Mark)]
            remembered = (
                self.chance.choice(marks) if marks and self.chance.random() < self.kills else len(items)
            )
            for place, item in enumerate(items):
                if not isinstance(item, Mark):
                    self.sharded |= held([item])
                    series = (item.metric.name, without_shard(item.tags), item.host)
                    if shard.count > 1 and item.tags == series[1]:
                        self.own.add(series)
                    else:
                        self.sent_by[*series, item.timestamp].add(shard.count)
                elif place <= remembered:
                    checkpoint.change(item.changes)


SHARING = ("run_hash:hash-5", "run_hash:hash-6")  # a file
CONTESTED = "contested"  # whose series units feed that nobody can tell to be of one writer
Step = Callable[[str], None]


def undisputed(points: Iterable[K]) -> set[K]:
    """What is told of all other series; of these one reader shows a writer alone, and each shard its own."""
    return {key for key in points if not any(tag.endswith(f":{CONTESTED}") for tag in key[1])}


def xenna(fleet: Simulation, chance: Random) -> tuple[dict[str, int], Step]:
    """Runs that end, or start again in a file of their own; two hashes share a file, one run has none.

    One hash has runs in two files, neither of which is named after it.
    """
    generations, seqs = [0] * 10, itertools.count()
    steps = {"write": 90, "end": 3, "start again": 4, "rotate": 5, "tick": 6}
    others = {5: "shared", 6: "shared", 7: "plain", 8: "left", 9: "right"}

    def step(what: str) -> None:
        number = chance.randrange(10)
        run = f"run-{number}.{generations[number]}"
        name = f"{others.get(number, f'xenna-{run}')}.jsonl"
        if what in {"write", "end"}:
            seq = next(seqs)
            body = {"progress": seq / 2, "stage/a/queue_in": seq, "stage/a/speed_tasks_per_s": seq / 4}
            more = {"event": "end", "status": chance.choice(("ok", "error"))} if what == "end" else {}
            run_hash = CONTESTED if number > 7 else f"hash-{number}" if number < 7 else None
            ago = NOW - fleet.now + chance.choice((0, 0, 1.5))
            fleet.write(name, record(seq, ago, body, run_id=run, run_hash=run_hash, **more))
        if what in {"end", "start again"}:
            generations[number] += 1
            fleet.pass_time(5)
        elif what == "rotate":
            fleet.rotate(name)

    return steps, step


def data_plane(fleet: Simulation, chance: Random) -> tuple[dict[str, int], Step]:
    """Jobs of two ranks, one of them without a name; two share a file where the number of shards stays."""
    seqs, steps = itertools.count(), {"put": 60, "hold": 20, "rotate": 5, "tick": 6}

    def step(what: str) -> None:
        job, rank = chance.randrange(6), chance.randrange(2)
        alone = job < 4 or isinstance(fleet, Layouts)
        name = f"{job}.{rank}.jsonl" if alone else f"shared.{rank}.jsonl"
        told = {"job": f"job-{job}" if job else None, "run_id": f"run-{job}.{rank}"}
        ago = NOW - fleet.now + chance.choice((0, 0, 1.5, 40))
        if what == "put":
            calls = [(1, chance.randrange(99), chance.randrange(64) / 4) for _ in range(chance.randint(1, 3))]
            status = chance.choice(("ok", "ok", "error", "timeout"))
            fleet.write(name, operations(next(seqs), ago, *calls, rank=rank, status=status, **told))
        elif what == "hold" and job < 4:
            fleet.write(name, holding(next(seqs), ago, {"p": chance.randrange(99)}, rank=rank, **told))
        elif what == "rotate":
            fleet.rotate(name)

    return steps, step


def gpu_memory(fleet: Simulation, chance: Random) -> tuple[dict[str, int], Step]:
    """Jobs with a sink each, on two hosts, one of them without an id; each sink lists its sessions.

    One job has two sinks of the same rank on one host.
    """
    sessions, segments = [0] * 8, [1] * 8
    steps = {"sample": 60, "warning": 20, "start again": 2, "roll over": 5, "tick": 6}

    def step(what: str) -> None:
        number = chance.randrange(8)
        sink = f"sink-{number}"
        if what in {"sample", "warning"}:
            told = {"job_id": f"job-{number}" if number else None, "host": f"node-{number % 2}"}
            if number > 5:
                told = {"job_id": CONTESTED, "host": "node"}
            told |= {"session_id": f"{number}.{sessions[number]}"}
            rank = min(number, 6)
            one = event(fleet.now + chance.random(), chance.randrange(99), what, **told, rank=rank)
            fleet.write(f"{sink}/segment-{segments[number]:06d}.jsonl", one)
        elif what == "start again":
            sessions[number] += 1
            fleet.pass_time(1)
        elif what == "roll over":
            segments[number] += 1
        if (fleet.folder / sink).exists():
            listed = [
                {"session_id": f"{number}.{one}", "status": chance.choice(("running", "completed"))}
                for one in range(sessions[number] + 1)
            ]
            (fleet.folder / sink / "manifest.json").write_text(
                json.dumps({"sessions": listed, "segments": []})
            )

    return steps, step


@dataclass(frozen=True, repr=False)
class Kind:
    """A collector, who writes for it, and the setting that tells its series apart."""

    collector: Collector[Any]
    writers: Callable[[Simulation, Random], tuple[dict[str, int], Step]]
    tag: str

    def __repr__(self) -> str:
        return self.collector.name

    def settings(self, chance: Random) -> dict[str, str]:
        """Some settings, half of which let units share their series."""
        found = {self.tag: chance.choice(("true", "false")), "aggregate_interval": chance.choice(("60", "7"))}
        return found | ({"tag_rank": chance.choice(("true", "false"))} if self.tag == "tag_job" else {})

    def go_on(self, fleet: Simulation, chance: Random, steps: int) -> None:
        """Let the fleet work for a while, up to a tick."""
        weights, step = self.writers(fleet, chance)
        for what in chance.choices(list(weights), list(weights.values()), k=steps):
            fleet.pass_time(chance.choice((0, 1, 3, 60, 200)))
            step(what)
            if what == "tick":
                fleet.tick()
        fleet.pass_time(200)
        fleet.tick()


KINDS = (
    Kind(XENNA, xenna, "stage_run_hash"),
    Kind(GPU_MEMORY, gpu_memory, "tag_job_id"),
    Kind(DATA_PLANE, data_plane, "tag_job"),
)
