"""Reads the segments of GPU memory telemetry sinks and sends their events at the events' own times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from itertools import compress
from typing import NamedTuple

from pydantic import Field

from collectors.gpu_memory import metrics
from collectors.gpu_memory.sinks import SEGMENTS, STATUSES, Sinks
from common.collector import Context
from common.config.settings import Texts, named
from common.metric import Series
from common.records.collector import Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import MAX_TIME, UnusableRecordError
from common.records.files import Files
from common.records.sums import Block, Counts, Gauges, Key, LastValues, Sum
from common.times import DAY
from common.window import Window
from fleetgauge.gpu_memory import BadEvent
from fleetgauge.gpu_memory.events import (
    ALERT_TYPES,
    Measurement,
    event_timestamp_seconds,
    parse_measurement,
    used_memory,
    utilization,
)
from fleetgauge.records import SCHEMA_VERSION, Json

NAME = "gpu_memory"

# Figures of a device, which all sessions on it repeat. `measured` is the memory in use on devices whose
# capacity is known: utilisation is a share of that.
OF_THE_DEVICE = ("used", "total", "measured")

_ALL = (True,) * len(metrics.GAUGES)


class GpuMemorySettings(RecordSettings):
    """Where the sinks are, and which tags distinguish jobs."""

    model_config = named("FLEETGAUGE_GPU_MEMORY_")

    paths: Texts = Field(
        description="Directories of telemetry sinks and OOM dumps, segments and globs, separated by commas."
    )
    tag_job_id: bool = Field(
        True,
        description="Tag with job_id and gpu; off, the values of all jobs of a host and rank are aggregated.",
    )


@dataclass(frozen=True)
class Source:
    """One session on one device. What is not known is empty.

    `blocks` are where its values go, by which of the gauges an event has.
    """

    name: str
    host: str
    rank: str
    gpu: str
    tags: Key
    blocks: dict[tuple[bool, ...], Block] = field(default_factory=dict)


class Event(NamedTuple):
    """One event, and its source."""

    writer: str
    timestamp: float
    source: Source
    measurement: Measurement


class GpuMemoryGrammar:
    """What the lines of one run of the collector mean."""

    def __init__(self, context: Context[GpuMemorySettings], files: Files) -> None:
        self.gauges = Gauges()
        self._context = context
        self._by_job = context.settings.tag_job_id
        self._sources: dict[tuple[object, ...], Source] = {}
        self._shared = LastValues(context.settings.aggregate_interval)
        self._counts = Counts()
        if context.window.is_live:
            self._sinks = Sinks(context.settings.paths, files)
        else:  # the windows of a backfill look at manifests once
            sinks = context.memory.setdefault("sinks", Sinks(context.settings.paths, files))
            assert isinstance(sinks, Sinks)  # noqa: S101  # nothing else is under that key in a backfill
            self._sinks = sinks

    def parse(self, value: Json, path: str) -> Event | None:
        """Return the event that an object is; None for a record of another kind."""
        if value.get("schema_version") == SCHEMA_VERSION and "kind" in value:
            return None
        try:
            event = parse_measurement(value)
        except BadEvent as bad:
            raise UnusableRecordError(bad.reason) from None
        if event.timestamp is None or not 0 < event.timestamp < MAX_TIME:
            raise UnusableRecordError("bad_timestamp", "timestamp", event.timestamp)
        session = event.session_id or self._sinks.session_of(path)
        device = value.get("device_id")
        named = (session, event.host, event.rank, event.job_id, device if type(device) is int else -1)
        source = self._sources.get(named)
        if source is None:
            source = self._sources[named] = self._source(*named)
        return Event(source.name, event.timestamp, source, event)

    def _source(
        self, session: str, host: str | None, rank: int | None, job_id: str | None, device: int
    ) -> Source:
        """Return the source of some events. A CPU calls its device -1, and has no tag for it."""
        host, job = (host or "")[:200], (job_id or "")[:200]
        ranked = "" if rank is None else str(rank)
        gpu = str(device)[:20] if device >= 0 else ""
        named = (("gpu", gpu), ("job_id", job), ("rank", ranked))
        tags = tuple(f"{key}:{value}" for key, value in named if value)
        return Source(json.dumps([session, host, ranked, job, gpu]), host, ranked, gpu, tags)

    def add(self, record: Event, new: bool, problems: list[Problem]) -> bool:  # noqa: ARG002
        """Add what an event measured: to its own series, or to those of its host and rank."""
        event, source, at = record.measurement, record.source, record.timestamp
        used = used_memory(event.used, event.allocated, event.reserved)
        percent = utilization(used, event.total)
        total = None if percent is None else event.total  # a capacity of 0 is not known
        measured = (event.allocated, event.reserved, used, total, percent)
        is_alert = event.event_type in ALERT_TYPES
        if self._by_job:
            known = _ALL if None not in measured else tuple(value is not None for value in measured)
            block = source.blocks.get(known) or self._block(source, known)
            for column, value in zip(block.values, compress(measured, known), strict=True):
                column.append(value)  # type: ignore[arg-type]  # it is not None
            block.times.append(at)
        elif new:
            named = dict(zip(metrics.GAUGES, measured, strict=True))
            if named.pop("utilization") is not None:
                named["measured"] = used
            key = (source.host, source.rank, source.gpu)
            values: dict[Key, float] = {
                (*key, name): value for name, value in named.items() if value is not None
            }
            self._shared.add(source.name, at, values)
        if is_alert and new:
            tags = source.tags if self._by_job else (f"rank:{source.rank}",) * bool(source.rank)
            tags = (*tags, f"type:{event.event_type}")
            self._counts.add(metrics.ALERTS, tags, source.host or None, int(at))
        return is_alert or not self._by_job

    def _block(self, source: Source, known: tuple[bool, ...]) -> Block:
        gauges = compress(metrics.GAUGES.values(), known)
        series = [(gauge, source.tags, source.host or None) for gauge in gauges]
        source.blocks[known] = block = self.gauges.block(series, source.name)
        return block

    def sums(self, window: Window) -> Iterator[Series]:
        """Yield alerts, what jobs of a host and rank add up to, interrupted sessions and dumps."""
        now, report = self._context.now, self._context.report
        watched = now - DAY if window.is_live else 0
        self._sinks.read(report, watched)
        for metric, times in (
            (metrics.INTERRUPTED, self._sinks.interrupted),
            (metrics.OOM_DUMPS, self._sinks.dumps),
        ):
            for time in times:
                if window.since <= time < window.until:
                    self._counts.add(metric, (), None, time)
        yield from self._counts.series()
        points: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}
        for start, sums in self._shared.sums():
            for key, value in _by_rank(sums):
                times, values = points.setdefault(key, ([], []))
                times.append(start)
                values.append(value)
        for (host, rank, name), (times, values) in points.items():
            tags = (f"rank:{rank}",) if rank else ()
            yield Series(metrics.GAUGES[name], tags, host or None, times, values)

    def present(self, records: Sequence[Event], *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
        """Yield how many sessions there are of each status."""
        if complete:
            for status in STATUSES:
                yield metrics.SESSIONS(self._sinks.statuses[status], self._context.now, status=status)


def _by_rank(sums: Mapping[Key, Sum]) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield the figures of each host and rank in one bucket. Sessions of one device repeat its figures."""
    ranks: dict[tuple[str, str], dict[str, float]] = {}
    for (host, rank, gpu, name), (total, _, highest) in sums.items():
        values = ranks.setdefault((host, rank), {})
        values[name] = values.get(name, 0) + (highest if gpu and name in OF_THE_DEVICE else total)
    for (host, rank), values in ranks.items():
        if "total" in values:
            values["utilization"] = values["measured"] / values["total"] * 100.0
        for name in metrics.GAUGES:
            if name in values:
                yield (host, rank, name), values[name]


def _patterns(settings: GpuMemorySettings, files: Files) -> Sequence[str]:
    """Return where the segments are: of a directory, all in it and below."""
    return [
        f"{escape(path.rstrip('/'))}/**/{SEGMENTS}" if files.is_directory(path) else path
        for path in settings.paths
    ]


def _width(settings: GpuMemorySettings) -> int:
    return 1 if settings.tag_job_id else settings.aggregate_interval


COLLECTOR = collector_over(
    RecordKind(
        name=NAME,
        settings=GpuMemorySettings,
        metrics=metrics.METRICS,
        live_only=metrics.LIVE_ONLY,
        ingest=metrics.INGEST,
        grammar=GpuMemoryGrammar,
        width=_width,
        time_of=event_timestamp_seconds,
        patterns=_patterns,
    )
)
