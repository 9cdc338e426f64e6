"""What a child process is asked to do. How it is written on the pipe is in `common.process.protocol`.

Standard library only, because the parent is.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from common.outcome import Outcome
from common.shards import ALONE, Shard

DATADOG = "datadog"  # the name under which `--check` asks about the sink itself


class Mode(StrEnum):
    """What a child is asked to do."""

    DRY_RUN = "dry-run"  # collect, and hand the samples to the parent in a file
    PUSH = "push"  # collect and deliver
    CHECK = "check"  # look at settings, secrets and access; send nothing
    SETTINGS = "settings"  # tell which settings are in force; send nothing
    EXPLAIN = "explain"  # list what one value is made of; send nothing
    REPORT = "report"  # deliver the self-metrics of a child that could not


@dataclass(frozen=True)
class Backfill:
    """A span of the past to answer for; `asked` is how it was typed, as options."""

    since: int
    until: int
    asked: tuple[str, ...]
    part: int = 0
    parts: int = 1
    only_enabled: bool = False  # send what Datadog takes the past of, and leave out the rest
    enable: bool = False  # have Datadog take the past of what it does not yet
    ask: bool = False  # send only what a person agrees to


@dataclass(frozen=True)
class Job:
    """What a child needs to know beyond its environment. It carries no secret."""

    collector: str
    mode: Mode
    timeout: float
    step: int | None = None  # the interval of `--every` or `--step`, in place of the configured step
    named: bool = True  # asked for by name, so that a missing setting is an error and not a skip
    verbose: bool = False
    config: str | None = None
    samples_path: str | None = None
    outcome: Outcome | None = None  # with REPORT: the outcome to report
    backfill: Backfill | None = None
    stays: bool = False  # the child may wait for another job once this one is done
    shard: Shard = ALONE
    explain: tuple[str, ...] = ()  # with EXPLAIN: the name of a metric, then tags as key=value

    def command(self, *words: str) -> str:
        """The command line that asks the same collector for something else.

        Whoever copies one that sends the past may have no terminal to be asked on: it says yes.
        """
        yes = ("--yes",) if {"--since", "--push"} <= set(words) else ()
        config = ("--config", self.config) if self.config else ()
        return shlex.join(["run_collector.py", self.collector, *words, *self.shard.options, *yes, *config])
