"""Fleets of record files that grow in simulated time, and the points that their records amount to.

`fleet(kind, seed, ...)` makes one: the lines of every file with the second at which each is written, and what
happens to the files (renamed, compressed, deleted, unreadable). `Disk` plays it back into a folder. `truth`
computes the points from the generated records alone; it shares no code with the product.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

Json = dict[str, Any]
Key = tuple[str, tuple[str, ...], str | None, int]  # metric, tags, host, second
Points = dict[Key, float]

BEGIN = 1_794_700_800  # a multiple of a day
STEP = 900
SETTLE = 60


class Line(NamedTuple):
    """A line of a file. `file` names the file for as long as it exists, whatever it is renamed to.

    `record` is None for a line that is no record of the fleet's kind.
    """

    written: int
    file: str
    content: bytes
    record: Json | None = None


class Move(NamedTuple):
    """What happens to a file: `rotate` and `compress` change its name, `remove` deletes it."""

    at: int
    file: str
    how: str


@dataclass
class Fleet:
    """Files and what happens to them. `documents` are files that are replaced, by path and second."""

    kind: str
    settings: dict[str, str]
    lines: list[Line] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    documents: list[tuple[int, str, bytes]] = field(default_factory=list)

    @property
    def records(self) -> list[Line]:
        """The lines that are records of the fleet's kind."""
        return [line for line in self.lines if line.record is not None]

    @property
    def last(self) -> int:
        """The last second at which something happens."""
        return max([BEGIN, *(line.written for line in self.lines), *(move.at for move in self.moves)])


def path_of(file: str) -> str:
    """Return the path of a file before it is rotated; files that follow each other share it."""
    return file.partition("#")[0]


def rotated(file: str) -> str:
    """Return the path of a file once it is rotated."""
    path, _, number = file.partition("#")
    return f"{path.removesuffix('.jsonl')}.{int(number or 0) + 1:06d}.jsonl"


