"""Reads the segments of GPU memory telemetry sinks and sends their events at the events' own times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

from pydantic import Field

from collectors.gpu_memory import metrics
from collectors.gpu_memory.sinks import Sinks
from common.collector import Context
from common.config.settings import Texts, named
from common.metric import Combine, Series
from common.records.collector import Grammar, Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import MAX_TIME, Envelope, UnusableRecordError
from common.records.files import Files, shown
from common.records.sums import Block, Key, LastValues, PointBuffer
from common.times import DAY, EARLIEST
from fleetgauge.gpu_memory import BadEvent, events
from fleetgauge.gpu_memory.events import Measurement
from fleetgauge.gpu_memory.sessions import STATUSES
from fleetgauge.records import SCHEMA_VERSION, Json

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
            touched_since = context.now - DAY if context.window.is_live else 0
            sinks = Sinks(context.settings.paths, files, context.report, touched_since)
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
            event = events.parse_measurement(value)
        except BadEvent as bad:
            raise UnusableRecordError(bad.reason) from None
        if event.timestamp is None or not EARLIEST <= event.timestamp < MAX_TIME:
            raise UnusableRecordError("bad_timestamp", "timestamp", event.timestamp)
        session = event.session_id or self._sinks.session_of(path)
        found = value.get("device_id")
        device = found if type(found) is int else -1
        named = (session, event.host, event.rank, event.job_id, device)
        source = self._sources.get(named)
        if source is None:
            source = self._sources[named] = _source(session, event, device, by_job=self._by_job)
        alert = hash((event.timestamp, event.event_type)) if event.event_type in events.ALERT_TYPES else None
        return Envelope(source.name, alert, event.timestamp), (source, event)

    def add(
        self, envelope: Envelope, body: tuple[Source, Measurement], new: bool, problems: list[Problem]
    ) -> bool:
        """Add what an event measured: to its own series, or to those of its host and rank."""
        del problems  # what an event does not have is not known
        source, event = body
        used = events.used_memory(event.used, event.allocated, event.reserved)
        percent = events.utilization(used, event.total)
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
            values = (*measured[:4], None if percent is None else used)
            named = zip(metrics.GAUGES, values, strict=True)
            host, gpu, tags = source.host, source.gpu, source.tags
            found = {(host, gpu, name, *tags): value for name, value in named if value is not None}
            self._shared.add(source.name, envelope.timestamp, found)
        is_alert = envelope.seq is not None
        if is_alert and new:
            tags = (*source.tags, f"type:{event.event_type}")
            self._points.count(metrics.ALERTS, tags, source.host or None, int(envelope.timestamp))
        return is_alert or not self._by_job

    def sums(self) -> Iterator[Series]:
        """Yield what jobs of a host and rank add up to; count interrupted sessions and dumps."""
        window = self._context.window
        for directory, why, modified in self._sinks.lost:
            if modified >= window.since or window.is_live:
                self._context.report.lose(f"the sessions of {shown(directory)}", why)
        sessions = [each for each in self._sinks.sessions.values() if each.status == "interrupted"]
        ended = [each.ended_at_ns // 10**9 for each in sessions if each.ended_at_ns is not None]
        for metric, times in ((metrics.INTERRUPTED, ended), (metrics.OOM_DUMPS, self._sinks.dumps)):
            for time in times:
                if window.since <= time < window.until:
                    self._points.count(metric, (), None, time)
        points: dict[Key, dict[int, float]] = {}  # by host, name and tags
        for (host, gpu, name, *tags), buckets in self._shared.buckets():
            sums = points.setdefault((host, name, *tags), {})
            # Sessions on one device repeat its figures.
            combine = max if gpu and metrics.GAUGES[name].combines is Combine.MAX else sum
            for start, values in buckets.items():
                sums[start] = sums.get(start, 0) + combine(values)
        for (host, name, *tags), sums in points.items():
            if name == "utilization_pct":
                totals = points[host, "device_total_bytes", *tags]
                sums = {start: used / totals[start] * 100.0 for start, used in sums.items()}
            times = sorted(sums)
            yield Series(metrics.GAUGES[name], tuple(tags), host or None, times, [sums[at] for at in times])

    def present(self, records: object, *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
        """Yield how many sessions there are of each status."""
        if complete:
            found = Counter(session.status for session in self._sinks.sessions.values())
            for status in STATUSES:
                yield metrics.SESSIONS(found[status], self._context.now, status=status)


def _source(session: str, event: Measurement, device: int, *, by_job: bool) -> Source:
    """Return the source of an event. A CPU calls its device -1, and has no tag for it."""
    host, job = (event.host or "")[:200], (event.job_id or "")[:200]
    ranked = "" if event.rank is None else str(event.rank)
    gpu = str(device)[:20] if device >= 0 else ""
    named = {"gpu": gpu, "job_id": job, "rank": ranked} if by_job else {"rank": ranked}
    tags = tuple(f"{key}:{value}" for key, value in named.items() if value)
    return Source(json.dumps([session, host, ranked, job, gpu]), host, gpu, tags, {})


_KIND = RecordKind(
    *("gpu_memory", GpuMemorySettings, metrics.METRICS, GpuMemoryGrammar),
    time_of=events.event_timestamp_seconds,
    current=metrics.CURRENT,
    files="segment-*.jsonl",
)
COLLECTOR = collector_over(_KIND)
