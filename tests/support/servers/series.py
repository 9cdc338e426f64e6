"""What Datadog's series intake takes: encodings, limits, shape and tags, as pure functions.

Stricter than the real one where leniency would hide a defect of ours: an unknown key or an unspecified type
is refused here.
"""

from __future__ import annotations

import functools
import json
import math
import re
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from common.records.compression import zstd

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = 10_000
TYPES = {1: "count", 2: "rate", 3: "gauge"}

# The units Datadog knows by name, one on a line, as its catalogue and its own validator have them.
UNITS = frozenset((Path(__file__).parents[2] / "data" / "datadog_units.txt").read_text().splitlines())

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,199}")
_FIELDS = {"metric", "type", "points", "tags", "resources", "unit"}  # those that we send


class RejectedError(Exception):  # reads as the outcome it is
    """The intake refuses the whole payload with this status."""

    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(status, *errors)
        self.status = status
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a payload, its tags as they came on the wire."""

    metric: str
    type: str
    tags: tuple[str, ...]
    host: str | None
    points: tuple[tuple[int, float], ...]


def decoded(body: bytes, encoding: str) -> bytes:
    """Undo a content encoding, reading no further than one byte past the limit."""
    if len(body) > WIRE_LIMIT:
        raise RejectedError(413, f"Payload too big: {len(body)} bytes on the wire")
    gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    unpack = {
        "identity": lambda _, __: body,
        "gzip": gzip.decompress,
        "zstd1": zstd.ZstdDecompressor().decompress,
    }
    if encoding not in unpack:
        raise RejectedError(400, f"Unknown content encoding {encoding}")
    try:
        raw = unpack[encoding](body, RAW_LIMIT + 1)
    except (zlib.error, zstd.ZstdError) as error:
        raise RejectedError(400, f"Unable to decompress: {error}") from error
    if len(raw) > RAW_LIMIT:
        raise RejectedError(413, f"Payload too big: over {RAW_LIMIT} bytes decompressed")
    if encoding == "gzip" and not gzip.eof:
        raise RejectedError(400, "Unable to decompress: the stream is cut short")
    return raw


def parsed(raw: bytes) -> dict[str, Any]:  # JSON: its shape is judged by series_of
    """Read a payload as JSON proper, in which NaN and Infinity do not exist."""
    try:
        document = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RejectedError(400, f"Unable to parse payload: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("series"), list):
        raise RejectedError(400, "Payload is not an object with a list named series")
    return document


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def series_of(document: dict[str, Any]) -> list[Series]:  # what `parsed` returned
    """Read every series of a payload, or refuse it with all that is wrong."""
    series, problems = [], []
    for position, entry in enumerate(document["series"]):
        try:
            series.append(_one_series(entry))
        except (ValueError, OverflowError) as error:
            problems.append(f"series[{position}]: {error}")
    points = sum(len(one.points) for one in series)
    if points > POINT_LIMIT:
        raise RejectedError(413, f"Payload too big: {points} points")
    if problems:
        raise RejectedError(400, *problems)
    return series


def _one_series(entry: dict[str, Any]) -> Series:  # anything JSON can hold: what does not fit raises
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    if unknown := entry.keys() - _FIELDS:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    if missing := {"metric", "type", "points"} - entry.keys():
        raise ValueError(f"missing fields: {', '.join(sorted(missing))}")
    name, kind, tags = entry["metric"], entry["type"], entry.get("tags", [])
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a metric name")
    if type(kind) is not int or kind not in TYPES:
        raise ValueError(f"{kind!r} is not a type: 1 count, 2 rate, 3 gauge")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("tags are not a list of strings")
    if "unit" in entry and entry["unit"] not in UNITS:
        raise ValueError(f"{entry['unit']!r} is not a unit of Datadog's catalogue")
    if not isinstance(entry["points"], list) or not entry["points"]:
        raise ValueError("points are not a list of at least one")
    points = tuple(_one_point(point) for point in entry["points"])
    return Series(name, TYPES[kind], tuple(tags), _host(entry.get("resources", [])), points)


def _one_point(point: dict[str, Any]) -> tuple[int, float]:  # as above
    if not isinstance(point, dict) or point.keys() != {"timestamp", "value"}:
        raise ValueError("a point is not an object with timestamp and value")
    timestamp, value = point["timestamp"], point["value"]
    if type(timestamp) is not int:
        raise ValueError(f"{timestamp!r} is not a timestamp in whole seconds")
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return timestamp, float(value)


def _host(resources: Any) -> str | None:
    match resources:
        case []:
            return None
        case [{"type": "host", "name": str(name)}] if name:
            return name
    raise ValueError("resources are not a host with a name")


@functools.lru_cache(maxsize=100_000)
def normalised(tag: str) -> str:
    """Spell a tag as Datadog stores it; what is left of a tag without any letter is empty.

    Letters (L*) and decimal digits (Nd) of any script are kept, composed (NFC) and in lower case.
    """
    composed = unicodedata.normalize("NFC", unicodedata.normalize("NFC", tag).lower())
    kinds = [unicodedata.category(character) for character in composed]
    spelled = "".join(
        character if kind[0] == "L" or kind == "Nd" or character in "_-:./" else "_"
        for character, kind in zip(composed, kinds, strict=True)
    )
    first = next((place for place, kind in enumerate(kinds) if kind[0] == "L"), len(kinds))
    return spelled[first:][:200].rstrip(":")
