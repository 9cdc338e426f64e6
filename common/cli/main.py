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
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from common import logs, registry
from common.cli import streams
from common.cli.arguments import LIVE, options_of, parser
from common.cli.completion import script
from common.cli.environment import CHILD
from common.errors import ConfigurationError
from common.options import DATADOG, Mode, Options
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
    An error of the arguments exits with SystemExit(2), as argparse does.
    """
    streams.prepare()
    logs.guard_streams()
    # Points are made in bulk, and hardly in cycles: the default threshold would scan them again and again.
    gc.set_threshold(100_000)
    try:
        code = _main(argv, environ)
        sys.stdout.flush()
    except ConfigurationError as error:
        streams.say(str(error))
        code = EXIT_CONFIGURATION
    except ModuleNotFoundError as error:
        setup = f"{registry.ROOT}/scripts/setup"
        streams.say(f"this Python ({sys.executable}) lacks {error.name}: run {setup} once")
        code = EXIT_CONFIGURATION
    # The reader of the output has closed it, such as `head`: exit as a program without a handler would.
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    except OSError as error:
        streams.say(streams.trouble(error))
        code = EXIT_FAILED
    streams.discard_unwritten()
    return code


def _main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Parse the arguments and dispatch; return the exit code. Raises ConfigurationError and OSError."""
    arguments = parser()
    given = arguments.parse_args(argv)
    logs.set_up("run_collector", verbose=given.verbose)
    _log_uncaught()
    known = registry.names()
    if given.completion:
        print(script(given.completion, arguments, [*known, "all"]))
        return EXIT_OK
    if given.list:
        return _list(known, as_json=given.json)
    if not given.names:
        raise ConfigurationError(
            f"name a collector, or all; there are: {', '.join(known)} (--help lists the options)"
        )
    names = registry.expand(given.names, known)
    options = options_of(given, names, environ, int(time.time()), can_ask=streams.can_ask())
    if options.mode is Mode.PUSH and options.backfill is None:
        from common.cli import supervise

        # A child of a parent that supervises: the same command line, with one variable more.
        if name := environ.get(CHILD):
            return supervise.work(name, options, {key: environ[key] for key in environ if key != CHILD})
        return _push(names, given, options, argv, environ)
    # A path that cannot be written is reported now, and not after an hour of collecting.
    for option, path in (("--csv", given.csv), ("--html", given.html)):
        if path:
            from common.show.export import check_output

            check_output(Path(path), option)
    if not given.every:
        return _run_here(names, given, options, environ)
    from common.cli.supervise import pause

    while True:
        with _surviving_full_disk():
            _run_here(names, given, options, environ)
        time.sleep(pause(time.time(), given.every))


