"""The outcome of one run of one collector, and its JSON, which a child writes for its parent.

Standard library only, because the parent is. `common/run/run.py` makes it; `common/cli/` and `common/show/`
read it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a collector's run ended. A lost unit makes it partial; dropped records change nothing."""

    OK = "ok"
    EMPTY = "empty"
    PARTIAL = "partial"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ErrorSummary:
    """An error's class and message, and whether a person must change the configuration."""

    type: str
    message: str
    configuration: bool = False
    status: int | None = None  # of the response, where Datadog refused
    details: list[str] = field(default_factory=list)  # what it is about, each on a line of its own


@dataclass(frozen=True)
class RunCounts:
    """What a run counted, as its self-metrics have it (`common/run/health.py`)."""

    samples: int = 0  # points that the collector yielded
    points_sent: int = 0
    requests: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # by reason
    units_lost: dict[str, int] = field(default_factory=dict)  # by reason


@dataclass(frozen=True)
class Outcome:
    """How one run of one collector ended, what it counted and what it lost.

    All texts in it are redacted: it is printed, and passes from a child to its parent.
    """

    collector: str
    status: Status
    seconds: float = 0.0
    counts: RunCounts = RunCounts()
    examples: dict[str, str] = field(default_factory=dict)  # by reason, the first that was dropped
    lost: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: ErrorSummary | None = None
    as_of: int | None = None  # of a dry run: the newest instant it answers for
    tables: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # of a dry run, by name

    def encode(self) -> bytes:
        """Return it as one line of JSON, with its line break; no text in JSON contains another one."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Outcome:
        """Read a line that `encode` wrote; ValueError for any other that a library printed."""
        try:
            fields = json.loads(line)
            error, status = fields.pop("error"), Status(fields.pop("status"))
            counts = RunCounts(**fields.pop("counts"))
            return cls(status=status, counts=counts, error=ErrorSummary(**error) if error else None, **fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError("no outcome") from None
