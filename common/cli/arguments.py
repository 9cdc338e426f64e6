"""The grammar of the command line, and the options it requests. Standard library only.

`main.py` uses both; `docs/command-line.md` and `completion.py` are made from the grammar. The result is
`common/options.py`, which the rest of the service knows instead of argparse.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from common.cli import streams
from common.cli.completion import SHELLS
from common.errors import ConfigurationError
from common.options import Backfill, Mode, Options
from common.registry import nearest
from common.shards import SHARDED, Shard
from common.times import duration, iso, parse_duration, parse_moment
from fleetgauge import __version__

LAST_DAY = "1d"  # the span of a page without --since
LIVE, PAST = 120.0, 3600.0  # deadlines, in seconds
TO_END = 15.0  # seconds that ending a child which hangs, and reporting that, may take
EXPLAINED = "wandb"  # the collector that can list what a value is made of
MAX_SHARDS = 64
MAX_PARTS = 10_000
INDEX = "JOB_COMPLETION_INDEX"  # which Kubernetes sets in each pod of an Indexed Job

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
        """Print what is wrong, with a similar option where one is misspelt; exit with code 2."""
        unknown = [text for text in message.split() if text.startswith("--")]
        hint = nearest(unknown[0], [*self._option_string_actions]) if "unrecognized" in message else ""
        streams.say(f"{message}{hint}")
        streams.say("--help lists what there is")
        raise SystemExit(2)


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
    add("--push", action="store_true", help="send to Datadog")
    add("--check", action="store_true", help="check settings, secrets and access; send nothing")
    add("--print-config", action="store_true", help="print every setting, its value and its source")
    explain = "wandb only: list the runs behind the current value of a metric, and what each adds"
    add("--explain", nargs="+", metavar=("METRIC", "tag=value"), help=explain)
    add("--list", action="store_true", help="list the collectors and what each reads")
    completion = f"print a completion script for {' or '.join(SHELLS)}"
    add("--completion", metavar="SHELL", choices=SHELLS, help=completion)
    add("--version", action="version", version=__version__, help="print the version and exit")
    add("-h", "--help", action="help", help="show this help and exit")
    add = made.add_argument_group("options").add_argument
    add("--config", metavar="FILE", help="TOML file with a table per collector")
    timeout = (
        f"deadline of each collector: 90s, 2m (default: {LIVE / 60:g}m, or {PAST / 3600:g}h with --since)"
    )
    add("--timeout", metavar="TIME", type=interval, help=timeout)
    every = "keep running, once per interval: 60s, 15m"
    add("--every", metavar="INTERVAL", type=interval, help=every)
    shard = "wandb only: read the projects of shard I (from 0) of N; /N takes I from JOB_COMPLETION_INDEX"
    add("--shard", metavar="I/N", help=shard)
    add = made.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print one JSON document; messages are on stderr")
    add("--verbose", action="store_true", help="log requests, files, settings and decisions")
    add = made.add_argument_group("backfill (docs/backfill.md)").add_argument
    add("--since", metavar="TIME", help="start of the span: 7d (ago), or 2026-11-14T00:00Z")
    add("--until", metavar="TIME", help="end of the span (default: now)")
    step = "time between two points (default: FLEETGAUGE_STEP)"
    add("--step", metavar="INTERVAL", type=interval, help=step)
    add("--csv", metavar="FILE", help="dry run: also write every point to a CSV file")
    html = "dry run: also write a page with charts, of the last day without --since; FILE may be a directory"
    add("--html", metavar="FILE", help=html)
    part = "only part I (from 0) of N equal parts of the span; /N takes I from JOB_COMPLETION_INDEX"
    add("--slice", metavar="I/N", help=part)
    enable = "enable Historical Metrics Ingestion where it is off (needs DD_APP_KEY)"
    add("--enable-historical", action="store_true", help=enable)
    only = "send only metrics for which it is on"
    add("--only-enabled", action="store_true", help=only)
    yes = "send without confirmation; required without a terminal"
    add("--yes", action="store_true", help=yes)
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
    _refuse_odd_pairs(given)
    _check_explain(given, names)
    if given.shard is not None and names != [SHARDED]:
        raise ConfigurationError(
            f"--shard is for {SHARDED} alone. Read records on nodes' disks by a DaemonSet with "
            "FLEETGAUGE_NODE_LOCAL, each node its own; records in S3 or on a shared file system by one pod, "
            "or by several releases, each with its own paths"
        )
    modes = {
        Mode.PUSH: given.push,
        Mode.CHECK: given.check,
        Mode.PRINT_CONFIG: given.print_config,
        Mode.EXPLAIN: given.explain,
    }
    backfill = _backfill(given, names, environ, now, can_ask=can_ask)
    timeout = given.timeout or (PAST if backfill else LIVE)
    # A run that hangs is ended before the next one is due.
    if given.every and given.every > 2 * TO_END:
        timeout = min(timeout, given.every - TO_END)
    return Options(
        mode=next((mode for mode, selected in modes.items() if selected), Mode.DRY_RUN),
        timeout=timeout,
        # The grid of a process that stays is its interval: each run answers for one tick.
        step=given.every or given.step,
        every=given.every,
        named=given.names != ["all"],
        verbose=given.verbose,
        # Absolute, because it is part of command lines that a person copies into another directory.
        config=given.config and str(Path(given.config).resolve()),
        backfill=backfill,
        shard=Shard(*_part_of("--shard", given.shard, environ, MAX_SHARDS)),
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
    if given.push and not given.yes and (not can_ask or len(names) > 1):
        why = "there is no terminal to ask on" if len(names) == 1 else "there are several collectors"
        raise ConfigurationError(
            f"--push --since sends what cannot be taken back, and {why}: "
            "look at it without --push, then add --yes"
        )
    since = _moment("--since", since_text, now)
    until = now if given.until is None else _moment("--until", given.until, now)
    if until <= since:
        raise ConfigurationError(f"--until {iso(until)} is not after --since {iso(since)}")
    part, parts = _part_of("--slice", given.slice, environ, MAX_PARTS)
    # `7d` is relative to now, which differs between pods: their slices would overlap or leave gaps. Only a
    # date contains a dash.
    if parts > 1 and not all("-" in (text or "") for text in (given.since, given.until)):
        raise ConfigurationError(
            "--slice needs --since and --until as moments, so that all parts are of the same span: "
            f"write --since {iso(since)} --until {iso(until)}"
        )
    step = duration(given.step) if given.step else None
    typed = {"--since": given.since, "--until": given.until, "--step": step, "--slice": given.slice}
    return Backfill(
        since=since,
        until=until,
        typed=tuple(argument for pair in typed.items() if pair[1] for argument in pair),
        part=part,
        parts=parts,
        only_enabled=given.only_enabled,
        enable=given.enable_historical,
        confirm=given.push and not given.yes,
    )


def _moment(option: str, text: str, now: int) -> int:
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _refuse_odd_pairs(options: argparse.Namespace) -> None:
    """Raise ConfigurationError for options that have no effect without another, or exclude each other."""
    given = [
        f"--{name.replace('_', '-')}" for name, value in vars(options).items() if value not in (None, False)
    ]
    sending = ("--enable-historical", "--only-enabled", "--yes")
    for option in ("--until", "--step", "--csv", "--slice", *sending):
        if option in given and "--since" not in given:
            raise ConfigurationError(f"{option} requires --since")
    for option in sending:
        if option in given and "--push" not in given:
            raise ConfigurationError(f"{option} requires --push: without it nothing is sent")
    if "--every" in given and "--since" in given:
        raise ConfigurationError("--every is about the present, --since about the past: one of them")
    for option in ("--every", "--check", "--print-config", "--explain"):
        if option in given and "--html" in given:
            raise ConfigurationError(f"--html draws the past: leave {option} out")
    for option in ("--csv", "--html"):
        if option in given and "--push" in given:
            raise ConfigurationError(f"{option} is for looking: leave --push out, and send afterwards")
    if "--since" in given and "--print-config" in given:
        raise ConfigurationError("--print-config is about settings: leave --since out")
    if "--json" in given and {"--csv", "--html"} & set(given):
        raise ConfigurationError("--json prints the points: --csv and --html are for another run")


def _check_explain(given: argparse.Namespace, names: list[str]) -> None:
    """Raise ConfigurationError where --explain is not for the only collector that has it, or is malformed."""
    if not given.explain:
        return
    if names != [EXPLAINED]:
        raise ConfigurationError(f"--explain is for {EXPLAINED} alone")
    for option in ("since", "every"):
        if getattr(given, option):
            raise ConfigurationError(f"--explain is about now: leave --{option} out")
    for text in given.explain[1:]:
        if not all(text.partition("=")):
            raise ConfigurationError(f"--explain: {text!r} is not a tag: write tag=value")


def _part_of(option: str, text: str | None, environ: Mapping[str, str], most: int) -> tuple[int, int]:
    """Return the part and the number of parts, from `2/8`, or from `/8` and the index of the pod.

    (0, 1) without a text. ConfigurationError where it is malformed, or has more than `most` parts.
    """
    if text is None:
        return 0, 1
    found = re.fullmatch(r"(\d*)/(\d+)", text.strip())
    if found is None:
        raise ConfigurationError(
            f"{option} {text!r} is not a part: write 0/8 to 7/8, or /8 in an Indexed Job"
        )
    index = found[1] or environ.get(INDEX, "").strip()
    if not index.isdecimal():
        raise ConfigurationError(f"{option} {text} takes its part from {INDEX}, which is not set to a number")
    part, parts = int(index), int(found[2])
    if not 0 <= part < parts <= most:
        raise ConfigurationError(
            f"{option} {part}/{parts}: parts are numbered from 0 to {parts - 1}, and at most {most:,}"
        )
    return part, parts
