"""The command line: which collectors, to where, and the exit code.

A live push is supervised (`supervise`). Everything else runs in this process, so that a debugger works. Only
the standard library is imported before it is needed: `--help` and a misspelt name respond at once.

The grammar is in `arguments`, one run of a collector in `common/run/run.py`, its output in `common/show/`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from common import logs, registry
from common.cli.arguments import COMPLETION, options_of, parser
from common.errors import ConfigurationError
from common.options import DATADOG, LIVE, Mode, Options
from common.outcome import Outcome, Status
from common.text import visible

if TYPE_CHECKING:
    from common.show.points import Points
    from common.window import Window

EXIT_OK, EXIT_FAILED, EXIT_CONFIGURATION = 0, 1, 2

log = logging.getLogger(__name__)


def main(argv: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line; return the exit code of the process.

    `argv` are the arguments without the program. Expected errors are printed as one line on standard error.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # None where it was closed. The lowest free number is its own: otherwise the next pipe would take it.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a test's own stream
            # A character that the encoding lacks would raise an error.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper
    logs.guard_streams(environ)
    # Points are made in bulk, and hardly in cycles: the default threshold would scan them again and again.
    gc.set_threshold(100_000)
    try:
        code = _main(argv, environ)
        sys.stdout.flush()
        return code
    except ConfigurationError as error:
        return _fail(str(error), EXIT_CONFIGURATION)
    except ImportError as error:
        return _fail(str(registry.missing_library(error)), EXIT_CONFIGURATION)
    # The reader of the output has closed it, such as `head`: exit as a program without a handler would.
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except OSError as error:
        return _fail(_reason(error), EXIT_FAILED)


def _reason(error: OSError) -> str:
    """Return the message for an error of the operating system; without a file it is about standard output."""
    return f"{error.filename or 'standard output cannot be written'}: {error.strerror or error}"


def _fail(message: str, code: int) -> int:
    """Print an error as one line and return the code; where that fails, only the code reports the error."""
    with suppress(OSError):
        sys.stderr.write(f"run_collector.py: {visible(message)}\n")
        sys.stdout.flush()
    return code


def _main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Parse the arguments and dispatch; return the exit code. Raises ConfigurationError and OSError."""
    arguments = parser()
    given = arguments.parse_args(argv)
    logs.set_up("run_collector", verbose=given.verbose)
    known = registry.names()
    if given.completion:
        # argparse has no public way to list its options.
        options_known = (option for action in arguments._actions for option in action.option_strings)
        print(COMPLETION[given.completion].format(words=" ".join([*known, "all", *options_known])))
        return EXIT_OK
    if given.list:
        summaries = {name: registry.declaration(name).summary for name in known}
        width = max(map(len, known), default=0)
        lines = (f"{name:<{width}}  {summary}" for name, summary in summaries.items())
        print(json.dumps(summaries, indent=2) if given.json else "\n".join(lines))
        return EXIT_OK
    if not given.names:
        raise ConfigurationError(
            f"name a collector, or all; there are: {', '.join(known)} (--help lists the options)"
        )
    names = registry.expand(given.names, known)
    # Standard output may be a file: the prompt is on standard error.
    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    options = options_of(given, names, environ, int(time.time()), can_ask=can_ask)
    if options.mode is Mode.PUSH and options.backfill is None:
        return _push(names, given, options, argv, environ)
    # A path that cannot be written is reported now, and not after an hour of collecting.
    for option, path in (("--csv", given.csv), ("--html", given.html)):
        if path:
            from common.show.export import check_output

            check_output(Path(path), option)
    return _run_here(names, given, options, environ)


def _push(
    names: list[str], given: argparse.Namespace, options: Options, argv: list[str], environ: Mapping[str, str]
) -> int:
    """Push live points, each collector in a process of its own; return the exit code.

    With `--every` outcomes are shown as they arrive, otherwise at the end, in the order of the names.
    """
    from common.cli import supervise

    # A child of a parent that supervises: the same command line, with one variable more.
    if name := environ.get(supervise.CHILD):
        without = {key: value for key, value in environ.items() if key != supervise.CHILD}
        return supervise.work(name, options, without)
    outcomes: dict[str, Outcome] = {}

    def take(outcome: Outcome) -> None:
        outcomes[outcome.collector] = outcome
        if given.every is None:
            return
        try:
            _show([outcome], {}, given, options, environ)
        except BrokenPipeError:
            raise
        # A full disk must not end a process that stays.
        except OSError as error:
            log.error("%s", _reason(error))

    is_accepted = supervise.supervise(names, options, argv, environ, take)
    if given.every:
        return EXIT_OK if is_accepted else EXIT_FAILED
    in_order = [outcomes[name] for name in names]
    _show(in_order, {}, given, options, environ)
    return exit_code(in_order)


