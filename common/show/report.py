"""What a run looks like to a person and to a program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from common.outcome import Outcome, Status
from common.show.layout import FAINT, GREEN, RED, YELLOW, Look
from common.show.points import SeriesPoints
from common.text import visible
from common.times import iso
from fleetgauge.pages.axes import plural

_WORST_FIRST = (Status.FAILED, Status.PARTIAL, Status.OK, Status.EMPTY, Status.SKIPPED)
_STYLES = dict(zip(_WORST_FIRST, (RED, YELLOW, GREEN, FAINT, FAINT), strict=True))


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
    error = outcome.error and {
        "type": outcome.error.type,
        "message": outcome.error.message,
        **({"details": outcome.error.details} if outcome.error.details else {}),
    }
    entry: dict[str, object] = {
        "collector": outcome.collector,
        "status": outcome.status,
        "seconds": outcome.seconds,
        "error": error,
        "lost": outcome.lost,
        "dropped": outcome.dropped,
    }
    if outcome.as_of is not None:
        entry["as_of"] = outcome.as_of
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


def headline(outcome: Outcome, look: Look) -> Iterator[str]:
    """One line on how a collector fared, and more where something went wrong."""
    status = look.paint(outcome.status, _STYLES[outcome.status])
    took = "" if outcome.error else f" in {outcome.seconds:.1f} s"
    as_of = "" if outcome.error or outcome.as_of is None else f", as of {iso(outcome.as_of)}"
    yield f"{outcome.collector}: {status}{took}{as_of}"
    if outcome.error:
        style = None if outcome.status is Status.SKIPPED else RED
        yield "  " + look.paint(f"{outcome.error.type}: {visible(outcome.error.message)}", style)
        yield from (f"    {visible(detail)}" for detail in outcome.error.details)
    yield from ("  " + look.paint(f"lost {visible(unit)}", YELLOW) for unit in outcome.lost)


def closing(outcomes: list[Outcome], look: Look, *, pushed: bool) -> Iterator[str]:
    """The run in one line: how many, how long, and what was dropped; then an example of each reason."""
    statuses = [outcome.status for outcome in outcomes]
    parts = [
        look.paint(f"{statuses.count(status)} {status}", _STYLES[status])
        for status in Status
        if status in statuses
    ]
    points = sum(outcome.points_sent if pushed else outcome.samples for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    dropped = sum((Counter(outcome.dropped) for outcome in outcomes), Counter())
    what = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    done = (
        f"{plural(points, 'point')} sent" if pushed else f"{plural(points, 'sample')}, nothing sent (dry run)"
    )
    lost = look.paint(f"dropped: {what}", YELLOW) if what else "dropped: nothing"
    yield f"{', '.join(parts)}; {done}; {seconds:.1f} s; {lost}"
    for outcome in outcomes:
        for reason, example in sorted(outcome.examples.items()):
            yield f"  {reason}, first: {visible(example)}"


def number(value: float) -> str:
    """A value with three decimals, thousands apart."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 0.1 else f"{value:.3g}"
