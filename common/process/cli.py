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

from common import logs, registry, signals
from common.errors import ConfigurationError, Interrupted
from common.process import backfill_options, console, streams
from common.process.backfill_options import interval
from common.process.command import FAILED, LIVE, MISCONFIGURED, OK, PAST, Command
from common.show.output import check_output
from fleetgauge import __version__

_EPILOG = """\
examples:
  run_collector.py host                 look at this machine; nothing is sent
  run_collector.py all --check          are settings, secrets and keys good? nothing is sent
  run_collector.py all --push           what the CronJob does every fifteen minutes
  run_collector.py wandb --json | jq .  one JSON document on stdout, everything else on stderr
  run_collector.py wandb --since 7d --html week.html
                                        the past week, recomputed, to look at before it is sent
  run_collector.py wandb --since 7d --push
                                        send it, once you agree; interrupted, the same command goes on

settings come from the environment, AWS Secrets Manager and --config, in that order; docs/settings.md
lists them all.

exit code: 0 ok, empty or skipped; 1 a collector was partial or failed; 2 configuration;
130 or 143 interrupted.
"""


def parser(width: int | None = None) -> argparse.ArgumentParser:
    """The command line's grammar; docs/command-line.md is generated from it, at a fixed width."""
    made = argparse.ArgumentParser(
        prog="run_collector.py",
        description="Collect fleet metrics: show them (the default) or push them to Datadog.",
        epilog=_EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=width),
        allow_abbrev=False,
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="collectors to run, or `all`")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--push", action="store_true", help="deliver to Datadog instead of showing")
    what.add_argument("--check", action="store_true", help="check settings, secrets and access; send nothing")
    what.add_argument("--list", action="store_true", help="list the collectors and what each reads")
    made.add_argument("--json", action="store_true", help="print one JSON document for a program")
    made.add_argument("--config", metavar="FILE", help="TOML file with a table per collector")
    made.add_argument(
        "--timeout",
        metavar="TIME",
        type=interval,
        help=f"deadline of each collector, such as 90 or 2m (default: {LIVE:g}, or {PAST:g} with --since)",
    )
    made.add_argument(
        "--every",
        metavar="INTERVAL",
        type=interval,
        help="stay and run again once in each interval, such as 60s or 15m",
    )
    made.add_argument("--verbose", action="store_true", help="log what is being done")
    made.add_argument("--version", action="version", version=__version__, help="print the version and exit")
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
    if options.list:
        return _list(known, as_json=options.json)
    if not options.names:
        arguments.print_usage(sys.stderr)
        raise ConfigurationError(f"name a collector, or all; there are: {', '.join(known)}")
    names = registry.expand(options.names, known)
    person = console.find() if options.push and options.since and not options.yes else None
    backfill = backfill_options.parse(options, environ, int(time.time()), person=person is not None)
    for option, path in (("--csv", options.csv), ("--html", options.html)):
        if path:
            check_output(Path(path), option)
    command = Command(options, names, backfill, environ, person)
    return command.repeat(options.every) if options.every else command.once()


def _list(known: list[str], *, as_json: bool) -> int:
    summaries = {name: registry.declaration(name).summary for name in known}
    if as_json:
        print(json.dumps(summaries, indent=2))
        return OK
    width = max(map(len, known), default=0)
    for name, summary in summaries.items():
        print(f"{name:<{width}}  {summary}")
    return OK
