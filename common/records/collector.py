"""What collectors over records share: settings, which files are read from when, what is dropped and why.

A collector declares how a line is parsed and which series it feeds (`RecordKind`, `Grammar`);
`collector_over` makes a collector of that. How files are found and read is in `common.records.files` and
`common.records.reader`.
"""

from __future__ import annotations

import logging
import math
import reprlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import Field

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Duration, Texts
from common.errors import ConfigurationError, FleetgaugeError
from common.metric import Metric, Series
from common.records.envelope import MAX_TEXT, Envelope, UnusableRecordError, time_of
from common.records.files import (
    DATE,
    MAX_DISORDER,
    File,
    Files,
    Found,
    former_names,
    is_in_s3,
    reason,
    shown,
    unit,
)
from common.records.ingest import ingest_metrics
from common.records.reader import BackfillReader, RecordLine, TimeOf, read
from common.records.sums import PointBuffer
from common.times import DAY, HOUR, iso, tick
from common.window import Window
from fleetgauge.records import Json

MAX_STEP = 1500  # seconds: a longer step, its lookback and the deadline would not fit into the intake's hour
WATCHED, WATCHED_IN_S3 = DAY, 6 * HOUR  # how long the last record of an idle file is current
MIN_LOOKBACK = 300  # seconds
MAX_TRACED = 20  # dropped lines of one reason that the log locates
MAX_BAD_LINES = 100_000  # that follow each other and are counted
LINES_BEFORE = 8  # that are used of those before the first that is needed

log = logging.getLogger(__name__)


class RecordSettings(CollectorSettings):
    """Where the files are, and how they are read."""

    paths: Texts = Field(
        description="Files, directories and globs that hold records, on disk or in S3, separated by commas. "
        "`{date}` is a UTC day."
    )
    aggregate_interval: Duration = Field(
        60,
        ge=1,
        le=900,
        description="Where writers share a series: the seconds that one aggregated point covers. "
        "At least the interval of the writers.",
    )
    settle: Duration = Field(
        60, ge=0, le=600, description="How long records may take to reach their file; younger ones wait."
    )
    lookback: Duration | None = Field(
        None,
        ge=MIN_LOOKBACK,
        le=HOUR,
        description="How far back gauges are sent again, so that late records and a missed run heal; "
        "two steps by default, at least 5 minutes.",
    )


S = TypeVar("S", bound=RecordSettings)
B = TypeVar("B")  # what a record says besides its envelope
Problem = tuple[str, str, object]  # why a part of a record cannot be used, which field, and its value
BadLine = tuple[int, str, str]  # offset, why it cannot be used, and the field that is wrong


