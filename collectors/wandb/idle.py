"""Since when runs hold GPUs without using them, remembered from look to look. Pure: time is passed in.

One look at 0 % is a checkpoint being written or a restart: idle is who was low at every look for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from collectors.wandb.utilization import Look


class Memory(NamedTuple):
    """What is remembered of a run whose GPUs were all low at the last look that counted, in seconds.

    `since` is the first of these looks and `counted` the last; `looked` is the last look of any kind.
    """

    since: int
    counted: int
    looked: int
    runtime: float
    row_runtime: float | None
    timestamp: float | None

    @property
    def seconds(self) -> int:
        """How long it is known to have been idle."""
        return self.counted - self.since


def remembered(saved: object) -> dict[str, Memory]:
    """Read the memories of a project as they were saved; one that cannot be read is forgotten."""
    found = saved.items() if isinstance(saved, dict) else ()
    return {run: Memory(*said) for run, said in found if isinstance(said, list) and _is_memory(said)}


def _is_memory(said: list[object]) -> bool:
    times, others = said[:4], said[4:]
    return (
        len(said) == 6
        and all(type(time) in (int, float) for time in times)
        and all(other is None or type(other) in (int, float) for other in others)
    )


def look_again(
    memories: Mapping[str, Memory],
    looks: Mapping[str, tuple[Look, float]],
    at: int,
    below: float,
    max_gap: int,
) -> dict[str, Memory]:
    """What is remembered after a look at all runs, each with its runtime; who is absent is forgotten."""
    after = {}
    for run, (look, runtime) in looks.items():
        memory = _after(memories.get(run), look, runtime, at, below, max_gap)
        if memory is not None:
            after[run] = memory
    return after


def _after(
    before: Memory | None, look: Look, runtime: float, at: int, below: float, max_gap: int
) -> Memory | None:
    said = look.reported
    row_runtime = None if said is None else said.runtime
    if before is not None and not 0 <= at - before.looked <= max_gap:
        before = None
    if before is not None and (runtime < before.runtime or _is_less(row_runtime, before.row_runtime)):
        before = None  # it was restarted
    if said is None or not said.gpus:
        return before and before._replace(looked=at, runtime=runtime)
    if before is not None and not _is_less(before.timestamp, said.timestamp, unknown=True):
        if said.busiest >= below and said.timestamp != before.timestamp:
            return None  # a clock was set back
        return before._replace(looked=at, runtime=runtime)  # the row of an earlier look
    if said.busiest >= below:
        return None
    since = at if before is None else before.since
    return Memory(since, at, at, runtime, row_runtime, said.timestamp)


def _is_less(value: float | None, other: float | None, *, unknown: bool = False) -> bool:
    return unknown if value is None or other is None else value < other
