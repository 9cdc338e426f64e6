"""Reads the segments of GPU memory telemetry sinks and sends their events at the events' own times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

from pydantic import Field

from collectors.gpu_memory import metrics
from collectors.gpu_memory.sinks import STATUSES, Sinks
from common.collector import Context
from common.config.settings import Texts, named
from common.metric import Series
from common.records.collector import Grammar, Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import MAX_TIME, Envelope, UnusableRecordError
from common.records.files import Files
from common.records.sums import Block, Key, LastValues, PointBuffer
from common.times import DAY
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

OF_THE_DEVICE = ("used", "total", "utilization")  # figures that all sessions on a device repeat

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

    @property
    def width(self) -> int:
        """The width of a bucket in seconds: jobs share series only without job_id."""
        return 1 if self.tag_job_id else self.aggregate_interval


class Source(NamedTuple):
    """One session on one device. What is not known is empty.

    `blocks` are where its values go, by which of the gauges an event has.
    """

    name: str
    host: str
    rank: str
    gpu: str
    tags: Key
    blocks: dict[tuple[bool, ...], Block]


class GpuMemoryGrammar(Grammar[tuple[Source, Measurement]]):
    """What the lines of one run of the collector mean."""

    def __init__(self, context: Context[GpuMemorySettings], files: Files, points: PointBuffer) -> None:
        self._context = context
        self._points = points
        self._by_job = context.settings.tag_job_id
        self._sources: dict[tuple[object, ...], Source] = {}
        self._shared = LastValues(context.settings.aggregate_interval)
        # The windows of a backfill that share a listing look at manifests once.
        sinks = context.memory.get("sinks")
        if not isinstance(sinks, Sinks) or sinks.files is not files:
            sinks = Sinks(context.settings.paths, files)
        if not context.window.is_live:
            context.memory["sinks"] = sinks
        self._sinks = sinks

    def parse(self, value: Json, path: str) -> tuple[Envelope, tuple[Source, Measurement]] | None:
        """Return the event that an object is, and its source; None for a record of another kind.

        Events have no number: an alert is known by its time and type, so that copies of it count once.
        """
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
            source = self._sources[named] = _source(*named)
        alert = hash((event.timestamp, event.event_type)) if event.event_type in ALERT_TYPES else None
        return Envelope(source.name, alert, event.timestamp), (source, event)

    def add(
        self, envelope: Envelope, body: tuple[Source, Measurement], new: bool, problems: list[Problem]
    ) -> bool:
        """Add what an event measured: to its own series, or to those of its host and rank."""
        del problems  # what an event does not have is not known
        source, event = body
        used = used_memory(event.used, event.allocated, event.reserved)
        percent = utilization(used, event.total)
        total = None if percent is None else event.total  # a capacity of 0 is not known
        measured = (event.allocated, event.reserved, used, total, percent)
        if self._by_job:
            known = _ALL if None not in measured else tuple(value is not None for value in measured)
            block = source.blocks.get(known)
            if block is None:
                gauges = compress(metrics.GAUGES.values(), known)
                series = [(gauge, source.tags, source.host or None) for gauge in gauges]
                block = source.blocks[known] = self._points.block(series, source.name)
            values = measured if known is _ALL else compress(measured, known)
            block.add(envelope.timestamp, values)  # type: ignore[arg-type]  # none of them is None
        elif new:
            # In place of the utilization: the memory in use on a device whose capacity is known.
            figures = (*measured[:4], None if percent is None else used)
            named = zip(metrics.GAUGES, figures, strict=True)
            key: Key = (source.host, source.rank, source.gpu)
            found = {(*key, name): figure for name, figure in named if figure is not None}
            self._shared.add(source.name, envelope.timestamp, found)
        is_alert = envelope.seq is not None
        if is_alert and new:
            tags = source.tags if self._by_job else (f"rank:{source.rank}",) * bool(source.rank)
            tags = (*tags, f"type:{event.event_type}")
            self._points.count(metrics.ALERTS, tags, source.host or None, int(envelope.timestamp))
        return is_alert or not self._by_job

    def sums(self) -> Iterator[Series]:
        """Yield what jobs of a host and rank add up to; count interrupted sessions and dumps."""
        window = self._context.window
        self._sinks.read(self._context.report, self._context.now - DAY if window.is_live else 0)
        for metric, times in (
            (metrics.INTERRUPTED, self._sinks.interrupted),
            (metrics.OOM_DUMPS, self._sinks.dumps),
        ):
            for time in times:
                if window.since <= time < window.until:
                    self._points.count(metric, (), None, time)
        # Sessions of one device repeat its figures.
        points: dict[tuple[str, str, str], dict[int, float]] = {}
        for (host, rank, gpu, name), buckets in self._shared.buckets():
            figures = points.setdefault((host, rank, name), {})
            combine = max if gpu and name in OF_THE_DEVICE else sum
            for start, values in buckets.items():
                figures[start] = figures.get(start, 0) + combine(values)
        for (host, rank, name), figures in points.items():
            if name == "utilization":
                totals = points[host, rank, "total"]
                figures = {start: used / totals[start] * 100.0 for start, used in figures.items()}
            times = sorted(figures)
            tags = (f"rank:{rank}",) if rank else ()
            yield Series(metrics.GAUGES[name], tags, host or None, times, [figures[at] for at in times])

    def present(self, records: object, *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
        """Yield how many sessions there are of each status."""
        if complete:
            for status in STATUSES:
                yield metrics.SESSIONS(self._sinks.statuses[status], self._context.now, status=status)


def _source(session: str, host: str | None, rank: int | None, job_id: str | None, device: int) -> Source:
    """Return the source of some events. A CPU calls its device -1, and has no tag for it."""
    host, job = (host or "")[:200], (job_id or "")[:200]
    ranked = "" if rank is None else str(rank)
    gpu = str(device)[:20] if device >= 0 else ""
    named = (("gpu", gpu), ("job_id", job), ("rank", ranked))
    tags = tuple(f"{key}:{value}" for key, value in named if value)
    return Source(json.dumps([session, host, ranked, job, gpu]), host, ranked, gpu, tags, {})


_KIND = RecordKind(
    *(NAME, GpuMemorySettings, metrics.METRICS, GpuMemoryGrammar),
    time_of=event_timestamp_seconds,
    current=metrics.CURRENT,
    files="segment-*.jsonl",
)
COLLECTOR = collector_over(_KIND)
