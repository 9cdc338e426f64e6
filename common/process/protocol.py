"""How jobs, outcomes and what a child says on its way are written on the pipes: one JSON line each.

Standard library only, because the parent is.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from common.job import Backfill, Job, Mode
from common.outcome import Failure, Outcome, Status


def encode_job(job: Job) -> str:
    """One line for the child."""
    return json.dumps(asdict(job))


def decode_job(text: str) -> Job:
    """The job the parent wrote."""
    fields = json.loads(text)
    backfill, outcome = fields.pop("backfill", None), fields.pop("outcome", None)
    return Job(
        mode=Mode(fields.pop("mode")),
        backfill=Backfill(**{**backfill, "asked": tuple(backfill["asked"])}) if backfill else None,
        outcome=_outcome(outcome) if outcome else None,
        **fields,
    )


def encode_outcome(outcome: Outcome) -> str:
    """One line for the parent."""
    return json.dumps(asdict(outcome))


def decode_outcome(text: str) -> Outcome:
    """The outcome a child wrote; raises ValueError, TypeError or KeyError for anything else."""
    return _outcome(json.loads(text))


# Any: whatever the line holds; what does not fit raises
def _outcome(fields: Any) -> Outcome:
    if not isinstance(fields, dict):
        raise TypeError("not an object")
    error, status = fields.pop("error", None), Status(fields.pop("status"))
    return Outcome(status=status, error=Failure(**error) if error else None, **fields)


@dataclass(frozen=True)
class Progress:
    """How far a child is with what it is doing now; `total` is None where nobody knows."""

    doing: str
    done: int
    total: int | None

    def to_json(self) -> str:
        """One line for the parent."""
        return json.dumps({"progress": asdict(self)})


@dataclass(frozen=True)
class Question:
    """What a child wants a person to agree to; the answer is one byte, `y` or `n`."""

    text: str

    def to_json(self) -> str:
        """One line for the parent."""
        return json.dumps({"question": asdict(self)})


def message(line: bytes) -> Progress | Question | None:
    """What a child says on its way; None for anything else, which is its outcome or garbage."""
    try:
        said = json.loads(line)
        if "progress" in said:
            return Progress(**said["progress"])
        if "question" in said:
            return Question(**said["question"])
    except (ValueError, TypeError):
        pass
    return None
