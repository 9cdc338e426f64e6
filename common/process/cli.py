"""The command line: which collectors, to where, and what the exit code says.

Standard library only: `--help` and a misspelt name must answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from common import logs, registry, signals
from common.errors import ConfigurationError, Interrupted
from common.process import backfill_options, console, streams
from common.process.backfill_options import interval
from common.process.command import FAILED, LIVE, MISCONFIGURED, OK, PAST, Command
from common.process.completion import SHELLS, script
from common.registry import nearest
from common.shards import Shard
from common.show.output import check_output
from fleetgauge import __version__

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


SHARDED = "wandb"  # whose projects share no series
EXPLAINED = "wandb"  # which can list what a value is made of
MAX_SHARDS = 64


class _Parser(argparse.ArgumentParser):
    """One whose errors are what is wrong and where to look, without the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        words = [word for word in message.split() if word.startswith("--")]
        hint = nearest(words[0], [*self._option_string_actions]) if "unrecognized" in message else ""
        streams.say(f"{message}{hint}")
        streams.say("--help lists what there is")
        raise SystemExit(MISCONFIGURED)


def parser(width: int | None = None) -> argparse.ArgumentParser:
    """The command line's grammar; docs/command-line.md is generated from it, at a fixed width."""
    made = _Parser(
        prog="run_collector.py",
        usage="run_collector.py NAME... [--push | --check | --print-config | --explain METRIC] [options]",
        description="Collect fleet metrics: show them (the default) or push them to Datadog.",
        epilog=_EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
        allow_abbrev=False,
        add_help=False,
    )
    add = made.add_argument
    add("names", nargs="*", metavar="NAME", help="collectors to run, or `all`")
    what = made.add_argument_group("what to do, besides showing what would be sent")
    add = what.add_mutually_exclusive_group().add_argument
    add("--push", action="store_true", help="deliver to Datadog")
    add("--check", action="store_true", help="check settings, secrets and access; send nothing")
    add("--print-config", action="store_true", help="show each setting in force, and where it comes from")
    add(
        "--explain",
        nargs="+",
        metavar=("METRIC", "tag=value"),
        help="wandb only: list the runs behind one value of now, and what each adds",
    )
    add("--list", action="store_true", help="list the collectors and what each reads")
    add(
        "--completion",
        metavar="SHELL",
        choices=SHELLS,
        help=f"what makes {' or '.join(SHELLS)} complete these",
    )
    add("--version", action="version", version=__version__, help="print the version and exit")
    add("-h", "--help", action="help", help="show this help and exit")
    how = made.add_argument_group("how")
    add = how.add_argument
    add("--config", metavar="FILE", help="TOML file with a table per collector")
    timeout = (
        f"deadline of each collector: 90s, 2m (default: {LIVE / 60:g}m, or {PAST / 3600:g}h with --since)"
    )
    add("--timeout", metavar="TIME", type=interval, help=timeout)
    every = "stay and run again once in each interval, such as 60s or 15m"
    add("--every", metavar="INTERVAL", type=interval, help=every)
    shard = "wandb only: the projects of shard I, from 0, of N; /N takes I from JOB_COMPLETION_INDEX"
    add("--shard", metavar="I/N", help=shard)
    see = made.add_argument_group("what to see")
    add = see.add_argument
    add("--json", action="store_true", help="one JSON document for a program; the rest goes to stderr")
    add("--points", action="store_true", help="every point on a line, where a series has several")
    add("--verbose", action="store_true", help="log requests, files, settings and what is decided")
    backfill_options.add(made)
    return made


def main(argv: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line; the process's exit code."""
    try:
        with signals.interruptible():
            streams.prepare()
            code = _main(argv, environ)
            sys.stdout.flush()
    except Interrupted as error:
        code = 128 + error.signal_number
    except ConfigurationError as error:
        streams.say(str(error))
        code = MISCONFIGURED
    except BrokenPipeError:  # whoever read the output has had enough
        code = 128 + signal.SIGPIPE
    except OSError as error:
        streams.say(streams.trouble(error))
        code = FAILED
    streams.give_up_unwritten()
    return code


def _main(argv: list[str], environ: Mapping[str, str]) -> int:
    arguments = parser()
    options = arguments.parse_args(argv)
    logs.set_up("run_collector", verbose=options.verbose)
    known = registry.names()
    if options.completion:
        print(script(options.completion, arguments, [*known, "all"]))
        return OK
    if options.list:
        return _list(known, as_json=options.json)
    if not options.names:
        raise ConfigurationError(
            f"name a collector, or all; there are: {', '.join(known)} (--help lists the options)"
        )
    names = registry.expand(options.names, known)
    shard = _shard(options.shard, names, environ)
    _check_explain(options, names)
    person = console.find() if options.push and options.since and not options.yes else None
    backfill = backfill_options.parse(options, environ, int(time.time()), person=person is not None)
    for option, path in (("--csv", options.csv), ("--html", options.html)):
        if path:
            check_output(Path(path), option)
    command = Command(options, names, backfill, environ, person, shard)
    return command.repeat(options.every) if options.every else command.once()


def _shard(text: str | None, names: list[str], environ: Mapping[str, str]) -> Shard:
    """Return the shard to read; ConfigurationError where what is read has none."""
    if text is not None and names != [SHARDED]:
        raise ConfigurationError(
            f"--shard is for {SHARDED} alone. Read records on nodes' disks by a DaemonSet with "
            "FLEETGAUGE_NODE_LOCAL, each node its own; records in S3 or on a shared file system by one pod, "
            "or by several releases, each with its own paths"
        )
    return Shard(*backfill_options.part_of("--shard", text, environ, MAX_SHARDS))


def _check_explain(options: argparse.Namespace, names: list[str]) -> None:
    """Refuse to explain what nobody can, or in another form than METRIC tag=value."""
    if not options.explain:
        return
    if names != [EXPLAINED]:
        raise ConfigurationError(f"--explain is for {EXPLAINED} alone")
    for option in ("since", "every"):
        if getattr(options, option):
            raise ConfigurationError(f"--explain is about now: leave --{option} out")
    for text in options.explain[1:]:
        if not all(text.partition("=")):
            raise ConfigurationError(f"--explain: {text!r} is not a tag: write tag=value")


def _list(known: list[str], *, as_json: bool) -> int:
    summaries = {name: registry.declaration(name).summary for name in known}
    if as_json:
        print(json.dumps(summaries, indent=2))
        return OK
    width = max(map(len, known), default=0)
    for name, summary in summaries.items():
        print(f"{name:<{width}}  {summary}")
    return OK
