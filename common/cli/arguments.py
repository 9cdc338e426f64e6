"""The grammar of the command line, and the options it requests. Standard library only.

`main.py` uses both; `docs/command-line.md` and the completion of shells are made from the grammar. The result
is `common/options.py`, which the rest of the service knows instead of argparse.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from common.errors import ConfigurationError
from common.options import LIVE, PAST, Backfill, Mode, Options
from common.registry import nearest
from common.shards import SHARDED, Shard
from common.times import iso, parse_duration, parse_moment
from fleetgauge import __version__

LAST_DAY = "1d"  # the span of a page without --since
TO_END = 15.0  # seconds that ending a child which hangs, and reporting that, may take
MAX_PARTS = 10_000  # of --shard and --slice
INDEX = "JOB_COMPLETION_INDEX"  # which Kubernetes sets in each pod of an Indexed Job

_SENDING = ("--enable-historical", "--only-enabled", "--yes")
_NEEDED = {
    "--since": ("--until", "--step", "--csv", "--slice", *_SENDING),
    "--push": (*_SENDING, "--every"),
}
_EXCLUDED = {
    "--since": ("--every", "--print-config", "--explain"),
    "--html": ("--check", "--print-config", "--explain"),
    "--push": ("--csv", "--html"),
    "--json": ("--csv", "--html"),
}
# Scripts that a shell sources. Where neither a collector nor an option fits, both complete names of files.
COMPLETION = {
    "bash": 'complete -o default -W "{words}" run_collector.py',
    "zsh": "_run_collector() {{ compadd -- {words} || _files }}\ncompdef _run_collector run_collector.py",
}
_EPILOG = """\
examples:
  run_collector.py host                               look at this machine; nothing is sent
  run_collector.py wandb --since 7d --html week.html  draw the past week; nothing is sent
  run_collector.py all --push                         what the CronJob does every fifteen minutes

settings come from the environment, AWS Secrets Manager and --config, in that order; docs/settings.md
lists them all, docs/fleetgauge.example.toml is a file to begin with.

