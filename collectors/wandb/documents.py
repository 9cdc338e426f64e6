"""JSON as W&B hands it on: documents in strings, numbers that may be anything. Knows no field's meaning."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

import orjson

Json = Any  # what a JSON document may hold; every use checks what it got


def document(text: Json, flaw: str, flaws: list[str]) -> dict[str, Json]:
    """A JSON object that came as a string; nothing at all is an empty one."""
    if text is None or text == "":
        return {}
    try:
        found = _parsed(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    flaws.append(flaw)
    return {}


def _parsed(text: str) -> Json:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)  # which knows NaN and Infinity, as W&B's own client writes them


def is_number(value: Json) -> TypeGuard[int | float]:
    """Whether a value is a finite number; a truth value is none."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False
