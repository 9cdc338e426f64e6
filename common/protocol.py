"""What the parent and its children say to each other: a job goes down, an outcome comes back.

Standard library only, because the parent is.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum

DATADOG = "datadog"  # the name under which `--check` asks about the sink itself


class Mode(StrEnum):
    """What a child is asked to do."""

    DRY = "dry"  # collect, and hand the samples to the parent in a file
    PUSH = "push"  # collect and deliver
    CHECK = "check"  # look at settings, secrets and access; send nothing
    REPORT = "report"  # deliver the self-metrics of a child that could not


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


@dataclass(frozen=True)
class Outcome:
    """What became of one collector in one run."""

    collector: str
    status: Status
    seconds: float = 0.0
    samples: int = 0
    points_sent: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    lost: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: Failure | None = None

    def to_json(self) -> str:
        """One line for the parent."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """The outcome a child wrote; raises ValueError or TypeError for anything else."""
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError("not an object")
        error = fields.pop("error", None)
        status = Status(fields.pop("status"))
        return cls(status=status, error=Failure(**error) if error else None, **fields)


@dataclass(frozen=True)
class Job:
    """What a child needs to know beyond its environment. It carries no secret."""

    collector: str
    mode: Mode
    now: int
    timeout: float
    step: int | None = None  # the interval of `--every`, in place of the configured step
    named: bool = True  # asked for by name, so that a missing setting is an error and not a skip
    verbose: bool = False
    config: str | None = None
    samples_path: str | None = None
    outcome: str | None = None  # with REPORT: the outcome to report, as JSON

    def to_json(self) -> str:
        """One line for the child."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job the parent wrote."""
        fields = json.loads(text)
        return cls(mode=Mode(fields.pop("mode")), **fields)
