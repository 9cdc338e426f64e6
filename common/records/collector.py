"""What collectors over records share: settings, which files are read from when, what is dropped and why.

A collector declares how a line is parsed and which series it feeds (`RecordKind`, `Grammar`);
`collector_over` makes a collector of that. How files are found and read is in `common.records.files` and
`common.records.reader`.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar

from pydantic import Field

from common.collector import Collector, Context, Report
from common.config.settings import CollectorSettings, Duration, Texts
from common.errors import ConfigurationError, FleetgaugeError
from common.metric import Metric, Series
from common.records.envelope import UnusableRecordError, is_number, time_of
from common.records.files import MAX_DISORDER, File, Files, Found, is_in_s3, reason, shown, unit
from common.records.ingest import IngestMetrics
from common.records.reader import Index, RecordLine, TimeOf, last_values, read
from common.records.sums import Gauges
from common.times import DAY, HOUR, iso, tick
from common.window import Window
from fleetgauge.records import Json

MAX_STEP = 1500  # seconds: a longer step, its lookback and the deadline would not fit into the intake's hour
WATCHED, WATCHED_IN_S3 = DAY, 6 * HOUR  # how long the last record of an idle file is current
MIN_LOOKBACK = 300  # seconds
MAX_REMEMBERED = 20_000  # units
MAX_TRACED = 20  # dropped lines of one reason that the log locates
MAX_BAD_LINES = 100_000  # of one file that are counted
MAX_CHECKED = 10_000  # lines of a file that a check reads
NOT_THERE = "it does not exist; where that is normal, write a wildcard in the path"

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


class WrittenRecord(Protocol):
    """What must be known of any record."""

    @property
    def writer(self) -> str: ...

    @property
    def timestamp(self) -> float: ...


S = TypeVar("S", bound=RecordSettings)
R = TypeVar("R", bound=WrittenRecord)
Problem = tuple[str, str, object]  # why a part of a record cannot be used, which field, and its value


class Grammar(Protocol[R]):
    """What the lines of one run mean. It is made anew for each run, and collects its points."""

    gauges: Gauges  # what single records state

    def parse(self, value: Json, path: str) -> R | None:
        """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""

    def add(self, record: R, new: bool, problems: list[Problem]) -> bool:
        """Add the points of a record: what adds up only where it is `new` since the run before.

        What cannot be used is appended to `problems`. Return whether the record has something that adds up.
        """

    def sums(self, window: Window) -> Iterator[Series]:
        """Yield what adds up in a window, once all files were read."""

    def present(self, records: Sequence[R], *, complete: bool) -> Iterator[Series]:
        """Yield how writers are now, by the last record of each; `complete` where no file is unreadable."""


@dataclass(frozen=True)
class RecordKind(Generic[S, R]):
    """One kind of record. `width` is the length of the buckets in which its counts add up, in seconds."""

    name: str
    settings: type[S]
    metrics: tuple[Metric, ...]
    live_only: frozenset[Metric]
    ingest: IngestMetrics
    grammar: Callable[[Context[S], Files], Grammar[R]]
    width: Callable[[S], int]
    time_of: TimeOf = time_of
    patterns: Callable[[S, Files], Sequence[str]] = lambda settings, _: settings.paths
    watches: bool = False  # whether the last record of an idle file is current


def collector_over(kind: RecordKind[S, R]) -> Collector[S]:
    """Return the collector that reads one kind of records."""

    def due(settings: S, now: int, step: int, sent_until: int | None, earliest: int) -> Window:
        return record_window(now, step, sent_until, earliest, settings.settle, kind.width(settings))

    return Collector(
        name=kind.name,
        settings=kind.settings,
        metrics=kind.metrics,
        collect=lambda context: _WindowReading(kind, context).series(),
        check=lambda context: _check(kind, context),
        due=due,
        has_history=True,
        live_only=kind.live_only,
        adds_up=True,
    )


