"""One run of one collector, from its settings to its outcome: what live ticks and backfills share.

Whatever happens on the way becomes part of the outcome; only the process around it is someone else's.
"""

from __future__ import annotations

import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from common import logs, registry, state
from common.collector import Collector, Context, Network, Report, load_collector
from common.config.settings import CollectorSettings, CoreSettings, variables
from common.config.sources import Configuration
from common.errors import (
    ConfigurationError,
    DeclinedError,
    FleetgaugeError,
    Interrupted,
    NotConfiguredError,
)
from common.job import Job, Mode
from common.metric import Series
from common.net.retry import Deadline
from common.outcome import Failure, Outcome, Status
from common.parent import Parent
from common.signals import shielded
from common.window import Window

if TYPE_CHECKING:
    from common.datadog.historical import HistoricalIngestion
    from common.datadog.sink import DatadogSink
    from common.show.dry_run_file import Board

MAX_NAMED = 20  # lost units that an outcome names; the log names them all
SLACK = 30  # seconds between our clock and the intake's that an old point may lose
SPARE = 5.0  # seconds before its deadline in which a child that stays gives up an intake that is down
RESERVE = 10.0  # seconds of a collector's time kept back to deliver what it found
PROGRESS_EVERY = 256  # series

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where series go."""

    points_sent: int

    @property
    def dropped(self) -> Mapping[str, int]:
        """Points that were not sent, by reason."""

    @property
    def examples(self) -> Mapping[str, str]:
        """By reason, the first point that was not sent."""

    @property
    def beyond_cap(self) -> Mapping[str, Collection[object]]:
        """By metric, the series that were not sent because there are too many."""

    def add(self, series: Series) -> None:
        """Take a series, to be sent with the next `flush`."""

    def flush(self, within: float | None = None) -> None:
        """Send all that was added, perhaps within so many seconds, or raise."""


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
        self._now = int(clock())  # of everything in this run
        self._started = time.monotonic()
        self._deadline = Deadline(job.timeout - (min(SPARE, job.timeout / 2) if job.stays else 0))
        self._report = Report(progress=self._parent.progress)
        self._samples = 0
        self._findings: list[str] = []
        self._sink: Sink | None = None
        self._node_name = ""
        self._is_capped = False

    def run(self) -> Outcome:
        """Do the job; every way it can end is an outcome."""
        failure: Failure | None = None
        skipped = interrupted = False
        try:
            self._do()
        except NotConfiguredError as error:
            failure, skipped = failure_of(error), not self._job.named
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
        self._collector = load_collector(self._job.collector)
        self._read_settings()
        if self._core.node_local:
            self._check_node_local()
        self._work()

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
        paths = ",".join(getattr(self._settings, "paths", ("s3://",)))  # without paths: what a service says
        if not self._collector.per_node and "s3://" in paths:
            raise ConfigurationError(
                f"FLEETGAUGE_NODE_LOCAL: what {self._collector.name} reads is not on a node's own disk, and "
                "every node would send all of it; run it once, without FLEETGAUGE_NODE_LOCAL"
            )

    @abstractmethod
    def _work(self) -> None:
        """Do what this kind of run is for."""

    @cached_property
    def _host(self) -> str | None:
        """The node that points carry as host, where they are of a node: or nodes overwrite each other."""
        of_node = registry.per_node(self._job.collector) or self._core.node_local
        return self._node_name if of_node else None

    def _state_key(self) -> str:
        """Return the name of the collector's state document."""
        shard = self._job.shard
        more = [f"shard-{shard.index}-of-{shard.count}"] if shard.count > 1 else []
        more = [self._host, *more] if self._host else more
        return state.state_key(self._job.collector, self._core, self._configuration.address, *more)

    def _closing(self, outcome: Outcome, *, interrupted: bool) -> Outcome:  # noqa: ARG002
        """Finish: report on the run, where somebody is to know."""
        return outcome

    def _context(self, window: Window, memory: dict[str, object]) -> Context[Any]:
        job = self._job
        return Context(
            settings=self._settings,
            window=window,
            now=self._now,
            deadline=self._deadline.within(self._deadline.remaining() - min(RESERVE, job.timeout / 5)),
            memory=memory,
            report=self._report,
            network=Network(self._core, self._report),
            shard=job.shard,
            stays=job.stays,
        )

    def _collect(self, context: Context[Any], without: Collection[str] = ()) -> Iterator[Series]:
        """Yield what the collector yields, but for some metrics; with the host where it is of a node."""
        declared = {metric.name for metric in self._collector.metrics}
        host = self._host
        for number, series in enumerate(self._collector.collect(context)):
            name = series.metric.name
            if name not in declared:
                raise ValueError(f"{self._collector.name} yielded {name}, which it does not declare")
            if name in without:
                continue
            self._samples += len(series.times)
            if number % PROGRESS_EVERY == 0:
                self._parent.progress("collecting points", self._samples, None)
            yield series._replace(host=host) if host is not None and series.host is None else series

    def _dry_run_sink(self, oldest: int, newest: int) -> Sink:
        from common.show.dry_run_sink import FileSink

        if self._job.samples_path is None:
            raise ValueError("a dry run needs a file for its samples")
        past = self._job.backfill is not None
        return FileSink(
            Path(self._job.samples_path),
            self._collector.metrics,
            self._core.series_cap,
            oldest=oldest,
            newest=newest,
            many_ticks=past,
            boards=self._boards() if past else None,
        )

    def _boards(self) -> list[Board]:
        """Return the dashboards of the collector, for a page of what a backfill would send."""
        from common.show.boards import boards

        return boards(self._collector.name, self._collector.metrics, self._configuration.address)

    def _datadog_sink(
        self, deadline: Deadline, *, since: int | None = None, exact_clock: bool = False
    ) -> DatadogSink:
        from common.datadog.sink import DatadogSink

        settings = self._configuration.datadog()
        return DatadogSink(
            settings, self._core, deadline, clock=self._clock, since=since, exact_clock=exact_clock
        )

    def _historical_ingestion(self) -> HistoricalIngestion:
        from common.datadog.historical import HistoricalIngestion

        settings = self._configuration.datadog()
        return HistoricalIngestion(settings, self._core, self._deadline, clock=self._clock)

    def _lose_beyond_cap(self) -> None:
        """Report the series beyond the cap as lost, once, with the metrics they are of."""
        beyond = self._sink.beyond_cap if self._sink else {}
        if self._is_capped or not beyond:
            return
        self._is_capped = True
        number = sum(map(len, beyond.values()))
        names = ", ".join(f"{name} ({len(series):,})" for name, series in sorted(beyond.items()))
        self._report.lose(
            f"{number:,} series",
            f"there are more than FLEETGAUGE_SERIES_CAP allows; raise it. They are of {names}",
        )

    def _outcome(self, failure: Failure | None, *, skipped: bool) -> Outcome:
        dropped = dict(self._report.dropped)
        for reason, count in (self._sink.dropped if self._sink else {}).items():
            dropped[reason] = dropped.get(reason, 0) + count
        examples = {**self._report.examples, **(self._sink.examples if self._sink else {})}
        self._lose_beyond_cap()
        sent = self._sink.points_sent if self._sink else 0
        lost = [logs.redact(unit) for unit in self._report.lost[:MAX_NAMED]]
        if len(self._report.lost) > MAX_NAMED:
            lost.append(f"and {len(self._report.lost) - MAX_NAMED} more")
        if skipped:
            status = Status.SKIPPED
        elif failure or lost:
            status = Status.PARTIAL if sent or not failure else Status.FAILED
        else:
            found = self._samples or self._findings or self._job.mode is Mode.SETTINGS
            status = Status.OK if found else Status.EMPTY
        return Outcome(
            collector=self._job.collector,
            status=status,
            seconds=round(time.monotonic() - self._started, 3),
            samples=self._samples,
            points_sent=sent,
            dropped=dropped,
            examples={reason: logs.redact(said) for reason, said in examples.items() if reason in dropped},
            requests=self._report.requests,
            lost=lost,
            findings=[logs.redact(finding) for finding in self._findings],
            error=failure,
            tables={} if self._job.mode is Mode.PUSH else self._report.tables,
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