class Disk:
    """Plays a fleet back into a folder, up to a time that only moves forward."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.folder = folder
        self.paths: dict[str, Path] = {}  # of each file, where it is now
        self.former: defaultdict[str, set[str]] = defaultdict(set)  # every path that a file has had
        steps: list[tuple[int, int, Callable[[], None]]] = []
        appended: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
        for line in fleet.lines:
            appended[line.written, line.file].append(line.content)
        steps += [(at, 1, self._append(file, at, b"".join(those))) for (at, file), those in appended.items()]
        steps += [(move.at, 0, self._move(move)) for move in fleet.moves]
        steps += [(at, 2, self._replace(folder / path, at, text)) for at, path, text in fleet.documents]
        self._steps = iter(sorted(steps, key=lambda step: step[:2]))
        self._next = next(self._steps, None)

    def advance(self, now: int) -> None:
        """Do everything that happens up to and with a second."""
        while self._next is not None and self._next[0] <= now:
            self._next[2]()
            self._next = next(self._steps, None)

    def _locate(self, file: str, path: Path) -> Path:
        self.paths[file] = path
        self.former[file].add(str(path))
        return path

    def _append(self, file: str, at: int, content: bytes) -> Callable[[], None]:
        def append() -> None:
            path = self.paths.get(file) or self._locate(file, self.folder / path_of(file))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as stream:
                stream.write(content)
            os.utime(path, (at, at))

        return append

    def _move(self, move: Move) -> Callable[[], None]:
        def act() -> None:
            path = self.paths.get(move.file)
            if path is None or not path.exists():
                return
            if move.how == "rotate":
                path.rename(self._locate(move.file, self.folder / rotated(move.file)))
            elif move.how == "remove":
                path.unlink()
            else:
                written = path.stat().st_mtime
                packed = self._locate(move.file, Path(f"{path}.gz"))
                packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
                path.unlink()
                os.utime(packed, (written, written))  # as gzip leaves it

        return act

    @staticmethod
    def _replace(path: Path, at: int, content: bytes) -> Callable[[], None]:
        def replace() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, (at, at))

        return replace


# -- generating


@dataclass(frozen=True)
class Shape:
    """How large a fleet is, and what may happen in it."""

    seconds: int = 9000
    writers: int = 4
    intervals: tuple[int, ...] = (20, 30, 45)
    lag: int = 20  # the most that a record takes to reach its file
    damage: float = 0.02  # lines that are none, and records of other kinds, per record
    restarts: bool = True
    shared: bool = True  # some files have two writers
    rivals: bool = False  # two live writers with the same tags
    rotation: bool = True
    plain_rotation: bool = True  # also of files with records of xenna's older form
    compression: bool = True
    removal: bool = False  # an hour after the last record
    silence: int = 0  # files that write nothing for up to so many seconds, then everything at once
    repeats: float = 0.0  # records that are written twice


class Session(NamedTuple):
    """One writer from its first record to its last."""

    name: str  # identifies its series
    run: str
    since: float
    until: float
    interval: int
    ending: str  # "", "ok" or "error"


def fleet(kind: str, seed: int, shape: Shape | None = None, **settings: str) -> Fleet:
    """Make a fleet of a kind; the same arguments make the same one."""
    shape, chance = shape or Shape(), Random(f"{kind} {seed}")
    made = Fleet(kind, settings)
    for writer in range(shape.writers):
        sessions = list(_sessions(chance, shape, kind, writer))
        if shape.rivals and writer == 1:
            sessions += [session._replace(run=f"{session.run}-rival") for session in sessions]
        shared = shape.shared and kind != "gpu_memory" and writer % 3 == 2
        for number, session in enumerate(sessions):
            path = _path(kind, writer - 1 if shared else writer, number if writer % 2 else 0, session)
            records = _WRITERS[kind](chance, shape, writer, session)
            made.lines += _written(chance, shape, kind, path, list(records))
    made.lines.sort(key=lambda line: line.written)
    if shape.rotation:
        _rotate(chance, shape, made)
    if shape.removal:
        made.moves += [
            Move(last + 3600 + chance.randrange(1800), file, "remove")
            for file, last in sorted(_last_records(made).items())
        ]
    if kind == "gpu_memory":
        made.documents += _manifests(made)
    return made


def _sessions(chance: Random, shape: Shape, kind: str, writer: int) -> Iterator[Session]:
    """Yield the sessions of a writer, which follow each other where it is restarted."""
    at, end = BEGIN + 30 + chance.random() * 600, BEGIN + shape.seconds
    interval, name, generation = chance.choice(shape.intervals), f"{kind[0]}{writer}", 0
    while at < end - 120:
        until = at + 600 + chance.random() * (shape.seconds if not shape.restarts else 5000)
        ending = chance.choice(("ok", "ok", "error", "")) if kind == "xenna" else ""
        until, ending = (until, ending) if until < end else (float(end), "")
        yield Session(name, f"{name}-{chance.randrange(16**6):06x}-{generation}", at, until, interval, ending)
        if not shape.restarts:
            return
        generation += 1
        at = until + 5 + chance.random() * 1500


def _timestamps(chance: Random, session: Session) -> Iterator[float]:
    """Yield the times of records: regular, with a few left out, in quarters of a second."""
    at = math.ceil(session.since * 4) / 4
    while at < session.until:
        if chance.random() > 0.03:
            yield at
        at += session.interval + chance.randrange(4) / 4


def _path(kind: str, writer: int, number: int, session: Session) -> str:
    if kind == "gpu_memory":
        return f"sink-{writer}/segment-{number + 1:06d}.jsonl"
    return f"{kind}-{session.run}.jsonl" if writer % 2 else f"{kind}-{writer}.jsonl"


def _written(chance: Random, shape: Shape, kind: str, path: str, records: list[Json]) -> Iterator[Line]:
    """Yield the lines of a writer, each at the second in which it reaches its file."""
    if not records:
        return
    first, last, before = time_of(kind, records[0]), time_of(kind, records[-1]), 0
    quiet = (0.0, 0.0)
    if shape.silence and chance.random() < 0.5 and last - first > 300:
        since = first + chance.random() * (last - first - 200)
        quiet = (since, min(last, since + 60 + chance.random() * shape.silence))
    for record in records:
        at = time_of(kind, record)
        silent = quiet[0] <= at < quiet[1]
        before = max(before, math.ceil(quiet[1] if silent else at + chance.random() * shape.lag))
        if chance.random() < shape.damage:
            yield Line(before, path, _damage(chance, kind, record))
        content = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        for _ in range(1 + (chance.random() < shape.repeats)):
            yield Line(before, path, content, record)


def _damage(chance: Random, kind: str, record: Json) -> bytes:
    """Return a line that is no record of the kind, made of one that is."""
    content = json.dumps(record).encode()
    other = {"schema_version": 1, "kind": "other", "event": "stats", "run_id": "x", "seq": 7}
    return (
        chance.choice(
            (
                content[: len(content) // 2],
                content.replace(b":", b"", 1),
                b'"text"',
                b"\xff\xfe" + content,
                json.dumps(record | {"schema_version": 99, "seq": 10**6}).encode(),
                json.dumps(other | {"timestamp": time_of(kind, record)}).encode(),
                json.dumps({"metrics": {"progress": 1}}).encode(),
            )
        )
        + b"\n"
    )


def time_of(kind: str, record: Json) -> float:
    """Return when a record is from."""
    return float(record["timestamp_ns"] / 10**9 if kind == "gpu_memory" else record["timestamp"])


def _last_records(made: Fleet) -> dict[str, int]:
    """Return when the last line of each file was written."""
    return {line.file: line.written for line in made.lines}


def _rotate(chance: Random, shape: Shape, made: Fleet) -> None:
    """Cut some files into several, of which all but the last are renamed, and some are compressed.

    Sinks begin another segment instead, which is what their writers do.
    """
    lines: list[Line] = []
    cuts: dict[str, list[int]] = {}
    for path in sorted({line.file for line in made.lines}):
        span = [line.written for line in made.lines if line.file == path]
        often = chance.choice((0, 1, 2)) if span[-1] - span[0] > 1200 else 0
        if not shape.plain_rotation and any(_is_plain(line) for line in made.lines if line.file == path):
            often = 0
        cuts[path] = sorted(chance.randrange(span[0] + 300, span[-1] - 300) for _ in range(often))
    for line in made.lines:
        number = sum(cut < line.written for cut in cuts[line.file])
        if made.kind == "gpu_memory":
            stem, _, first = line.file.removesuffix(".jsonl").rpartition("-")
            lines.append(line._replace(file=f"{stem}-{int(first) * 10 + number:06d}.jsonl"))
        else:
            lines.append(line._replace(file=f"{line.file}#{number}"))
    made.lines[:] = lines
    closed = {} if made.kind != "gpu_memory" else _last_records(made)
    if made.kind != "gpu_memory":
        for path, times in cuts.items():
            closed |= {f"{path}#{number}": at + 1 for number, at in enumerate(times)}
        made.moves += [Move(at, file, "rotate") for file, at in closed.items()]
    for file, at in sorted(closed.items()):
        if shape.compression and chance.random() < 0.5:
            made.moves.append(Move(at + 60 + chance.randrange(1200), file, "compress"))


def _is_plain(line: Line) -> bool:
    return line.record is not None and "schema_version" not in line.record


def _envelope(kind: str, session: Session, seq: int, at: float, event: str = "stats") -> Json:
    return {
        "schema_version": 1,
        "kind": kind,
        "event": event,
        "run_id": session.run,
        "seq": seq,
        "timestamp": at,
        "host": "node-1",
        "pid": 7,
    }


def _xenna(chance: Random, shape: Shape, writer: int, session: Session) -> Iterator[Json]:
    """Yield what a pipeline of two stages writes; every fourth writer uses the older form without a run."""
    tags = {"pipeline_kind": "curate" if writer % 2 else "dedup", "run_hash": session.name}
    if writer % 4 == 3:
        tags["rank"] = writer  # type: ignore[assignment]
    plain = writer % 4 == 2
    timestamps = list(_timestamps(chance, session))
    for seq, at in enumerate(timestamps):
        metrics = {
            "progress": chance.randrange(400) / 4,
            "num_outputs": seq,
            "cluster/total_cpus": 8.0,
            **{
                f"stage/{stage}/{key}": chance.randrange(400) / 4
                for stage in ("read", "write")
                for key in ("queue_in", "speed_tasks_per_s", "resource/mem_gb")
            },
        }
        if chance.random() < 0.05:
            metrics |= {"progress": chance.choice((None, "x")), "unheard_of": 1}  # type: ignore[dict-item]
        if plain:
            yield {"timestamp": at, **tags, "metrics": metrics, "stages": []}
            continue
        event = "start" if seq == 0 else "stats"
        yield _envelope("xenna", session, seq, at, event) | tags | {"metrics": metrics}
    if session.ending and timestamps and not plain:
        end = _envelope("xenna", session, len(timestamps), timestamps[-1] + 2.5, "end") | tags
        yield end | {"metrics": {"progress": 100.0}, "status": session.ending}


def _gpu_memory(chance: Random, shape: Shape, writer: int, session: Session) -> Iterator[Json]:
    """Yield what a session on a device writes; every fourth is on a CPU, which has no capacity."""
    cpu = writer % 4 == 3
    for at in _timestamps(chance, session):
        used = chance.randrange(10**6)
        event = {
            "schema_version": 4,
            "session_id": session.run,
            "job_id": f"job-{writer // 2}",
            "host": f"node-{writer % 2}",
            "rank": writer,
            "device_id": -1 if cpu else writer % 2,
            "timestamp_ns": round(at * 1000) * 10**6,
            "event_type": chance.choice(("sample",) * 8 + ("warning", "critical", "peak")),
            "allocator_allocated_bytes": used,
            "allocator_reserved_bytes": used + 1000,
        }
        if not cpu:
            event |= {"device_used_bytes": used + 5000, "device_total_bytes": 2_000_000}
        yield event


def _data_plane(chance: Random, shape: Shape, writer: int, session: Session) -> Iterator[Json]:
    """Yield what a rank writes: calls by operation, partition and status, and what its client holds."""
    job, seq = f"job-{writer // 2}", 0
    known = {"job": job} | ({} if writer % 4 == 3 else {"rank": writer})
    for at in _timestamps(chance, session):
        for op in chance.sample(("put", "get", "clear"), chance.randrange(1, 3)):
            status = chance.choice(("ok", "ok", "ok", "error", "timeout"))
            calls = [chance.randrange(1, 400) / 4 for _ in range(chance.randrange(1, 6))]
            buckets: defaultdict[str, int] = defaultdict(int)
            for call in calls:
                buckets[str(bisect_left(_ENDS, call))] += 1
            wall = {"sum": sum(calls), "min": min(calls), "max": max(calls), "buckets": dict(buckets)}
            body = {"op": op, "partition_id": chance.choice(("train", "eval", "")), "status": status}
            counts = {"count": len(calls), "keys": chance.randrange(99), "bytes": chance.randrange(10**6)}
            yield _envelope("data_plane", session, seq, at) | known | body | counts | {"wall_ms": wall}
            seq += 1
        doubted = writer // 2 % 3 == 2  # no client of this job is its only writer
        outstanding: Json = {
            "interval_s": 10.0,
            "sole_writer": writer % 2 == 0 and not doubted,
            "bytes_outstanding": {"train": chance.randrange(10**6), "eval": chance.randrange(99)},
            "peak_bytes_outstanding": 10**6,
            "keys_outstanding": chance.randrange(99),
            "foreign_clears": chance.randrange(3) if doubted else 0,
            "keys_overflowed": chance.randrange(2) if doubted else 0,
        }
        yield _envelope("data_plane", session, seq, at) | known | outstanding
        seq += 1


_WRITERS: Mapping[str, Callable[[Random, Shape, int, Session], Iterator[Json]]] = {
    "xenna": _xenna,
    "gpu_memory": _gpu_memory,
    "data_plane": _data_plane,
}


def _manifests(made: Fleet) -> Iterator[tuple[int, str, bytes]]:
    """Yield the manifests of sinks: each time a session begins, the one before it was interrupted."""
    sinks: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for line in made.records:
        assert line.record is not None
        sinks[line.file.rpartition("/")[0]].setdefault(line.record["session_id"], line.written)
    for sink, sessions in sorted(sinks.items()):
        names = list(sessions)
        for number, name in enumerate(names):
            listed = [
                {"session_id": ended, "status": "completed" if index % 2 else "interrupted"}
                | {
                    "started_at_ns": sessions[ended] * 10**9,
                    "ended_at_ns": sessions[names[index + 1]] * 10**9,
                }
                for index, ended in enumerate(names[:number])
            ]
            listed.append({"session_id": name, "status": "running", "started_at_ns": sessions[name] * 10**9})
            document = {"schema_version": 1, "sessions": listed, "segments": []}
            yield sessions[name], f"{sink}/manifest.json", json.dumps(document).encode()


# -- the truth


class Truth(NamedTuple):
    """The points of some records: those that one record states alone, and those that add up.

    `feeds` has the lines that each point comes from.
    """

    gauges: Points
    sums: Points
    feeds: Mapping[Key, list[Line]]


def truth(made: Fleet, lines: Iterable[Line] | None = None, now: float = math.inf) -> Truth:
    """Compute the points of a fleet's records, or of some of them; manifests are as they are at a time."""
    found = _Sums(made.settings)
    found.sessions({path: content for at, path, content in made.documents if at <= now})
    {"xenna": found.xenna, "gpu_memory": found.gpu_memory, "data_plane": found.data_plane}[made.kind](
        _distinct(made.records if lines is None else [line for line in lines if line.record])
    )
    return Truth(found.gauges, found.sums, found.feeds)


