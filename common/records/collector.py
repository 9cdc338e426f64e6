"""What collectors over records share: settings, which files are read from when, what is dropped and why.

A collector declares how a line is parsed and which series it feeds (`RecordKind`, `Grammar`);
`collector_over` makes a collector of that. How files are found and read is in `common.records.files` and
`common.records.reader`.
"""

from __future__ import annotations

import logging
import math
import reprlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import Field

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Duration, Texts
from common.errors import ConfigurationError, FleetgaugeError
from common.metric import Metric, Series
from common.records.envelope import Envelope, UnusableRecordError, time_of
from common.records.files import DATE, MAX_DISORDER, File, Files, Found, reason
from common.records.ingest import ingest_metrics
from common.records.names import COMPRESSED, is_in_s3, shown, unit
from common.records.reader import BackfillReader, RecordLine, TimeOf, is_copy, read
from common.records.sums import PointBuffer
from common.times import DAY, HOUR, iso, tick
from common.window import Window
from fleetgauge.records import Json

MAX_STEP = 1500  # seconds: a longer step, its lookback and the deadline would not fit into the intake's hour
WATCHED, WATCHED_IN_S3 = DAY, 6 * HOUR  # how long the last record of an idle file is current
MIN_LOOKBACK = 300  # seconds
MAX_TRACED = 20  # dropped lines of one reason that the log locates
MAX_BAD_LINES = 100_000  # of one file that are counted

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
    max_objects: int = Field(
        20_000, ge=1, description="Objects that a pattern in S3 may list; with more, the run is partial."
    )

    @property
    def width(self) -> int:
        """The length of the buckets in which counts add up, in seconds.

        Writers keep their own time: where they share a series, each must be in every bucket.
        """
        return 1


S = TypeVar("S", bound=RecordSettings)
B = TypeVar("B")  # what a record says besides its envelope
Problem = tuple[str, str, object]  # why a part of a record cannot be used, which field, and its value