@contextmanager
def _surviving_full_disk() -> Iterator[None]:
    """Log that output cannot be written now: a process that stays continues. A closed pipe still ends it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        log.error("%s", streams.trouble(error))


def _push(
    names: list[str], given: argparse.Namespace, options: Options, argv: list[str], environ: Mapping[str, str]
) -> int:
    """Push live points, each collector in a process of its own; return the exit code.

    With `--every` outcomes are shown as they arrive, otherwise at the end, in the order of the names.
    """
    from common.cli import supervise

    if given.every:

        def show(outcome: Outcome) -> None:
            with _surviving_full_disk():
                _show([outcome], {}, given, options, environ)

        return EXIT_OK if supervise.supervise(names, options, argv, environ, show) else EXIT_FAILED
    outcomes: dict[str, Outcome] = {}
    supervise.supervise(names, options, argv, environ, lambda one: outcomes.update({one.collector: one}))
    in_order = [outcomes[name] for name in names]
    _show(in_order, {}, given, options, environ)
    return exit_code(in_order)


def _run_here(
    names: list[str], given: argparse.Namespace, options: Options, environ: Mapping[str, str]
) -> int:
    """Run collectors one after another in this process, show what they found, and return the exit code."""
    from common.cli.progress import ProgressDisplay
    from common.collector import load_collector
    from common.run.run import run

    points: dict[str, Points] = {}
    outcomes = []
    shown = ProgressDisplay(sys.stderr)

    def agree(text: str) -> bool:
        shown.close()
        return streams.ask(text)

    def run_one(name: str, options: Options, points: dict[str, Points]) -> Outcome:
        # Standard output is for points, perhaps as JSON: what a library prints must not be among them.
        with redirect_stdout(sys.stderr):
            outcome = run(
                name,
                options,
                environ,
                points=points,
                agree=lambda text: agree(f"{name}: {text}"),
                progress=lambda doing, done, total: shown.progress(name, doing, done, total),
            )
        shown.close()
        return outcome

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
            outcome = run_one(name, options, points)
            if name in points:
                points[name].add_present(present[name])
        else:
            points |= present
        outcomes.append(outcome)
    # The runs logged under the names of their collectors.
    logs.set_up("run_collector", verbose=given.verbose)
    _show(outcomes, points, given, options, environ)
    return exit_code(outcomes)


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
    span = _span(options, environ) if options.mode is Mode.DRY_RUN else None
    written = [*_write_files(outcomes, points, given, span)] if span else []
    table.show(output, outcomes, points, span)
    if options.mode in {Mode.DRY_RUN, Mode.PUSH}:
        table.show_totals(output, outcomes, pushed=options.mode is Mode.PUSH)
    for line in written:
        output.line(line)
    if sys.stdout.isatty():
        for line in _advice(outcomes, given, options):
            print(line)  # a command line is not wrapped
    sys.stdout.flush()


def _span(options: Options, environ: Mapping[str, str]) -> Window | None:
    """Return the span of a backfill; None for a live run, and where the step cannot be read.

    In the latter case the outcome of the run has the error.
    """
    if options.backfill is None:
        return None
    from common.config.sources import Configuration
    from common.window import Window

    past = options.backfill
    try:
        step = options.step or Configuration(environ, options.config).core.step
    except ConfigurationError:
        return None
    return Window(past.since, past.until, step).slice(past.part, past.parts)


def _write_files(
    outcomes: list[Outcome], points: Mapping[str, Points], given: argparse.Namespace, span: Window
) -> Iterator[str]:
    """Write the files that options name; yield a line on each. ConfigurationError where that fails."""
    from common.dashboard import views_of
    from common.show.export import write_csv
    from common.show.page import write_page
    from fleetgauge.pages.axes import format_bytes

    for text in filter(None, (given.csv, given.html)):
        path = Path(text)
        if text == given.csv:
            write_csv(path, outcomes, points)
        else:
            dashboards = {name: views_of(name, found.metrics).dashboards for name, found in points.items()}
            path = write_page(path, outcomes, points, span, dashboards)
        size = f", {format_bytes(path.stat().st_size)}" if path.is_file() else ""
        yield f"wrote {visible(str(path))}{size}"


def _advice(outcomes: list[Outcome], given: argparse.Namespace, options: Options) -> Iterator[str]:
    """Yield what a person may want to do now, as command lines; nothing after an ordinary push."""
    past, code = options.backfill.typed if options.backfill else (), exit_code(outcomes)

    def command(*arguments: str) -> str:
        config = ("--config", given.config) if given.config else ()
        every = ["run_collector.py", *given.names, *arguments, *options.shard.options, *config]
        return visible(shlex.join(every))

    if code == EXIT_CONFIGURATION:
        if options.mode is not Mode.CHECK:
            yield f"next, to see all that is wrong: {command('--check')}"
        return
    if any(outcome.counts.dropped for outcome in outcomes) and not given.verbose:
        push = ("--push",) if options.mode is Mode.PUSH else ()
        yield f"next, to see more of what was dropped: {command(*past, *push, '--verbose')}"
    if options.mode is Mode.CHECK and code == EXIT_OK:
        yield f"next, to look at what would be sent: {command(*past)}"
    if options.mode is Mode.DRY_RUN and any(outcome.counts.samples for outcome in outcomes):
        yield f"next, to send it: {command(*past, '--push')}"


def exit_code(outcomes: list[Outcome]) -> int:
    """Return the exit code: configuration before failure, because a person can correct it at once.

    Skipped and empty collectors are no failure: a quiet weekend must not alert.
    """
    bad = [outcome for outcome in outcomes if outcome.status in {Status.PARTIAL, Status.FAILED}]
    # `bad` excludes skipped collectors, whose missing settings are configuration errors too.
    if any(outcome.error and outcome.error.configuration for outcome in bad):
        return EXIT_CONFIGURATION
    return EXIT_FAILED if bad else EXIT_OK


def _list(known: list[str], *, as_json: bool) -> int:
    """Print the collectors with their summaries; only their packages are imported."""
    summaries = {name: registry.declaration(name).summary for name in known}
    if as_json:
        print(json.dumps(summaries, indent=2))
        return EXIT_OK
    width = max(map(len, known), default=0)
    for name, summary in summaries.items():
        print(f"{name:<{width}}  {summary}")
    return EXIT_OK


def _log_uncaught() -> None:
    """Log what threads and finalisers raise: Python would print it as it is, and with it a secret.

    Warnings of Python become log records too.
    """

    def in_thread(raised: threading.ExceptHookArgs) -> None:
        name = raised.thread.name if raised.thread else "that has ended"
        log.error("unexpected error in thread %s", name, exc_info=raised.exc_value)

    def in_finaliser(raised: sys.UnraisableHookArgs) -> None:
        log.error("unexpected error while an object was finalised", exc_info=raised.exc_value)

    threading.excepthook = in_thread
    sys.unraisablehook = in_finaliser
    logging.captureWarnings(capture=True)
