"""One run of one collector, from its settings to its outcome: what live ticks and backfills share.

Whatever happens on the way becomes part of the outcome; only the process around it is someone else's.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import logs, registry
from common.collector import Collector, Context, Tally, load_collector
from common.config.configuration import Configuration
from common.config.settings import CollectorSettings, CoreSettings, variables
from common.errors import (
    BusyError,
    ConfigurationError,
    DeclinedError,
    FleetgaugeError,
    Interrupted,
    NotConfiguredError,
)
from common.execution.delivery import Delivery, Sink
from common.intake import MAX_AGE, MAX_AHEAD
from common.job import Job, Mode
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.outcome import Failure, Outcome, Status
from common.parent import Parent
from common.signals import shielded
from common.state.checkpoint import Store
from common.state.key import checkpoint_key
from common.state.stores import store

if TYPE_CHECKING:
    from common.datadog.historical import HistoricalIngestion
    from common.datadog.sink import DatadogSink
    from common.show.dry_run_file import Board

MAX_NAMED = 20  # lost units that an outcome names; the log names them all
SLACK = 30  # seconds between our clock and the intake's that a missed tick may lose
SPARE = 5.0  # seconds before its deadline in which a child that stays gives up an intake that is down
RESERVE = 10.0  # seconds of a collector's time kept back to deliver what it found

log = logging.getLogger(__name__)


class Run(ABC):
    """One run of one collector, of either kind, from its settings to its outcome."""

    # Read along the way, in this order. Any: only the collector itself looks inside of its settings.
    _configuration: Configuration
    _collector: Collector[Any]
    _settings: CollectorSettings

    def __init__(
        self,
        job: Job,
        environ: Mapping[str, str],
        parent: Parent | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._job = job
        self._environ = environ
        self._parent = parent or Parent()
        self._clock = clock
        self._started = time.monotonic()
        self._deadline = Deadline(job.timeout - (min(SPARE, job.timeout / 2) if job.stays else 0))
        self._tally = Tally()
        self._samples = 0
        self._findings: list[str] = []
        self._sink: Sink | None = None
        self._node_name = ""

    def run(self) -> Outcome:
        """Do the job; every way it can end is an outcome."""
        failure: Failure | None = None
        skipped = interrupted = False
        try:
            self._do()
        except NotConfiguredError as error:
            failure, skipped = failure_of(error), not self._job.named
        except BusyError as error:  # the next tick comes by itself; a backfill does not
            failure, skipped = failure_of(error), self._job.backfill is None
        except DeclinedError as error:
            failure, skipped = failure_of(error), True
        except FleetgaugeError as error:
            failure = failure_of(error)
        except Interrupted as error:
            failure, interrupted = failure_of(error), True
        except Exception as error:
            log.exception("%s: unexpected error", self._job.collector)
            failure = failure_of(error)
        return self._closing(self._outcome(failure, skipped=skipped), interrupted=interrupted)

    def _do(self) -> None:
        self._configure()
        self._load_collector()
        self._read_settings()
        if self._core.node_local:
            self._check_node_local()
        self._work()

    def _load_collector(self) -> None:
        self._collector = load_collector(self._job.collector)
        if self._collector.per_node and self._job.shard.count > 1:
            raise NotConfiguredError(
                f"{self._collector.name} measures the node it runs on, which no shards can share: "
                "leave --shard out, and run it on every node"
            )

    def _configure(self) -> None:
        """Read what every collector shares."""
        self._configuration = self._read_configuration()
        core = self._core
        self._node_name = core.node_name or socket.gethostname()
        labels = {"service": core.service, "env": core.env or "", "version": core.version or ""}
        with shielded():  # a handler that is half made would complain at the end of the process
            logs.set_up(self._job.collector, verbose=self._job.verbose, labels=labels)

    def _read_configuration(self) -> Configuration:
        return Configuration(self._environ, self._job.config)

    @property
    def _core(self) -> CoreSettings:
        return self._configuration.core

    def _read_settings(self) -> None:
        name, model = self._collector.name, self._collector.settings
        self._settings = self._configuration.collector(name, model, _every_variable)

    def _check_node_local(self) -> None:
        """Refuse what every node would read alike, and so send as often as there are nodes."""
        if self._job.shard.count > 1:
            raise ConfigurationError("FLEETGAUGE_NODE_LOCAL: a node has no shards; leave --shard out")
        paths = ",".join(getattr(self._settings, "paths", ()))
        of_a_node = self._collector.per_node or (self._collector.resumes and "s3://" not in paths)
        if not of_a_node:
            raise ConfigurationError(
                f"FLEETGAUGE_NODE_LOCAL: what {self._collector.name} reads is not on a node's own disk, and "
                "every node would send all of it; run it once, without FLEETGAUGE_NODE_LOCAL"
            )

    @abstractmethod
    def _work(self) -> None:
        """Do what this kind of run is for."""

    @cached_property
    def _place(self) -> Store | None:
        return store(self._core)

    def _store(self) -> Store | None:
        """Where this run remembers how far it came; a live run that must remember cannot do without."""
        place = self._place
        live = self._job.backfill is None and self._job.mode is not Mode.DRY_RUN
        if place is None and self._collector.resumes and live:
            raise ConfigurationError(
                f"{self._collector.name} reads files bit by bit and needs to remember how far it came: "
                "set FLEETGAUGE_CHECKPOINTS to a directory or s3://bucket/prefix"
            )
        return place

    def _key(self) -> str:
        """What the checkpoint of the collector's live runs is called."""
        of_node = self._collector.per_node or self._core.node_local
        node = (self._node_name,) if of_node else ()
        return checkpoint_key(self._collector.name, self._core, self._configuration.address, *node)

    def _closing(self, outcome: Outcome, *, interrupted: bool) -> Outcome:  # noqa: ARG002
        """Have the last word."""
        return outcome

    def _context(self, state: Mapping[str, object], at: int, step: int | None) -> Context[Any]:
        job = self._job
        return Context(
            settings=self._settings,
            at=at,
            now=job.now,
            node_name=self._node_name,
            node_local=self._core.node_local,
            state=state,
            deadline=Deadline(job.timeout - min(RESERVE, job.timeout / 5)),
            log=logging.getLogger(f"collectors.{job.collector}"),
            tally=self._tally,
            network=self._core,
            step=step,
            fills=job.mode is Mode.PUSH,
            remembers=self._core.checkpoints is not None,
            sendable_since=job.now - MAX_AGE + math.ceil(job.timeout) + SLACK,
            clock=self._clock,
            parent=self._parent,
            shard=job.shard,
        )

    def _deliver(self, items: Iterable[Sample | Mark], delivery: Delivery) -> None:
        declared = {metric.name for metric in self._collector.metrics}
        node = self._node_name if self._core.node_local else None
        with delivery:
            for item in items:
                if isinstance(item, Sample):
                    if item.metric.name not in declared:
                        raise ValueError(
                            f"{self._collector.name} yielded {item.metric.name}, which it does not declare"
                        )
                    self._samples += 1
                    if node and item.host is None:  # or nodes would overwrite each other
                        item = item._replace(host=node)
                delivery.take(item)

    def _with_progress(
        self, items: Iterator[Sample | Mark], doing: str, total: int | None = None, sink: Sink | None = None
    ) -> Iterator[Sample | Mark]:
        """The same items, telling the parent at every mark what a sink took, or how many went by."""
        passed = 0
        for item in items:
            passed += isinstance(item, Sample)
            yield item
            if isinstance(item, Mark):
                self._parent.progress(doing, sink.points_sent if sink else passed, total)

    def _open_sink(self, oldest: int) -> Sink:
        if self._job.mode is Mode.PUSH:
            return self._datadog_sink(self._deadline)
        from common.show.dry_run_sink import FileSink

        if self._job.samples_path is None:
            raise ValueError("a dry run needs a file for its samples")
        return FileSink(
            Path(self._job.samples_path),
            self._collector.metrics,
            self._core.series_cap,
            oldest=oldest,
            newest=self._job.now + MAX_AHEAD,
            many_ticks=self._job.backfill is not None,
            boards=self._boards() if self._job.backfill is not None else None,
        )

    def _boards(self) -> list[Board]:
        """How the collector is looked at, for a page of what a backfill would send."""
        from common.show.boards import boards

        return boards(self._collector.name, self._collector.metrics, self._configuration.address)

    def _datadog_sink(self, deadline: Deadline, *, oldest: int | None = None) -> DatadogSink:
        from common.datadog.sink import DatadogSink

        settings, clock, past = self._configuration.datadog(), self._clock, self._job.backfill is not None
        return DatadogSink(settings, self._core, deadline, clock=clock, oldest=oldest, many_ticks=past)

    def _historical_ingestion(self) -> HistoricalIngestion:
        from common.datadog.historical import HistoricalIngestion

        settings = self._configuration.datadog()
        return HistoricalIngestion(settings, self._core, self._deadline, clock=self._clock)

    def _outcome(self, failure: Failure | None, *, skipped: bool) -> Outcome:
        dropped = dict(self._tally.dropped)
        for reason, count in (self._sink.dropped if self._sink else {}).items():
            dropped[reason] = dropped.get(reason, 0) + count
        examples = {**self._tally.examples, **(self._sink.examples if self._sink else {})}
        if beyond := dropped.get("series_cap"):
            log.warning("%d points of series beyond FLEETGAUGE_SERIES_CAP were not sent; raise it", beyond)
        sent = self._sink.points_sent if self._sink else 0
        lost = [logs.redact(unit) for unit in self._tally.lost[:MAX_NAMED]]
        if len(self._tally.lost) > MAX_NAMED:
            lost.append(f"and {len(self._tally.lost) - MAX_NAMED} more")
        if skipped:
            status = Status.SKIPPED
        elif failure or lost:
            status = Status.PARTIAL if sent or not failure else Status.FAILED
        else:
            told = self._samples or self._findings or self._job.mode is Mode.SETTINGS
            status = Status.OK if told else Status.EMPTY
        return Outcome(
            collector=self._job.collector,
            status=status,
            seconds=round(time.monotonic() - self._started, 3),
            samples=self._samples,
            points_sent=sent,
            dropped=dropped,
            examples={reason: logs.redact(said) for reason, said in examples.items() if reason in dropped},
            requests=self._tally.requests,
            lost=lost,
            findings=[logs.redact(finding) for finding in self._findings],
            error=failure,
            tables=self._tally.tables,
        )


def _every_variable() -> Iterator[str]:
    """The variables of all collectors that can be imported, for a hint to whoever misspelt one."""
    for name in registry.names():
        with suppress(Exception):  # it is not the one that was asked for
            yield from variables(load_collector(name).settings).values()


def failure_of(error: BaseException) -> Failure:
    configuration = isinstance(error, FleetgaugeError) and error.configuration
    status = getattr(error, "status", None) if getattr(error, "problems", ()) else None  # Datadog's own
    details = list(getattr(error, "details", ()))
    return Failure(type(error).__name__, logs.redact(str(error)), configuration, status, details)
