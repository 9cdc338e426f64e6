"""The command line: which collectors, to where, and what the exit code says.

Standard library only: `--help` and a misspelt name must answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from common import logs, registry, signals
from common.errors import ConfigurationError, Interrupted
from common.job import DATADOG, Backfill, Job, Mode
from common.outcome import Outcome, Status
from common.process import backfill_options, progress
from common.process.backfill_options import interval
from common.process.environment import configured
from common.process.reporting import run_and_report
from common.process.runner import Runner
from common.show import report
from common.show.dry_run_file import DryRunFile
from common.show.output import check_output
from common.span import Span
from common.text import visible
from common.times import parse_duration

OK, FAILED, MISCONFIGURED = 0, 1, 2
LIVE, PAST = 120.0, 3600.0  # deadlines, in seconds
STEP = 900  # where FLEETGAUGE_STEP is not set

_EPILOG = """\
examples:
  run_collector.py host                 look at this machine; nothing is sent
  run_collector.py all --check          are settings, secrets and keys good? nothing is sent
  run_collector.py all --push           what the CronJob does every fifteen minutes
  run_collector.py wandb --json | jq .  one JSON document on stdout, everything else on stderr
  run_collector.py wandb --since 7d --html week.html
                                        the past week, recomputed, to look at before it is sent
  run_collector.py wandb --since 7d --push
                                        send it; interrupted, the same command goes on

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
        metavar="SECONDS",
        type=_seconds,
        help=f"deadline of each collector (default: {LIVE:g}, or {PAST:g} with --since)",
    )
    made.add_argument(
        "--every",
        metavar="INTERVAL",
        type=interval,
        help="stay and run again at every multiple of this, such as 60s or 15m",
    )
    made.add_argument("--verbose", action="store_true", help="log what is being done")
    backfill_options.add(made)
    return made


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 86400")
    return value


def main(argv: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line; the process's exit code."""
    try:
        with signals.interruptible():
            return _main(argv, environ)
    except Interrupted as error:
        return 128 + error.signal_number
    except ConfigurationError as error:
        print(f"run_collector.py: {visible(str(error))}", file=sys.stderr)
        return MISCONFIGURED
    except BrokenPipeError:  # whoever read the output has had enough, and nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


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
    backfill = backfill_options.parse(options, environ, int(time.time()), person=_a_person_is_there())
    for option, path in (("--csv", options.csv), ("--html", options.html)):
        if path:
            check_output(Path(path), option)
    command = Command(options, names, backfill, environ)
    return command.repeat(options.every) if options.every else command.once()


def _a_person_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class Command:
    """One parsed command line, ready to run once or again and again."""

    def __init__(
        self,
        options: argparse.Namespace,
        names: list[str],
        backfill: Backfill | None,
        environ: Mapping[str, str],
    ) -> None:
        self._options = options
        self._names = names
        self._backfill = backfill
        self._environ = environ
        self._mode = Mode.PUSH if options.push else Mode.CHECK if options.check else Mode.DRY_RUN

    def repeat(self, interval: int) -> int:
        """Run at every multiple of the interval until interrupted; a run that fails does not end it."""
        while True:
            code = self.once()
            if code > 128:
                return code
            time.sleep(interval - time.time() % interval)

    def once(self) -> int:
        """Run every collector once, show what came of it, and say it as an exit code."""
        watcher = progress.watcher(sys.stderr)
        runner = Runner(self._environ, watcher)
        with tempfile.TemporaryDirectory(prefix="fleetgauge-") as folder:
            jobs = [self._job(name, folder) for name in self._names]
            if self._mode is Mode.CHECK:
                jobs.append(self._job(DATADOG, folder))
            try:
                outcomes = run_and_report(runner, jobs)
            finally:
                watcher.close()
            paths = {job.collector: Path(job.samples_path) for job in jobs if job.samples_path}
            files = {name: DryRunFile(path) for name, path in paths.items()}
            if self._backfill and self._mode is Mode.DRY_RUN and not self._options.json:
                self._show_past(outcomes, files, self._span(self._backfill, jobs[0]))
            else:
                self._show(outcomes, files)
        return 128 + runner.interrupted if runner.interrupted else exit_code(outcomes)

    def _span(self, backfill: Backfill, job: Job) -> Span:
        """The span that the children answered for; a step that cannot be read is theirs to report."""
        step = job.step
        with suppress(ValueError):
            step = step or parse_duration(configured(job, self._environ, "step"))
        return Span(backfill.since, backfill.until, step or STEP).part(backfill.part, backfill.parts)

    def _show_past(self, outcomes: list[Outcome], files: Mapping[str, DryRunFile], span: Span) -> None:
        from common.show import csv_file, overview, page

        if self._options.csv:
            csv_file.write(Path(self._options.csv), outcomes, files)
        if self._options.html:
            page.write(Path(self._options.html), outcomes, files, span)
        for line in overview.show(outcomes, files, span, _width()):
            print(line)
        print(report.last_line(outcomes, pushed=False), flush=True)

    def _job(self, name: str, folder: str) -> Job:
        return Job(
            collector=name,
            mode=self._mode,
            now=int(time.time()),
            timeout=self._options.timeout or (PAST if self._backfill else LIVE),
            step=self._options.every or self._options.step,
            named=self._options.names != ["all"],
            verbose=self._options.verbose,
            config=self._options.config and str(Path(self._options.config).resolve()),
            samples_path=str(Path(folder, name)) if self._mode is Mode.DRY_RUN else None,
            backfill=self._backfill,
        )

    def _show(self, outcomes: list[Outcome], files: Mapping[str, DryRunFile]) -> None:
        pushed = self._mode is not Mode.DRY_RUN
        if self._options.json:
            report.write_document(outcomes, None if pushed else files, sys.stdout)
            return
        if self._mode is Mode.CHECK:
            for outcome in outcomes:
                print(report.headline(outcome))
                for finding in outcome.findings:
                    print(f"  {visible(finding)}")
            return
        for line in report.table(outcomes, files, _width()):
            print(line)
        print(report.last_line(outcomes, pushed=pushed), flush=True)


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def exit_code(outcomes: list[Outcome]) -> int:
    """Configuration before failure: it is the one a person can mend at once."""
    bad = [outcome for outcome in outcomes if outcome.status in {Status.PARTIAL, Status.FAILED}]
    if any(outcome.error and outcome.error.configuration for outcome in bad):
        return MISCONFIGURED
    return FAILED if bad else OK


def _list(known: list[str], *, as_json: bool) -> int:
    summaries = {name: registry.declaration(name).summary for name in known}
    if as_json:
        print(json.dumps(summaries, indent=2))
        return OK
    width = max(map(len, known), default=0)
    for name, summary in summaries.items():
        print(f"{name:<{width}}  {summary}")
    return OK
