"""One line of a file as an object, parsed strictly and fast, and where it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import orjson

from fleetgauge.records import Json

Identity = Callable[[Json], tuple[str, int] | None]


class Entry(NamedTuple):
    """One object and where it stands; `identity` is None unless the tail was given a way to tell it.

    `number` is that of its line, or 0 where reading did not begin at the start of the file.
    """

    value: Json
    start: int
    identity: tuple[str, int] | None
    number: int


entry_of: Callable[[tuple[Json, int, tuple[str, int] | None, int]], Entry] = partial(tuple.__new__, Entry)


def loads(text: bytes) -> Any:  # Any: parsed JSON
    """Parse strictly and fast; what only the standard library takes (NaN, mostly) is parsed by that."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        value = json.loads(text.decode())
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be saved or sent
        return value
