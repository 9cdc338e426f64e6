"""How busy the GPUs of a run are, read from the latest row of its system metrics.

Whoever does not say is unknown, not idle. Keys are `system.gpu.<i>.gpu` for every GPU that the client sees,
other people's too, and `system.gpu.process.<i>.gpu` for those that the run itself uses; in shared mode each
process adds a label, `/l:<name>`, and an index under two labels is two GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from collectors.wandb.documents import Json, document, is_number

FLAW = "bad_system_metrics"

_MEASURES = (".gpu", ".memoryAllocated")
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


def read_system_metrics(text: Json, gpus: int, flaws: list[str]) -> Reported | None:
    """What the GPUs of a run say, which has so many; None where none says anything."""
    row = document(text, FLAW, flaws)
    labelled = not isinstance(text, str) or "l:" in text
    by_process: dict[str, dict[_Place, float]] = {measure: {} for measure in _MEASURES}
    by_device: dict[str, dict[_Place, float]] = {measure: {} for measure in _MEASURES}
    for process, measure, place, value in _figures(row, labelled=labelled):
        if is_number(value) and 0 <= value <= 100:
            (by_process if process else by_device)[measure][place] = value
        elif value is not None and FLAW not in flaws:
            flaws.append(FLAW)
    # A GPU of the process is the run's own. Of the machine's, only as many can be as the run has.
    own = (
        by_process
        if any(by_process.values())
        else {
            measure: dict(
                [*sorted((place, value) for place, value in found.items() if place[1] < gpus)][:gpus]
            )
            for measure, found in by_device.items()
        }
    )
    busy, filled = (own[measure].values() for measure in _MEASURES)
    if not busy and not filled:
        return None
    return Reported(
        gpus=len(busy),
        busy=sum(busy) / 100,
        memory_gpus=len(filled),
        memory_filled=sum(filled) / 100,
        busiest=max(busy, default=0.0),
        timestamp=_number(row.get("_timestamp")),
        runtime=_number(row.get("_runtime")),
    )


def _figures(row: Mapping[str, Json], *, labelled: bool) -> Iterator[tuple[bool, str, _Place, Json]]:
    """Whether it is the process's, the measure, which GPU, and the value; a row may have many keys."""
    for key, value in row.items():
        if (labelled or key.endswith(_MEASURES)) and (found := _KEY.fullmatch(key)):
            yield bool(found[1]), found[3], (found[4] or "", int(found[2])), value


def _number(value: Json) -> float | None:
    return value if is_number(value) else None