def record_window(
    now: int, step: int, sent_until: int | None, earliest: int, settle: int, width: int
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
    if sent_until is None or sent_until > now:
        at = tick(now, step)
        since, until = at - step - settle, at - settle
    else:
        since, until = sent_until, now - settle
    since, until = since // width * width, until // width * width
    since = max(since, -(-earliest // width) * width)
    return Window(min(since, until), until, step, earliest)


def gauges_since(window: Window, now: int, settle: int, lookback: int | None, width: int) -> int:
    """Return from when on gauges are sent: in a live run from a lookback before its window."""
    if window.earliest is None:
        return window.since
    back = lookback or max(2 * window.step, MIN_LOOKBACK)
    start = (tick(now, window.step) - back - settle) // width * width
    return min(window.since, max(window.earliest, start))


class _Span:
    """The files that the windows of a backfill share, and where in them which times are."""

    def __init__(self) -> None:
        self._found: dict[tuple[float, float] | None, tuple[Files, Found]] = {}
        self.index = Index()

    def find(self, kind: RecordKind[S, R], context: Context[S]) -> tuple[Files, Found]:
        """Return the files of a window; paths without a date are listed once."""
        settings, window = context.settings, context.window
        dated = any("{date}" in path for path in settings.paths)
        days = ((window.since - DAY) // DAY * DAY, (window.until + HOUR) // DAY * DAY) if dated else None
        if days not in self._found:
            self._found = {days: _find(kind, context, *(days or (window.since, window.until)))}
        return self._found[days]


def _find(kind: RecordKind[S, R], context: Context[S], since: float, until: float) -> tuple[Files, Found]:
    files = Files(context.network, since, until, context.settings.max_objects)
    return files, files.find(kind.patterns(context.settings, files))


@dataclass
class _Statistics:
    """What one run met in its files. A line counts in the run whose window has the record before it."""

    report: Report
    window: Window
    records: int = 0
    bad: int = 0
    other: int = 0
    lag: float | None = None
    ours: Counter[str] = field(default_factory=Counter)  # lines of this kind, by pattern
    others: Counter[str] = field(default_factory=Counter)
    late: dict[str, list[float]] = field(default_factory=dict)  # by path, times that can no longer be sent

    def counts(self, time: float) -> bool:
        """Whether a line with that time counts in this run."""
        return self.window.since <= time < self.window.until

    def drop(self, path: str, start: int, time: float, problem: Problem) -> None:
        """Count a line, or what a record has, that cannot be used."""
        if not self.counts(time):
            return
        reason, key, value = problem
        location = f"{shown(path)}@{start}" + (f": {key} is {_short(value)}" if key else "")
        if self.report.dropped[reason] < MAX_TRACED:
            level = logging.WARNING if reason == "unusable_record" else logging.DEBUG
            log.log(level, "dropped %s: %s", location, reason)
        self.report.drop(reason, 1, location)


class _WindowReading(Generic[S, R]):
    """One run over the files of one kind."""

    def __init__(self, kind: RecordKind[S, R], context: Context[S]) -> None:
        self._kind = kind
        self._context = context
        self._window = window = context.window
        settings = context.settings
        self._since = gauges_since(
            window, context.now, settings.settle, settings.lookback, kind.width(settings)
        )
        self._sent = _Sent.load(context.memory, window)
        self._stats = _Statistics(context.report, window)
        self._newest: dict[str, float] = {}  # by unit, of what was sent
        self._unread: set[str] = set()  # units with a file that could not be read
        self._last: dict[str, dict[str, R]] = {}  # by path and writer, the last record

    def series(self) -> Iterator[Series]:
        """Yield the points of the window: gauges, what adds up, then how writers and the reading are now."""
        kind, context, window, stats = self._kind, self._context, self._window, self._stats
        report, losses_before = context.report, len(context.report.lost)
        index = None
        if window.is_live:
            files, found = _find(kind, context, context.now - DAY, context.now)
        else:
            span = context.memory.setdefault("records", _Span())
            assert isinstance(span, _Span)  # noqa: S101  # nothing else is under that key in a backfill
            files, found = span.find(kind, context)
            index = span.index
        for path, why in (*found.unreadable, *((path, NOT_THERE) for path in found.missing.values())):
            report.lose(shown(path), f"{why}; check FLEETGAUGE_{kind.name.upper()}_PATHS")
        grammar = kind.grammar(context, files)
        selected = sorted(
            self._select(found.files.values()), key=lambda pair: (pair[0].modified, pair[0].path)
        )
        for file, lines in read(files, selected, kind.time_of, index, until=window.until):
            try:
                if isinstance(lines, OSError):
                    raise lines
                self._read(grammar, file, lines, found.pattern_of.get(file.path, ""))
            except OSError as error:
                report.lose(shown(file.path), reason(error))
                self._unread.add(unit(file.path))
        for pattern, number in stats.others.items():
            if number and not stats.ours[pattern]:
                report.lose(
                    shown(pattern),
                    f"all {number} records there are of another kind than {kind.name}; "
                    f"check FLEETGAUGE_{kind.name.upper()}_PATHS",
                    "other_kind",
                )
        for series, not_finite in grammar.gauges.series(window.since):
            if not_finite:
                report.drop("not_finite", not_finite, series.metric.name)
            yield series
        sums = list(grammar.sums(window))
        last_records = self._present(files, found) if kind.watches and window.is_live else []
        complete = len(report.lost) == losses_before
        self._report_late()
        if window.is_live or complete:
            yield from sums
        if window.is_live:
            yield from grammar.present(last_records, complete=complete)
            yield from kind.ingest.series(
                context.now,
                files=len(found.files),
                lag=stats.lag,
                records=stats.records,
                bad_records=stats.bad,
                other_kind=stats.other,
            )
            self._sent.save(context.memory, window, self._newest, self._unread, found)

    def _select(self, files: Iterable[File]) -> Iterator[tuple[File, float]]:
        """Yield the files that may have records of the window, and from when on each is read."""
        earliest = self._window.earliest or 0
        for file in files:
            if file.size and file.modified >= self._since - MAX_DISORDER:
                newest = self._sent.newest(unit(file.path))
                yield file, min(self._since, newest or earliest)

    def _read(self, grammar: Grammar[R], file: File, lines: Iterator[RecordLine], pattern: str) -> None:
        """Add the records of one file."""
        stats, path, since, until = self._stats, file.path, self._since, self._window.until
        new_since, earliest = self._window.since, self._window.earliest or 0
        last_sent, sent_until = self._sent.newest(unit(path)), self._sent.until
        last = self._last.setdefault(path, {})
        first, time, newest, newest_sent = 0.0, 0.0, 0.0, 0.0  # times of records; `time` of the one before
        undated = min(file.modified, until - 1)  # the time of lines in a file without a record
        ours = others = records = 0
        problems: list[Problem] = []
        bad_lines: list[tuple[int, float, Problem]] = []
        time_of, needed_from, unneeded, searching = self._kind.time_of, min(since, last_sent), None, True
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
                        stats.other += stats.counts(time or undated)
                    elif record.timestamp > file.modified + MAX_DISORDER:
                        flaw = ("in_future", "timestamp", record.timestamp)
                    else:
                        ours += 1
                        time = record.timestamp
                        first = first or time
                        if time > newest:
                            newest = time
                        known = last.get(record.writer)
                        if known is None or time >= known.timestamp:
                            last[record.writer] = record
                        if time < until:
                            if time > newest_sent:
                                newest_sent = time
                            new = time >= new_since
                            records += new
                            sent = time >= since or (last_sent < time and time >= earliest)
                            adds_up = sent and grammar.add(record, new, problems)
                            if last_sent < time < sent_until and (not sent or (adds_up and not new)):
                                stats.late.setdefault(path, []).append(time)
                except UnusableRecordError as error:
                    flaw = (error.reason, error.key, error.value)
                except Exception as error:  # whatever a line raises costs that line
                    flaw = ("unusable_record", type(error).__name__, str(error))
            if flaw and len(bad_lines) < MAX_BAD_LINES:
                bad_lines.append((start, time, flaw))
            if problems:
                for problem in problems:
                    stats.drop(path, start, time, problem)
                problems.clear()
        if unneeded is not None and not last:
            self._last[path] = _parsed(grammar, unneeded, path)
        for start, time, flaw in bad_lines:
            stats.bad += stats.counts(time or first or undated)
            stats.drop(path, start, time or first or undated, flaw)
        stats.records += records
        stats.ours[pattern] += ours
        stats.others[pattern] += others
        if newest_sent:
            self._newest[unit(path)] = max(newest_sent, self._newest.get(unit(path), 0.0))
        if newest >= since:
            self._note_lag(path, file.modified - newest)

    def _note_lag(self, path: str, lag: float) -> None:
        """Keep the longest time that records took to reach their file."""
        stats, settle = self._stats, self._context.settings.settle
        if lag > settle and (stats.lag or 0) <= settle:
            name = self._kind.name.upper()
            log.warning(
                "records reach %s %.0f s after their time; where that is normal, raise FLEETGAUGE_%s_SETTLE "
                "or FLEETGAUGE_%s_LOOKBACK above it",
                *(shown(path), lag, name, name),
            )
        stats.lag = max(stats.lag or 0.0, lag)

    def _report_late(self) -> None:
        """Name the records that this run cannot send any more, with the command that sends them."""
        for path, times in self._stats.late.items():
            since, until = iso(int(min(times))), iso(int(max(times)) + 1)
            self._context.report.lose(
                shown(path),
                f"{len(times)} records were written too late; to send them: run_collector.py "
                f"{self._kind.name} --since {since} --until {until} --push --yes",
                "late",
            )

    def _present(self, files: Files, found: Found) -> list[R]:
        """Return the last record of each writer, in what was read and in the newest file of each unit."""
        newest: dict[str, File] = {}
        now = self._context.now
        for file in found.files.values():
            watched = WATCHED_IN_S3 if is_in_s3(file.path) else WATCHED
            if file.modified >= now - watched and file.size:
                known = newest.setdefault(unit(file.path), file)
                if (known.modified, known.path) < (file.modified, file.path):
                    newest[unit(file.path)] = file
        grammar = self._kind.grammar(self._context, files)
        unread = [file for file in newest.values() if not self._last.get(file.path)]
        for file, value in last_values(files, unread):
            if isinstance(value, OSError):
                self._context.report.lose(shown(file.path), reason(value))
            elif value is not None:
                self._last[file.path] = _parsed(grammar, value, file.path)
        latest: dict[str, R] = {}
        for records in self._last.values():
            for name, record in records.items():
                if name not in latest or latest[name].timestamp <= record.timestamp:
                    latest[name] = record
        return list(latest.values())


def _parsed(grammar: Grammar[R], value: Json, path: str) -> dict[str, R]:
    """Return the record of a line by its writer; a line that is none was counted when it was new."""
    with suppress(Exception):
        if (record := grammar.parse(value, path)) is not None:
            return {record.writer: record}
    return {}


@dataclass
class _Sent:
    """The time of the newest record of each unit that earlier runs sent, so that late records are noticed.

    In `memory` each unit has the time that the last run sent, and the one before, which is used where the
    points of the last run were not accepted.
    """

    times: dict[str, float] = field(default_factory=dict)
    until: int = 0  # the end of the last window
    is_complete: bool = False  # whether a unit that is not in it is a new one

    @classmethod
    def load(cls, memory: Mapping[str, object], window: Window) -> _Sent:
        """Return what earlier runs sent; what is malformed is ignored."""
        saved, until = memory.get("units"), memory.get("until")
        if not window.is_live or not isinstance(saved, Mapping) or type(until) is not int:
            return cls()
        which = 0 if window.since >= until else 1
        times: dict[str, float] = {}
        for name, entry in saved.items():
            if isinstance(entry, list) and len(entry) == 2 and all(map(is_number, entry)):
                times[str(name)] = entry[which]
        return cls(times, until, len(times) < MAX_REMEMBERED)

    def newest(self, name: str) -> float:
        """Return the newest time that was sent of a unit: 0 of a new one, infinity where it is not known."""
        return self.times.get(name, 0.0 if self.is_complete else math.inf)

    def save(
        self,
        memory: dict[str, object],
        window: Window,
        newest: Mapping[str, float],
        unread: set[str],
        found: Found,
    ) -> None:
        """Remember the newest record of each unit that this run sent, but not of units it could not read.

        A file that no run needed to read counts as sent up to its last write.
        """
        units: dict[str, list[float]] = {}
        for file in found.files.values():
            name = unit(file.path)
            before = self.times.get(name)
            if before is None:
                if name in unread:
                    continue
                time = newest.get(name, min(file.modified, window.until))
                before = 0.0 if self.is_complete else time
            else:
                time = max(before, newest.get(name, 0.0))
            if time >= window.until - DAY:
                units[name] = [max(time, *units.get(name, (0.0,))), before]
        latest = sorted(units.items(), key=lambda item: -item[1][0])[:MAX_REMEMBERED]
        memory |= {"until": window.until, "units": dict(latest)}


def _check(kind: RecordKind[S, R], context: Context[S]) -> Iterator[str | FleetgaugeError]:
    """Yield how many files each path matches and what the newest holds; an error for each that is missing."""
    settings = context.settings
    files, found = _find(kind, context, context.now - DAY, context.now)
    name = f"FLEETGAUGE_{kind.name.upper()}_PATHS"
    for path, why in (*found.unreadable, *((path, NOT_THERE) for path in found.missing.values())):
        yield ConfigurationError(f"{name}: cannot read {shown(path)}: {why}")
    grammar = kind.grammar(context, files)
    for pattern in kind.patterns(settings, files):
        matched = [file for path, file in found.files.items() if found.pattern_of[path] == pattern]
        newest = max(matched, key=lambda file: file.modified, default=None)
        content = (
            f"; in the newest, {shown(newest.path)}: {_describe(kind, grammar, files, newest)}"
            if newest
            else ""
        )
        yield f"{shown(pattern)}: {len(matched)} files{content}"


def _describe(kind: RecordKind[S, R], grammar: Grammar[R], files: Files, file: File) -> str:
    """Return how many lines of the end of a file are records, and what the others are."""
    kinds: Counter[str] = Counter()
    try:
        for _, lines in read(files, [(file, file.modified)], kind.time_of):
            if isinstance(lines, OSError):
                raise lines
            for _, value, damage in islice(lines, MAX_CHECKED):
                kinds[damage or ""] += damage is not None
                if value is not None:
                    try:
                        kinds["of another kind" if grammar.parse(value, file.path) is None else "ours"] += 1
                    except UnusableRecordError as error:
                        kinds[error.reason] += 1
                    except Exception:  # as when it is read
                        kinds["unusable_record"] += 1
    except OSError as error:
        return f"cannot be read: {reason(error)}"
    ours = kinds.pop("ours", 0)
    others = [f"{number} {what}" for what, number in sorted(kinds.items()) if number]
    return ", ".join([f"{ours} records of {kind.name}", *others])


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a number of thousands of digits
        text = f"something that cannot be shown: {error}"
    return text if len(text) <= 80 else f"{text[:77]}..."
