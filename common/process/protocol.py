"""How jobs, outcomes and what a child says on its way are written on the pipes: one JSON line each.

Standard library only, because the parent is.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from common.job import Backfill, Job, Mode
from common.outcome import Failure, Outcome, Status
from common.shards import Shard


@dataclass(frozen=True)
class Progress:
    """How far a child is with what it is doing now; `total` is None where nobody knows."""

    doing: str
    done: int
    total: int | None

    def __str__(self) -> str:
        done = (
            f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,} so far" if self.done else ""
        )
        return f"{self.doing}, {done}" if done else self.doing


@dataclass(frozen=True)
class Question:
    """What a child wants a person to agree to; the answer is one byte, `y` or `n`."""

    text: str


_MESSAGES: dict[str, type[Progress | Question]] = {"progress": Progress, "question": Question}


def encode(told: Job | Outcome | Progress | Question) -> bytes:
    """One line; a message on the way says by its key which it is."""
    key, fields = type(told).__name__.lower(), asdict(told)
    return json.dumps({key: fields} if key in _MESSAGES else fields).encode() + b"\n"


def message(line: bytes) -> Progress | Question | None:
    """What a child says on its way; None for anything else, which is its outcome or garbage."""
    try:
        [(key, fields)] = json.loads(line).items()
        return _MESSAGES[key](**fields)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def decode_job(line: bytes) -> Job:
    """The job the parent wrote."""
    fields = json.loads(line)
    backfill, outcome = fields.pop("backfill", None), fields.pop("outcome", None)
    return Job(
        mode=Mode(fields.pop("mode")),
        backfill=Backfill(**{**backfill, "asked": tuple(backfill["asked"])}) if backfill else None,
        outcome=_outcome(outcome) if outcome else None,
        shard=Shard(**fields.pop("shard", {})),
        explain=tuple(fields.pop("explain", ())),
        **fields,
    )


def decode_outcome(line: bytes) -> Outcome:
    """The outcome a child wrote; raises ValueError, TypeError or KeyError for anything else."""
    return _outcome(json.loads(line))


# Any: whatever the line holds; what does not fit raises
def _outcome(fields: Any) -> Outcome:
    if not isinstance(fields, dict):
        raise TypeError("not an object")
    error, status = fields.pop("error", None), Status(fields.pop("status"))
    return Outcome(status=status, error=Failure(**error) if error else None, **fields)
