"""Records of the three kinds, damaged at random: what programs, disks and people may leave in a file."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from support.record_fleets import BEGIN, Fleet, Key, Line, Shape, fleet
from support.record_runs import Runs, differences
from support.record_truth import truth

Json = dict[str, Any]

NOW = BEGIN + 900  # is among the odd values
WRITER = ("run_id", "run_hash", "session_id", "job_id", "job")  # the fields that identify one

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


def damaged(kind: str, seed: int, count: int) -> Fleet:
    """Make a fleet with so many damaged lines of other writers between its own."""
    shape = Shape(seconds=3600, writers=2, damage=0.0, rotation=False, repeats=0.05)
    made, chance = fleet(kind, seed, shape), Random(seed)
    lines = list[Line]()
    for number, line in enumerate(made.lines):
        lines.append(line)
        for _ in range((number + 1) * count // len(made.lines) - number * count // len(made.lines)):
            record = json.loads(line.content)
            writer = f"bad-{chance.randrange(30)}"
            record |= {key: writer for key in WRITER if key in record}
            lines.append(line._replace(content=_damage(record, chance), record=None))
    made.lines[:] = lines
    return made


def lost_points(runs: Runs, made: Fleet) -> list[tuple[Key, float | None, float | None]]:
    """Return the points of the fleet's own records that the intake lacks or has otherwise."""
    found = truth(made)
    own = {key: value for key, value in (found.gauges | found.sums).items() if key[0] != "xenna.runs.ended"}
    return differences({key: runs.points[key] for key in own.keys() & runs.points.keys()}, own)


def _damage(value: Json, chance: Random) -> bytes:
    """Return a line that is made of a record by changing some fields, and perhaps the text."""
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
    return text.replace(b"\n", b" ") + b"\n"


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
