"""What a run looks like to a person and to a program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypedDict

from common.protocol import Outcome, Status

_WORST_FIRST = (Status.FAILED, Status.PARTIAL, Status.OK, Status.EMPTY, Status.SKIPPED)


class Shown(TypedDict):
    """One sample of a dry run, as the child wrote it."""

    metric: str
    type: str
    unit: str
    value: float
    timestamp: int
    host: str | None
    tags: list[str]


def overall(outcomes: list[Outcome]) -> Status:
    """The worst that happened to any collector."""
    return min((outcome.status for outcome in outcomes), key=_WORST_FIRST.index, default=Status.EMPTY)


def document(outcomes: list[Outcome], samples: dict[str, list[Shown]] | None) -> str:
    """The whole run as one JSON document; `samples` is None where they were pushed instead."""
    collectors = []
    for outcome in outcomes:
        error = outcome.error and {"type": outcome.error.type, "message": outcome.error.message}
        entry: dict[str, object] = {
            "collector": outcome.collector,
            "status": outcome.status,
            "seconds": outcome.seconds,
            "error": error,
            "lost": outcome.lost,
            "dropped": outcome.dropped,
        }
        if outcome.findings:
            entry["findings"] = outcome.findings
        elif samples is None:
            entry["points_sent"] = outcome.points_sent
        else:
            entry["samples"] = samples.get(outcome.collector, [])
        collectors.append(entry)
    return json.dumps({"status": overall(outcomes), "collectors": collectors}, indent=2)


def table(outcomes: list[Outcome], samples: dict[str, list[Shown]], width: int) -> Iterator[str]:
    """Lines for a person: one block per collector, columns aligned, no row wider than the terminal."""
    for outcome in outcomes:
        yield headline(outcome)
        rows = [_row(sample) for sample in samples.get(outcome.collector, [])]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        for metric, value, unit, tags in rows:
            line = f"  {metric:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {tags}"
            yield _shorten(line.rstrip(), width)
        if rows:
            yield ""


def headline(outcome: Outcome) -> str:
    """One line on how a collector fared, and more where something went wrong."""
    lines = [f"{outcome.collector}: {outcome.status} in {outcome.seconds:.1f} s"]
    if outcome.error:
        lines[0] = f"{outcome.collector}: {outcome.status}"
        lines.append(f"  {outcome.error.type}: {outcome.error.message}")
    lines += [f"  lost {unit}" for unit in outcome.lost]
    return "\n".join(lines)


def last_line(outcomes: list[Outcome], *, pushed: bool) -> str:
    """The run in one line: how many, how long, and what was dropped."""
    statuses = [outcome.status for outcome in outcomes]
    parts = [f"{statuses.count(status)} {status}" for status in Status if status in statuses]
    points = sum(outcome.points_sent if pushed else outcome.samples for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    dropped: dict[str, int] = {}
    for outcome in outcomes:
        for reason, count in outcome.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    what = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items())) or "nothing"
    done = (
        f"{_plural(points, 'point')} sent"
        if pushed
        else f"{_plural(points, 'sample')}, nothing sent (dry run)"
    )
    return f"{', '.join(parts)}; {done}; {seconds:.1f} s; dropped: {what}"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _row(sample: Shown) -> tuple[str, str, str, str]:
    tags = [*sample["tags"], *([f"host:{sample['host']}"] if sample["host"] else [])]
    return sample["metric"], number(sample["value"]), sample["unit"], " ".join(tags)


def number(value: float) -> str:
    """A value as a person reads it: thousands apart, no more digits than mean something."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 0.1 else f"{value:.3g}"


def _shorten(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
