"""Names for the stages of a pipeline, as they stand in metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_MAX_NAME = 100
_NUMBERED = re.compile(r"^\s*Stage\s+\d+\s*-\s*")
_AFTER_ACRONYM = re.compile(r"([A-Z]+)([A-Z](?!s(?![a-z]))[a-z])")  # but the s of URLs belongs to it
_AFTER_WORD = re.compile(r"([a-z0-9])([A-Z])")
_OTHER = re.compile(r"\W+")


def stage_keys(names: Sequence[object]) -> list[str | None]:
    """A key for each stage, in order: snake case, with its index where two would collide; None for ""."""
    found = [_snake(str(name)) if name not in ("", None) else None for name in names]
    counts = Counter(found)
    taken = {key for key, count in counts.items() if count == 1}
    keys: list[str | None] = []
    for index, key in enumerate(found):
        unique = key
        if key is not None and counts[key] > 1:
            unique = f"{key}_{index}"
            while unique in taken:
                unique = f"{unique}_{index}"
            taken.add(unique)
        keys.append(unique)
    return keys


def _snake(name: str) -> str:
    text = _AFTER_ACRONYM.sub(r"\1_\2", _NUMBERED.sub("", name))
    text = _OTHER.sub("_", _AFTER_WORD.sub(r"\1_\2", text)).strip("_").lower()
    return text[:_MAX_NAME] or "stage"
