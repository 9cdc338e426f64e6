"""One run of one collector, from its settings to its outcome.

Whatever happens on the way becomes part of the outcome; only the process around it is someone else's.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import checkpoints, health, logs, registry
from common.checkpoints import Checkpoint
from common.collector import Collector, Context, Tally
from common.configuration import Configuration
from common.delivery import Delivery, Sink
from common.errors import Busy, ConfigurationError, FleetgaugeError, Interrupted, NotConfigured
from common.metric import Sample
from common.protocol import DATADOG, Failure, Job, Mode, Outcome, Status
from common.retry import Deadline
from common.times import tick

if TYPE_CHECKING:
    from common.datadog import DatadogSink

LAST_WORDS = 2.0  # seconds for the self-metrics once the time is over
MOST_NAMED = 20  # lost units that an outcome names; the log names them all
RESERVE = 10.0  # seconds of a collector's time kept back to deliver what it found

log = logging.getLogger(__name__)


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
        self._last_success: int | None = None
        self._configuration: Configuration | None = None

    def run(self) -> Outcome:
        """Do the job; every way it can end is an outcome."""
        failure: Failure | None = None
        skipped = interrupted = False
        try:
            self._do()
        except NotConfigured as error:
            failure, skipped = _failure(error), not self._job.named
        except Busy as error:
            failure, skipped = _failure(error), True
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
        node_name = core.node_name or socket.gethostname()
        if job.mode is Mode.PUSH:
            self._last_success = _last_success(configuration, job.collector, node_name)
        collector = registry.load(job.collector)
        settings = configuration.collector(collector.name, collector.settings)
        with self._hold(configuration, collector, node_name) as checkpoint:
            self._tally.dropped.update(
                {"bad_checkpoint": checkpoint.set_aside} if checkpoint.set_aside else {}
            )
            context = Context(
                settings=settings,
                at=tick(job.now, job.step or core.step) if job.mode is Mode.PUSH else job.now,
                now=job.now,
                node_name=node_name,
                state=checkpoint.saved.state,
                deadline=Deadline(job.timeout - min(RESERVE, job.timeout / 5)),
                log=logging.getLogger(f"collectors.{collector.name}"),
                tally=self._tally,
                network=core,
            )
            if job.mode is Mode.CHECK:
                self._findings.extend(collector.check(context))
                return
            self._sink = sink = self._open_sink(configuration, collector)
            self._collect(collector, context, checkpoint, sink)
            if not self._tally.lost:
                checkpoint.save(replace(checkpoint.saved, last_success=int(time.time())))
                self._last_success = checkpoint.saved.last_success

    # Any: the settings model differs per collector, and only the collector itself looks inside.
    def _hold(self, configuration: Configuration, collector: Collector[Any], node_name: str) -> Checkpoint:
        """The collector's checkpoint, held by this run; in a dry run only read, and never moved."""
        place = checkpoints.store(configuration.core)
        key = _key(collector.name, node_name if collector.per_node else None)
        if place is None:
            if collector.resumes and self._job.mode is Mode.PUSH:
                raise ConfigurationError(
                    f"{collector.name} reads files bit by bit and needs to remember how far it came: "
                    "set FLEETGAUGE_CHECKPOINTS to a directory or s3://bucket/prefix"
                )
            return checkpoints.Unkept()
        if self._job.mode is Mode.DRY:
            return checkpoints.Unkept(place.peek(key))
        return place.open(key)

    def _collect(
        self, collector: Collector[Any], context: Context[Any], checkpoint: Checkpoint, sink: Sink
    ) -> None:
        """Deliver what the collector yields, also what it yielded before an error."""

        def remember(changes: Mapping[str, object]) -> None:
            state = {**checkpoint.saved.state, **changes}
            kept = {key: value for key, value in state.items() if value is not None}
            checkpoint.save(replace(checkpoint.saved, state=kept))

        delivery = Delivery(sink, remember)
        declared = {metric.name for metric in collector.metrics}
        try:
            for item in collector.collect(context):
                if isinstance(item, Sample):
                    if item.metric.name not in declared:
                        raise ValueError(
                            f"{collector.name} yielded {item.metric.name}, which it does not declare"
                        )
                    self._samples += 1
                delivery.take(item)
        except Exception:
            delivery.flush()
            raise
        delivery.flush()

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
        lost = [logs.redact(unit) for unit in self._tally.lost[:MOST_NAMED]]
        if len(self._tally.lost) > MOST_NAMED:
            lost.append(f"and {len(self._tally.lost) - MOST_NAMED} more")
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
            skew = getattr(self._sink, "clock_skew", None)
            report(outcome, self._configuration, deadline, skew, self._last_success)
        except (FleetgaugeError, Interrupted) as error:
            log.warning("the self-metrics were not delivered: %s", error)
            if outcome.error is None:
                status = Status.PARTIAL if outcome.points_sent else Status.FAILED
                return replace(outcome, status=status, error=_failure(error))
        return outcome


def _key(name: str, node_name: str | None) -> str:
    """The checkpoint of a collector, or of a collector on one node, as a file name."""
    return name if node_name is None else f"{name}-{re.sub('[^A-Za-z0-9.-]', '_', node_name)}"


def _last_success(configuration: Configuration, name: str, node_name: str) -> int | None:
    """When a run last succeeded, where a store remembers it; asked without importing the collector."""
    place = checkpoints.store(configuration.core)
    if place is None:
        return None
    found = [place.peek(key).last_success for key in (name, _key(name, node_name))]
    return max((moment for moment in found if moment is not None), default=None)


def report(
    outcome: Outcome,
    configuration: Configuration,
    deadline: Deadline,
    clock_skew: float | None,
    last_success: int | None,
    gap: int | None = None,
) -> None:
    """Deliver the self-metrics of a run."""
    from common.datadog import DatadogSink

    sink = DatadogSink(configuration.datadog(), configuration.core, deadline)
    sink.send(health.samples(outcome, int(time.time()), clock_skew, last_success, gap))


def _failure(error: BaseException) -> Failure:
    return Failure(type(error).__name__, logs.redact(str(error)), isinstance(error, ConfigurationError))


def execute(job: Job, environ: Mapping[str, str]) -> Outcome:
    """Run a collector, or report on a child that could not."""
    if job.outcome is None:
        return Run(job, environ).run()
    outcome = Outcome.from_json(job.outcome)
    try:
        configuration = Configuration(environ, job.config)
        node_name = configuration.core.node_name or socket.gethostname()
        last_success = _last_success(configuration, job.collector, node_name)
        report(outcome, configuration, Deadline(job.timeout), None, last_success)
    except (FleetgaugeError, Interrupted) as error:
        log.warning("the self-metrics were not delivered: %s", error)
    return outcome