def _run_here(
    names: list[str], given: argparse.Namespace, options: Options, environ: Mapping[str, str]
) -> int:
    """Run collectors one after another in this process, show what they found, and return the exit code."""
    from common.collector import load_collector
    from common.run.run import run

    points: dict[str, Points] = {}
    outcomes = []

    def run_one(name: str, options: Options, points: dict[str, Points]) -> Outcome:
        # Standard output is for points, perhaps as JSON: what a library prints must not be among them.
        with redirect_stdout(sys.stderr), _person(name) as (agree, progress):
            return run(name, options, environ, points=points, agree=agree, progress=progress)

    # What all collectors share is checked once, after them.
    shared = [DATADOG] if options.mode in {Mode.CHECK, Mode.PRINT_CONFIG} else []
    for name in [*names, *shared]:
        if not given.html or given.since:
            outcomes.append(run_one(name, options, points))
            continue
        # A page without --since: the last day of what knows the past, and the present of the rest.
        # Two runs for one page: a backfill leaves out what is only known live.
        present: dict[str, Points] = {}
        outcome = run_one(name, replace(options, backfill=None, timeout=given.timeout or LIVE), present)
        if not outcome.error and load_collector(name).has_history:
            of_present, outcome = outcome, run_one(name, options, points)
            lacking = [unit for unit in of_present.report.lost if unit not in outcome.report.lost]
            if lacking and not outcome.error:  # only the present lacks it
                outcome.report.lost += lacking
                outcome = replace(outcome, status=Status.PARTIAL)
            if name in points:
                points[name].add_present(present[name], load_collector(name).live_only)
        else:
            points |= present
        outcomes.append(outcome)
    # The runs logged under the names of their collectors.
    logs.set_up("run_collector", verbose=given.verbose)
    _show(outcomes, points, given, options, environ)
    return exit_code(outcomes)


@contextmanager
def _person(name: str) -> Iterator[tuple[Callable[[str], bool], Callable[[str, int, int | None], None]]]:
    """Yield what a run confirms a backfill with, and what it shows its progress with, to a person.

    Progress is the last line of a terminal, below the lines of the log; elsewhere it is not shown.
    """
    if not sys.stderr.isatty():
        yield (lambda _: False), (lambda *_: None)
        return
    from rich.console import Console
    from rich.text import Text

    status = Console(stderr=True).status(name)

    def agree(text: str) -> bool:
        """Show what will be sent; return whether a person agrees. Anything but y or yes is a no."""
        status.stop()
        sys.stderr.write("\n".join(map(visible, f"{name}: {text}".split("\n"))) + "\nSend it? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        status.start()
        return answer.strip().lower() in {"y", "yes"}

    def progress(doing: str, done: int, total: int | None) -> None:
        number = f", {done:,} of {total:,}" if total else f", {done:,} so far" if done else ""
        status.update(Text(visible(f"{name}: {doing}{number}"), overflow="ellipsis", no_wrap=True))

    with status:
        yield agree, progress


def _show(
    outcomes: list[Outcome],
    points: Mapping[str, Points],
    given: argparse.Namespace,
    options: Options,
    environ: Mapping[str, str],
) -> None:
    """Show the outcomes, the files that were written, and on a terminal what to do next.

    With `--json` a single JSON document is written instead.
    """
    if given.json:
        from common.show.export import write_json

        write_json(outcomes, points if options.mode is Mode.DRY_RUN else None, sys.stdout)
        return
    from common.show import table

    output = table.Output(sys.stdout)
    span, written = None, []
    if options.backfill and points:
        from common.config.sources import Configuration
        from common.window import Window

        past = options.backfill
        step = options.step or Configuration(environ, options.config).core.step
        span = Window(past.since, past.until, step).slice(past.part, past.parts)
        written = [*_write_files(outcomes, points, given, span)]
    table.show(output, outcomes, points, span)
    if options.mode in {Mode.DRY_RUN, Mode.PUSH}:
        table.show_totals(output, outcomes, pushed=options.mode is Mode.PUSH)
    for path in written:
        output.line(f"wrote {visible(path)}")
    if options.mode is Mode.DRY_RUN and sys.stdout.isatty():
        is_wrong = exit_code(outcomes) == EXIT_CONFIGURATION
        output.line("--check shows all that is wrong" if is_wrong else "--push sends it")
    sys.stdout.flush()


def _write_files(
    outcomes: list[Outcome], points: Mapping[str, Points], given: argparse.Namespace, span: Window
) -> Iterator[str]:
    """Write the files that options name; yield their paths. ConfigurationError where that fails."""
    if given.csv:
        from common.show.export import write_csv

        write_csv(Path(given.csv), outcomes, points)
        yield given.csv
    if given.html:
        from common.collector import load_collector
        from common.dashboard import views_of
        from common.show.page import write_page

        collectors = {name: load_collector(name) for name in points}
        boards = {name: views_of(name, each.metrics).dashboards for name, each in collectors.items()}
        # Without --since the page has the present too.
        absent = {metric for each in collectors.values() for metric in each.live_only if given.since}
        yield str(write_page(Path(given.html), outcomes, points, span, boards, absent))


def exit_code(outcomes: list[Outcome]) -> int:
    """Return the exit code: configuration before failure, because a person can correct it at once.

    Skipped and empty collectors are no failure: a quiet weekend must not alert.
    """
    bad = [outcome for outcome in outcomes if outcome.status in {Status.PARTIAL, Status.FAILED}]
    # `bad` excludes skipped collectors, whose missing settings are configuration errors too.
    if any(outcome.error and outcome.error.configuration for outcome in bad):
        return EXIT_CONFIGURATION
    return EXIT_FAILED if bad else EXIT_OK
