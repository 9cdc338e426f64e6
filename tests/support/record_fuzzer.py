"""Records of the three kinds, damaged at random: what programs, disks and people may leave in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from collectors.data_plane.collector import COLLECTOR as DATA_PLANE
from collectors.gpu_memory.collector import COLLECTOR as GPU_MEMORY
from collectors.xenna.collector import COLLECTOR as XENNA
from common.collector import Collector
from support.data_plane_ticks import held, operations
from support.replay_writers import event
from support.xenna_ticks import NOW, Ticks, record

Json = dict[str, Any]
GOOD_EVERY = 10  # lines: one is as it should be

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**64), 10**30, 0.5, 1e308, -1e308, 1e-320),
    *("", "x", "1", "0" * 5000, "\ud800", "\x00\x1b[2J", "Z" * 100_000, "2026-11-16T00:45:00Z", "9999-99-99"),
    *([], [[]], {}, {"": {}}, [1, "a"], {"a": 10**25}, float("nan"), float("inf"), float("-inf")),
    *(NOW, NOW - 50, NOW + 300, NOW - 10**6, str(NOW)),
)
RAW = (
    "9" * 400,
    "-" + "9" * 400,
    "9" * 6000,
    "1e400",
    "[" * 400 + "]" * 400,
    "[" * 3000 + "]" * 3000,
    "0.1e-9999",
)
MARKER = "put the raw text here"


class Damaged(NamedTuple):
    """Lines for one file, and the good ones of them by the writer and second of their points."""

    lines: list[bytes]
    good: dict[tuple[str, int], float]


class Kind(NamedTuple):
    """How a kind is written: a good record of a writer by its number, and the point that it becomes."""

    collector: Collector[Any]
    name: str
    make: Callable[[str, int, int], Json]  # writer, number and second
    metric: str


def _xenna(writer: str, number: int, at: int) -> Json:
    metrics = {"progress": number + 0.5, "stage/a/queue_in": number, "cluster/total_cpus": 8.0}
    return record(number, NOW - at, metrics, run_id=writer, run_hash=writer)


def _data_plane(writer: str, number: int, at: int) -> Json:
    if number % 3 and writer.startswith("bad"):
        return held(number, NOW - at, {"p": number}, run_id=writer, job=writer, source=writer, interval_s=10)
    return operations(number, NOW - at, (1, number, 2.0), run_id=writer, job=writer)


def _gpu_memory(writer: str, number: int, at: int) -> Json:
    return event(at, number, "warning" if number % 5 == 0 else "sample", session_id=writer, job_id=writer)


KINDS = (
    Kind(XENNA, "x.jsonl", _xenna, "xenna.pipeline.progress"),
    Kind(GPU_MEMORY, "segment-000001.jsonl", _gpu_memory, "gpu_memory.allocated_bytes"),
    Kind(DATA_PLANE, "d.jsonl", _data_plane, "data_plane.bytes"),
)


def damaged(kind: Kind, chance: Random, count: int) -> Damaged:
    """So many damaged lines of one kind, with good ones of another writer between them."""
    lines: list[bytes] = []
    good: dict[tuple[str, int], float] = {}
    writer = f"good-{chance.randrange(10**6)}"
    number = 0
    for place in range(count):
        at = NOW - 3000 + place * 2900 // count
        if place % GOOD_EVERY == 0 and (not good or at > max(second for _, second in good)):
            one = kind.make(writer, number, at)
            good[writer, at] = number + 0.5 if kind.collector is XENNA else number
            lines.append(json.dumps(one).encode())
            number += 1
        lines += _damage(kind.make(f"bad-{chance.randrange(30)}", place, at), chance)
    return Damaged(_shuffled(lines, chance), good)


def _shuffled(lines: list[bytes], chance: Random) -> list[bytes]:
    """Some lines twice, and some before the one they follow, where both are damaged."""
    found = list(lines)
    for _ in range(len(lines) // 20):
        place = chance.randrange(len(found) - 1)
        if b"good-" not in found[place] + found[place + 1]:
            found[place], found[place + 1] = found[place + 1], found[place]
        found.insert(place, found[place])
    return found


def _damage(value: Json, chance: Random) -> Iterator[bytes]:
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _change(value, chance)
    text = json.dumps(value).replace(f'"{MARKER}"', chance.choice(RAW)).encode()
    how = chance.randrange(12)
    if how == 0:
        text = text[: chance.randrange(len(text))]
    elif how == 1:
        place = chance.randrange(len(text))
        text = text[:place] + bytes([chance.randrange(256)]) + text[place + 1 :]
    elif how == 2:
        text = b"\0" * chance.randrange(1, 99) + text
    elif how == 3:
        text = b"\xef\xbb\xbf" + text
    yield text.replace(b"\n", b" ")


def _change(value: Json, chance: Random) -> None:
    """Make one field, here or in an object below, another than it should be."""
    while True:
        key = chance.choice(list(value) or ["x"])
        inner = value.get(key)
        if not isinstance(inner, dict) or not inner or chance.random() < 0.3:
            break
        value = inner
    how = chance.randrange(4)
    if how == 0:
        value.pop(key, None)
    elif how == 1:
        value[key] = MARKER
    elif how == 2:
        value[chance.choice(("", "x", "kind", "seq", "schema_version", "op", "1" * 5000, "stage/a/b"))] = (
            inner
        )
    else:
        value[key] = chance.choice(ODD)


def ticks_of(kind: Kind, folder: Path, **settings: str) -> Ticks:
    """Ticks of a kind's collector over a folder."""

    class KindTicks(Ticks):
        collector = kind.collector

    return KindTicks(folder, **settings)