def _distinct(lines: Iterable[Line]) -> list[Line]:
    """Drop the repetitions of records that have a run and a number, and of events of one time."""
    seen: set[tuple[object, ...]] = set()
    distinct: list[Line] = []
    for line in lines:
        record = line.record or {}
        name = (record.get("run_id", record.get("session_id")), record.get("rank"))
        name += (record.get("seq", record.get("timestamp_ns")), record.get("event_type"))
        if name[2] is None or name not in seen:
            seen.add(name)
            distinct.append(line)
    return distinct


_ENDS = tuple(0.01 * 2 ** (step / 4) for step in range(116))  # milliseconds; part of the record format
_MEANS = ("speed_tasks_per_s",)


class _Sums:
    """Adds up the records of one fleet."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.width = int(settings.get("aggregate_interval", "60"))
        self.gauges: Points = {}
        self.sums: Points = {}
        self.feeds: defaultdict[Key, list[Line]] = defaultdict(list)
        self._ranks: dict[Key, tuple[object, ...]] = {}

    def on(self, tag: str) -> bool:
        """Whether a tag is on, which it is by default."""
        return self.settings.get(tag, "true") == "true"

    def state(self, key: Key, value: float, line: Line, rank: tuple[object, ...]) -> None:
        """Set a gauge; of several values of a series and second, the highest rank wins."""
        self.feeds[key].append(line)
        if key not in self._ranks or rank >= self._ranks[key]:
            self._ranks[key] = rank
            self.gauges[key] = value

    def add(self, key: Key, value: float, line: Line) -> None:
        """Add to a sum."""
        self.feeds[key].append(line)
        self.sums[key] = self.sums.get(key, 0) + value

    def xenna(self, lines: list[Line]) -> None:
        last: dict[tuple[str, tuple[str, ...], int, str], tuple[tuple[float, int], float, Line]] = {}
        for line in lines:
            record = line.record or {}
            at, run = record["timestamp"], str(record.get("run_id", f"plain {path_of(line.file)}"))
            names = ("pipeline_kind", "rank", "run_hash")
            tags = tuple(f"{name}:{record[name]}" for name in names if record.get(name) is not None)
            if record.get("event") == "end":
                status = "ok" if record["status"] == "ok" else "error"
                self.add(("xenna.runs.ended", (f"status:{status}",), None, int(at)), 1, line)
            for key, value in record["metrics"].items():
                if not isinstance(value, int | float) or key == "unheard_of":
                    continue
                family, _, rest = key.partition("/")
                rank = (at, run, record.get("seq", 0))
                if family == "cluster":
                    self.state((f"xenna.cluster.{rest}", tags, None, int(at)), value, line, rank)
                elif family != "stage":
                    self.state((f"xenna.pipeline.{key}", tags, None, int(at)), value, line, rank)
                else:
                    stage, _, what = rest.partition("/")
                    name = f"xenna.stage.{what.replace('/', '.')}"
                    if self.on("stage_run_hash"):
                        self.state((name, (*tags, f"stage:{stage}"), None, int(at)), value, line, rank)
                        continue
                    start = int(at) // self.width * self.width
                    shared: tuple[str, ...] = (f"pipeline_kind:{record['pipeline_kind']}", f"stage:{stage}")
                    slot, order = (name, shared, start, run), (at, record.get("seq", 0))
                    self.feeds[name, shared, None, start].append(line)
                    if slot not in last or order >= last[slot][0]:
                        last[slot] = (order, value, line)
        totals: defaultdict[Key, list[float]] = defaultdict(list)
        for (name, shared, start, _), (_, value, _) in last.items():
            totals[name, shared, None, start].append(value)
        for key, values in totals.items():
            total = sum(values) / (len(values) if key[0].endswith(_MEANS) else 1)
            self.sums[key] = round(total, 9)

    def sessions(self, manifests: Mapping[str, bytes]) -> None:
        """Count sessions that were interrupted when they ended."""
        for content in manifests.values():
            for session in json.loads(content)["sessions"]:
                if session["status"] == "interrupted":
                    key: Key = ("gpu_memory.sessions.interrupted", (), None, session["ended_at_ns"] // 10**9)
                    self.sums[key] = self.sums.get(key, 0) + 1

    def gpu_memory(self, lines: list[Line]) -> None:
        device: dict[tuple[str, str, str, str, int, str], tuple[float, float]] = {}
        tagged = self.on("tag_job_id")
        for line in lines:
            event = line.record or {}
            at = event["timestamp_ns"] / 10**9
            rank, host, job = str(event["rank"]), event["host"], event["job_id"]
            gpu = str(event["device_id"]) if event["device_id"] >= 0 else ""
            total = event.get("device_total_bytes")
            used = event.get("device_used_bytes", event["allocator_reserved_bytes"])
            values = {
                "allocated_bytes": event["allocator_allocated_bytes"],
                "reserved_bytes": event["allocator_reserved_bytes"],
                "device_used_bytes": used,
            }
            if total:
                values |= {"device_total_bytes": total, "utilization_pct": used / total * 100.0}
            names = (("gpu", gpu), ("job_id", job), ("rank", rank))
            tags = tuple(f"{name}:{value}" for name, value in names if value)
            if not tagged:
                tags = (f"rank:{rank}",)
            if event["event_type"] != "sample":
                alert = (*tags, f"type:{event['event_type']}")
                self.add(("gpu_memory.alerts", alert, host, int(at)), 1, line)
            start = int(at) // self.width * self.width
            for name, value in values.items():
                if tagged:
                    key = (f"gpu_memory.{name}", tags, host, int(at))
                    self.state(key, value, line, (at, event["session_id"]))
                else:
                    slot = (host, rank, gpu, event["session_id"] + job, start, name)
                    self.feeds[f"gpu_memory.{name}", tags, host, start].append(line)
                    if at >= device.get(slot, (0.0, 0.0))[0]:
                        device[slot] = (at, value)
        if not tagged:
            self._devices(device)

    def _devices(self, device: Mapping[tuple[str, str, str, str, int, str], tuple[float, float]]) -> None:
        """Add up what sessions hold; of a device, they all state the same."""
        by_gpu: defaultdict[tuple[str, str, str, int, str], list[float]] = defaultdict(list)
        measured: defaultdict[tuple[str, str, str, int], list[float]] = defaultdict(list)
        for (host, rank, gpu, session, start, name), (_, value) in device.items():
            if name != "utilization_pct":
                by_gpu[host, rank, gpu, start, name].append(value)
            else:
                slot = (host, rank, gpu, session, start, "device_used_bytes")
                measured[host, rank, gpu, start].append(device[slot][1])
        totals: defaultdict[tuple[str, str, int, str], float] = defaultdict(float)
        for (host, rank, gpu, start, name), values in by_gpu.items():
            of_device = bool(gpu) and name.startswith("device_")
            totals[host, rank, start, name] += max(values) if of_device else sum(values)
        for (host, rank, gpu, start), values in measured.items():
            totals[host, rank, start, "measured"] += max(values) if gpu else sum(values)
        for (host, rank, start, name), total in totals.items():
            if name == "measured":
                name, total = "utilization_pct", total / totals[host, rank, start, "device_total_bytes"] * 100
            self.sums[f"gpu_memory.{name}", (f"rank:{rank}",), host, start] = total

    def data_plane(self, lines: list[Line]) -> None:
        calls: defaultdict[tuple[tuple[str, ...], int], list[Line]] = defaultdict(list)
        width = 1 if self.on("tag_job") and self.on("tag_rank") else self.width
        for line in lines:
            record = line.record or {}
            at = record["timestamp"]
            start = int(at) // width * width
            if "op" in record:
                calls[self._tags(record, "job", "op", "partition_id", "rank"), start].append(line)
                continue
            tags, outstanding = self._tags(record, "job", "rank"), record["bytes_outstanding"]
            for name in ("foreign_clears", "keys_overflowed"):
                self.add((f"data_plane.{name}", tags, None, start), record[name], line)
            if not (record["sole_writer"] and self.on("tag_job")):
                continue
            rank = (at, record["run_id"], record["seq"])
            for name in ("peak_bytes_outstanding", "keys_outstanding"):
                self.state((f"data_plane.{name}", tags, None, int(at)), record[name], line, rank)
            by_tags: defaultdict[tuple[str, ...], int] = defaultdict(int)
            for partition, n_bytes in outstanding.items():
                tagged = self._tags(record | {"partition_id": partition}, "job", "partition_id", "rank")
                by_tags[tagged] += n_bytes
            for tagged, n_bytes in by_tags.items():
                self.state(("data_plane.bytes_outstanding", tagged, None, int(at)), n_bytes, line, rank)
        for (tags, start), those in calls.items():
            for name, value in _operations([line.record or {} for line in those]).items():
                self.sums[f"data_plane.{name}", tags, None, start] = value
                self.feeds[f"data_plane.{name}", tags, None, start] += those

    def _tags(self, record: Json, *names: str) -> tuple[str, ...]:
        switched = ("job", "rank", "partition_id")
        return tuple(
            f"{name}:{record[name]}"
            for name in names
            if record.get(name) not in (None, "") and (name not in switched or self.on(f"tag_{name}"))
        )


def _operations(records: list[Json]) -> dict[str, float]:
    """Return the points of calls of one series: of a bucket's times, those that lie evenly in it."""
    good = [record for record in records if record["status"] == "ok"]
    walls = [record["wall_ms"] for record in good]
    number = sum(record["count"] for record in good)
    found: dict[str, float] = {
        "ops": number,
        "errors": sum(record["count"] for record in records if record["status"] == "error"),
        "timeouts": sum(record["count"] for record in records if record["status"] == "timeout"),
        "keys": sum(record["keys"] for record in good),
        "bytes": sum(record["bytes"] for record in good),
    }
    if not number:
        return found
    low, high = min(wall["min"] for wall in walls), max(wall["max"] for wall in walls)
    buckets: defaultdict[int, int] = defaultdict(int)
    for wall in walls:
        for index, many in wall["buckets"].items():
            buckets[int(index)] += many
    for percent in (50, 95, 99):
        rank, reached = max(1, math.ceil(number * percent / 100)), 0
        for index, many in sorted(buckets.items()):
            if reached + many >= rank:
                start = max(low, _ENDS[index - 1] if index else 0.0)
                end = min(high, _ENDS[index] if index < len(_ENDS) else math.inf)
                found[f"wall_ms.p{percent}"] = start + (end - start) * ((rank - reached) / many)
                break
            reached += many
    found["wall_ms.avg"] = round(sum(wall["sum"] for wall in walls) / number, 9)
    found["wall_ms.max"] = high
    return found
