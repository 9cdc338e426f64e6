"""What a run found, for a person at a terminal (`rich`), or as plain lines in a pipe or a file.

On a terminal values are rounded alike in a column, in the unit of their metric, with a second column for
people (3 h 12 min). In a pipe every line is complete: exact values, the declared unit, all tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from common.metric import Metric
from common.outcome import Outcome, Status
from common.show.grid import Grid, spacing, summarize
from common.show.points import Points, SeriesPoints
from common.text import visible
from common.times import iso
from common.window import Window
from fleetgauge.pages.axes import format_bytes, format_duration, plural
from fleetgauge.pages.page import name_span

if TYPE_CHECKING:
    from rich.console import Console

Part = str | tuple[str, str]  # text, or text and its style
_Found = Mapping[Metric, Sequence[SeriesPoints]]

_STYLES = {"ok": "green", "partial": "yellow", "failed": "red", "empty": "dim", "skipped": "dim"}
_SYMBOLS = {"percent": "%", "hour": "h", "dollar": "$", "degree celsius": "°C", "watt": "W", "hertz": "Hz"}
_SYMBOLS |= {"megahertz": "MHz", "gigabyte": "GB", "gibibyte": "GiB", "byte": "B", "second": "s"}
_SYMBOLS |= {"millisecond": "ms"}
_LEVELS = "▁▂▃▄▅▆▇█"
_LEFT = ("unit", "over time")  # columns that are not right-justified
_WIDE = 120  # columns of a terminal from which a table of statistics has all of them


class Output:
    """Where a run is shown: a stream, with a `rich` console where it is a terminal."""

    def __init__(self, stream: TextIO, console: Console | None = None) -> None:
        self._stream = stream
        self.console = console
        if console is None and stream.isatty():
            from rich.console import Console

            self.console = Console(file=stream, highlight=False, markup=False, emoji=False)

    def line(self, *parts: Part, indent: int = 0) -> None:
        """Print one line; a terminal wraps it between words, below where it began."""
        if self.console is None:
            text = "".join(part if isinstance(part, str) else part[0] for part in parts)
            self._stream.write(f"{' ' * indent}{text}".rstrip() + "\n")
            return
        from rich.padding import Padding
        from rich.text import Text

        if not parts:
            self.console.print()
            return
        self.console.print(Padding(Text.assemble(*parts, overflow="fold"), (0, 0, 0, indent), expand=False))

    def table(self, rows: Sequence[Sequence[str]], right: Collection[int], indent: int) -> None:
        """Print rows in columns, the first of them heads.

        A terminal has the widest columns below each row where there is no room for all.
        """
        widths = {at: max(map(self.columns, column)) for at, column in enumerate(zip(*rows, strict=True))}
        below = []
        while (
            self.console
            and len(widths) > 1
            and sum(widths.values()) + 2 * len(widths) > self.console.width - indent
        ):
            below.append(max(widths, key=lambda at: widths[at]))
            del widths[below[-1]]
        heads, *_ = rows
        for number, row in enumerate(rows):
            self.line(
                (self.padded({at: row[at] for at in widths}, widths, right), "" if number else "dim"),
                indent=indent,
            )
            for at in sorted(below) if number else ():
                self.line(f"{heads[at]}: {row[at]}", indent=indent + 2)

    def padded(self, row: Mapping[int, str], widths: Mapping[int, int], right: Collection[int]) -> str:
        """Return cells in columns of these widths."""
        cells = []
        for at, width in widths.items():
            padding = " " * (width - self.columns(row[at]))
            cells.append(padding + row[at] if at in right else row[at] + padding)
        return "  ".join(cells).rstrip()

    def columns(self, text: str) -> int:
        """Return how many columns a text takes; East Asian characters take two of a terminal."""
        if self.console is None:
            return len(text)
        from rich.cells import cell_len

        return cell_len(text)


def show(
    output: Output, outcomes: Iterable[Outcome], points: Mapping[str, Points], span: Window | None = None
) -> None:
    """Show how each collector fared, and what it found."""
    if span:
        output.line(describe(span))
    for outcome in outcomes:
        _headline(output, outcome)
        for finding in outcome.findings:
            output.line(visible(finding), indent=2)
        if found := _in_order(points[outcome.collector]) if outcome.collector in points else {}:
            if output.console is None:
                _print_lines(output, found)
            else:
                _print_tables(output, output.console.width, found, span)
            output.line()
        for name, entries in outcome.tables.items():
            output.line(f"{name}:" if entries else f"{name}: nothing", indent=2)
            if entries:
                show_cell = _cell if output.console else _exact_cell
                rows = [[*map(show_cell, entry.values())] for entry in entries]
                output.table([[*entries[0]], *rows], _numeric(entries), indent=4)
            output.line()


def _headline(output: Output, outcome: Outcome) -> None:
    took = "" if outcome.error else f" in {outcome.seconds:.1f} s"
    as_of = "" if outcome.error or outcome.as_of is None else f", as of {iso(outcome.as_of)}"
    output.line(f"{outcome.collector}: ", (outcome.status, _STYLES[outcome.status]), took, as_of)
    if outcome.error:
        style = "" if outcome.status is Status.SKIPPED else "red"
        output.line((visible(outcome.error.message), style), indent=2)
        for detail in outcome.error.details:
            output.line(visible(detail), indent=4)
    for unit in outcome.lost:
        output.line((f"lost {visible(unit)}", "yellow"), indent=2)


def show_totals(output: Output, outcomes: Sequence[Outcome], *, pushed: bool) -> None:
    """Show the run in one line: statuses, points, seconds and drops; then an example of each drop."""
    statuses = Counter(outcome.status for outcome in outcomes)
    parts: list[Part] = []
    for status in Status:
        if statuses[status]:
            parts += [", " if parts else "", (f"{statuses[status]} {status}", _STYLES[status])]
    points = sum(outcome.counts.points_sent if pushed else outcome.counts.samples for outcome in outcomes)
    done = (
        f"{plural(points, 'point')} sent" if pushed else f"{plural(points, 'point')}, nothing sent (dry run)"
    )
    seconds = sum(outcome.seconds for outcome in outcomes)
    dropped = sum((Counter(outcome.counts.dropped) for outcome in outcomes), Counter[str]())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    drops = (f"dropped: {reasons}", "yellow") if reasons else "dropped: nothing"
    output.line(*parts, f"; {done}; {seconds:.1f} s; ", drops)
    for outcome in outcomes:
        for reason, example in sorted(outcome.examples.items()):
            output.line(f"{reason}, first: {visible(example)}", indent=2)


def describe(span: Window) -> str:
    """Return a span in words."""
    return f"{from_to(span.since, span.until)}, every {format_duration(span.step)}"


def from_to(*ends: int) -> str:
    """Return two moments in words."""
    return name_span(
        *(f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}".removesuffix(":00") for end in ends)
    )


def shared_labels(every: Iterable[SeriesPoints]) -> tuple[str, ...]:
    """Return the labels that all series have."""
    labels = [entry.series.labels for entry in every]
    shared = set(labels[0]).intersection(*labels) if labels else set()
    return tuple(label for label in labels[0] if label in shared) if labels else ()


def _in_order(points: Points) -> _Found:
    """Return the series by metric, as the collector declares them; those of a metric by their labels."""
    found: dict[str, list[SeriesPoints]] = {}
    for series in points:
        found.setdefault(series.series.metric, []).append(series)
    return {
        metric: sorted(found[metric.name], key=lambda entry: entry.series.labels)
        for metric in points.metrics
        if metric.name in found
    }


def rounded(value: float) -> str:
    """Return a value with three decimals, or none where it is whole; a tiny one with three digits."""
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3f}" if 0.001 <= abs(value) < 1e15 else f"{value:.3g}"


def symbol(unit: str) -> str:
    """Return the symbol of a unit; nothing where it has none."""
    return _SYMBOLS.get(unit, "")


def for_people(value: float, unit: str) -> str:
    """Return bytes and durations in a unit of a suitable size; nothing where their own is."""
    if unit in {"byte", "gibibyte"}:
        size = value * (2**30 if unit == "gibibyte" else 1)
        text = format_bytes(size)
        return "" if abs(size) < 1024 or text.endswith(f" {_SYMBOLS[unit]}") else text
    seconds = value * {"second": 1, "millisecond": 0.001}.get(unit, 0)
    return format_duration(seconds) if seconds >= 60 else ""


def sparkline(means: Sequence[float | None]) -> str:
    """Return a block per interval, between the lowest and the highest; a blank where nothing is known."""
    known = [mean / 2 for mean in means if mean is not None]  # the difference of two could overflow
    low, high = min(known, default=0.0), max(known, default=0.0)

    def level(mean: float) -> int:
        share = (mean / 2 - low) / (high - low) if high > low else 0.0
        return min(len(_LEVELS) - 1, int(share * len(_LEVELS)))

    return "".join(" " if mean is None else _LEVELS[level(mean)] for mean in means)


def _print_lines(output: Output, found: _Found) -> None:
    """Print a line for each series that is complete: its value, or the statistics of several."""
    is_single = all(len(entry.values) == 1 for every in found.values() for entry in every)
    heads = ["value"] if is_single else ["points", "first", "last", "min", "mean", "max"]
    rows = [["metric", *heads, "unit", "tags"]]
    for metric, every in found.items():
        for entry in every:
            points, first, last, low, mean, high = summarize(entry)
            values = [last] if is_single else [points, first, last, low, float(f"{mean:.6g}"), high]
            unit = metric.unit.replace(" ", "_") or "-"  # one word, so that a program finds the tags
            rows.append([metric.name, *map(str, values), unit, visible(" ".join(entry.series.labels))])
    output.table(rows, range(1, 1 + len(heads)), indent=2)


def _print_tables(output: Output, width: int, found: _Found, span: Window | None) -> None:
    """Print the series by metric: a value each, or statistics with a sparkline."""
    every = [entry for some in found.values() for entry in some]
    shared = shared_labels(every)
    if shared:
        output.line("all series: ", visible(" ".join(shared)), indent=2)
    if all(len(entry.values) == 1 for entry in every):
        columns = _values(found)
    else:
        if span is None:
            since, until = min(entry.seconds[0] for entry in every), max(entry.seconds[-1] for entry in every)
            total = sum(len(entry.values) for entry in every)
            text = f"{plural(total, 'point')} in {plural(len(every), 'series')}, {from_to(since, until)}"
            output.line(text, indent=2)
            span = Window(since, until + 1, until + 1 - since)
        columns = _statistics(found, span, is_wide=width >= _WIDE)
    cells = iter(zip(*columns.values(), strict=True))
    rows: list[tuple[str, Sequence[str]]] = [("metric", [*columns])]
    for metric, some in found.items():
        labels = [visible(" ".join(x for x in entry.series.labels if x not in shared)) for entry in some]
        if len(some) == 1:
            rows.append((f"{metric.name}  {labels[0]}".strip(), next(cells)))
            continue
        rows.append((metric.name, ()))
        rows += [(f"  {label or '(no other tags)'}", next(cells)) for label in labels]
    _print_rows(output, width, rows, {at for at, head in enumerate(columns, start=1) if head not in _LEFT})


def _print_rows(
    output: Output, width: int, rows: Sequence[tuple[str, Sequence[str]]], right: Collection[int]
) -> None:
    """Print names with their cells. A name without room beside its cells is on a line above them."""
    columns = zip(*(row for _, row in rows if row), strict=True)
    widths = {at: max(map(output.columns, column)) for at, column in enumerate(columns, start=1)}
    room = width - 2 - sum(2 + column for column in widths.values())
    widths = {0: min(room, max(output.columns(name) for name, _ in rows)), **widths}
    for number, (name, row) in enumerate(rows):
        is_apart = not row or output.columns(name) > widths[0]
        if is_apart:
            output.line(name.strip(), indent=2 + len(name) - len(name.lstrip()))
        if row:
            cells = dict(enumerate(["" if is_apart else name, *row]))
            output.line((output.padded(cells, widths, right), "" if number else "dim"), indent=2)


def _values(found: _Found) -> dict[str, Sequence[str]]:
    """Return columns of single values, by their heads."""
    every = [(metric, entry.values[0]) for metric, some in found.items() for entry in some]
    return {
        "value": _aligned([value for _, value in every]),
        "unit": [symbol(metric.unit) or metric.unit for metric, _ in every],
        "": [for_people(value, metric.unit) for metric, value in every],
    }


def _statistics(found: _Found, span: Window, *, is_wide: bool) -> dict[str, Sequence[str]]:
    """Return columns of statistics, by their heads; a narrow terminal has fewer."""
    every = [(metric, summarize(entry), entry) for metric, some in found.items() for entry in some]
    grid = Grid.over(span, 24 if is_wide else 10, min(spacing(entry) for *_, entry in every))
    is_several = [entry.points > 1 for _, entry, _ in every]

    def of_several(texts: Iterable[str]) -> list[str]:
        return [text if is_shown else "" for text, is_shown in zip(texts, is_several, strict=True)]

    columns: dict[str, Sequence[str]] = {
        "last": _aligned([entry.last for _, entry, _ in every]),
        "": [for_people(entry.last, metric.unit) for metric, entry, _ in every],
        "min": of_several(_aligned([entry.low for _, entry, _ in every])),
        "mean": of_several(_aligned([entry.mean for _, entry, _ in every])),
        "max": of_several(_aligned([entry.high for _, entry, _ in every])),
        "over time": of_several(
            sparkline([each and each.mean for each in grid.intervals(entry)]) for *_, entry in every
        ),
        "points": [f"{entry.points:,}" for _, entry, _ in every],
        "unit": [symbol(metric.unit) or metric.unit for metric, *_ in every],
    }
    if not is_wide:
        del columns["mean"], columns["points"]
    return columns


def _aligned(values: Sequence[float]) -> list[str]:
    """Return values rounded, with their decimal points below each other where they are right-justified."""
    texts = [*map(rounded, values)]
    has_decimals = any("." in text and "e" not in text for text in texts)
    return [f"{text}    " if has_decimals and "." not in text else text for text in texts]


def _numeric(entries: Sequence[Mapping[str, object]]) -> list[int]:
    """Return the columns that hold numbers only."""
    columns = zip(*(entry.values() for entry in entries), strict=True)
    return [at for at, column in enumerate(columns) if all(_is_number(value) for value in column)]


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _exact_cell(value: object) -> str:
    return "" if value is None else visible(str(value))


def _cell(value: object) -> str:
    return rounded(value) if isinstance(value, float) else _exact_cell(value)
