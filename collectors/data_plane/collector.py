"""Tails the files of data-plane clients and adds their records up to points at the records' own times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from pydantic import Field

from collectors.data_plane import metrics as emitted
from collectors.data_plane.jobs import Jobs
from collectors.data_plane.record import BUCKETS, NONE, Held, Operations, SavedTotals, Totals, interpret, plus
from common.collector import Context
from common.config.settings import Duration, named
from common.metric import Sample, sample
from common.names import normalise_tag
from common.records.buckets import Key
from common.records.collector import collector_over
from common.records.engine import Ingest
from common.records.entry import Entry
from common.records.envelope import text
from common.records.settings import RecordSettings
from common.records.window import Tick
from common.shards import slot
from fleetgauge.data_plane.operation_totals import percentiles
from fleetgauge.records import Json


class DataPlaneSettings(RecordSettings):
    """Where the records are, and what is told apart."""

    model_config = named("FLEETGAUGE_DATA_PLANE_")

    tag_job: bool = Field(True, description="Tag with the job; off, all jobs are added up.")
    tag_rank: bool = Field(True, description="Tag with the rank; off, all ranks of a job are added up.")
    tag_partition_id: bool = Field(
        True, description="Tag with the partition; off, all partitions are added up."
    )
    settle: Duration = Field(
        15, ge=0, le=600, description="Records younger than this wait for the next run: their time may grow."
    )


class Tagging(NamedTuple):
    """Which tags are on; what differs only in one that is off is added up."""

    job: bool
    rank: bool
    partition_id: bool

    def tags(self, group: tuple[str, ...], partition_id: str = "", op: str = "") -> tuple[str, ...]:
        """The tags of what is known of a job and a rank."""
        job, rank = group
        values = (job * self.job, op, partition_id * self.partition_id, rank * self.rank)
        named = zip(emitted.OPERATION_TAGS, values, strict=True)
        return tuple(f"{name}:{value}" for name, value in named if value)


class DataPlaneIngest(Ingest[DataPlaneSettings, Operations | Held]):
    """One tick over the records of clients."""

    name, metrics, live_only = "data_plane", emitted.METRICS, emitted.LIVE_ONLY
    reading = emitted.READING
    cell, add_cells = SavedTotals, staticmethod(plus)
    unit_in_file = True
    streams = False

    def __init__(self, context: Context[DataPlaneSettings], tick: Tick, known: None = None) -> None:
        super().__init__(context, tick, known)
        settings = context.settings
        self.waits_for = self.width(settings)
        self._tagging = Tagging(settings.tag_job, settings.tag_rank, settings.tag_partition_id)
        self._tags: dict[tuple[object, ...], Key] = {}  # by what records tell
        self._jobs = Jobs(self.saved, tick.window.oldest)
        self._words: list[Held] = []  # since the last ones were judged

    @classmethod
    def width(cls, settings: DataPlaneSettings) -> int:
        """Writers keep their own time: where several share a series, each has to be in every bucket."""
        return 1 if settings.tag_job and settings.tag_rank else settings.aggregate_interval

    @classmethod
    def history(cls, settings: DataPlaneSettings) -> int:
        return settings.forget_after  # as far as a live tick that is the first looks back for doubts

    @classmethod
    def unit(cls, path: str, first: Json) -> str:
        job = text(first, "job")
        return normalise_tag(f"job:{job}") if job else super().unit(path, first)

    def of_one_unit(self, tags: Sequence[str], host: str | None) -> bool:  # noqa: ARG002
        """A file may have records of other jobs than the one it is read for, or of none."""
        return any(tag.startswith("job:") and self.context.shard.owns(normalise_tag(tag)) for tag in tags)

    def interpret(self, entry: Entry) -> Operations | Held | None:
        return interpret(entry)

    def hear(self, record: Operations | Held) -> None:
        if isinstance(record, Held):
            self._note(record._replace(bytes_by_partition=None))

    def _note(self, word: Held) -> None:
        self._words.append(word)
        self._jobs.claim(word.group[0])

    def take(self, record: Operations | Held) -> Sequence[Sample]:
        start = int(record.timestamp) // self.waits_for * self.waits_for
        if isinstance(record, Held):
            self._note(record if self._is_of_its_unit(record) else record._replace(bytes_by_partition=None))
            foreign, overflowed = record.foreign_clears, record.keys_overflowed
            if foreign is not None and overflowed is not None:
                self.add(start, self._tagging.tags(record.group), (*NONE, {}, foreign, overflowed))
            return ()
        told = (record.group, record.op, record.partition_id)
        tags = self._tags.get(told)
        if tags is None:
            tags = self._tags[told] = self._tagging.tags(record.group, record.partition_id, record.op)
        self.add(start, tags, record.totals)
        return ()

    def _is_of_its_unit(self, record: Held) -> bool:
        """Whether what else is said of the job is read here too; a file of others may tell of it as well."""
        job = record.group[0]
        return not (self.layered and job) or slot(normalise_tag(f"job:{job}")) == self.saved.slot

    def cell_samples(self, start: int, key: Key, value: Totals) -> list[Sample]:
        if any(tag.startswith("op:") for tag in key):
            return operation_samples(start, key, value)
        return [
            Sample(metric, n, start, key, None) for metric, n in zip(emitted.DOUBTS, value[7:], strict=True)
        ]

    def added_up(self, *, held: bool = False) -> Iterator[Sample]:
        return chain(super().added_up(held=held), self.apart(self._held()) if self.layered else self._held())

    def _held(self) -> Iterator[Sample]:
        """What each job holds; over jobs it is not added up, as nobody knows that all of them were read."""
        words, self._words = self._words, []
        last = {(word.group, int(word.timestamp)): word for word in self._jobs.believed(words)}
        for word in last.values() if self._tagging.job and not self.context.node_local else ():
            yield from held_samples(word, self._tagging)

    @property
    def pending(self) -> bool:
        return super().pending or bool(self._words)

    def changes(self, *, forget: bool, held: bool = False) -> dict[str, object]:
        return {**super().changes(forget=forget, held=held), **self._jobs.changes()}


def held_samples(word: Held, tagging: Tagging) -> Iterator[Sample]:
    """The points of what a job holds."""
    at, tags = int(word.timestamp), tagging.tags(word.group)
    yield Sample(emitted.PEAK_BYTES_OUTSTANDING, word.peak_bytes, at, tags, None)
    yield Sample(emitted.KEYS_OUTSTANDING, word.keys, at, tags, None)
    held: Counter[tuple[str, ...]] = Counter() if tagging.partition_id else Counter({tags: 0})
    for partition_id, n_bytes in (word.bytes_by_partition or {}).items():
        held[tagging.tags(word.group, partition_id)] += n_bytes
    for tagged, n_bytes in held.items():
        yield Sample(emitted.BYTES_OUTSTANDING, n_bytes, at, tagged, None)


def operation_samples(at: int, tags: tuple[str, ...], totals: Totals) -> list[Sample]:
    """The points of one series. Times of nothing are absent; counts of nothing are 0."""
    count, keys, n_bytes, total, low, high, buckets, errors, timeouts = totals
    values: list[float] = [count, errors, timeouts, keys, n_bytes]
    if count:
        indexed = sorted([(BUCKETS[index], number) for index, number in buckets.items()])
        # Rounded, because the order in which files are read must not show in the last digit.
        values.append(round(total / count, 9))
        values += percentiles(emitted.PERCENTS, count, low, high, indexed)
        values.append(high)
    every = zip(emitted.OPERATIONS, values, repeat(at), repeat(tags), repeat(None), strict=False)
    return list(map(sample, every))


COLLECTOR = collector_over(DataPlaneIngest, DataPlaneSettings)
