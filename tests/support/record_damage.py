"""Records of the three kinds, damaged at random: what programs, disks and people may leave in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from support.record_fleets import STEP, Points
from support.record_folder import MAKERS, outstanding
from support.record_folder import NOW as TICK

Json = dict[str, Any]

NOW = 1_794_789_900 // STEP * STEP + 10  # of the run that reads the files
SPAN = (NOW - 10 - 900, NOW - 10 - 100)  # of the records: all in the window of that run
GOOD_EVERY = 10  # of so many lines, one is good

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
NAMES = ("", "x", "kind", "seq", "schema_version", "op", "1" * 5000, "stage/a/b")


class Damaged(NamedTuple):
    """The content of a file, and the points of its good records."""

    content: bytes
    good: Points


def file_name(kind: str) -> str:
    """Return a name that a file of a kind may have."""
    return "segment-000001.jsonl" if kind == "gpu_memory" else "a.jsonl"


def damaged(kind: str, chance: Random, count: int) -> Damaged:
    """Make so many damaged lines of one kind, with good ones of another writer between them."""
    lines, good = list[bytes](), Points()
    writer = f"good-{chance.randrange(10**6)}"
    for number in range(count):
        at = SPAN[0] + number * (SPAN[1] - SPAN[0]) // count
        key = (*_series(kind, writer), at)
        if number % GOOD_EVERY == 0 and key not in good:
            good[key] = number + 0.5 * (kind == "xenna")
            lines.append(json.dumps(_make(kind, writer, number, at)).encode())
        lines += _damage(_make(kind, f"bad-{chance.randrange(30)}", number, at), chance)
    return Damaged(b"".join(line + b"\n" for line in _shuffled(lines, chance)), good)


def good_points(points: Points) -> Points:
    """Return the points of good writers, of the metric that is compared."""
    compared = {_series(kind, "")[0] for kind in MAKERS}
    return {
        key: value
        for key, value in points.items()
        if key[0] in compared and any(":good-" in tag for tag in key[1])
    }


def _series(kind: str, writer: str) -> tuple[str, tuple[str, ...], str | None]:
    """Return a series that every record of a writer feeds with its number."""
    return {
        "xenna": ("xenna.pipeline.progress", ("pipeline_kind:curate", f"run_hash:{writer}"), None),
        "gpu_memory": ("gpu_memory.allocated_bytes", ("gpu:0", f"job_id:{writer}", "rank:0"), "node-1"),
        "data_plane": ("data_plane.bytes", (f"job:{writer}", "op:put", "partition_id:p", "rank:0"), None),
    }[kind]


def _make(kind: str, writer: str, number: int, at: int) -> Json:
    """Return a record; of the data plane, some damaged ones are of what a client has outstanding."""
    if kind == "data_plane" and number % 3 and writer.startswith("bad"):
        doubts = {"foreign_clears": 0, "keys_overflowed": 0, "interval_s": 10}
        return outstanding(number, TICK - at, {"p": number}, run_id=writer, job=writer, **doubts)
    return MAKERS[kind](writer, number, at)


def _shuffled(lines: list[bytes], chance: Random) -> list[bytes]:
    """Return the lines, some of them twice, and some before the one they follow, where both are damaged."""
    found = list(lines)
    for _ in range(len(lines) // 20):
        index = chance.randrange(len(found) - 1)
        if b"good-" not in found[index] + found[index + 1]:
            found[index], found[index + 1] = found[index + 1], found[index]
            found.insert(index, found[index])
    return found


def _damage(value: Json, chance: Random) -> Iterator[bytes]:
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _change(value, chance)
    text = json.dumps(value).replace(f'"{MARKER}"', chance.choice(RAW)).encode()
    how = chance.randrange(12)
    if how == 0:
        text = text[: chance.randrange(len(text))]
    elif how == 1:
        index = chance.randrange(len(text))
        text = text[:index] + bytes([chance.randrange(256)]) + text[index + 1 :]
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
        value[chance.choice(NAMES)] = inner
    else:
        value[key] = chance.choice(ODD)
