"""What a collector over records says: what a line means, which samples it makes, and which of them add up.

The rest has an answer here that a collector may replace. How files are read is in `common.records.engine`.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from common.collector import Context
from common.intake import MAX_AHEAD
from common.metric import Kind, Metric, Sample
from common.records.buckets import Cells, Key, Shared, Sum
from common.records.entry import Entry, Identity
from common.records.owners import Group, Owners
from common.records.paths import shown, stem
from common.records.reading_metrics import IngestMetrics
from common.records.saved import Number, SavedState
from common.records.settings import RecordSettings
from common.records.storages import Files
from common.records.units import Units
from common.records.window import Tick
from fleetgauge.records import Json, identity

MAX_TRACED = 20  # entries of one reason that are told with their place


class Record(Protocol):
    """What must be known of any record: `writer` tells runs apart, and those of one `group` share series."""

    @property
    def writer(self) -> str: ...

    @property
    def group(self) -> Group: ...

    @property
    def timestamp(self) -> float: ...


S = TypeVar("S", bound=RecordSettings)
R = TypeVar("R", bound=Record)


class Grammar(ABC, Generic[S, R]):
    """One kind of record, for one tick."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    live_only: ClassVar[frozenset[Metric]]
    reading: ClassVar[IngestMetrics]

    identity: Identity | None = staticmethod(identity)
    unit_in_file = False  # what unit a file belongs to is told by its first line, not by its path alone
    streams = True  # samples leave as their records are read; otherwise once all files are
    has_ends = False  # a record may be the last one of its writer, so that nothing of its time can follow
    waits_for = 1  # seconds: a bucket of this width must be over before its records are taken
    cell: Any = Number  # Any: the type of what adds up is the collector's own
    add_cells: Callable[[Any, Any], Any] = staticmethod(operator.add)

    def __init__(self, context: Context[S], tick: Tick, known: Any = None) -> None:  # Any: see `survey`
        self.context = context
        self.settings = settings = context.settings
        self.tick = tick
        self.known = known
        self.saved = saved = SavedState(context.state)
        oldest = tick.window.oldest
        self.owners = Owners(saved, self.silence(settings), context.now - settings.forget_after)
        self.cells = Cells[Any](saved, "cell:", oldest, self.cell, self.add_cells)
        self.shared = Shared(saved, settings.aggregate_interval, oldest)
        if too_old := self.cells.too_old + self.shared.too_old:
            context.drop("too_old", too_old)
        self.layered = context.shard.count > 1 or context.sent_until > oldest  # or no shards can matter
        self.units = Units(
            *(self.unit, context.shard, saved, tick.now),
            looks=self.unit_in_file,
            feeds=self.fed_by,
            layered=self.layered,
            since=tick.now - tick.forget_after,
        )
        self._of_one_unit = cache(self.of_one_unit)
        self._named = {metric.name: metric for metric in self.metrics}
        self._adds_up = self.adds_up(settings)
        self._counted = frozenset(metric.name for metric in self.metrics if metric.kind is Kind.COUNT)
        self._contested: list[tuple[str, Entry, R, Sequence[Sample]]] = []
        self.path = self.head = ""
        self.entry = Entry({}, 0, None, 0)  # the one under way, in the file of that path

    @abstractmethod
    def interpret(self, entry: Entry) -> R | None:
        """The record a line holds; None for another kind's. What it raises costs the line.

        `path` and `head`, the digest of the first line, are those of its file.
        """

    def samples(self, record: R) -> Sequence[Sample]:  # noqa: ARG002
        """The points of a record. Counts add up; so do gauges that `adds_up` names, whoever writes them."""
        return ()

    @classmethod
    def adds_up(cls, settings: S) -> Mapping[str, str]:  # noqa: ARG003
        """Gauges that several writers share, by name: whether their values are a `sum` or a `mean`."""
        return {}

    @classmethod
    def patterns(cls, settings: S, files: Files) -> Sequence[str]:  # noqa: ARG003
        """Where the files are."""
        return settings.paths

    @classmethod
    def silence(cls, settings: S) -> int:  # noqa: ARG003
        """How long after its last word a writer still owns its series."""
        return 0

    @classmethod
    def width(cls, settings: S) -> int:
        """How much time one point stands for, at most."""
        return settings.aggregate_interval if cls.adds_up(settings) else 1

    @classmethod
    def history(cls, settings: S) -> int:
        """Files last written so many seconds before a span matter to it."""
        return max(MAX_AHEAD, cls.silence(settings))

    @classmethod
    def survey(cls, context: Context[S], files: Files) -> Any:  # noqa: ARG003  # Any: the collector's own
        """What is looked at once, however many passes a replay takes."""
        return None

    @classmethod
    def unit(cls, path: str, first: Json) -> str:  # noqa: ARG003
        """The unit that a file with that first line belongs to; without one, or unread, it is empty."""
        return stem(path)

    def family(self, path: str) -> str:
        """What files have in common of which a replay must read all or none."""
        return path

    def ends(self, record: R) -> bool:  # noqa: ARG002
        """Whether it is the last one of its writer."""
        return False

    @classmethod
    def fed_by(cls, first: Json) -> str:  # noqa: ARG003
        """Whose series a file with that first line feeds; empty where it does not tell."""
        return ""

    @classmethod
    def series_of(cls, tags: Sequence[str], host: str | None) -> str:  # noqa: ARG003
        """Whose series these are, as `fed_by` tells it; empty where several units may feed them."""
        return ""

    def of_one_unit(self, tags: Sequence[str], host: str | None) -> bool:
        """Whether only units of this shard feed the series of these tags."""
        series, sole = self.series_of(tags, host), self.units.sole
        return bool(series) and (sole is None or series in sole)

    def points(self, record: R) -> int:  # noqa: ARG002
        """How many are dropped with it."""
        return 1

    def hear(self, record: R) -> None:
        """Take note of a record; of one that is too old to be sent, that is all."""
        self.owners.hear(record.writer, record.group, record.timestamp, ends=self.ends(record))

    def take(self, record: R) -> Sequence[Sample]:
        """The points of a record that can leave at once."""
        self.hear(record)
        samples = self.samples(record)
        if self._adds_up or self._counted:
            samples = self._add_up(record, samples)
        if self.layered:  # what a file does not begin with, others may tell as well
            named = self.series_of(record.group, None) == self.units.here
            samples = [*(self.apart(samples) if named else self.together(samples))]
        if not samples or self.owners.alone(record.writer, record.group):
            return samples
        if self.owners.contested(record.writer, record.group, record.timestamp):
            self._contested.append((self.path, self.entry._replace(value={}), record, samples))
            return ()
        return self._shown(record, samples)

    def together(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """What several units feed: by shard, and never a second that another number of shards has sent."""
        tags, sent_until = self.context.shard.tags, self.context.sent_until
        for sample in samples:
            if sample.timestamp <= sent_until:
                self.context.drop("late")
            else:
                yield sample._replace(tags=sample.tags + tags) if tags else sample

    def apart(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """The samples of series that one unit feeds as they are, and the others by shard."""
        of_one_unit = self._of_one_unit
        for sample in samples:
            if of_one_unit(sample.tags, sample.host):
                yield sample
            else:
                yield from self.together((sample,))

    def rest(self, *, held: bool = False) -> Iterator[Sample]:
        """The points that are known once all files were read; what they add up to may be `held` back."""
        for path, entry, record, samples in self._contested:
            self.path, self.entry = path, entry
            yield from self._shown(record, samples)
        yield from self.added_up(held=held)
        if held:
            self.shared.hold()
        else:
            yield from self.together(self._each(self.sum_samples, self.shared.sums()))

    def present(self, *, sums: bool) -> Iterator[Sample]:  # noqa: ARG002
        """Points of now, out of what is remembered; without sums over all files where some are unknown."""
        yield from ()

    @property
    def pending(self) -> bool:
        """Whether something was read that has not been yielded yet."""
        return bool(self._contested or self.shared or self.cells.growth)

    def changes(self, *, forget: bool, held: bool = False) -> dict[str, object]:
        """What to save behind all that was yielded, or held back of what adds up.

        What is too much is forgotten only where all files were read: it can no longer be added to then.
        """
        return {
            **self.owners.changes(),
            **self.cells.changes(forget=forget, held=held),
            **self.shared.changes(forget=forget, held=held),
        }

    def drop(self, reason: str, count: int = 1, key: str = "", value: object = None) -> None:
        """Count what cannot be used of the entry under way; of each reason, tell the first ones."""
        dropped = self.context.tally.dropped
        before = dropped[reason]
        self.context.drop(reason, count)
        if before < MAX_TRACED and dropped[reason] > before:
            _, start, _, line = self.entry
            place = f"{shown(self.path)}@{start}" + (f" (line {line})" if line else "")
            said = f": {key} is {_short(value)}" if key else ""
            self.context.tally.examples.setdefault(reason, f"{place}{said}")
            tell = self.context.log.warning if reason == "unusable_record" else self.context.log.debug
            tell("dropped %s: %s%s", place, reason, said)

    def added_up(self, *, held: bool = False) -> Iterator[Sample]:
        """What adds up and has grown, whole; nothing where it is held back."""
        if held:
            self.cells.hold()
            return iter(())
        grown = self._each(self.cell_samples, self.cells.grown())
        return self.apart(grown) if self.layered else grown

    def _each(
        self, make: Callable[..., Iterable[Sample]], items: Iterable[tuple[Any, ...]]
    ) -> Iterator[Sample]:
        """The points of what was put together with saved parts, of which any may be damaged."""
        for item in items:
            try:
                yield from make(*item)
            except Exception:  # whatever it raises costs that item
                self.saved.bad += 1

    def cell_samples(self, start: int, key: Key, value: Any) -> Sequence[Sample]:  # Any: see `cell`
        """The points of what was added up: a count."""
        name, host, *tags = key
        metric = self._named.get(name)
        return (Sample(metric, value, start, tuple(tags), host or None),) if metric else ()

    def sum_samples(self, start: int, sums: Mapping[Key, Sum]) -> Iterator[Sample]:
        """The points of what writers share in a bucket."""
        for (name, *tags), (total, count, _) in sums.items():
            if name in self._adds_up:
                value = total / count if self._adds_up[name] == "mean" else total
                # Rounded, because the order in which files are read must not show in the last digit.
                yield Sample(self._named[name], round(value, 9), start, tuple(tags), None)

    def count(self, sample: Sample) -> None:
        """Add a count to its second."""
        self.add(sample.timestamp, (sample.metric.name, sample.host or "", *sample.tags), sample.value)

    def add(self, start: int, key: Key, value: Any) -> None:  # Any: see `cell`
        """Add to what adds up."""
        if not self.cells.add(start, key, value):
            self.drop("late", 1, "timestamp", start)

    def _add_up(self, record: R, samples: Sequence[Sample]) -> list[Sample]:
        """Put what is shared to the sums; what is left is the writer's own."""
        own: list[Sample] = []
        values: dict[Key, float] = {}
        for sample in samples:
            name = sample.metric.name
            if name in self._counted:
                self.count(sample)
            elif name not in self._adds_up:
                own.append(sample)
            elif -1e300 < sample.value < 1e300:
                exact = -(2**53) < sample.value < 2**53  # larger ones could not be saved as they are
                values[(name, *sample.tags)] = sample.value if exact else float(sample.value)
            else:
                self.drop("not_finite", 1, name, sample.value)
        if values and not self.shared.add(record.writer, record.timestamp, values):
            self.drop("late", len(values), "timestamp", record.timestamp)
        return own

    def _shown(self, record: R, samples: Sequence[Sample]) -> Sequence[Sample]:
        if self.owners.superseded(record.writer, record.group, record.timestamp):
            self.drop("superseded", len(samples), "writer", record.writer)
            return ()
        return samples


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a number of thousands of digits
        text = f"something that cannot be shown: {error}"
    return text if len(text) <= 80 else f"{text[:77]}..."
