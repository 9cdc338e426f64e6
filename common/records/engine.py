"""One tick over files of records: from lines to samples, with everything that must be saved along.

The engine finds files, reads each line once, isolates every entry, holds back times that may still grow, and
marks what was delivered. What a record means is its grammar's business (`common.records.grammar`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from common.collector import Context
from common.errors import FleetgaugeError, SourceError
from common.intake import BATCH_SIZE
from common.metric import Mark, Sample
from common.records.envelope import UnusableRecordError
from common.records.grammar import Grammar, R, S
from common.records.paths import shown
from common.records.tail import Entry, Tail, TailedFile, TailLimits
from common.records.window import Tick, Window, bucket_end

MARK_EVERY = 10_000  # samples of one file
MAX_HELD = 1000  # entries of one file that may be read ahead to find the end of a run
TOLERATED_SKEW = 60.0  # seconds that two clocks may differ, and nothing is wrong


class Ingest(Grammar[S, R]):
    """One tick of one collector, which says what its records mean."""

    def __init__(self, context: Context[S], tick: Tick, known: Any = None) -> None:  # Any: see `survey`
        super().__init__(context, tick, known)
        # What is read is delivered only once all of it is; the passes of a replay are short.
        reserve = 0 if self.streams or not tick.live else context.deadline.seconds / 2
        self._tail = Tail(
            self.patterns(context.settings),
            context.state,
            now=tick.now,
            limits=TailLimits(context.settings.bytes_per_tick, expire_after=tick.forget_after),
            enough=lambda: self._cut or context.deadline.remaining() <= reserve,
            identity=self.identity,
            family=str if tick.live else self.family,  # of which a replay reads all or none
            due=tick.window.due,
            not_due=tick.not_due,
            damaged=self._damaged,
        )
        self._saved: dict[str, object] = {}  # until what must stand before it was yielded
        self._unmarked = 0
        self._took = self._bad = 0  # entries, and those of them that were no records
        self._kinds: dict[str, list[int]] = {}  # by pattern: entries that were ours, and of another kind
        self._kinds_here = [0, 0]
        self._cut = False  # inside a second: what follows must wait until that is read
        self._reached = float(tick.window.due)
        self._intake: Window | None = None

    @property
    def behind(self) -> bool:
        """Whether something due was left for later, once all is collected."""
        return self._tail.behind or self._cut

    def collect(self) -> Iterator[Sample | Mark]:
        """Every file's records, then how the writers and the reading itself are."""
        for file in self._tail.files():
            yield from self._read(file)
            yield from self._mark(file)
        for path, why in self._tail.lost:
            self.context.lose(path, why)
        self._warn_of_other_kinds()
        self._look_ahead()
        yield from in_batches(self.rest(self._reached))
        if self.tick.live and not self._tail.blind:
            yield from self.present(sums=not self._tail.lost)
        other = sum(other for _, other in self._kinds.values())
        yield from self.reading.samples(self._tail, self._bad, other, self.context.now)
        changes = {**self._saved, **self.changes(self._reached, behind=self.behind)}
        yield Mark({**changes, **self.owners.expired(), **self._tail.expired()})

    @property
    def full(self) -> bool:
        """Whether it is time to flush."""
        return self._unmarked >= MARK_EVERY

    def flush(self, file: TailedFile) -> Iterator[Sample | Mark]:
        """Called between two seconds of a file: let a great many samples go, and mark them."""
        yield from self._mark(file)

    def mark_all(self, file: TailedFile) -> Mark:
        """What stands behind everything that was read so far, now that all of it has been yielded."""
        changes = {**self._saved, **file.changes(), **self.changes(None, behind=True)}
        self._saved, self._unmarked = {}, 0
        return Mark(changes)

    def _mark(self, file: TailedFile) -> Iterator[Mark]:
        """Stand behind what was read of a file, where all of it has been yielded."""
        if self.streams and not self.pending:
            yield self.mark_all(file)
            return
        self._saved |= file.changes()
        if self._unmarked:
            yield Mark({})
        self._unmarked = 0

    def _read(self, file: TailedFile) -> Iterator[Sample | Mark]:
        """The records of one file, second by second, up to the first whose time may still grow."""
        window, second, held = self.tick.window_of(file), -1, False
        self.path, self.head = file.path, file.head
        self._kinds_here = self._kinds.setdefault(self._tail.pattern_of.get(file.path, ""), [0, 0])
        together: list[tuple[Entry, R | UnusableRecordError | None]] = []
        for entry in file.entries():
            if held and len(together) >= MAX_HELD:
                break
            found = self._interpret(entry)
            if found is None or isinstance(found, UnusableRecordError):
                together.append((entry, found))
                continue
            if not held and int(found.timestamp) != second:
                if together:
                    yield from self._take_all(file, window, together)
                    if self.full:
                        yield from self.flush(file)
                second, together = int(found.timestamp), []
                if window.may_grow(found.timestamp, self.waits_for):
                    held = self.tick.live and self.has_ends
                    if not held:
                        file.wait_until(bucket_end(found.timestamp, self.waits_for))
                        return
            together.append((entry, found))
            if held and self.ends(found) and _all_of(found.writer, together):
                yield from self._take_all(file, window, together)
                second, together, held = -1, [], False
        if self._leave(file, together, second, held=held):
            return
        yield from self._take_all(file, window, together)

    def _leave(
        self, file: TailedFile, together: Sequence[tuple[Entry, object]], second: int, *, held: bool
    ) -> bool:
        """Whether the last entries wait for the next tick: their time may grow, or this one is full."""
        spent = self._tail.spent()
        if spent:
            self._reached = min(self._reached, second)
        cut = bool(not held and self._took and spent)
        if not together or not (held or cut):
            return False
        self._cut = self._cut or cut
        file.leave([entry for entry, _ in together])
        return True

    def _interpret(self, entry: Entry) -> R | UnusableRecordError | None:
        try:
            return self.interpret(entry.value)
        except UnusableRecordError as error:
            return error.with_traceback(None)
        except Exception as error:  # whatever one entry raises costs that entry
            return UnusableRecordError("unusable_record", type(error).__name__, str(error))

    def _take_all(
        self,
        file: TailedFile,
        window: Window,
        entries: Sequence[tuple[Entry, R | UnusableRecordError | None]],
    ) -> Sequence[Sample]:
        """The points of the entries of one second that can leave at once."""
        samples: list[Sample] = []
        for entry, found in entries:
            self._at = (file.path, entry.start, entry.number)
            self._took += 1
            try:
                samples += self._take(window, found)
            except FleetgaugeError:
                raise
            except Exception as error:  # whatever one entry raises costs that entry
                self._bad += 1
                self.drop("unusable_record", 1, type(error).__name__, str(error))
        self._unmarked += len(samples)
        return samples

    def _take(self, window: Window, found: R | UnusableRecordError | None) -> Sequence[Sample]:
        self._kinds_here[found is None] += 1
        if found is None:
            return ()
        if isinstance(found, UnusableRecordError):
            self._bad += 1
            self.drop(found.reason, 1, found.key, found.value)
            return ()
        reason = self.refuses(window, found)
        if reason:
            self._check_clock(found, reason)
            self.drop(reason, self.points(found), "timestamp", found.timestamp)
        if reason != "in_future":
            self.hear(found, reason)
        return () if reason else self.take(found)

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
        if self.refuses(self._intake, record) is None:
            skew = self.tick.window.oldest - self._intake.oldest
            raise SourceError(
                f"this machine's clock is {skew:+.0f} s off the intake's: by it, records would be dropped as "
                f"{reason} that Datadog takes, as {shown(self._at[0])}@{self._at[1]}. They were not marked "
                "as read; correct the clock"
            )

    def _look_ahead(self) -> None:
        """Find out from when on files that were left for the next tick have records."""
        for path, head, value in self._tail.waiting():
            with suppress(Exception):  # whatever it is, the next tick will say
                self.path, self.head = path, head
                record = self.interpret(value)
                if record is not None:
                    self._reached = min(self._reached, record.timestamp)

    def _damaged(self, reason: str, path: str, start: int, line: int) -> None:
        self._at = (path, start, line)
        self.drop(reason)

    def _warn_of_other_kinds(self) -> None:
        for pattern, (ours, others) in self._kinds.items():
            if others and not ours:
                self.context.log.warning(
                    "%s: all %d records read there are of another kind than %s; is the path right?",
                    *(shown(pattern), others, self.name),
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


def _all_of(writer: str, entries: Iterable[tuple[Entry, object]]) -> bool:
    return all(getattr(found, "writer", writer) == writer for _, found in entries)
