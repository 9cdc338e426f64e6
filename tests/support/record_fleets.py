"""Fleets of record files that grow in simulated time.

`fleet(kind, seed, ...)` makes one: the lines of every file with the second at which each is written, and what
happens to the files (renamed, compressed, deleted, unreadable). `Disk` plays it back into a folder.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
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
ENDS = tuple(0.01 * 2 ** (step / 4) for step in range(116))  # milliseconds; part of the record format


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
        appended: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
        for line in fleet.lines:
            appended[line.written, line.file].append(line.content)
        steps: list[tuple[int, int, str, str, bytes]] = []  # when, in which order, what happens to what
        steps += [(move.at, 0, move.how, move.file, b"") for move in fleet.moves]
        steps += [(at, 1, "append", file, b"".join(those)) for (at, file), those in appended.items()]
        steps += [(at, 2, "replace", path, text) for at, path, text in fleet.documents]
        self._steps = deque(sorted(steps, key=lambda step: step[:2]))

    def advance(self, now: int) -> None:
        """Do everything that happens up to and with a second."""
        while self._steps and self._steps[0][0] <= now:
            at, _, how, file, content = self._steps.popleft()
            path = self.paths.get(file)
            if how in ("append", "replace"):
                if how == "replace":
                    path = self.folder / file
                path = path or self._locate(file, self.folder / path_of(file))
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab" if how == "append" else "wb") as stream:
                    stream.write(content)
                os.utime(path, (at, at))
            elif path is None or not path.exists():
                continue
            elif how == "rotate":
                path.rename(self._locate(file, self.folder / rotated(file)))
            elif how == "compress":
                written = path.stat().st_mtime
                packed = self._locate(file, Path(f"{path}.gz"))
                packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
                os.utime(packed, (written, written))  # as gzip leaves it
            if how in ("compress", "remove"):
                path.unlink()

    def _locate(self, file: str, path: Path) -> Path:
        self.paths[file] = path
        self.former[file].add(str(path))
        return path


def ticks_over(made: Fleet, begin: int = BEGIN) -> tuple[int, ...]:
    """Return the times of runs: every step, each a few seconds after it, and some after the last write."""
    steps = range(begin, made.last + 3 * STEP, STEP)
    return tuple(at + 3 + number * 7 % 38 for number, at in enumerate(steps))


# -- generating


@dataclass(frozen=True)
class Shape:
    """How large a fleet is, and what may happen in it."""

    seconds: int = 9000
    writers: int = 4
    intervals: tuple[int, ...] = (20, 30, 45)
    lag: int = 20  # the most that a record takes to reach its file
    damage: float = 0.02  # lines that are none, and records of other kinds, per record
    rivals: bool = False  # two live writers with the same tags
    rotation: bool = True
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
        shared = kind != "gpu_memory" and writer % 3 == 2  # some files have two writers
        for number, session in enumerate(sessions):
            path = _path(kind, writer - 1 if shared else writer, number if writer % 2 else 0, session)
            records = _WRITERS[kind](chance, shape, writer, session)
            made.lines += _written(chance, shape, kind, path, list(records))
    made.lines.sort(key=lambda line: line.written)
    if shape.rotation:
        _rotate(chance, made)
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
        until = at + 600 + chance.random() * 5000
        ending = chance.choice(("ok", "ok", "error", "")) if kind == "xenna" else ""
        until, ending = (until, ending) if until < end else (float(end), "")
        yield Session(name, f"{name}-{chance.randrange(16**6):06x}-{generation}", at, until, interval, ending)
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


def _rotate(chance: Random, made: Fleet) -> None:
    """Cut some files into several, of which all but the last are renamed, and some are compressed.

    Sinks begin another segment instead, which is what their writers do.
    """
    lines: list[Line] = []
    cuts: dict[str, list[int]] = {}
    for path in sorted({line.file for line in made.lines}):
        span = [line.written for line in made.lines if line.file == path]
        often = chance.choice((0, 1, 2)) if span[-1] - span[0] > 1200 else 0
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
        if chance.random() < 0.5:
            made.moves.append(Move(at + 60 + chance.randrange(1200), file, "compress"))


def _envelope(kind: str, session: Session, seq: int, at: float, event: str = "stats") -> Json:
    head = {"schema_version": 1, "kind": kind, "event": event, "run_id": session.run, "seq": seq}
    return head | {"timestamp": at, "host": "node-1", "pid": 7}


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
                buckets[str(bisect_left(ENDS, call))] += 1
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
