"""The child process: runs one collector, delivers what it yields and reports one outcome.

The job comes as one line on standard input, which then stays open: its end means that the parent is gone,
and the child ends too. The outcome leaves on what was standard output; anything printed goes to stderr.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from common import health, logs, registry, signals
from common.collector import Collector, Context, Tally
from common.configuration import Configuration
from common.errors import ConfigurationError, FleetgaugeError, Interrupted, NotConfigured
from common.metric import Mark, Sample
from common.protocol import DATADOG, Failure, Job, Mode, Outcome, Status
from common.retry import Deadline
from common.times import tick

if TYPE_CHECKING:
    from common.datadog import DatadogSink

LAST_WORDS = 2.0  # seconds for the self-metrics once the time is over
RESERVE = 10.0  # seconds of a collector's time kept back to deliver what it found

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where samples go: `send` returning means delivered."""

    points_sent: int

    @property
    def dropped(self) -> Mapping[str, int]:
        """Points that did not go, by reason."""

    def send(self, samples: Iterable[Sample]) -> None:
        """Deliver, or raise."""


class Run:
    """One run of one collector, from its settings to its outcome."""

    def __init__(self, job: Job, environ: Mapping[str, str]) -> None:
        self._job = job
        self._environ = environ
        self._started = time.monotonic()
        self._deadline = Deadline(job.timeout)
        self._tally = Tally()
        self._samples = 0
        self._findings: list[str] = []
        self._sink: Sink | None = None
        self._configuration: Configuration | None = None

    def run(self) -> Outcome:
        """Do the job; every way it can end is an outcome."""
        failure: Failure | None = None
        skipped = interrupted = False
        try:
            self._do()
        except NotConfigured as error:
            failure, skipped = _failure(error), not self._job.named
        except FleetgaugeError as error:
            failure = _failure(error)
        except Interrupted as error:
            failure, interrupted = _failure(error), True
        except Exception as error:
            log.exception("%s failed in a way nobody foresaw", self._job.collector)
            failure = _failure(error)
        outcome = self._outcome(failure, skipped=skipped)
        if self._job.mode is Mode.PUSH and not skipped:
            left = LAST_WORDS if interrupted else max(LAST_WORDS, self._deadline.remaining())
            outcome = self._report(outcome, Deadline(left))
        return outcome

    def _do(self) -> None:
        job = self._job
        self._configuration = configuration = Configuration(self._environ, job.config)
        core = configuration.core
        labels = {"service": core.service, "env": core.env or "", "version": core.version or ""}
        logs.set_up(job.collector, verbose=job.verbose, labels=labels)
        if job.collector == DATADOG:
            self._findings.append(self._datadog_sink(configuration, self._deadline).validate())
            return
        collector = registry.load(job.collector)
        context = Context(
            settings=configuration.collector(collector.name, collector.settings),
            at=tick(job.now, job.step or core.step) if job.mode is Mode.PUSH else job.now,
            now=job.now,
            node_name=core.node_name or socket.gethostname(),
            state={},
            deadline=Deadline(job.timeout - min(RESERVE, job.timeout / 5)),
            log=logging.getLogger(f"collectors.{collector.name}"),
            tally=self._tally,
        )
        if job.mode is Mode.CHECK:
            self._findings.extend(collector.check(context))
        else:
            self._sink = self._open_sink(configuration, collector)
            self._collect(collector, context, self._sink)

    # Any: the settings model differs per collector, and only the collector itself looks inside.
    def _collect(self, collector: Collector[Any], context: Context[Any], sink: Sink) -> None:
        """Deliver what the collector yields, also what it yielded before an error."""
        declared = {metric.name for metric in collector.metrics}
        waiting: list[Sample] = []
        try:
            for item in collector.collect(context):
                if isinstance(item, Mark):
                    continue
                if item.metric.name not in declared:
                    raise ValueError(
                        f"{collector.name} yielded {item.metric.name}, which it does not declare"
                    )
                self._samples += 1
                waiting.append(item)
        except Exception:
            sink.send(waiting)
            raise
        sink.send(waiting)

    def _open_sink(self, configuration: Configuration, collector: Collector[Any]) -> Sink:
        if self._job.mode is Mode.PUSH:
            return self._datadog_sink(configuration, self._deadline)
        from common.dry import FileSink

        if self._job.samples_path is None:
            raise ValueError("a dry run needs a file for its samples")
        return FileSink(
            Path(self._job.samples_path), collector.metrics, configuration.core.series_cap, self._job.now
        )

    def _datadog_sink(self, configuration: Configuration, deadline: Deadline) -> DatadogSink:
        from common.datadog import DatadogSink

        return DatadogSink(configuration.datadog(), configuration.core, deadline)

    def _outcome(self, failure: Failure | None, *, skipped: bool) -> Outcome:
        dropped = dict(self._tally.dropped)
        for reason, count in (self._sink.dropped if self._sink else {}).items():
            dropped[reason] = dropped.get(reason, 0) + count
        sent = self._sink.points_sent if self._sink else 0
        lost = [logs.redact(unit) for unit in self._tally.lost]
        if skipped:
            status = Status.SKIPPED
        elif failure or lost:
            status = Status.PARTIAL if sent or not failure else Status.FAILED
        else:
            status = Status.OK if self._samples or self._findings else Status.EMPTY
        return Outcome(
            collector=self._job.collector,
            status=status,
            seconds=round(time.monotonic() - self._started, 3),
            samples=self._samples,
            points_sent=sent,
            dropped=dropped,
            requests=self._tally.requests,
            lost=lost,
            findings=[logs.redact(finding) for finding in self._findings],
            error=failure,
        )

    def _report(self, outcome: Outcome, deadline: Deadline) -> Outcome:
        """Deliver the self-metrics; failing to is itself a failure of the run."""
        if self._configuration is None:
            return outcome
        try:
            report(outcome, self._configuration, deadline, getattr(self._sink, "clock_skew", None))
        except (FleetgaugeError, Interrupted) as error:
            log.warning("the self-metrics were not delivered: %s", error)
            if outcome.error is None:
                status = Status.PARTIAL if outcome.points_sent else Status.FAILED
                return replace(outcome, status=status, error=_failure(error))
        return outcome