class Grammar(Protocol[B]):
    """What the lines of one run mean. It is made anew for each run, and adds its points to `PointBuffer`."""

    def parse(self, value: Json, path: str) -> tuple[Envelope, B] | None:
        """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""

    def add(self, envelope: Envelope, body: B, new: bool, problems: list[Problem]) -> bool:
        """Add the points of a record: what adds up only where it is `new` since the run before, and no copy.

        What cannot be used is appended to `problems`. Return whether the record has something that adds up.
        """

    def sums(self, window: Window) -> Iterator[Series]:
        """Yield what adds up in a window besides counts, once all files were read."""

    def present(self, records: Sequence[tuple[Envelope, B]], *, complete: bool) -> Iterator[Series]:
        """Yield how writers are now, by the last record of each; `complete` where no file is unreadable."""


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
    since, until = since // width * width, until // width * width
    since = max(since, -(-earliest // width) * width)
    return Window(min(since, until), until, step, earliest)


def _gauges_since(context: Context[S]) -> int:
    """Return from when on gauges are sent: in a live run from a lookback before its window."""
    window, settings = context.window, context.settings
    if window.earliest is None:
        return window.since
    lookback = settings.lookback or max(2 * window.step, MIN_LOOKBACK)
    start = tick(context.now, window.step) - lookback - settings.settle
    return min(window.since, max(window.earliest, start // settings.width * settings.width))


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
        files = Files(context.network, *days, settings.max_objects)
        found = files.find(settings.paths, kind.files)
        listing = _Listing(days, files, found, None if window.is_live else BackfillReader())
    if not window.is_live:
        context.memory["records"] = listing
    return listing


class _Reading(Generic[S, B]):
    """One run over the files of one kind. A line counts in the run whose window has the record before it."""

    def __init__(self, kind: RecordKind[S, B], context: Context[S]) -> None:
        self._kind = kind
        self._context = context
        self._window = context.window
        self._since = _gauges_since(context)
        self._sent, self._sent_until = _load_sent(context.memory, context.window)
        self._counts: Counter[str] = Counter()  # records, bad and other lines of the window
        self._lags: list[tuple[float, str]] = []  # from the newest record of a file to its last write
        self._late: dict[str, list[float]] = {}  # by path, times that can no longer be sent
        self._newest: dict[str, float] = {}  # by unit, of what was sent
        self._unread: set[str] = set()  # units with a file that could not be read
        self._last: dict[str, tuple[Envelope, B]] = {}  # by writer
        self._seen: defaultdict[str, set[int]] = defaultdict(set)  # by writer, the numbers of new records

    def series(self) -> Iterator[Series]:
        """Yield the points of the window: gauges, what adds up, then how writers and the reading are now."""
        kind, context, window = self._kind, self._context, self._window
        report, losses_before = context.report, len(context.report.lost)
        _, files, found, backfill = _list(kind, context)
        check_paths = f"check FLEETGAUGE_{kind.name.upper()}_PATHS"
        for path, why in found.unreadable:
            report.lose(shown(path), f"{why}; {check_paths}")
        points = PointBuffer()
        grammar = kind.grammar(context, files, points)
        ours: Counter[str] = Counter()  # lines by pattern
        others: Counter[str] = Counter()
        for file, lines in read(files, self._select(files, found), kind.time_of, backfill, window.until):
            pattern = found.pattern_of[file.path]
            try:
                own, other = self._read(grammar, file, lines)
                ours[pattern] += own
                others[pattern] += other
            except OSError as error:
                report.lose(shown(file.path), reason(error))
                self._unread.add(unit(file.path))
        for pattern, number in others.items():
            if number and not ours[pattern]:
                why = f"all {number} records there are of another kind than {kind.name}; {check_paths}"
                report.lose(shown(pattern), why, "other_kind")
        for series, not_finite in points.gauges(window.since):
            if not_finite:
                report.drop("not_finite", not_finite, series.metric.name)
            yield series
        sums = [*grammar.sums(window), *points.counts()]
        complete = len(report.lost) == losses_before
        self._report_late()
        if window.is_live or complete:
            yield from sums
        if window.is_live:
            yield from grammar.present(list(self._last.values()), complete=complete)
            yield from self._ingest_series(len(found.files))
            self._remember(found)

    def _select(self, files: Files, found: Found) -> list[tuple[File, float]]:
        """Return the files that may have records of the window, and from when on each is read.

        Of a plain file and a compressed copy of it the plain one is read. Of the newest idle file of each
        unit the last lines are read where they are current.
        """
        selected: list[tuple[File, float]] = []
        idle: dict[str, File] = {}
        for file in sorted(found.files.values(), key=lambda file: (file.modified, file.path)):
            name = unit(file.path)
            watched = WATCHED_IN_S3 if is_in_s3(file.path) else WATCHED
            plain = found.files.get(file.path.rpartition(".")[0]) if file.path.endswith(COMPRESSED) else None
            if not file.size:
                continue
            if not self._is_idle(file):
                if plain and is_copy(files, plain, file):
                    continue
                selected.append((file, min(self._since, self._last_sent(name) or self._window.earliest or 0)))
                idle.pop(name, None)
            elif self._kind.watches and self._window.is_live and file.modified >= self._context.now - watched:
                idle[name] = file
        return selected + [(file, math.inf) for file in idle.values()]

    def _is_idle(self, file: File) -> bool:
        """Return whether a file was not written in the window, nor shortly before it."""
        return file.modified < self._since - MAX_DISORDER

    def _read(self, grammar: Grammar[B], file: File, lines: Iterator[RecordLine]) -> tuple[int, int]:
        """Add the records of one file; return how many records of this kind and of others it has."""
        path, since, new_since, until = file.path, self._since, self._window.since, self._window.until
        earliest, latest = self._window.earliest or 0, file.modified + MAX_DISORDER
        last_sent, sent_until = self._last_sent(unit(path)), self._sent_until
        first, time, newest, newest_sent = 0.0, 0.0, 0.0, 0.0  # times of records; `time` of the one before
        undated = min(file.modified, until - 1)  # the time of lines in a file without a record
        ours = others = records = 0
        problems: list[Problem] = []
        bad_lines: list[tuple[int, float, Problem]] = []
        needed_from = math.inf if self._is_idle(file) else min(since, last_sent)
        time_of, watches, unneeded, searching = self._kind.time_of, self._kind.watches, None, True
        for start, value, damage in lines:
            if searching and value and not damage:  # a reader begins earlier than it must
                at = time_of(value)
                if at is not None and at < needed_from:
                    time, unneeded = at, value
                    continue
                searching = at is None
            flaw: Problem | None = (damage, "", None) if damage else None
            if value is not None:
                try:
                    record = grammar.parse(value, path)
                    if record is None:
                        others += 1
                        self._counts["other_kind"] += self._is_new(time or undated)
                    elif record[0].timestamp > latest:
                        flaw = ("in_future", "timestamp", record[0].timestamp)
                    else:
                        ours += 1
                        envelope, body = record
                        writer, seq, time = envelope[:3]
                        first = first or time
                        if time > newest:
                            newest = time
                        if watches:
                            self._note_last(record)
                        if time < until:
                            if time > newest_sent:
                                newest_sent = time
                            new = counts = time >= new_since
                            if new:
                                records += 1
                                if seq is not None:
                                    seen = self._seen[writer]
                                    counts = seq not in seen
                                    seen.add(seq)
                            sent = time >= since or (last_sent < time and time >= earliest)
                            adds_up = sent and grammar.add(envelope, body, counts, problems)
                            if last_sent < time < sent_until and (not sent or (adds_up and not new)):
                                self._late.setdefault(path, []).append(time)
                except UnusableRecordError as error:
                    flaw = (error.reason, error.key, error.value)
                except Exception as error:  # whatever a line raises costs that line
                    flaw = ("unusable_record", type(error).__name__, str(error))
            if flaw and len(bad_lines) < MAX_BAD_LINES:
                bad_lines.append((start, time, flaw))
            if problems:
                for problem in problems:
                    self._drop(path, start, time, problem)
                problems.clear()
        if watches and unneeded is not None and not ours:
            with suppress(Exception):  # a line that is no record was counted when it was new
                if record := grammar.parse(unneeded, path):
                    self._note_last(record)
        for start, time, flaw in bad_lines:
            self._counts["bad_records"] += self._is_new(time or first or undated)
            self._drop(path, start, time or first or undated, flaw)
        self._counts["records"] += records
        if newest_sent:
            self._newest[unit(path)] = max(newest_sent, self._newest.get(unit(path), 0.0))
        if newest >= since:
            self._lags.append((file.modified - newest, path))
        return ours, others

    def _last_sent(self, name: str) -> float:
        """Return the newest time that was sent of a unit: 0 of a new one, infinity where it is not known."""
        return self._sent.get(name, 0.0 if self._sent_until else math.inf)

    def _note_last(self, record: tuple[Envelope, B]) -> None:
        known = self._last.get(record[0].writer)
        if known is None or record[0].timestamp >= known[0].timestamp:
            self._last[record[0].writer] = record

    def _is_new(self, time: float) -> bool:
        """Return whether a line with a time counts in this run."""
        return self._window.since <= time < self._window.until

    def _drop(self, path: str, start: int, time: float, problem: Problem) -> None:
        """Count what cannot be used of a line, in the run whose window has its time."""
        if not self._is_new(time):
            return
        why, key, value = problem
        location = f"{shown(path)}@{start}" + (f": {key} is {reprlib.repr(value)}" if key else "")
        if self._context.report.dropped[why] < MAX_TRACED:
            level = logging.WARNING if why == "unusable_record" else logging.DEBUG
            log.log(level, "dropped %s: %s", location, why)
        self._context.report.drop(why, 1, location)

    def _report_late(self) -> None:
        """Name the records that this run cannot send any more, with the command that sends them."""
        for path, times in self._late.items():
            since, until = iso(int(min(times))), iso(int(max(times)) + 1)
            self._context.report.lose(
                shown(path),
                f"{len(times)} records were written too late; to send them: run_collector.py "
                f"{self._kind.name} --since {since} --until {until} --push --yes",
                "late",
            )

    def _remember(self, found: Found) -> None:
        """Store the newest record of each unit that was sent, but not of units that could not be read.

        A file that no run needed to read counts as sent up to its last write.
        """
        until = self._window.until
        units: dict[str, float] = {}
        for file in found.files.values():
            name = unit(file.path)
            if name in self._sent:
                time = max(self._sent[name], self._newest.get(name, 0.0))
            elif name in self._unread:
                continue
            else:
                time = self._newest.get(name, min(file.modified, until))
            if time >= until - DAY:
                units[name] = max(time, units.get(name, 0.0))
        self._context.memory.update(
            until=until, units=units, previous=self._sent if self._sent_until else units
        )

    def _ingest_series(self, n_files: int) -> Iterator[Series]:
        """Yield how the reading went; counts are of lines that no earlier run has counted."""
        files, lag, *lines = ingest_metrics(self._kind.name)
        yield files(n_files, self._context.now)
        for metric, name in zip(lines, ("records", "bad_records", "other_kind"), strict=True):
            yield metric(self._counts[name], self._context.now)
        if self._lags:
            longest, path = max(self._lags)
            yield lag(longest, self._context.now)
            if longest > self._context.settings.settle:
                prefix = f"FLEETGAUGE_{self._kind.name.upper()}"
                fix = f"where that is normal, raise {prefix}_SETTLE or {prefix}_LOOKBACK above it"
                log.warning("records reach %s %.0f s after their time; %s", shown(path), longest, fix)


def _load_sent(memory: Mapping[str, object], window: Window) -> tuple[dict[str, float], int]:
    """Return the newest time that was sent of each unit, and the end of the last window: 0 if not known.

    Where the points of the last run were not accepted, these are the times before it. What is malformed is
    ignored.
    """
    try:
        until: Any = memory["until"]  # Any: see what is caught
        units: Any = memory["units" if window.since >= until else "previous"]
        return {name: float(time) for name, time in units.items()}, until
    except (LookupError, TypeError, ValueError, AttributeError):
        return {}, 0


def _check(kind: RecordKind[S, B], context: Context[S]) -> Iterator[str | FleetgaugeError]:
    """Yield how many files each path matches, and the newest; an error for each that cannot be read."""
    found = _list(kind, context).found
    for path, why in found.unreadable:
        name = f"FLEETGAUGE_{kind.name.upper()}_PATHS"
        yield ConfigurationError(f"{name}: cannot read {shown(path)}: {why}")
    for pattern in context.settings.paths:
        matched = [file for path, file in found.files.items() if found.pattern_of[path] == pattern]
        newest = max(matched, key=lambda file: file.modified, default=None)
        named = f"; the newest is {shown(newest.path)}" if newest else ""
        yield f"{shown(pattern)}: {len(matched)} files{named}"
