"""Tails the segments of telemetry sinks and turns their events into gauges at the events' own times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from pydantic import Field

from collectors.gpu_memory import metrics as emitted
from collectors.gpu_memory.sessions import Measurement, Source
from collectors.gpu_memory.sinks import Sinks, patterns
from common.collector import Context
from common.config.settings import Texts, named
from common.metric import Sample, sample
from common.names import normalise_tag
from common.records.buckets import Key, Sum
from common.records.collector import collector_over
from common.records.engine import Ingest
from common.records.entry import Entry
from common.records.envelope import UnusableRecordError
from common.records.saved import MAX_TIME
from common.records.settings import RecordSettings
from common.records.storages import Files
from common.records.window import Tick
from fleetgauge.gpu_memory import BadEvent, parse_event
from fleetgauge.records import SCHEMA_VERSION, Json

# What a device says of itself: sessions on one device say the same. `measured` is what is in use on devices
# whose capacity is known, which is what utilisation is of.
OF_THE_DEVICE = ("used", "total", "measured")


class GpuMemorySettings(RecordSettings):
    """Where the sinks are, and how jobs are told apart."""

    model_config = named("FLEETGAUGE_GPU_MEMORY_")

    paths: Texts = Field(
        description="Directories of telemetry sinks and OOM dumps, segments and globs, separated by commas."
    )
    tag_job_id: bool = Field(
        True,
        description="Tag with job_id and gpu; off, the values of all jobs of a host and rank are aggregated.",
    )


class GpuMemoryIngest(Ingest[GpuMemorySettings, Measurement]):
    """One tick over the events of sessions.

    All that was read becomes samples only once reading is over, because segments and sessions share seconds;
    `bytes_per_tick` bounds it.
    """

    name, metrics, live_only = "gpu_memory", emitted.METRICS, emitted.LIVE_ONLY
    reading = emitted.READING
    identity = None
    unit_in_file = True  # where it matters whose series a sink feeds
    streams = False

    def __init__(self, context: Context[GpuMemorySettings], tick: Tick, known: Sinks) -> None:
        super().__init__(context, tick, known)
        known.recall(self.saved, tick.now)
        self._sources: dict[tuple[object, ...], Source] = {}  # by what events tell
        self._by_name: dict[str, Source] = {}
        self._session = ("", "")  # of the segment under way

    @classmethod
    def patterns(cls, settings: GpuMemorySettings, files: Files) -> Sequence[str]:
        return patterns(settings.paths, files)

    @classmethod
    def survey(cls, context: Context[GpuMemorySettings], files: Files) -> Sinks:
        return Sinks(context.settings.paths, files, context.shard)

    @classmethod
    def width(cls, settings: GpuMemorySettings) -> int:
        return 1 if settings.tag_job_id else settings.aggregate_interval

    @classmethod
    def unit(cls, path: str, first: Json) -> str:  # noqa: ARG003
        return path.rpartition("/")[0]

    def family(self, path: str) -> str:
        return self.unit(path, {})

    @classmethod
    def fed_by(cls, first: Json) -> str:
        try:
            source = Source.of(parse_event(first, ""), -1)
        except BadEvent:
            return ""
        return cls.series_of(source.tags, source.host)

    @classmethod
    def series_of(cls, tags: Sequence[str], host: str | None) -> str:
        """A rank of a job writes into a directory of its own; who does not tell its job may share tags."""
        named = dict(normalise_tag(tag).split(":", 1) for tag in tags)
        return json.dumps([host or "", named["job_id"], named.get("rank")]) if "job_id" in named else ""

    def interpret(self, entry: Entry) -> Measurement | None:
        value = entry.value
        if value.get("schema_version") == SCHEMA_VERSION and "kind" in value:
            return None  # a record of ours
        if self._session[0] != self.path:
            self._session = (self.path, self.known.session_of(self.path))
        try:
            event = parse_event(value, self._session[1])
        except BadEvent as bad:
            raise UnusableRecordError(bad.reason) from None
        if event.timestamp is None or not 0 < event.timestamp < MAX_TIME:
            raise UnusableRecordError("bad_timestamp", "timestamp", event.timestamp)
        device = value.get("device_id")
        told = (event.session_id, event.host, event.rank, event.job_id, device if type(device) is int else -1)
        source = self._sources.get(told)
        if source is None:
            found = Source.of(event, told[4])
            source = self._sources[told] = self._by_name.setdefault(found.name, found)
        return Measurement(source.name, event.timestamp, source.group, source, event)

    def hear(self, record: Measurement) -> None:
        """Note a session; an event too old to be sent still tells its beginning and its peak."""
        super().hear(record)
        self._peak(record.writer, record.event.memory_allocated)

    def _peak(self, writer: str, allocated: int | None) -> int | None:
        """The most a session that was heard has allocated, now that it has allocated this much."""
        more = self.owners.lives[writer].more
        if allocated is not None:
            more["peak"] = max(allocated, more.get("peak", allocated))
        return more.get("peak")

    def take(self, record: Measurement) -> Sequence[Sample]:
        event, source = record.event, record.source
        self.owners.hear(source.name, source.group, record.timestamp)
        source.told.append(record.told())
        if event.is_alert:
            tags = source.tags if self.settings.tag_job_id else (f"rank:{source.rank}",) * bool(source.rank)
            tags = (*tags, f"type:{event.event_type}")
            self.count(Sample(emitted.ALERTS, 1, int(record.timestamp), tags, source.host or None))
        return ()

    @property
    def pending(self) -> bool:
        return True

    def rest(self, *, held: bool = False) -> Iterator[Sample]:
        """Every second read, or the buckets that they add to where the job is not a tag; then alerts."""
        for _, source in sorted(self._by_name.items()):
            yield from self._seconds(source)
        yield from super().rest(held=held)

    def _seconds(self, source: Source) -> Iterator[Sample]:
        """The points of a session that are its own."""
        gauges, writer, group = tuple(emitted.GAUGES.values()), source.name, source.group
        tags, host, alone = source.tags, source.host or None, self.owners.alone(writer, group)
        for second, (_, *measured, allocated) in source.seconds():
            values = (*measured, self._peak(writer, allocated))
            if not self.settings.tag_job_id:
                if not self.shared.add(writer, second, shared := _shared(source, values)):
                    self.drop("late", len(shared), "session", source.session)
            elif not alone and self.owners.superseded(writer, group, second):
                self.drop("superseded", len(values) - values.count(None), "session", source.session)
            else:
                points = map(sample, zip(gauges, values, repeat(second), repeat(tags), repeat(host)))
                known = points if None not in values else [one for one in points if one.value is not None]
                yield from self.apart(known) if self.layered else known

    def sum_samples(self, start: int, sums: Mapping[Key, Sum]) -> Iterator[Sample]:
        """The points of a bucket. Of a device, its sessions say the same; what is their own is added up."""
        ranks: dict[tuple[str, str], dict[str, float]] = {}
        for (host, rank, gpu, name), (total, _, highest) in sums.items():
            values = ranks.setdefault((host, rank), {})
            values[name] = values.get(name, 0) + (highest if gpu and name in OF_THE_DEVICE else total)
        for (host, rank), values in sorted(ranks.items()):
            if "total" in values:
                values["utilization"] = values["measured"] / values["total"] * 100.0
            tags = {"rank": rank} if rank else {}
            for name, metric in emitted.GAUGES.items():
                if name in values:
                    yield metric(values[name], start, on_host=host or None, **tags)

    def present(self, *, sums: bool) -> Iterator[Sample]:
        if sums:
            yield from self.together(self.known.samples(self.context))

    def changes(self, *, forget: bool, held: bool = False) -> dict[str, object]:
        """What to save, with what manifests said; a replay reads them once."""
        changes = super().changes(forget=forget, held=held)
        return {**changes, **self.known.changes()} if self.tick.live else changes


def _shared(source: Source, values: Sequence[float | None]) -> dict[Key, float]:
    """A session's values under what they are added up by."""
    named = {name: value for name, value in zip(emitted.GAUGES, values, strict=True) if value is not None}
    if named.pop("utilization", None) is not None:
        named["measured"] = named["used"]
    return {(source.host, source.rank, source.gpu, name): value for name, value in named.items()}


COLLECTOR = collector_over(GpuMemoryIngest, GpuMemorySettings)
