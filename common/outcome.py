"""What one run of one collector reports, how it ended, and the JSON that a child writes for its parent.

Standard library only, because the parent is. Collectors and runs add to the report, `common/run/run.py` makes
the outcome; `common/cli/` and `common/show/` read it.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from common.errors import FleetgaugeError

log = logging.getLogger(__name__)


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


@dataclass
class Report:
    """What a run counted and found besides its series; its self-metrics are made of it."""

    samples: int = 0  # points that the collector yielded
    points_sent: int = 0  # in a dry run those that a push would send
    requests: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    examples: dict[str, str] = field(default_factory=dict)  # by reason, the first that was dropped
    lost: list[str] = field(default_factory=list)
    lost_by_reason: Counter[str] = field(default_factory=Counter)
    gap: int | None = None  # seconds before this run that were missed and are too old; None where unknown
    findings: list[str] = field(default_factory=list)  # lines for a person
    tables: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # for a person, by name

    def drop(self, reason: str, count: int = 1, example: str = "") -> None:
        """Count records or points that cannot be used; this never changes the outcome's status.

        `reason` is a tag of `collector.points_dropped`. The first example of a reason is shown to a person.
        """
        self.dropped[reason] += count
        if example:
            self.examples.setdefault(reason, example)

    def lose(self, unit: str, why: Exception | str, reason: str = "unreadable") -> None:
        """Give up one unit (a project, a page, a file) and continue; the outcome becomes partial.

        `unit` names it for a person. `reason` is a tag of `collector.units_lost`, so that it must have few
        values.
        """
        # Any other exception is a defect of ours: the log has its traceback, and the other units are still
        # read.
        if isinstance(why, Exception) and not isinstance(why, FleetgaugeError | OSError):
            log.error("lost %s: unexpected error", unit, exc_info=why)
            why = f"unexpected error: {type(why).__name__}: {why}"
        else:
            log.warning("lost %s: %s", unit, why)
        self.lost.append(f"{unit}: {why}")
        self.lost_by_reason[reason] += 1


@dataclass(frozen=True)
class Outcome:
    """How one run of one collector ended, and its report.

    All texts in it but the tables of a dry run are redacted and printable: a child writes it for its parent.
    """

    collector: str
    status: Status
    seconds: float = 0.0
    report: Report = field(default_factory=Report)
    error: ErrorSummary | None = None
    as_of: int | None = None  # of a dry run: the newest instant it answers for

    def encode(self) -> bytes:
        """Return it as one line of JSON, with its line break; no text in JSON contains another one."""
        return json.dumps(self, default=vars).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Outcome:
        """Read a line that `encode` wrote; ValueError for any other that a library printed."""
        try:
            fields = json.loads(line)
            error, status = fields.pop("error"), Status(fields.pop("status"))
            report = Report(**fields.pop("report"))
            return cls(status=status, report=report, error=ErrorSummary(**error) if error else None, **fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError("no outcome") from None
