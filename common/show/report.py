"""What a run looks like to a person and to a program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from common.outcome import Outcome, Status
from common.show.dry_run_file import SeriesPoints
from common.text import visible
from common.times import iso

_WORST_FIRST = (Status.FAILED, Status.PARTIAL, Status.OK, Status.EMPTY, Status.SKIPPED)


def overall(outcomes: list[Outcome]) -> Status:
    """The worst that happened to any collector."""
    return min((outcome.status for outcome in outcomes), key=_WORST_FIRST.index, default=Status.EMPTY)


def write_document(
    outcomes: list[Outcome], points: Mapping[str, Iterable[SeriesPoints]] | None, stream: TextIO
) -> None:
    """The whole run as one JSON document; `points` is None where they were pushed instead.

    Samples are written while they are read, one to a line: a backfill may have more than there is memory.
    """
    stream.write(f'{{"status": {json.dumps(overall(outcomes))}, "collectors": [')
    for number, outcome in enumerate(outcomes):
        stream.write(",\n" if number else "\n")
        entry = json.dumps(_entry(outcome, pushed=points is None))
        if points is None or outcome.findings:
            stream.write(entry)
            continue
        stream.write(entry.removesuffix("}") + ', "samples": [')
        separator = "\n"
        for part in points.get(outcome.collector, ()):
            for sample in _samples(part):
                stream.write(separator + sample)
                separator = ",\n"
        stream.write("]}")
    stream.write("]}\n")
    stream.flush()


def _entry(outcome: Outcome, *, pushed: bool) -> dict[str, object]:
    error = outcome.error and {"type": outcome.error.type, "message": outcome.error.message}
    entry: dict[str, object] = {
        "collector": outcome.collector,
        "status": outcome.status,
        "seconds": outcome.seconds,
        "error": error,
        "lost": outcome.lost,
        "dropped": outcome.dropped,
    }
    if outcome.as_of is not None:
        entry |= {"as_of": outcome.as_of, "missed_ticks": outcome.missed_ticks}
    if outcome.findings:
        entry["findings"] = outcome.findings
    elif pushed:
        entry["points_sent"] = outcome.points_sent
    return entry | outcome.tables


def _samples(part: SeriesPoints) -> Iterator[str]:
    """Each sample as a JSON object; what they share is encoded once, as points are many more than series."""
    series = part.series
    before = json.dumps({"metric": series.metric, "type": part.type, "unit": part.unit}).removesuffix("}")
    behind = json.dumps({"host": series.host, "tags": series.tags}).removeprefix("{")
    for second, value in zip(part.seconds, part.values, strict=True):
        yield f'{before}, "value": {value!r}, "timestamp": {second}, {behind}'


def table(outcomes: list[Outcome], points: Mapping[str, Iterable[SeriesPoints]], width: int) -> Iterator[str]:
    """Lines for a person: one block per collector, columns aligned, no row wider than the terminal."""
    for outcome in outcomes:
        yield headline(outcome)
        rows = [row for part in points.get(outcome.collector, ()) for row in _rows(part)]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        for metric, value, unit, tags in rows:
            line = f"  {metric:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {tags}"
            yield shorten(line.rstrip(), width)
        if rows:
            yield ""
        for name, entries in outcome.tables.items():
            yield from _table(name, entries)


def _table(name: str, entries: list[dict[str, object]]) -> Iterator[str]:
    """A small table of the collector's own. It is not cut: its last column may be an address to open."""
    yield f"  {name}:" if entries else f"  {name}: nothing"
    rows = [list(entries[0]), *(map(_cell, entry.values()) for entry in entries)] if entries else []
    columns = [list(column) for column in zip(*rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield "    " + "  ".join(map(str.ljust, row, widths)).rstrip()
    yield ""


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return number(value)
    return "" if value is None else visible(str(value))


def headline(outcome: Outcome) -> str:
    """One line on how a collector fared, and more where something went wrong."""
    lines = [f"{outcome.collector}: {outcome.status} in {outcome.seconds:.1f} s"]
    if outcome.as_of is not None:
        lines[0] += f", as of {iso(outcome.as_of)}"
    if outcome.missed_ticks:
        lines.append(f"  a push would also fill {_plural(outcome.missed_ticks, 'missed tick')}")
    if outcome.error:
        lines[0] = f"{outcome.collector}: {outcome.status}"
        lines.append(f"  {outcome.error.type}: {visible(outcome.error.message)}")
    lines += [f"  lost {visible(unit)}" for unit in outcome.lost]
    return "\n".join(lines)


def last_line(outcomes: list[Outcome], *, pushed: bool) -> str:
    """The run in one line: how many, how long, and what was dropped."""
    statuses = [outcome.status for outcome in outcomes]
    parts = [f"{statuses.count(status)} {status}" for status in Status if status in statuses]
    points = sum(outcome.points_sent if pushed else outcome.samples for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    dropped = sum((Counter(outcome.dropped) for outcome in outcomes), Counter())
    what = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items())) or "nothing"
    done = (
        f"{_plural(points, 'point')} sent"
        if pushed
        else f"{_plural(points, 'sample')}, nothing sent (dry run)"
    )
    return f"{', '.join(parts)}; {done}; {seconds:.1f} s; dropped: {what}"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _rows(part: SeriesPoints) -> Iterator[tuple[str, str, str, str]]:
    labels = visible(" ".join(part.series.labels))
    for value in part.values:
        yield part.series.metric, number(value), part.unit, labels


def number(value: float) -> str:
    """A value as a person reads it: thousands apart, no more digits than mean something."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 0.1 else f"{value:.3g}"


def shorten(text: str, room: int) -> str:
    """The text, cut at its end where it is longer than the room."""
    return text if len(text) <= room else text[: room - 1] + "…"