exit code: 0 ok, empty or skipped; 1 a collector was partial or failed; 2 configuration;
130 or 143 interrupted.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are what is wrong and where to look, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationError, with a similar option where one is misspelt."""
        unknown = [text for text in message.split() if text.startswith("--")]
        hint = nearest(unknown[0], [*self._option_string_actions]) if "unrecognized" in message else ""
        raise ConfigurationError(f"{message}{hint}; --help lists what there is")


def parser(width: int | None = None) -> argparse.ArgumentParser:
    """Return the grammar; docs/command-line.md is generated from it, at a fixed width.

    `width` is that of the help text, None for the terminal's.
    """
    made = _Parser(
        prog="run_collector.py",
        usage="run_collector.py NAME... [--push | --check | --print-config | --explain METRIC] [options]",
        description="Collect fleet metrics: show them (the default) or push them to Datadog.",
        epilog=_EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
        allow_abbrev=False,
        add_help=False,
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="collectors to run, or `all`")
    what = made.add_argument_group("actions (default: a dry run, which shows what --push would send)")
    add = what.add_mutually_exclusive_group().add_argument
    add_mode = partial(add, dest="mode", action="store_const")
    add_mode("--push", const=Mode.PUSH, help="send to Datadog")
    add_mode("--check", const=Mode.CHECK, help="check settings, secrets and access; send nothing")
    add_mode("--print-config", const=Mode.PRINT_CONFIG, help="print settings, their values and sources")
    explain = "wandb only: list the runs behind the current value of a metric, and what each adds"
    add("--explain", nargs="+", metavar=("METRIC", "tag=value"), help=explain)
    add("--list", action="store_true", help="list the collectors and what each reads")
    completion = f"print a completion script for {' or '.join(COMPLETION)}"
    add("--completion", metavar="SHELL", choices=[*COMPLETION], help=completion)
    add("--version", action="version", version=__version__, help="print the version and exit")
    add("-h", "--help", action="help", help="show this help and exit")
    add = made.add_argument_group("options").add_argument
    add("--config", metavar="FILE", help="TOML file with a table per collector")
    timeout = f"deadline of each collector (default: {LIVE:g}s, with --since {PAST:g}s, at most --every)"
    add("--timeout", metavar="TIME", type=interval, help=timeout)
    add("--every", metavar="INTERVAL", type=interval, help="with --push: run again at each interval: 60s")
    shard = "wandb only: read the projects of shard I (from 0) of N; /N takes I from JOB_COMPLETION_INDEX"
    add("--shard", metavar="I/N", help=shard)
    add = made.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print one JSON document; messages are on stderr")
    add("--verbose", action="store_true", help="log requests, files, settings and decisions")
    add = made.add_argument_group("backfill (docs/backfill.md)").add_argument
    add("--since", metavar="TIME", help="start of the span: 7d (ago), or 2026-11-14T00:00Z")
    add("--until", metavar="TIME", help="end of the span (default: now)")
    add("--step", metavar="INTERVAL", type=interval, help="time between points (default: FLEETGAUGE_STEP)")
    add("--csv", metavar="FILE", help="dry run: also write every point to a CSV file")
    html = "dry run: also write a page with charts, of the last day without --since; FILE may be a directory"
    add("--html", metavar="FILE", help=html)
    part = "only part I (from 0) of N equal parts of the span; /N takes I from JOB_COMPLETION_INDEX"
    add("--slice", metavar="I/N", help=part)
    enable = "enable Historical Metrics Ingestion where it is off (needs DD_APP_KEY)"
    add("--enable-historical", action="store_true", help=enable)
    add("--only-enabled", action="store_true", help="send only metrics for which it is on")
    add("--yes", action="store_true", help="send without confirmation; required without a terminal")
    return made


def interval(text: str) -> int:
    """Return a duration of a second to a day; argparse.ArgumentTypeError for any other text."""
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 s and 1 day")
    return value


def options_of(
    given: argparse.Namespace, names: list[str], environ: Mapping[str, str], now: int, *, can_ask: bool
) -> Options:
    """Return the options that the arguments request; ConfigurationError for those that exclude each other.

    `names` are the collectors after `all` was expanded, `now` is in seconds since the epoch. `can_ask` is
    whether a person can confirm a backfill. From `environ` only the index of an Indexed Job is read.
    """
    mode = Mode.EXPLAIN if given.explain else given.mode or Mode.DRY_RUN
    _refuse_odd_pairs(given)
    if given.shard and names != [SHARDED]:
        raise ConfigurationError(
            f"--shard is for {SHARDED} alone: run records of nodes' disks on each node (a DaemonSet), and "
            "records in S3 or on a shared file system in one pod, or in releases with paths of their own"
        )
    for text in (given.explain or ())[1:]:
        if not all(text.partition("=")):
            raise ConfigurationError(f"--explain: {text!r} is not a tag: write tag=value")
    backfill = _backfill(given, names, environ, now, can_ask=can_ask)
    timeout = given.timeout or (PAST if backfill else LIVE)
    # A run that hangs is ended before the next one is due.
    if given.every and given.every > 2 * TO_END:
        timeout = min(timeout, given.every - TO_END)
    return Options(
        mode=mode,
        timeout=timeout,
        # The grid of a process that stays is its interval: each run answers for one tick.
        step=given.every or given.step,
        every=given.every,
        named="all" not in given.names,
        verbose=given.verbose,
        # Absolute, because it is part of command lines that a person copies into another directory.
        config=given.config and str(Path(given.config).absolute()),
        backfill=backfill,
        shard=Shard(*_part_of("--shard", given.shard, environ)),
        explain=tuple(given.explain or ()),
    )


def _backfill(
    given: argparse.Namespace, names: list[str], environ: Mapping[str, str], now: int, *, can_ask: bool
) -> Backfill | None:
    """Return the span of the past that is requested; None for a live run.

    Raises ConfigurationError for a bad time or slice, and where sending it must be confirmed and cannot be.
    """
    since_text = given.since or (LAST_DAY if given.html else None)
    if since_text is None:
        return None
    # Sent points cannot be deleted, so that a backfill needs a yes. One prompt cannot cover several
    # collectors.
    confirm = given.mode is Mode.PUSH and not given.yes
    if confirm and (not can_ask or len(names) > 1):
        why = "there is no terminal to ask on" if len(names) == 1 else "there are several collectors"
        raise ConfigurationError(
            f"--push --since sends what cannot be taken back, and {why}: "
            "look at it without --push, then add --yes"
        )
    try:
        since, until = parse_moment(since_text, now), parse_moment(given.until or "now", now)
    except ValueError as error:
        raise ConfigurationError(f"--since, --until: {error}") from None
    if until <= since:
        raise ConfigurationError(f"--until {iso(until)} is not after --since {iso(since)}")
    part, parts = _part_of("--slice", given.slice, environ)
    # `7d` is relative to now, which differs between pods: their slices would overlap or leave gaps. Only a
    # date contains a dash.
    if parts > 1 and not all("-" in (text or "") for text in (given.since, given.until)):
        raise ConfigurationError(
            "--slice needs --since and --until as moments, so that all parts are of the same span: "
            f"write --since {iso(since)} --until {iso(until)}"
        )
    return Backfill(
        since=since,
        until=until,
        part=part,
        parts=parts,
        only_enabled=given.only_enabled,
        enable=given.enable_historical,
        confirm=confirm,
    )


def _refuse_odd_pairs(options: argparse.Namespace) -> None:
    """Raise ConfigurationError for options that have no effect without another, or exclude each other."""
    used = [name.replace("_", "-") for name, value in vars(options).items() if value not in (None, False)]
    given = [f"--{name}" for name in (*used, options.mode)]
    for needed, others in _NEEDED.items():
        for option in others:
            if option in given and needed not in given:
                raise ConfigurationError(f"{option} requires {needed}")
    for option, others in _EXCLUDED.items():
        for other in others:
            if option in given and other in given:
                raise ConfigurationError(f"{option} and {other} exclude each other: leave one of them out")


def _part_of(option: str, text: str | None, environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the part and the number of parts, from `2/8`, or from `/8` and the index of the pod.

    (0, 1) without a text. ConfigurationError where it is malformed, or has more than MAX_PARTS parts.
    """
    if text is None:
        return 0, 1
    index, _, count = text.strip().partition("/")
    index = index or environ.get(INDEX, "").strip()
    if index.isdecimal() and count.isdecimal() and int(index) < int(count) <= MAX_PARTS:
        return int(index), int(count)
    raise ConfigurationError(
        f"{option} {text} is not a part: write 0/8 to 7/8, or /8 where {INDEX} is set; "
        f"there may be {MAX_PARTS:,} parts"
    )