class Grammar(Protocol[B]):
    """What the lines of one run mean. It is made anew for each run, and adds its points to `PointBuffer`."""

    def parse(self, value: Json, path: str) -> tuple[Envelope, B] | None:
        """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""

    def add(self, envelope: Envelope, body: B, new: bool, problems: list[Problem]) -> bool:
        """Add the points of a record: what adds up only where it is `new` since the run before, and no copy.

        What cannot be used is appended to `problems`. Return whether the record has something that adds up.
        """

    def sums(self) -> Iterator[Series]:
        """Yield what adds up in the window besides counts, once all files were read."""
        yield from ()

    def present(self, records: Sequence[tuple[Envelope, B]], *, complete: bool) -> Iterator[Series]:  # noqa: ARG002
        """Yield how writers are now, by the last record of each; `complete` where no file is unreadable."""
        yield from ()


@dataclass(frozen=True)
class RecordKind(Generic[S, B]):
    """One kind of record.

    `metrics` come from single records or add up; `current` ones are known only for the time of a run. `files`
    are the names that a directory stands for. Where a kind `watches`, the last record of an idle file is
    current.
    """

    name: str
    settings: type[S]
    metrics: tuple[Metric, ...]
    grammar: Callable[[Context[S], Files, PointBuffer], Grammar[B]]
    time_of: TimeOf = time_of
    current: tuple[Metric, ...] = ()
    files: str = "*.jsonl"
    watches: bool = False


def collector_over(kind: RecordKind[S, B]) -> Collector[S]:
    """Return the collector that reads one kind of records."""
    current = (*kind.current, *ingest_metrics(kind.name))
    return Collector(
        name=kind.name,
        settings=kind.settings,
        metrics=(*kind.metrics, *current),
        collect=lambda context: _Reading(kind, context).series(),
        check=lambda context: _check(kind, context),
        due=record_window,
        has_history=True,
        live_only=frozenset(current),
        adds_up=True,
    )


def record_window(
    settings: RecordSettings, now: int, step: int, sent_until: int | None, earliest: int
) -> Window:
    """Return the window of a live run over records: complete buckets, each in the window of one run.

    It begins where the last one ended. Where that is not known, windows follow each other by the clock: they
    begin and end `settle` seconds before a tick.
    """
    if step > MAX_STEP:
        raise ConfigurationError(
            f"the step of {step} s is too long for records: Datadog takes points for an hour; "
            f"set FLEETGAUGE_STEP or --every to at most {MAX_STEP // 60}m"
        )
    settle, width = settings.settle, settings.width
    if sent_until is None or sent_until > now:
        at = tick(now, step)
        since, until = at - step - settle, at - settle
    else:
        since, until = sent_until, now - settle
    window = _complete_buckets(Window(since, until, step, earliest), width)
    since = max(window.since, -(-earliest // width) * width)
    return replace(window, since=min(since, window.until))


def _complete_buckets(window: Window, width: int) -> Window:
    """Return a window with both ends rounded down, so that each bucket is in one of those that follow it."""
    return replace(window, since=window.since // width * width, until=window.until // width * width)


class _Listing(NamedTuple):
    """The files of a run; of the windows of a backfill, while they have the same days."""

    days: tuple[int, int]
    files: Files
    found: Found
    backfill: BackfillReader | None


def _list(kind: RecordKind[S, B], context: Context[S]) -> _Listing:
    """Return the files of a run. The windows of a backfill share a listing, unless paths have a date."""
    settings, window = context.settings, context.window
    if window.is_live:
        days = (context.now - DAY, context.now)
    elif any(DATE in path for path in settings.paths):
        days = ((window.since - DAY) // DAY * DAY, (window.until + HOUR) // DAY * DAY)
    else:
        days = (0, 0)
    listing = context.memory.get("records")
    if not isinstance(listing, _Listing) or listing.days != days:
        files = Files(context.core, *days)
        found = files.find(settings.paths, kind.files)
        listing = _Listing(days, files, found, None if window.is_live else BackfillReader())
    if not window.is_live:
        context.memory["records"] = listing
    return listing


class _Reading(Generic[S, B]):
    """One run over the files of one kind. A line counts in the run whose window has the record before it."""

    def __init__(self, kind: RecordKind[S, B], context: Context[S]) -> None:
        self._kind = kind
        # The window of a backfill may begin and end inside a bucket.
        window = _complete_buckets(context.window, context.settings.width)
        self._context = replace(context, window=window)
        self._sent, self._sent_until = _load_sent(context.memory, window, context.settings.width)
        self._counts: Counter[str] = Counter()  # records, bad and other lines of the window
        self._lag = (-math.inf, "")  # the longest from the newest record of a file to its last write; which
        self._newest: dict[str, float] = {}  # by unit, of what was sent
        self._last: dict[str, tuple[tuple[Envelope, B], File]] = {}  # by writer, and where it was
        self._lost: dict[str, float] = {}  # by unit, the last write of its files that were lost
        self._seen: defaultdict[str, set[int]] = defaultdict(set)  # by writer, the numbers of new records

    @property
    def _since(self) -> int:
        """From when on gauges are sent: in a live run from a lookback before its window."""
        settings, window = self._context.settings, self._context.window
        if window.earliest is None:
            return window.since
        lookback = settings.lookback or max(2 * window.step, MIN_LOOKBACK)
        start = tick(self._context.now, window.step) - lookback - settings.settle
        return min(window.since, max(window.earliest, start // settings.width * settings.width))

    def series(self) -> Iterator[Series]:
        """Yield the points of the window: gauges, what adds up, then how writers and the reading are now."""
        kind, context, window = self._kind, self._context, self._context.window
        report, losses_before = context.report, context.report.lost_by_reason.copy()
        _, files, found, backfill = _list(kind, context)
        check_paths = f"check FLEETGAUGE_{kind.name.upper()}_PATHS"
        for path, why in found.unreadable:
            report.lose(shown(path), f"{why}; {check_paths}")
            self._lost[unit(path)] = math.inf
        points = PointBuffer()
        grammar = kind.grammar(context, files, points)
        ours, others = Counter[str](), Counter[str]()  # lines by pattern
        for file, lines in read(files, self._select(found), kind.time_of, backfill, window.until):
            try:
                own, other = self._read(grammar, file, lines)
                ours[file.pattern] += own
                others[file.pattern] += other
            except OSError as error:
                if isinstance(error, FileNotFoundError) and self._is_idle(file):  # writers may delete it
                    continue
                report.lose(shown(file.path), reason(error))
                self._lost[unit(file.path)] = file.modified  # files are read in order of their last write
        for pattern, number in others.items():
            if number and not ours[pattern]:
                why = f"all {number} records there are of another kind than {kind.name}; {check_paths}"
                report.lose(shown(pattern), why, "other_kind")
        yield from points.gauges()
        sums = [*grammar.sums(), *points.counts()]
        complete = (report.lost_by_reason - losses_before).keys() <= {"late"}
        if window.is_live or complete:
            yield from sums
        if window.is_live:
            # What is newer may be in a file that was lost.
            last = self._last.values()
            known = [record for record, file in last if file.modified > self._lost.get(unit(file.path), 0)]
            yield from grammar.present(known, complete=complete)
            yield from self._ingest_series(len(found.files))
            self._remember(found)

    def _select(self, found: Found) -> list[tuple[File, float]]:
        """Return the files that may have records of the window, and from when on each is read.

        Of the newest idle file of each unit the last lines are read where they are current.
        """
        window = self._context.window
        selected: list[tuple[File, float]] = []
        idle: dict[str, File] = {}
        with_lines = [file for file in found.files.values() if file.size]
        for file in sorted(with_lines, key=lambda file: (file.modified, file.path)):
            name, watched = unit(file.path), WATCHED_IN_S3 if is_in_s3(file.path) else WATCHED
            if not self._is_idle(file):
                selected.append((file, min(self._since, self._last_sent(file.path) or window.earliest or 0)))
                idle.pop(name, None)
            elif self._kind.watches and window.is_live and file.modified >= self._context.now - watched:
                idle[name] = file
        return selected + [(file, math.inf) for file in idle.values()]

    def _is_idle(self, file: File) -> bool:
        """Return whether a file was not written in the window, nor shortly before it."""
        return file.modified < self._since - MAX_DISORDER

    def _read(self, grammar: Grammar[B], file: File, lines: Iterator[RecordLine]) -> tuple[int, int]:
        """Add the records of one file; return how many records of this kind and of others it has."""
        path, since, window = file.path, self._since, self._context.window
        new_since, until, earliest = window.since, window.until, window.earliest or 0
        last_sent, sent_until = self._last_sent(path), self._sent_until
        latest = file.modified + MAX_DISORDER
        undated = min(file.modified - self._context.settings.settle, until - 1)  # of what no record follows
        time = newest = 0.0  # of records; `time` of the last one that was read
        ours = others = records = bad_records = other_kind = 0
        bad_lines: deque[BadLine] = deque(maxlen=MAX_BAD_LINES)  # since that record
        problems, late = list[Problem](), list[float]()
        last: dict[str, tuple[Envelope, B]] = {}  # by writer
        watches, time_of = self._kind.watches, self._kind.time_of
        needed_from = math.inf if self._is_idle(file) else min(since, last_sent)
        for start, value, damage in _skip_older(lines, needed_from, time_of):
            try:
                if value is None:
                    raise UnusableRecordError(str(damage))
                record = grammar.parse(value, path)
                at = min(time_of(value) or time, latest) if record is None else record[0].timestamp
                if at > latest:
                    raise UnusableRecordError("in_future", "timestamp", at)
                if bad_lines:
                    bad_records += self._drop(path, time or at or undated, bad_lines)
                    bad_lines.clear()
                if record is None:
                    time, others = at, others + 1
                    other_kind += self._is_new(time or undated)
                    continue
                envelope, body = record
                writer, seq = envelope.writer, envelope.seq
                ours += 1
                newest = max(newest, at)
                if watches and (writer not in last or at >= last[writer][0].timestamp):
                    last[writer] = record
                if needed_from <= at < until:
                    new = counts = at >= new_since
                    if new:
                        records += 1
                        if seq is not None:
                            seen = self._seen[writer]
                            counts = seq not in seen
                            seen.add(seq)
                    sent = at >= since or (last_sent < at and at >= earliest)
                    adds_up = sent and grammar.add(envelope, body, counts, problems)
                    if last_sent < at < sent_until and (not sent or (adds_up and not new)):
                        late.append(at)
                time = at
                if problems:
                    self._drop(path, time, [_bad_line(start, *problem) for problem in problems])
                    problems.clear()
            except UnusableRecordError as error:
                bad_lines.append(_bad_line(start, error.reason, error.key, error.value))
            except Exception as error:  # whatever a line raises costs that line
                bad_lines.append(_bad_line(start, "unusable_record", type(error).__name__, str(error)))
        # Bad lines among records cost only themselves, also where all of them were written late; so does a
        # single one that follows a record.
        no_record_since = min(file.modified - MAX_DISORDER, new_since if window.is_live else until)
        is_damaged = len(bad_lines) > 1 or (bad_lines and not time)
        if is_damaged and time < no_record_since and (watches or self._is_new(undated)):
            why = f"its last {len(bad_lines)} lines cannot be used: {bad_lines[-1][1]}"
            self._context.report.lose(shown(path), why, "damaged")
            self._lost[unit(path)] = file.modified
        for writer, record in last.items():
            if writer not in self._last or record[0].timestamp >= self._last[writer][0][0].timestamp:
                self._last[writer] = (record, file)
        bad_records += self._drop(path, undated if time < until else time, bad_lines)
        self._counts.update(records=records, bad_records=bad_records, other_kind=other_kind)
        if late:
            self._report_late(path, late)
        if newest >= needed_from:
            self._newest[unit(path)] = max(min(newest, until), self._newest.get(unit(path), 0.0))
        if newest >= since:
            self._lag = max(self._lag, (file.modified - newest, path))
        return ours, others

    def _last_sent(self, path: str) -> float:
        """Return the newest time that was sent of a file: 0 of a new one, infinity where it is not known."""
        # A name that is shorter than that of the unit is of another file.
        names = (name for name in former_names(path) if len(name) >= len(unit(path)))
        name = next(filter(self._sent.__contains__, names), "")
        return self._sent.get(name, 0.0 if self._sent_until else math.inf)

    def _is_new(self, time: float) -> bool:
        """Return whether a line with a time counts in this run."""
        return self._context.window.since <= time < self._context.window.until

    def _drop(self, path: str, time: float, bad_lines: Collection[BadLine]) -> int:
        """Count what cannot be used of lines, in the run whose window has their time; return how many."""
        if not self._is_new(time):
            return 0
        report = self._context.report
        for start, why, field in bad_lines:
            location = f"{shown(path)}@{start}{field}"
            if report.dropped[why] < MAX_TRACED:
                level = logging.WARNING if why == "unusable_record" else logging.DEBUG
                log.log(level, "dropped %s: %s", location, why)
            report.drop(why, 1, location)
        return len(bad_lines)

    def _report_late(self, path: str, times: Sequence[float]) -> None:
        """Name the records of a file that this run cannot send any more, with the command that sends them."""
        width = self._context.settings.width  # an incomplete bucket would not be sent
        since, until = tick(int(min(times)), width), tick(int(max(times)), width) + width
        command = f"run_collector.py {self._kind.name} --since {iso(since)} --until {iso(until)} --push --yes"
        why = f"at least {len(times)} records were written too late; to send them: {command}"
        self._context.report.lose(shown(path), why, "late")

    def _remember(self, found: Found) -> None:
        """Store the newest record of each unit that was sent.

        A file that no run needed to read counts as sent up to its last write. Those that are listed are
        remembered for a job that goes on a week later, others for a day: their directory may be missing.
        """
        since, until = self._context.window.since, self._context.window.until
        units = {name: time for name, time in self._sent.items() if time >= until - DAY}
        for file in (file for file in found.files.values() if file.size):
            name = unit(file.path)
            unread = 0.0 if name in self._sent or name in self._lost else min(file.modified, until)
            time = max(self._sent.get(name, 0.0), self._newest.get(name, unread), units.get(name, 0.0))
            if time and max(time, file.modified) >= until - 8 * DAY:
                units[name] = time
        previous = self._sent if self._sent_until else units
        self._context.memory.update(since=since, until=until, units=units, previous=previous)

    def _ingest_series(self, n_files: int) -> Iterator[Series]:
        """Yield how the reading went; counts are of lines that no earlier run has counted."""
        files, lag, *lines = ingest_metrics(self._kind.name)
        yield files(n_files, self._context.now)
        for metric, name in zip(lines, ("records", "bad_records", "other_kind"), strict=True):
            yield metric(self._counts[name], self._context.now)
        longest, path = self._lag
        if path:
            yield lag(longest, self._context.now)
            if longest > self._context.settings.settle:
                prefix = f"FLEETGAUGE_{self._kind.name.upper()}"
                fix = f"where that is normal, raise {prefix}_SETTLE or {prefix}_LOOKBACK above it"
                log.warning("records reach %s %.0f s after their time; %s", shown(path), longest, fix)


def _bad_line(start: int, why: str, key: str, value: object) -> BadLine:
    """Return what is stored of a line that cannot be used: little, as there may be many long ones."""
    return start, why, f": {key[:MAX_TEXT]} is {reprlib.repr(value)}" if key else ""


def _skip_older(lines: Iterator[RecordLine], since: float, time_of: TimeOf) -> Iterator[RecordLine]:
    """Return the lines from the first that is not older than a time, and a few before it.

    A reader begins earlier than it must. The few show when the line before was written, and how an idle
    writer is now.
    """
    older: deque[RecordLine] = deque(maxlen=LINES_BEFORE)
    for line in lines:
        time = None if line[1] is None else time_of(line[1])
        if time is None or time >= since:
            return chain(older, [line], lines)
        older.append(line)
    return iter(older)


# Any: JSON that any program may have written.
def _load_sent(memory: Mapping[str, Any], window: Window, width: int) -> tuple[dict[str, float], int]:
    """Return the newest time that was sent of each unit, and the end of the last window: 0 if not known.

    These are the times before the last run where its window is repeated, because its points were not
    accepted. It may then begin later: as early as the intake takes points. What is malformed is ignored.
    """
    try:
        until = memory["until"]
        is_cut = window.since < min(until, (window.earliest or 0) + width)
        units = memory["previous" if window.since == memory["since"] or is_cut else "units"]
        return {name: float(time) for name, time in units.items()}, int(until)
    except (LookupError, TypeError, ValueError, AttributeError):
        return {}, 0


def _check(kind: RecordKind[S, B], context: Context[S]) -> Iterator[str | FleetgaugeError]:
    """Yield how many files each path matches, and the newest; an error for each that cannot be read."""
    found = _list(kind, context).found
    for path, why in found.unreadable:
        yield ConfigurationError(f"FLEETGAUGE_{kind.name.upper()}_PATHS: cannot read {shown(path)}: {why}")
    for pattern in context.settings.paths:
        matched = [file for file in found.files.values() if file.pattern == pattern]
        newest = max(matched, key=lambda file: file.modified, default=None)
        named = f"; the newest is {shown(newest.path)}" if newest else ""
        yield f"{shown(pattern)}: {len(matched)} file{'s' * (len(matched) != 1)}{named}"
