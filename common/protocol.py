"""What the parent and its children say to each other: a job goes down, an outcome comes back.

Before its outcome a child may say how far it is, and ask the person at the terminal a question.

Standard library only, because the parent is.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Protocol

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


class Parent(Protocol):
    """The one who started a run, as the run sees it."""

    def progress(self, doing: str, done: int, total: int | None) -> None:
        """Tell how far it is."""

    def agrees(self, text: str) -> bool:
        """Ask the person at the terminal."""


class Absent:
    """A parent that does not listen, and agrees to everything."""

    def progress(self, doing: str, done: int, total: int | None) -> None:
        """Say it to nobody."""

    def agrees(self, text: str) -> bool:  # noqa: ARG002  # a parent's signature
        """Nobody objects."""
        return True


@dataclass(frozen=True)
class Backfill:
    """A span of the past to answer for.

    `asked` is the span as it was typed, as options: an interrupted backfill is known by it when it is called
    again, though `7d` has come to mean something else by then.
    """

    since: int
    until: int
    asked: tuple[str, ...]
    part: int = 0
    parts: int = 1
    only_enabled: bool = False  # send what Datadog takes the past of, and leave out the rest
    enable: bool = False  # have Datadog take the past of what it does not yet
    ask: bool = False  # a person is there to agree


@dataclass(frozen=True)
class Job:
    """What a child needs to know beyond its environment. It carries no secret."""

    collector: str
    mode: Mode
    now: int
    timeout: float
    step: int | None = None  # the interval of `--every` or `--step`, in place of the configured step
    named: bool = True  # asked for by name, so that a missing setting is an error and not a skip
    verbose: bool = False
    config: str | None = None
    samples_path: str | None = None
    outcome: str | None = None  # with REPORT: the outcome to report, as JSON
    backfill: Backfill | None = None

    def command(self, *words: str) -> str:
        """The command line that asks the same collector for something else."""
        config = ("--config", self.config) if self.config else ()
        return shlex.join(["run_collector.py", self.collector, *words, *config])

    def to_json(self) -> str:
        """One line for the child."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job the parent wrote."""
        fields = json.loads(text)
        backfill = fields.pop("backfill", None)
        return cls(
            mode=Mode(fields.pop("mode")),
            backfill=Backfill(**{**backfill, "asked": tuple(backfill["asked"])}) if backfill else None,
            **fields,
        )