def report(
    outcome: Outcome, configuration: Configuration, deadline: Deadline, clock_skew: float | None = None
) -> None:
    """Deliver the self-metrics of a run."""
    from common.datadog import DatadogSink

    sink = DatadogSink(configuration.datadog(), configuration.core, deadline)
    sink.send(health.samples(outcome, int(time.time()), clock_skew))


def _failure(error: BaseException) -> Failure:
    return Failure(type(error).__name__, logs.redact(str(error)), isinstance(error, ConfigurationError))


def execute(job: Job, environ: Mapping[str, str]) -> Outcome:
    """Run a collector, or report on a child that could not."""
    if job.outcome is None:
        return Run(job, environ).run()
    outcome = Outcome.from_json(job.outcome)
    try:
        report(outcome, Configuration(environ, job.config), Deadline(job.timeout))
    except (FleetgaugeError, Interrupted) as error:
        log.warning("the self-metrics were not delivered: %s", error)
    return outcome


def _read_job() -> Job:
    """The first line of standard input, read without a buffer: the rest of it is the parent's lifeline."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(0, 65536)
        if not chunk:
            raise EOFError("the parent sent no job")
        line += chunk
    return Job.from_json(line.decode())


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Entry point of `python -m common.child NAME`; the name is there for `ps` to show."""
    # A short life that makes values in bulk and hardly a cycle: looking for cycles often is wasted.
    gc.set_threshold(100_000)
    answer = os.dup(1)
    os.dup2(2, 1)
    job = _read_job()
    logs.set_up(job.collector, verbose=job.verbose)
    signals.install()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    outcome = execute(job, os.environ)
    signals.ignore()
    try:
        os.write(answer, outcome.to_json().encode() + b"\n")
    except BrokenPipeError:
        log.warning("the parent is gone; the outcome was %s", outcome.status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
