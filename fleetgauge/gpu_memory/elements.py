"""The events of a JSON document: an array, or an object that holds one.

A document is read whole: a tracker writes only what it kept, 10,000 events unless told otherwise, and its
sink is for the rest. Of one that is broken, or was cut short, each object that can be read is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import IO

from .documents import MAX_DOCUMENT_BYTES

_NEXT_OBJECT = re.compile(r"\}\s*,\s*(?=\{)")
_DECODER = json.JSONDecoder()


def read_elements(
    file: IO[bytes], arrays: tuple[str, ...], losses: Counter[str]
) -> tuple[list[object], dict[str, object]]:
    """The elements of the array that is the document, or is in it under one of these names; other members."""
    content = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        losses["file_too_large"] += 1
        return [], {}
    text = content.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return list(_salvaged(text, losses)), {}
    if isinstance(document, dict):
        held = [document.pop(name) for name in arrays if isinstance(document.get(name), list)]
        return [element for array in held for element in array], document
    if isinstance(document, list):
        return document, {}
    losses["not_json"] += 1
    return [], {}


def _salvaged(text: str, losses: Counter[str]) -> Iterator[object]:
    """The objects in the first array of a broken document, each by itself."""
    at, broken = max(0, text.find("[")), 0
    while (at := text.find("{", at)) >= 0:
        try:
            element, at = _DECODER.raw_decode(text, at)
            yield element
        except (ValueError, RecursionError):
            broken += 1
            if (found := _NEXT_OBJECT.search(text, at)) is None:
                break
            at = found.end()
    losses["not_json"] += max(1, broken)  # one that was only never closed has a loss too
