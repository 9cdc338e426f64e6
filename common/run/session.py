"""What one run of one collector works with: its configuration, clock, deadline, state, report and sink.

`run.py` makes a session; `backfill.py` and `check.py` use it too.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common import logs, registry
from common.collector import Collector, Context, Progress, ignore_progress, load_collector
from common.config.settings import CollectorSettings, CoreSettings
from common.config.sources import Configuration
from common.errors import ConfigurationError, DeadlineExceededError, StateError
from common.metric import Series
from common.names import is_host
from common.net.retry import Deadline
from common.options import Mode, Options
from common.outcome import Report
from common.run.state import Document, StateStore, state_key
from common.times import duration, iso, tick
from common.window import MAX_AGE, MAX_AHEAD, Window

if TYPE_CHECKING:
    from common.datadog.client import DatadogClient
    from common.datadog.intake import DatadogSink
    from common.show.points import Points

    Sink = DatadogSink | Points  # where series go

# The intake compares a point's age with its own clock. Seconds by which that may be ahead of ours.
AGE_MARGIN = 30
# Seconds at the end of a run that a collector may not use, so that what it found can still be delivered.
RESERVE = 10.0
PROGRESS_EVERY = 256  # series
# Why complete series are not sent, and the fix.
LOST_SERIES = {
    "series_cap": "there are more than FLEETGAUGE_SERIES_CAP allows; raise it",
    "tag_collision": "Datadog stores them as others that differ only in case or punctuation; rename one",
}
NO_ENV = "DD_ENV is not set; it becomes the tag `env` of every point, so it has no default"

log = logging.getLogger(__name__)


@dataclass
class Cache:
    """What a process that stays (`--every`) has from one run to the next.

    Settings, client and store are reused until a person may have changed something: then a new cache has the
    document alone. `document` is the state, also where there is no store, or it could not be written; `store`
    is None there.
    """

    configuration: Configuration | None = None
    settings: CollectorSettings | None = None
    client: DatadogClient | None = None
    store: StateStore | None = None
    document: Document = field(default_factory=Document)


def node_of(name: str, core: CoreSettings) -> str | None:
    """Return the node that a collector measures or whose disks it reads; None for one per cluster."""
    if registry.declaration(name).per_node or core.node_local:
        return core.node_name or socket.gethostname()
    return None


class Session:
    """One run of one collector: the objects that all of its modes share.

    `now` is read once, so that window, state and self-metrics agree on the time; `clock` is for what happens
    later. `sink` is None until `open_sink`.

    Raises ConfigurationError where the configuration itself cannot be read.
    """

    def __init__(
        self,
        name: str,
        options: Options,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
        cache: Cache | None = None,
        progress: Progress = ignore_progress,
    ) -> None:
        self.name, self.options, self.clock, self.progress = name, options, clock, progress
        self.now = int(clock())  # of everything in this run
        self.report = Report()
        self.cache = cache = cache or Cache()
        self.deadline = Deadline(options.timeout)
        self.sink: Sink | None = None
        cache.configuration = cache.configuration or Configuration(environ, options.config)
        self.configuration = cache.configuration
        core = self.core
        labels = {"service": core.service, "env": core.env or "", "version": core.version or ""}
        logs.set_up(name, verbose=options.verbose, labels=labels)

    @property
    def core(self) -> CoreSettings:
        """The settings that all collectors share."""
        return self.configuration.core

    @property
    def collector(self) -> Collector[Any]:  # Any: only the collector itself uses its settings
        """The collector; ImportError for a library that this Python lacks."""
        return load_collector(self.name)

    @property
    def settings(self) -> CollectorSettings:
        """The settings of the collector, which may be in AWS Secrets Manager.

        Raises ConfigurationError, NotConfiguredError where required ones are missing, and SourceError where
        AWS does not respond. A source that is not on a node's disk is refused where every node would send it,
        and a host that Datadog would not store.
        """
        if self.cache.settings is None:
            settings = self.configuration.table(self.collector.settings, self.name)
            # A collector without `paths` reads a service, which is not local either.
            paths = ",".join(getattr(settings, "paths", ("s3://",)))
            if self.core.node_local and not registry.declaration(self.name).per_node and "s3://" in paths:
                raise ConfigurationError(
                    f"FLEETGAUGE_NODE_LOCAL: what {self.name} reads is not on a node's own disk, and "
                    "every node would send all of it; run it once, without FLEETGAUGE_NODE_LOCAL"
                )
            # Without its host the points of a node would be those of all nodes with such a name.
            if self.host is not None and not is_host(self.host):
                raise ConfigurationError(
                    f"FLEETGAUGE_NODE_NAME: Datadog does not accept {self.host!r} as the name of a host; "
                    "set it to the name of this node"
                )
            self.cache.settings = settings
        return self.cache.settings

    @property
    def step(self) -> int:
        """Seconds from one tick to the next: of the command line, or the configured step."""
        return self.options.step or self.core.step

    @property
    def host(self) -> str | None:
        """The host of all points, where the collector measures a node or reads its disks; None elsewhere."""
        return node_of(self.name, self.core)

    @property
    def state_key(self) -> str:
        """The name of the collector's state document. Nodes and shards each have their own."""
        shard = self.options.shard
        more = [self.host] if self.host else []
        more += [f"shard-{shard.index}-of-{shard.count}"] if shard.count > 1 else []
        return state_key(self.name, self.core, self.configuration.address, *more)

    def open_store(self) -> StateStore | None:
        """Return the store of FLEETGAUGE_STATE, None without one; ConfigurationError for a bad setting."""
        return StateStore(self.core.state, self.core) if self.core.state else None

    def load_state(self) -> None:
        """Read the state document into the cache; one that is unusable is counted as `bad_state`.

        A store that fails makes the run partial. ConfigurationError for a bad setting.
        """
        cache, key = self.cache, self.state_key
        cache.store = cache.store or self.open_store()
        try:
            content = cache.store.read(key) if cache.store else None
            if content is not None:
                stored = Document.decode(content, self.clock())
                # That in memory is newer where a process that stays could not save its last one.
                cache.document = max(cache.document, stored, key=lambda document: document.now)
        except StateError as error:
            self._lose_store(error)
        except ValueError as error:
            log.warning("the state document %s cannot be used: %s", key, error)
            self.report.drop("bad_state", example=f"{key}: {error}")

    def copy_memory(self) -> dict[str, object]:
        """Return a copy of what earlier runs observed: one that fails must not change the original."""
        # Not by `copy.deepcopy`: it is slower, and fails for some documents that json can read.
        copy: dict[str, object] = json.loads(json.dumps(self.cache.document.memory))
        return copy

    def save_state(self, document: Document) -> None:
        """Save a document, unless a run that began later has saved one.

        An unusable document is copied to `<key>.bad` first. Where the store fails, the run becomes partial,
        and the document is in memory only.
        """
        self.cache.document = document
        store, key = self.cache.store, self.state_key
        if store is None:
            return
        try:
            # Read again: another run may have saved since this one began. Between this and the write there is
            # no lock; the worst case is a document that is a run older.
            content = store.read(key)
            try:
                found = document if content is None else Document.decode(content, self.clock())
                if found.now > document.now:
                    log.info("a run that began later has saved the state document: it is left alone")
                    return
                # Of two runs that overlap none moves the end back: the next run would report a gap.
                end = max(found.sent_until or 0, document.sent_until or 0) or None
                self.cache.document = document = document.model_copy(update={"sent_until": end})
            except ValueError:
                store.write(f"{key}.bad", content or b"")
            store.write(key, document.encode())
        except StateError as error:
            self._lose_store(error)

    def _lose_store(self, error: StateError) -> None:
        """Continue without the store: each further request to it would take its timeouts again."""
        self.cache.store = None
        self.report.lose("the state of earlier runs", error, "state")

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
            progress=self.progress,
            core=self.core,
            shard=self.options.shard,
            stays=self.options.every is not None,
        )

    def series(self, window: Window, memory: dict[str, object]) -> Iterator[Series]:
        """Yield the series of a window as they are collected.

        Sets the host of a node's points and counts them in the report. Raises what the collector raises,
        ValueError for a metric that it does not declare, or not for the past, and DeadlineExceededError.
        """
        collector, report, host = self.collector, self.report, self.host
        # A value of now is not true for the past.
        unknown = () if window.is_live else collector.live_only
        declared = {metric.name for metric in collector.metrics if metric not in unknown}
        for number, series in enumerate(collector.collect(self.context(window, memory))):
            if series.metric.name not in declared:
                raise ValueError(f"{self.name} yielded {series.metric.name}, which it does not declare")
            report.samples += len(series.times)
            # A collector that only computes makes no request that would check the deadline, so it is checked
            # here.
            if number % PROGRESS_EVERY == 0:
                self.progress("collecting points", report.samples, None)
                if self.deadline.remaining() <= 0:
                    raise DeadlineExceededError(
                        f"its deadline of {self.options.timeout:g} s passed after {report.samples:,} points; "
                        "raise --timeout"
                    )
            yield series._replace(host=host) if host is not None and series.host is None else series

    def first_second(self, since: int) -> int:
        """Return the earliest second that a backfill sends: its first bucket may begin before the span."""
        return tick(since, self.settings.width)

    def open_sink(self) -> Sink:
        """Return where series go, and set `sink`: the intake of a push, the memory of a dry run.

        Raises ConfigurationError for a push where the API key or DD_ENV is missing.
        """
        past, collector = self.options.backfill, self.collector
        since = self.first_second(past.since) if past else None
        if self.options.mode is Mode.PUSH:
            from common.datadog.intake import DatadogSink

            self.sink = DatadogSink(self.client(), self.core, since=since, exact_clock=collector.adds_up)
        else:
            from common.show.points import Points

            self.sink = Points(
                self.core.series_cap,
                oldest=self.now - MAX_AGE if since is None else since,
                newest=self.now + MAX_AHEAD,
            )
        return self.sink

    def lose_series(self, sink: Sink) -> None:
        """Report the series that were not sent, by reason as one lost unit, with their number per metric.

        A dropped point changes no outcome, but series that are missing in every run do: it becomes partial.
        """
        for reason, series in sink.lost.items():
            number = sum(map(len, series.values()))
            names = ", ".join(f"{name} ({len(keys):,})" for name, keys in sorted(series.items()))
            self.report.lose(f"{number:,} series", f"{LOST_SERIES[reason]}. They are of {names}", reason)

    def client(self) -> DatadogClient:
        """Return the client that submits, with the deadline of this run; all runs of a process share it.

        Raises ConfigurationError where the API key or DD_ENV is missing.
        """
        # Reused so that a process that stays also reuses the connection.
        if self.cache.client is None:
            self.cache.client = self.new_client()
        self.cache.client.deadline = self.deadline
        return self.cache.client

    def new_client(self, permissions: str = "") -> DatadogClient:
        """Return a client, with the application key where it is for requests that need permissions.

        Raises ConfigurationError where a key that it needs, or DD_ENV, is missing.
        """
        from common.datadog.client import DatadogClient

        settings = self.configuration.datadog
        client = DatadogClient(settings, self.core, self.deadline, clock=self.clock, permissions=permissions)
        if self.core.env is None:
            raise ConfigurationError(NO_ENV)
        return client

    def backfill_command(self, window: Window, *more: str) -> str:
        """Return the command line that sends a window later, to copy; `more` are further options.

        It has --yes: there may be no terminal to confirm on.
        """
        span = ("--since", iso(window.since), "--until", iso(window.until), "--step", duration(window.step))
        options = self.options
        shard = ("--shard", str(options.shard)) if options.shard.count > 1 else ()
        config = ("--config", options.config) if options.config else ()
        return shlex.join(["run_collector.py", self.name, *span, *more, "--push", *shard, "--yes", *config])
