"""What one run of one collector works with: its configuration, clock, deadline, report and sink.

`run.py` makes a session; `live.py`, `backfill.py`, `check.py` and `explain.py` use it.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common import logs, registry
from common.collector import Collector, Context, Network, Report, load_collector
from common.config.settings import CollectorSettings, CoreSettings
from common.config.sources import Configuration
from common.errors import ConfigurationError, DeadlineExceededError
from common.metric import Series
from common.net.retry import Deadline
from common.options import Mode, Options
from common.run.state import Document, SavedState, open_store, state_key
from common.window import MAX_AGE, MAX_AHEAD, Window

if TYPE_CHECKING:
    from common.datadog.client import DatadogClient
    from common.datadog.historical import HistoricalIngestion
    from common.datadog.intake import DatadogSink
    from common.show.points import Points

    Sink = DatadogSink | Points  # where series go

# The intake compares a point's age with its own clock. Seconds by which that may be ahead of ours.
AGE_MARGIN = 30
# Seconds at the end of a run that a collector may not use, so that what it found can still be delivered.
RESERVE = 10.0
PROGRESS_EVERY = 256  # series


@dataclass
class Cache:
    """What a process that stays (`--every`) has from one run to the next.

    Settings and client are reused until a person may have changed something. `document` is the state where
    there is no store, or where it could not be written.
    """

    configuration: Configuration | None = None
    settings: CollectorSettings | None = None
    client: DatadogClient | None = None
    document: Document = field(default_factory=Document)

    def forget_settings(self) -> None:
        """Have the next run read configuration and secrets again."""
        self.configuration = self.settings = self.client = None


class Session:
    """One run of one collector: the objects that all of its modes share.

    `collector` and `settings` are there once `open_collector` has returned. `sink` is set by the run. `now`
    is read once, so that window, state and self-metrics agree on the time; `clock` is for what happens later.

    Raises ConfigurationError where the configuration itself cannot be read.
    """

    collector: Collector[Any]  # Any: only the collector itself uses its settings
    settings: CollectorSettings

    def __init__(
        self,
        name: str,
        options: Options,
        environ: Mapping[str, str],
        report: Report,
        cache: Cache,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.options, self.report, self.clock = name, options, report, clock
        self.now = int(clock())  # of everything in this run
        self.deadline = Deadline(options.timeout)
        self.sink: Sink | None = None
        self.cache = cache
        # Variables of other collectors are removed: here they would be refused as unknown ones.
        if cache.configuration is None:
            cache.configuration = Configuration(registry.without_others(name, environ), options.config)
        core = self.core
        labels = {"service": core.service, "env": core.env or "", "version": core.version or ""}
        logs.set_up(name, verbose=options.verbose, labels=labels)

    @property
    def configuration(self) -> Configuration:
        """The configuration, which the constructor has read."""
        if self.cache.configuration is None:
            raise RuntimeError("a session has a configuration")
        return self.cache.configuration

    @property
    def core(self) -> CoreSettings:
        """The settings that all collectors share."""
        return self.configuration.core

    @property
    def step(self) -> int:
        """Seconds from one tick to the next: of the command line, or the configured step."""
        return self.options.step or self.core.step

    @property
    def host(self) -> str | None:
        """The host of all points, where the collector measures a node or reads its disks; None elsewhere."""
        if registry.declaration(self.name).per_node or self.core.node_local:
            return self.core.node_name or socket.gethostname()
        return None

    @property
    def state_key(self) -> str:
        """The name of the collector's state document. Nodes and shards each have their own."""
        shard = self.options.shard
        more = [self.host] if self.host else []
        more += [f"shard-{shard.index}-of-{shard.count}"] if shard.count > 1 else []
        return state_key(self.name, self.core, self.configuration.address, *more)

    def open_state(self) -> SavedState:
        """Return the state of earlier runs; without a store for modes that have none.

        A backfill, --check and --print-config neither read nor write it. ConfigurationError for a bad
        setting.
        """
        is_live = self.options.backfill is None and self.options.mode not in {Mode.CHECK, Mode.PRINT_CONFIG}
        store = open_store(self.core) if is_live else None
        return SavedState(store, self.state_key, self.now, self.cache.document, self.report, self.clock)

    def open_collector(self) -> None:
        """Import the collector and read its settings, which may be in AWS Secrets Manager.

        Raises ConfigurationError where that cannot be done, NotConfiguredError where required settings are
        missing, and SourceError where AWS does not respond.
        """
        self.collector = load_collector(self.name)
        if self.cache.settings is None:
            model = self.collector.settings
            self.cache.settings = self.configuration.collector(self.name, model)
        self.settings = self.cache.settings
        if self.core.node_local:
            self._check_node_local()

    def _check_node_local(self) -> None:
        """Raise ConfigurationError for a source that is not on a node: every node would send all of it."""
        # A collector without `paths` reads a service, which is not local either.
        paths = ",".join(getattr(self.settings, "paths", ("s3://",)))
        if not registry.declaration(self.name).per_node and "s3://" in paths:
            raise ConfigurationError(
                f"FLEETGAUGE_NODE_LOCAL: what {self.name} reads is not on a node's own disk, and "
                "every node would send all of it; run it once, without FLEETGAUGE_NODE_LOCAL"
            )

    def due(self, sent_until: int | None) -> Window:
        """Return the window of a live run, from the second up to which points were sent; None for unknown.

        No point in it is older than an hour when the deadline passes, so that the intake accepts also what is
        delivered last.
        """
        earliest = self.now + math.ceil(self.options.timeout) + AGE_MARGIN - MAX_AGE
        return self.collector.due(self.settings, self.now, self.step, sent_until, earliest)

    def context(self, window: Window, memory: dict[str, object]) -> Context[Any]:
        """Return what the collector is given for a window; it may change `memory`."""
        # A short --timeout leaves most of its time to the collector.
        reserve = min(RESERVE, self.options.timeout / 5)
        return Context(
            settings=self.settings,
            window=window,
            now=self.now,
            deadline=self.deadline.within(self.deadline.remaining() - reserve),
            memory=memory,
            report=self.report,
            network=Network(self.core, self.report),
            shard=self.options.shard,
            stays=self.options.every is not None,
        )

    def series(
        self, window: Window, memory: dict[str, object], without: Collection[str] = ()
    ) -> Iterator[Series]:
        """Yield the series of a window as they are collected, except those of the metrics in `without`.

        Sets the host of a node's points and counts them in the report. Raises what the collector raises,
        ValueError for an undeclared metric (a defect), and DeadlineExceededError.
        """
        declared = {metric.name for metric in self.collector.metrics}
        report, host = self.report, self.host
        for number, series in enumerate(self.collector.collect(self.context(window, memory))):
            name = series.metric.name
            if name not in declared:
                raise ValueError(f"{self.name} yielded {name}, which it does not declare")
            if name in without:
                continue
            report.samples += len(series.times)
            # A collector that only computes makes no request that would check the deadline, so it is checked
            # here.
            if number % PROGRESS_EVERY == 0:
                report.progress("collecting points", report.samples, None)
                if self.deadline.remaining() <= 0:
                    raise DeadlineExceededError(
                        f"its deadline of {self.options.timeout:g} s passed after {report.samples:,} points; "
                        "raise --timeout"
                    )
            yield series._replace(host=host) if host is not None and series.host is None else series

    def points(self) -> Points:
        """Return the sink of a dry run; it drops what the intake would drop."""
        from common.show.points import Points

        past = self.options.backfill
        return Points(
            self.collector.metrics,
            self.core.series_cap,
            oldest=past.since if past else self.now - MAX_AGE,
            newest=past.until if past else self.now + MAX_AHEAD,
            many_ticks=past is not None,
            live_only=(metric.name for metric in self.collector.live_only) if past else (),
        )

    def intake(self, *, since: int | None = None) -> DatadogSink:
        """Return the sink of a push; `since` is the beginning of a backfill.

        Raises ConfigurationError where the API key or DD_ENV is missing.
        """
        from common.datadog.intake import DatadogSink

        client = self.client(self.deadline)
        return DatadogSink(client, self.core, since=since, exact_clock=self.collector.adds_up)

    def client(self, deadline: Deadline) -> DatadogClient:
        """Return the client that submits, with this deadline; there is one for all runs of a process.

        Raises ConfigurationError where the API key or DD_ENV is missing.
        """
        from common.datadog.client import DatadogClient

        # Reused so that a process that stays also reuses the connection.
        if self.cache.client is None:
            settings = self.configuration.datadog()
            self.cache.client = DatadogClient(settings, self.core, deadline, clock=self.clock)
        self.cache.client.deadline = deadline
        return self.cache.client

    def historical_ingestion(self) -> HistoricalIngestion:
        """Return what reads and enables historical ingestion; ConfigurationError without DD_APP_KEY."""
        from common.datadog.client import DatadogClient
        from common.datadog.historical import PURPOSE, HistoricalIngestion

        # A client of its own: the one that submits never sends the application key.
        settings, deadline = self.configuration.datadog(), self.deadline
        client = DatadogClient(settings, self.core, deadline, clock=self.clock, purpose=PURPOSE)
        return HistoricalIngestion(client)


def lose_beyond_cap(sink: Sink, report: Report) -> None:
    """Report the series beyond the cap as one lost unit, with their number per metric.

    A dropped point changes no outcome, but series that are missing in every run do: the run becomes partial.
    """
    if sink.beyond_cap:
        number = sum(map(len, sink.beyond_cap.values()))
        names = ", ".join(f"{name} ({len(series):,})" for name, series in sorted(sink.beyond_cap.items()))
        report.lose(
            f"{number:,} series",
            f"there are more than FLEETGAUGE_SERIES_CAP allows; raise it. They are of {names}",
            "series_cap",
        )
