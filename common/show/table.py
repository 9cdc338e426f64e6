"""What a run found, for a person at a terminal (`rich`), or as plain lines in a pipe or a file.

On a terminal values are rounded in the same way in a column, in the unit of their metric, with a second
column for people (3 h 12 min). In a pipe every line is complete: exact values, the declared unit, all tags.

`export.py` writes JSON and CSV, `page.py` a page; both use the descriptions of spans of this module.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from common.metric import Series
from common.outcome import Outcome, Status
from common.show.points import Points, by_name, exact, labels
from common.text import visible
from common.times import duration, iso
from common.window import Window
from fleetgauge.pages.axes import format_bytes, format_duration, plural

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"ok": "green", "partial": "yellow", "failed": "red", "empty": "dim", "skipped": "dim"}
MIN_WIDTH = 16  # of a column that is folded
MAX_FOR_PEOPLE = 1e18  # in the unit of a metric


class Output:
    """The destination of a run's result: a stream, with a `rich` console where it is a terminal.

    `console` is None for a pipe or a file. A test may pass its own.
    """

    def __init__(self, stream: TextIO, console: Console | None = None) -> None:
        self._stream = stream
        self.console = console
        if console is None and stream.isatty():
            from rich.console import Console

            # Names may contain brackets or colons, which rich would interpret as markup and emoji.
            self.console = Console(file=stream, highlight=False, markup=False, emoji=False)
        # On a terminal a character may be wide.
        self._width_of: Callable[[str], int] = len
        if self.console is not None:
            from rich.cells import cell_len

            self._width_of = cell_len

    def line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """Print one line; a terminal wraps it at spaces, with the same indent.

        `style` is one of rich's and has no effect in a pipe. The text must be safe to print (`visible`).
        """
        if self.console is None or not text:
            self._stream.write(f"{' ' * indent}{text}".rstrip() + "\n")
            return
        from rich.padding import Padding
        from rich.text import Text

        self.console.print(Padding(Text(text, style, overflow="fold"), (0, 0, 0, indent), expand=False))

    def table(self, rows: Sequence[Sequence[str]], right: Collection[int], indent: int) -> None:
        """Print rows in columns, the first of them heads; a terminal folds texts it has no room for.

        All rows have the same length. `right` are the numbers of the columns that are aligned to the right
        and never folded. On a terminal a link is below its row, in one piece.
        """
        links = [""] * len(rows)
        if self.console is not None and rows[0][-1] == "url":
            links[1:] = [f"{' ' * (indent + 2)}{row[-1]}\n" for row in rows[1:]]
            rows = [row[:-1] for row in rows]
        widths = [max(map(self._width_of, column)) for column in zip(*rows, strict=True)]
        texts = [at for at in range(len(widths)) if at not in right]
        room = sys.maxsize if self.console is None else self.console.width - indent
        # The widest first, so that most columns stay as they are.
        for at in sorted(texts, key=widths.__getitem__, reverse=True):
            excess = sum(widths) + 2 * (len(widths) - 1) - room
            widths[at] -= max(0, min(excess, widths[at] - MIN_WIDTH))
        for row, link in zip(rows, links, strict=True):
            folded = [self._fold(cell, width) for cell, width in zip(row, widths, strict=True)]
            for cells in zip_longest(*folded, fillvalue=""):
                line = " " * indent
                for at, cell in enumerate(cells):
                    space = " " * (widths[at] - self._width_of(cell))
                    line += f"{space}{cell}  " if at in right else f"{cell}{space}  "
                self._stream.write(line.rstrip() + "\n")
            self._stream.write(link)

    def _fold(self, text: str, width: int) -> list[str]:
        """Return the lines of a text in a column, the first of them not indented."""
        if self._width_of(text) <= width:
            return [text]
        # A character takes at most two columns of a terminal.
        most = width if text.isascii() else width // 2
        return wrap(text, most, subsequent_indent="  ", break_on_hyphens=False)


def show(
    output: Output, outcomes: Iterable[Outcome], points: Mapping[str, Points], span: Window | None = None
) -> None:
    """Show the status of each collector, and what it found.

    `points` are those of a dry run, by collector; `span` is that of a backfill.
    """
    if span:
        output.line(describe(span))
    for outcome in outcomes:
        _headline(output, outcome)
        for finding in outcome.report.findings:
            output.line(visible(finding), indent=2)
        if found := sorted(points.get(outcome.collector, ()), key=by_name):
            _print_series(output, found)
            output.line()
        for name, entries in outcome.report.tables.items():
            output.line(f"{name}:" if entries else f"{name}: nothing", indent=2)
            if entries:
                is_exact = output.console is None
                rows = [[_cell(value, is_exact=is_exact) for value in entry.values()] for entry in entries]
                numbers = [
                    at for at, value in enumerate(entries[0].values()) if isinstance(value, int | float)
                ]
                output.table([[*entries[0]], *rows], numbers, indent=4)
            output.line()


def _headline(output: Output, outcome: Outcome) -> None:
    """Show status, duration, error and lost units of one collector."""
    took = "" if outcome.error else f" in {outcome.seconds:.1f} s"
    as_of = "" if outcome.error or outcome.as_of is None else f", as of {iso(outcome.as_of)}"
    output.line(f"{outcome.collector}: {outcome.status}{took}{as_of}", _STYLES[outcome.status])
    if outcome.error:
        style = "" if outcome.status is Status.SKIPPED else "red"
        output.line(visible(outcome.error.message), style, indent=2)
        for detail in outcome.error.details:
            output.line(visible(detail), indent=4)
    for unit in outcome.report.lost:
        output.line(f"lost {visible(unit)}", "yellow", indent=2)


def show_totals(output: Output, outcomes: Sequence[Outcome], *, pushed: bool) -> None:
    """Show the run in one line: statuses, points, seconds and drops; then an example of each drop.

    `pushed` is whether points were sent.
    """
    found = Counter(outcome.status for outcome in outcomes)
    statuses = ", ".join(f"{found[status]} {status}" for status in Status if found[status])
    points = sum(outcome.report.points_sent for outcome in outcomes)
    done = f"{plural(points, 'point')}{' sent' if pushed else ', nothing sent (dry run)'}"
    seconds = sum(outcome.seconds for outcome in outcomes)
    dropped = sum((Counter(outcome.report.dropped) for outcome in outcomes), Counter[str]())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    text = f"{statuses}; {done}; {seconds:.1f} s; dropped: {reasons or 'nothing'}"
    output.line(text, "yellow" if reasons else "")
    for outcome in outcomes:
        for reason, example in sorted(outcome.report.examples.items()):
            output.line(f"{reason}, first: {visible(example)}", indent=2)


def describe(span: Window) -> str:
    """Return a span as text: from when to when, and its step."""
    return f"{span}, every {duration(span.step)}"


def shared_labels(every: Iterable[Series]) -> tuple[str, ...]:
    """Return the labels that all series have, in the order of the first; there is at least one series."""
    first, *others = map(labels, every)
    return tuple(label for label in first if all(label in other for other in others))


def rounded(value: float) -> str:
    """Return a value with three decimals, or none if it is an integer; a tiny one with three digits."""
    # Beyond that an exponent is shorter than the digits. The first test also excludes infinity, for which
    # int() raises.
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3f}" if 0.001 <= abs(value) < 1e15 else f"{value:.3g}"


def for_people(value: float, unit: str) -> str:
    """Return bytes and durations in a unit of a suitable size; nothing where their own is.

    `unit` is the unit of the metric. Other units have no second form, nor has an absurd value: its hundreds
    of digits would leave no room for the name of any metric.
    """
    if abs(value) >= MAX_FOR_PEOPLE:
        return ""
    if unit in {"byte", "gibibyte"}:
        size = value * (2**30 if unit == "gibibyte" else 1)
        text = format_bytes(size)
        return "" if abs(size) < 1024 or (unit == "gibibyte" and text.endswith(" GiB")) else text
    seconds = value * {"second": 1, "millisecond": 0.001}.get(unit, 0)
    return format_duration(seconds) if seconds >= 60 else ""


def _print_series(output: Output, every: Sequence[Series]) -> None:
    """Print a row for each series: its value, or of several the last, with their number.

    In a pipe each row is complete, for programs such as grep and awk: exact values, no folding, all tags. On
    a terminal values are rounded, and what several series share is printed once above them.
    """
    has_several = any(len(series.values) > 1 for series in every)
    heads = ["last", "points"] if has_several else ["value"]
    if output.console is None:
        rows = [["metric", *heads, "unit", "tags"]]
        for series in every:
            numbers = [exact(series.values[-1]), str(len(series.values))][: len(heads)]
            # A unit without spaces, so that a program finds the tags by counting columns.
            unit = series.metric.unit.replace(" ", "_") or "-"
            rows.append([series.metric.name, *numbers, unit, visible(" ".join(labels(series)))])
        output.table(rows, range(1, 1 + len(heads)), indent=2)
        return
    if shared := shared_labels(every):
        output.line(f"all series: {visible(' '.join(shared))}", indent=2)
    heads.insert(1, "")
    rows = [["metric", *heads, "unit"]]
    for metric, found in groupby(every, lambda series: series.metric):
        some = [*found]
        if len(some) > 1:
            rows.append([metric.name, *([""] * (1 + len(heads)))])
        for series in some:
            value, unit = series.values[-1], metric.unit
            numbers = [rounded(value), for_people(value, unit), str(len(series.values))][: len(heads)]
            label = visible(" ".join(label for label in labels(series) if label not in shared))
            name = f"  {label or '(no other tags)'}" if len(some) > 1 else f"{metric.name}  {label}".rstrip()
            rows.append([name, *numbers, unit])
    output.table(rows, range(1, 1 + len(heads)), indent=2)


def _cell(value: object, *, is_exact: bool) -> str:
    """Return a value of a table as text; `is_exact` is for a pipe."""
    if isinstance(value, float) and not is_exact:
        return rounded(value)
    return "" if value is None else visible(str(value))
