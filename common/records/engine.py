"""One tick over files of records: from lines to samples, with everything that must be saved along.

The engine finds files, reads each line once, isolates every entry, holds back times that may still grow, and
marks what was delivered. What a record means is its grammar's business (`common.records.grammar`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from common.collector import Context
from common.errors import FleetgaugeError, SourceError
from common.intake import BATCH_SIZE
from common.metric import Mark, Sample
from common.records.entry import Entry
from common.records.envelope import UnusableRecordError
from common.records.grammar import Grammar, R, S
from common.records.paths import shown
from common.records.tail import Tail, TailedFile
from common.records.window import Tick, Window
from common.times import iso
from fleetgauge.records import Json, identity

MARK_EVERY = 10_000  # samples of one file
MAX_CELLS = 100_000  # cells that are added up before they are sent; each may be ten samples
MAX_PEEKED = 1000  # entries of one file that are looked at to find the end of a run
TOLERATED_SKEW = 60.0  # seconds that two clocks may differ, and nothing is wrong


class Ingest(Grammar[S, R]):
    """One tick of one collector, which says what its records mean."""

    def __init__(self, context: Context[S], tick: Tick, known: Any = None) -> None:  # Any: see `survey`
        super().__init__(context, tick, known)
        self._tail = Tail(
            self.patterns(context.settings, tick.files),
            self.saved,
            now=tick.now,
            storage=tick.files,
            bytes_per_tick=context.settings.bytes_per_tick,
            bytes_beyond=context.settings.bytes_per_tick,
            expire_after=tick.forget_after,
            enough=self._enough,
            identity=self.identity and self._identity,
            family=str if tick.live else self.family,  # of which a replay reads all or none
            due=tick.window.due,
            not_due=tick.not_due,
            damaged=self._damaged,
            units=self.units,
        )
        self._saved: dict[str, object] = {}  # until what must stand before it was yielded
        self._reserve: float | None = None  # seconds, known once the files are found
        self._unmarked = 0
        self._bad = 0  # entries that were no records
        self._kinds: dict[str, list[int]] = {}  # by pattern: entries that were ours, and of another kind
        self._late = (0, math.inf, 0.0)  # records that came too late to be sent, the first one and the last
        self._intake: Window | None = None

    def _enough(self) -> bool:
        """Whether it is time to deliver: what does not stream is delivered only once all of it is read.

        Half of what finding the files has left is kept for that; the passes of a replay are short.
        """
        left = self.context.deadline.remaining()
        if self._reserve is None:
            self._reserve = 0.0 if self.streams or not self.tick.live else left / 2
        return left <= self._reserve

    @property
    def behind(self) -> bool:
        """Whether something due was left for later, once all is collected."""
        return self._tail.behind

    def collect(self) -> Iterator[Sample | Mark]:
        """Every file's records, then how the writers and the reading itself are."""
        if self.tick.live:
            # What is over by then can be sent; of writers that have ended, also what is not.
            window, now = self.tick.window, self.context.now
            self.context.about_to_send(now if self.has_ends else window.due - self.waits_for)
        self._saved |= self.saved.forgotten
        for file in self._tail.files():
            before = self._tail.bytes, self._tail.taken
            yield from self._read(file)
            read = self._tail.bytes - before[0], self._tail.taken - before[1]
            self.context.log.debug("%s: read %d bytes, %d records", shown(file.path), *read)
            yield from self._mark(file)
        for path, why in self._tail.lost:
            self.context.lose(path, why)
        self._warn_of_other_kinds()
        self._warn_of_late_records()
        # Where writers share a bucket, it is whole only once no file waits.
        held = self.tick.live and self.behind and self.width(self.settings) > 1
        yield from in_batches(self.rest(held=held))
        if self.tick.live and not self._tail.blind:
            yield from self.present(sums=not self._tail.lost)
        other = sum(other for _, other in self._kinds.values())
        yield from self.together(self.reading.samples(self._tail, self._bad, other, self.context.now))
        if self.saved.bad:
            self.context.log.warning("%d parts of the checkpoint cannot be used", self.saved.bad)
            self.context.drop("bad_checkpoint", self.saved.bad)
        changes = {**self._saved, **self.changes(forget=not self.behind, held=held)}
        yield Mark(self.saved.placed({**changes, **self.owners.expired(), **self._tail.expired()}))

    def _flush(self, file: TailedFile) -> Iterator[Sample | Mark]:
        """Let a great many samples go before all files are read."""
        yield from in_batches(self.added_up())
        self._saved |= self.cells.changes(forget=False)
        yield from self._mark(file)

    def _mark(self, file: TailedFile) -> Iterator[Mark]:
        """Stand behind what was read of a file, where all of it has been yielded."""
        self._saved |= file.changes()
        if not self.pending:
            self._saved |= self.changes(forget=False)
            yield Mark(self.saved.placed(self._saved))
            self._saved = {}
        elif self._unmarked:
            yield Mark({})
        self._unmarked = 0

    def _read(self, file: TailedFile) -> Iterator[Sample | Mark]:
        """The records of one file, up to the first whose time may still grow."""
        window, width, second, ended, reason = self.tick.window_of(file), self.waits_for, -1, -1, None
        # Between these seconds nothing has to be asked.
        plain = (window.oldest + width, min(window.due - width, window.furthest))
        self.path, self.head = file.path, file.head
        kinds = self._kinds.setdefault(self._tail.pattern_of.get(file.path, ""), [0, 0])
        for entry in file.entries():
            self.entry = entry
            record = self._interpret(entry)
            if record is None or isinstance(record, UnusableRecordError):
                kinds[record is None] += 1
                if record:
                    self._bad += 1
                    self.drop(record.reason, 1, record.key, record.value)
                continue
            if int(record.timestamp) != second:
                if self._unmarked >= MARK_EVERY or self.cells.growth >= MAX_CELLS:
                    yield from self._flush(file)
                begun, second = second >= 0, int(record.timestamp)
                if begun and self._tail.over:
                    file.stop()
                    break
                reason = None
                if not plain[0] <= second <= plain[1]:
                    if window.may_grow(second, width) and entry.start > ended:
                        ended = self._ended(file, record) if second <= self.context.now else -1
                        if entry.start > ended:
                            file.wait_until((second // width + 1) * width)
                            return
                    reason = window.refuses(second, width)
            kinds[0] += 1
            if samples := self._take(record, reason):
                self._unmarked += len(samples)
                yield from samples

    def _interpret(self, entry: Entry) -> R | UnusableRecordError | None:
        try:
            return self.interpret(entry)
        except UnusableRecordError as error:
            return error.with_traceback(None)
        except Exception as error:  # whatever one entry raises costs that entry
            return UnusableRecordError("unusable_record", type(error).__name__, str(error))

    def means(self, entry: Entry) -> str:
        """What an entry is to this collector, in words; nothing where it is a record of its own."""
        found = self._interpret(entry)
        return found.reason if isinstance(found, UnusableRecordError) else "" if found else "of another kind"

    def _ended(self, file: TailedFile, record: R) -> int:
        """At which byte the writer of the entry under way ends, where all until then is its own; or -1.

        Nothing of its time can follow then, and it need not wait.
        """
        for start, found in self._ahead(file, MAX_PEEKED if self.has_ends and self.tick.live else 0):
            if found.writer != record.writer:
                break
            if self.ends(found):
                return start
        return -1

    def _ahead(self, file: TailedFile, most: int) -> Iterator[tuple[int, R]]:
        """The records among the next entries, and where each stands; none counts as read."""
        for entry in islice(file.peek(), most):
            found = self._interpret(entry)
            if not isinstance(found, UnusableRecordError | None):
                yield entry.start, found

    def _take(self, record: R, reason: str | None) -> Sequence[Sample]:
        """The points of a record that can leave at once; none where there is a reason against it."""
        try:
            if reason is None:
                return self.take(record)
            self._check_clock(record, reason)
            self.drop(reason, self.points(record), "timestamp", record.timestamp)
            if reason == "too_old":
                count, since, until = self._late
                self._late = (count + 1, min(since, record.timestamp), max(until, record.timestamp))
                self.hear(record)
        except FleetgaugeError:
            raise
        except Exception as error:  # whatever one entry raises costs that entry
            self._bad += 1
            self.drop("unusable_record", 1, type(error).__name__, str(error))
        return ()

    def _check_clock(self, record: R, reason: str) -> None:
        """Fail before anything is dropped that only our own clock refuses."""
        if not self.tick.live:
            return
        now = self.context.now
        if self._intake is None:
            time = self.context.intake_clock()
            if time is None:
                self.context.log.warning(
                    "records are dropped as %s by this machine's clock alone; a push asks the intake's",
                    reason,
                )
            agrees = time is None or abs(now - time) <= TOLERATED_SKEW
            self._intake = self.tick.window if agrees or time is None else Window.of(time)
        if self._intake.refuses(int(record.timestamp), self.waits_for) is None:
            skew = self.tick.window.oldest - self._intake.oldest
            raise SourceError(
                f"this machine's clock is {skew:+.0f} s off the intake's: by it, records would be dropped as "
                f"{reason} that Datadog takes, as {shown(self.path)}@{self.entry.start}. They were not "
                "marked as read; correct the clock"
            )

    def _identity(self, value: Json) -> tuple[str, int] | None:
        """That of a record of this kind; another kind may have records of the same run and number."""
        return identity(value) if value.get("kind") == self.name else None

    def _damaged(self, reason: str, path: str, start: int, line: int) -> None:
        self.path, self.entry = path, Entry({}, start, None, line)
        self.drop(reason)

    def _warn_of_other_kinds(self) -> None:
        for pattern, (ours, others) in self._kinds.items():
            if others and not ours:
                self.context.log.warning(
                    "%s: all %d records read there are of another kind than %s; is the path right?",
                    *(shown(pattern), others, self.name),
                )

    def _warn_of_late_records(self) -> None:
        """Say how to send what was uploaded or written too late: only a backfill can."""
        count, first, last = self._late
        if count and self.tick.live:
            since, until = iso(int(first)), iso(int(last) + 1)
            shard = "".join(f" {option}" for option in self.context.shard.options)
            self.context.log.warning(
                "%d records from %s to %s came too late to be sent; to send them: "
                "run_collector.py %s --since %s --until %s%s --push --yes",
                *(count, since, until, self.name, since, until, shard),
            )


def in_batches(samples: Iterable[Sample]) -> Iterator[Sample | Mark]:
    """Samples that are all of their series and second, with marks between them that change nothing.

    Delivery holds back what no mark stands behind; what is delivered before the state is saved is sent again.
    """
    remaining = iter(samples)
    while batch := list(islice(remaining, BATCH_SIZE)):
        yield from batch
        if len(batch) == BATCH_SIZE:
            yield Mark({})
