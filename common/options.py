"""What a command line requests. Standard library only.

`common/cli/arguments.py` makes the options, `common/run/` reads them: it knows nothing of argparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from common.shards import ALONE, Shard

LIVE, PAST = 120.0, 3600.0  # deadlines of a run, in seconds
DATADOG = "datadog"  # the name under which --check and --print-config are about what all collectors share


class Mode(StrEnum):
    """What to do with a collector."""

    DRY_RUN = "dry-run"  # collect and show
    PUSH = "push"  # collect and deliver
    CHECK = "check"  # check settings, secrets and access
    PRINT_CONFIG = "print-config"  # show the settings in force
    EXPLAIN = "explain"  # list what one value is made of


@dataclass(frozen=True)
class Backfill:
    """A span of the past, in seconds since the epoch.

    `part` of `parts`, counted from 0, is what this process sends of it.
    """

    since: int
    until: int
    part: int = 0
    parts: int = 1
    only_enabled: bool = False  # leave out metrics of which Datadog takes no old points
    enable: bool = False  # have Datadog take old points of those metrics
    confirm: bool = False  # send only what a person agrees to


@dataclass(frozen=True)
class Options:
    """How to run each collector. `timeout` is the deadline of one run, in seconds."""

    mode: Mode = Mode.DRY_RUN
    timeout: float = LIVE
    step: int | None = None  # seconds; None for the configured step
    every: int | None = None  # seconds between the runs of a process that stays
    named: bool = True  # whether a collector was named, so that a missing setting is an error and not a skip
    verbose: bool = False
    config: str | None = None
    backfill: Backfill | None = None
    shard: Shard = ALONE
    explain: tuple[str, ...] = ()  # with EXPLAIN: the name of a metric, then tags as key=value
