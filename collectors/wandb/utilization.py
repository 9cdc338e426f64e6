"""How busy the GPUs of a run are, read from the latest row of its system metrics.

Whoever does not say is unknown, not idle. Keys are `system.gpu.<i>.gpu` for every GPU that the client sees,
other people's too, and `system.gpu.process.<i>.gpu` for those that the run itself uses; in shared mode each
process adds a label, `/l:<name>`, and an index under two labels is two GPUs.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

_FLAW = "bad_system_metrics"
_MEASURES = (".gpu", ".memoryAllocated")
_NUMBERS = (int, float)  # and not bool; NaN is not between any two
_KEY = re.compile(r"system\.gpu\.(process\.)?([0-9]{1,6})(\.gpu|\.memoryAllocated)(?:/l:(.*))?", re.DOTALL)

_Place = tuple[str, int]  # label and index


class Reported(NamedTuple):
    """What the GPUs say: how many do, and the sum of their shares (1 is a GPU fully busy, or full).

    `busiest` is in percent; `timestamp` and `runtime` are of the row, in seconds, where it has them.
    """

    gpus: int
    busy: float
    memory_gpus: int
    memory_filled: float
    busiest: float
    timestamp: float | None
    runtime: float | None


class Look(NamedTuple):
    """A run that is looked at while it runs: what names it, and what its GPUs say, if anything."""

    run_id: str
    name: str
    user: str
    reported: Reported | None


# Any: what a JSON document may hold
def read_system_metrics(row: Mapping[str, Any], gpus: int, flaws: list[str]) -> Reported | None:
    """What the GPUs of a run say, which has so many; None where none says anything."""
    found: dict[tuple[bool, str], dict[_Place, float]] = defaultdict(dict)
    for key, value in row.items():
        meaning = _meaning(key)
        if meaning is None or value is None:
            continue
        if type(value) in _NUMBERS and 0 <= value <= 100:
            found[meaning[0]][meaning[1]] = value
        elif _FLAW not in flaws:
            flaws.append(_FLAW)
    # A GPU of the process is the run's own. Of the machine's, only as many can be as the run has.
    busy, filled = found[True, ".gpu"], found[True, ".memoryAllocated"]
    if not busy and not filled:
        busy, filled = (_of_the_run(found[False, measure], gpus) for measure in _MEASURES)
    if not busy and not filled:
        return None
    return Reported(
        gpus=len(busy),
        busy=math.fsum(busy.values()) / 100,
        memory_gpus=len(filled),
        memory_filled=math.fsum(filled.values()) / 100,
        busiest=max(busy.values(), default=0.0),
        timestamp=_number(row.get("_timestamp")),
        runtime=_number(row.get("_runtime")),
    )


@lru_cache(maxsize=2**14)  # the same few keys in every row
def _meaning(key: str) -> tuple[tuple[bool, str], _Place] | None:
    """Whether a figure is of the process, and what it measures; of which GPU. None for any other key."""
    found = _KEY.fullmatch(key)
    return found and ((bool(found[1]), found[3]), (found[4] or "", int(found[2])))


def _of_the_run(figures: Mapping[_Place, float], gpus: int) -> dict[_Place, float]:
    own = sorted(place for place in figures if place[1] < gpus)
    return {place: figures[place] for place in own[:gpus]}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < math.inf else None
