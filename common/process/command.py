"""One command line that is understood: what it makes of every collector, once or again and again.

Standard library only.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from common import signals
from common.errors import ConfigurationError
from common.job import DATADOG, Backfill, Job, Mode
from common.outcome import Outcome, Status
from common.process import progress, streams
from common.process.console import Console
from common.process.environment import configured
from common.process.progress import Lines
from common.process.protocol import Progress
from common.process.runner import Runner
from common.process.staying import MAX_BAD, Watch, delay, pause
from common.shards import Shard
from common.show import report
from common.show.dry_run_file import DryRunFile
from common.show.figures import figure
from common.show.layout import Look
from common.text import visible
from common.times import parse_duration
from common.window import Window

OK, FAILED, MISCONFIGURED = 0, 1, 2
LIVE, PAST = 120.0, 3600.0  # deadlines, in seconds
TO_END = 15.0  # seconds that ending a child which hangs, and reporting that, may take
STEP = 900  # where FLEETGAUGE_STEP is not set

log = logging.getLogger(__name__)


class Command:
    """One parsed command line, ready to run once or again and again."""

    def __init__(
        self,
        options: argparse.Namespace,
        names: list[str],
        backfill: Backfill | None,
        environ: Mapping[str, str],
        person: Console | None,
        shard: Shard,
    ) -> None:
        self._shard = shard
        self._options = options
        self._names = names
        self._backfill = backfill
        self._environ = environ
        self._person = person
        self._runner: Runner | None = None
        self._outcomes: list[Outcome] = []  # of the last run
        asked = {
            Mode.PUSH: options.push,
            Mode.CHECK: options.check,
            Mode.SETTINGS: options.print_config,
            Mode.EXPLAIN: options.explain,
        }
        self._mode = next((mode for mode, chosen in asked.items() if chosen), Mode.DRY_RUN)

    def repeat(self, interval: int) -> int:
        """Run at once, then once in every interval until interrupted; whatever may pass does not end it."""
        job = self._job(self._names[0], None)
        later = delay(self._names, job, self._environ, interval)
        watch = Watch(configured(job, self._environ, "ready_file"))
        try:
            while True:
                self._outcomes = []
                try:
                    code = self.once()
                except BrokenPipeError:
                    raise
                except ConfigurationError as error:
                    log.error("%s", error)
                except OSError as error:
                    log.error("%s", streams.trouble(error))
                else:
                    if code > 128:
                        return code
                watch.note(self._outcomes)
                if watch.refused == MAX_BAD:
                    log.error("Datadog refused the key in %d ticks running: giving up", MAX_BAD)
                    return MISCONFIGURED
                time.sleep(pause(time.time(), interval, later))
        finally:
            with signals.shielded():
                if self._runner:
                    self._runner.close()

    def once(self) -> int:
        """Run every collector once, show what came of it, and say it as an exit code."""
        watcher = progress.watcher(sys.stderr, self._person)
        self._runner = runner = self._runner or Runner(self._environ, watcher)
        with _folder(self._mode) as folder:
            jobs = [self._job(name, folder) for name in self._names]
            if self._mode in {Mode.CHECK, Mode.SETTINGS}:
                jobs.append(self._job(DATADOG, folder))
            try:
                self._outcomes = outcomes = runner.run_and_report(jobs)
            finally:
                watcher.close()
            paths = {job.collector: Path(job.samples_path) for job in jobs if job.samples_path}
            files = {name: DryRunFile(path) for name, path in paths.items()}
            if self._options.json:
                pushed = self._mode is not Mode.DRY_RUN
                report.write_document(outcomes, None if pushed else files, sys.stdout)
            else:
                span = self._span(self._backfill, jobs[0]) if self._backfill else None
                self._show(outcomes, files, span, watcher)
        return 128 + runner.interrupted if runner.interrupted else exit_code(outcomes)

    def _span(self, backfill: Backfill, job: Job) -> Window:
        """The span that the children answered for; a step that cannot be read is theirs to report."""
        step = job.step
        with suppress(ValueError):
            step = step or parse_duration(configured(job, self._environ, "step"))
        return Window(backfill.since, backfill.until, step or STEP).slice(backfill.part, backfill.parts)

    def _job(self, name: str, folder: Path | None) -> Job:
        return Job(
            collector=name,
            mode=self._mode,
            timeout=self._timeout(),
            step=self._options.every or self._options.step,
            named=self._options.names != ["all"],
            verbose=self._options.verbose,
            config=self._options.config and str(Path(self._options.config).resolve()),
            samples_path=str(folder / name) if folder else None,
            backfill=self._backfill,
            stays=bool(self._options.every and self._mode is Mode.PUSH),
            shard=self._shard,
            explain=tuple(self._options.explain or ()),
        )

    def _timeout(self) -> float:
        """A tick that hangs is ended, and reported, before the next one is due."""
        asked, every = self._options.timeout or (PAST if self._backfill else LIVE), self._options.every
        return min(asked, every - TO_END) if every and every > 2 * TO_END else asked

    def _show(
        self, outcomes: list[Outcome], files: Mapping[str, DryRunFile], span: Window | None, watcher: Lines
    ) -> None:
        """For a person: what came of it, what was written where, and what to do next."""
        from common.show import overview

        look = Look.at(sys.stdout, self._environ)
        written = [*self._written(outcomes, files, span, watcher)] if span and not self._options.push else []
        past = span if self._mode is Mode.DRY_RUN else None
        for line in overview.show(outcomes, files, look, past, points=self._options.points):
            print(line)
        if self._mode in {Mode.DRY_RUN, Mode.PUSH}:
            for line in report.closing(outcomes, look, pushed=self._mode is Mode.PUSH):
                print(line)
        for line in written:
            print(line)
        for line in self._next(outcomes) if look.width is not None else ():
            print(line)
        sys.stdout.flush()

    def _written(
        self, outcomes: list[Outcome], files: Mapping[str, DryRunFile], span: Window, watcher: Lines
    ) -> Iterator[str]:
        """Write the files that were asked for; a line on each."""
        from common.show import csv_file, page

        for text in filter(None, (self._options.csv, self._options.html)):
            watcher.progress("run_collector", Progress(f"writing {text}", 0, None))
            path = Path(text)
            if text == self._options.csv:
                csv_file.write(path, outcomes, files)
            else:
                path = page.write(path, outcomes, files, span)
            size = f", {' '.join(figure(path.stat().st_size, 'byte'))}" if path.is_file() else ""
            yield f"wrote {visible(str(path))}{size}"
        watcher.close()

    def _next(self, outcomes: list[Outcome]) -> Iterator[str]:
        """What a person may want to do now, as command lines."""
        past, code = self._backfill.asked if self._backfill else (), exit_code(outcomes)
        if code == MISCONFIGURED:
            if self._mode is not Mode.CHECK:
                yield f"next, to see all that is wrong: {self._line('--check')}"
            return
        if any(outcome.dropped for outcome in outcomes) and not self._options.verbose:
            again = ("--push",) if self._mode is Mode.PUSH else ()
            yield f"next, to see more of what was dropped: {self._line(*past, *again, '--verbose')}"
        if self._mode is Mode.CHECK and code == OK:
            yield f"next, to look at what would be sent: {self._line(*past)}"
        if self._mode is Mode.DRY_RUN and any(outcome.samples for outcome in outcomes):
            yield f"next, to send it: {self._line(*past, '--push')}"

    def _line(self, *words: str) -> str:
        config = ("--config", self._options.config) if self._options.config else ()
        words = (*words, *self._shard.options)
        return visible(shlex.join(["run_collector.py", *self._options.names, *words, *config]))


@contextmanager
def _folder(mode: Mode) -> Iterator[Path | None]:
    """Where children leave the samples of a dry run; nothing else needs one."""
    if mode is not Mode.DRY_RUN:
        yield None
        return
    try:
        folder = tempfile.mkdtemp(prefix="fleetgauge-")
    except OSError as error:
        raise ConfigurationError(
            f"a dry run needs a directory for temporary files ({error.strerror or error}): "
            "set TMPDIR to one that can be written and has room"
        ) from error
    try:
        yield Path(folder)
    finally:
        with signals.shielded():
            shutil.rmtree(folder, ignore_errors=True)


def exit_code(outcomes: list[Outcome]) -> int:
    """Configuration before failure: it is the one a person can mend at once."""
    bad = [outcome for outcome in outcomes if outcome.status in {Status.PARTIAL, Status.FAILED}]
    if any(outcome.error and outcome.error.configuration for outcome in bad):
        return MISCONFIGURED
    return FAILED if bad else OK
