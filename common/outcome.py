"""What became of one collector in one run.

Standard library only, because the parent is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a collector's run ended. A lost unit makes it partial; dropped records change nothing."""

    OK = "ok"
    EMPTY = "empty"
    PARTIAL = "partial"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Failure:
    """An error's class and message, and whether a person must change the configuration."""

    type: str
    message: str
    configuration: bool = False
    status: int | None = None  # what Datadog answered, where it refused
    details: list[str] = field(default_factory=list)  # what it is about, each on a line of its own


@dataclass(frozen=True)
class Outcome:
    """What became of one collector in one run."""

    collector: str
    status: Status
    seconds: float = 0.0
    samples: int = 0
    points_sent: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)  # by reason, the first that was dropped
    requests: int = 0
    lost: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: Failure | None = None
    as_of: int | None = None  # of a dry run: the newest instant it answers for
    tables: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # of a dry run, by name
    stays: bool = False  # whether the child waits for another job
