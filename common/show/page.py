"""A span of the past as one self-contained page: a small chart per metric, to look at before it is sent.

No script, nothing loaded, everything escaped. It stays small and readable for any number of points and
series: lines are drawn from stretches of time, and of many series only some, which the page then says.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.outcome import Outcome
from common.show.dry_run_file import Declared, DryRunFile, SeriesKey
from common.show.output import output_file
from common.show.overview import describe
from common.show.page_style import MAX_DRAWN, STYLE
from common.show.report import number
from common.show.summaries import Grid, Shape, Summary, in_order, shared_labels
from common.span import Span
from fleetgauge.pages.axes import byte_axis, clock_axis, format_duration, number_axis
from fleetgauge.pages.charts import Band, Line, draw_chart, draw_key
from fleetgauge.pages.page import render_cards, render_document, render_table

MAX_STRETCHES = 672  # every quarter of an hour of a week
_HOW_TO_READ = (
    "Times are UTC. A line is the mean of each stretch of time, the shade behind it reaches from the lowest "
    "to the highest value in it. Where a line is broken, nothing is known."
)


@dataclass(frozen=True)
class Drawn:
    """A metric and those of its series that are drawn, of how many."""

    metric: Declared
    shapes: Mapping[SeriesKey, Shape]
    series: int


@dataclass(frozen=True)
class Account:
    """What one collector has to show, metrics in the order of the catalogue."""

    outcome: Outcome
    declared: Sequence[Declared]
    summaries: Mapping[SeriesKey, Summary]
    drawn: Sequence[Drawn]

    @property
    def points(self) -> int:
        """Points of all series, drawn or not."""
        return sum(summary.points for summary in self.summaries.values())

    @property
    def absent(self) -> list[str]:
        """Metrics that have no value in the span."""
        present = {drawn.metric.name for drawn in self.drawn}
        return [metric.name for metric in self.declared if metric.name not in present]

    def groups(self) -> dict[str, list[Drawn]]:
        """Metrics by the first two parts of their names; those that have no more than two come first."""
        groups: dict[str, list[Drawn]] = {}
        for drawn in self.drawn:
            parts = drawn.metric.name.split(".")
            groups.setdefault(".".join(parts[:2]) if len(parts) > 2 else "", []).append(drawn)
        return dict(sorted(groups.items(), key=lambda item: item[0] != ""))


def write(path: Path, outcomes: Iterable[Outcome], points: Mapping[str, DryRunFile], span: Span) -> None:
    """Write the page; raises ConfigurationError where it cannot be."""
    accounts = [_account(outcome, points.get(outcome.collector), span) for outcome in outcomes]
    with output_file(path, "--html") as file:
        file.write(render_page(accounts, span))


def _account(outcome: Outcome, file: DryRunFile | None, span: Span) -> Account:
    """Read a collector's points twice: for the figures of all series, then for the shapes of some."""
    if file is None:
        return Account(outcome, (), {}, ())
    summaries: dict[SeriesKey, Summary] = {}
    for part in file:
        if part.series not in summaries:
            summaries[part.series] = Summary()
        summaries[part.series].add(part)
    declared = file.declared()
    by_metric: dict[str, list[SeriesKey]] = {}
    for one in in_order(summaries, declared):
        by_metric.setdefault(one.metric, []).append(one)
    drawn = [
        Drawn(metric, _empty_shapes(by_metric[metric.name], summaries, span), len(by_metric[metric.name]))
        for metric in declared
        if metric.name in by_metric
    ]
    shapes = {series: shape for one in drawn for series, shape in one.shapes.items()}
    for part in file:
        if part.series in shapes:
            shapes[part.series].add(part)
    return Account(outcome, declared, summaries, drawn)


def _empty_shapes(
    series: Sequence[SeriesKey], summaries: Mapping[SeriesKey, Summary], span: Span
) -> dict[SeriesKey, Shape]:
    """A shape to be filled for each series of a metric that will be drawn: those that reach highest."""
    chosen = sorted(series, key=lambda one: -summaries[one].high)[:MAX_DRAWN]
    grid = Grid.over(span, MAX_STRETCHES, min(summaries[one].spacing for one in chosen))
    return {one: Shape(grid) for one in series if one in chosen}


def render_page(accounts: Sequence[Account], span: Span) -> str:
    """The whole page."""
    names = ", ".join(account.outcome.collector for account in accounts)
    title = f"Backfill of {names}, not sent"
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(describe(span))}. This was a dry run: nothing was sent.</p>",
        render_cards(_cards(accounts, span)),
        _notes(accounts),
        _contents(accounts),
        f"<p>{_HOW_TO_READ}</p>",
        *(_section(account, span) for account in accounts),
    ]
    return render_document(title, STYLE, "".join(body))


def _cards(accounts: Sequence[Account], span: Span) -> Iterable[tuple[str, str, str]]:
    declared = sum(len(account.declared) for account in accounts)
    dropped = [sum(account.outcome.dropped.values()) for account in accounts]
    lost = sum(len(account.outcome.lost) for account in accounts)
    yield "Span", format_duration(span.until - span.since), "its end not included"
    yield "Step", format_duration(span.step), f"{len(span.ticks):,} ticks"
    yield "Metrics", f"{sum(len(account.drawn) for account in accounts):,}", f"of {declared:,} declared"
    yield "Series", f"{sum(len(account.summaries) for account in accounts):,}", "metrics by tags"
    yield "Points", f"{sum(account.points for account in accounts):,}", "none of them sent"
    yield "Dropped", f"{sum(dropped):,}", f"{lost:,} lost"


def _notes(accounts: Iterable[Account]) -> str:
    """What went wrong, and what was dropped."""
    notes = []
    for outcome in (account.outcome for account in accounts):
        if outcome.error:
            notes.append(f"{outcome.collector}: {outcome.error.type}: {outcome.error.message}")
        notes += [f"{outcome.collector} lost {unit}" for unit in outcome.lost]
        if outcome.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(outcome.dropped.items()))
            notes.append(f"{outcome.collector} dropped {reasons}")
    listed = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return f'<div class="note">{listed}</div>' if listed else ""


def _contents(accounts: Iterable[Account]) -> str:
    names = [name or account.outcome.collector for account in accounts for name in account.groups()]
    links = "".join(f'<a href="#{html.escape(name)}">{html.escape(name)}</a>' for name in names)
    return f"<nav>{links}</nav>" if len(names) > 1 else ""


def _section(account: Account, span: Span) -> str:
    outcome = account.outcome
    shared = shared_labels(account.summaries)
    name = html.escape(outcome.collector)
    badge = f'<span class="status {outcome.status}">{outcome.status}</span>'
    parts = [f'<section id="{name}"><div class="head"><h2>{name}</h2>{badge}</div>']
    parts += [f"<p>Every series: {html.escape(' '.join(shared))}</p>"] if shared else []
    parts += [] if account.drawn else ["<p>There is nothing to draw: no sample is of this span.</p>"]
    for title, group in account.groups().items():
        parts += [f'<h3 id="{html.escape(title)}">{html.escape(title)}</h3>'] if title else []
        charts = (_metric(drawn, account.summaries, shared, span) for drawn in group)
        parts.append(f'<div class="charts">{"".join(charts)}</div>')
    if account.drawn and account.absent:
        parts.append(f"<p>Without a value in this span: {html.escape(', '.join(account.absent))}.</p>")
    return "".join(parts) + "</section>"


def _metric(drawn: Drawn, summaries: Mapping[SeriesKey, Summary], shared: Sequence[str], span: Span) -> str:
    metric, hidden = drawn.metric, drawn.series - len(drawn.shapes)
    figures = [summaries[one] for one in drawn.shapes]
    names = [" ".join(label for label in one.labels if label not in shared) for one in drawn.shapes]
    names = [_name(place, name, drawn.series) for place, name in enumerate(names, start=1)]
    several = len(names) > 2  # too many to stand side by side with another metric
    unit = " · ".join(filter(None, (metric.unit, metric.type)))
    listed = _series_table(names, figures) if several else "".join(map(_stats, names, figures))
    more = f"<p>The {len(names)} series that reach highest are drawn, {hidden:,} are not.</p>"
    return (
        f'<article class="metric{" several" if several else ""}"><div class="head">'
        f"<h4>{html.escape(metric.name).replace('.', '.<wbr>')}</h4>"
        f'<span class="unit">{html.escape(unit)}</span></div><p>{html.escape(metric.help)}</p>'
        f"{_chart(drawn, figures, span)}{listed}{more if hidden else ''}</article>"
    )


def _name(place: int, name: str, series: int) -> str:
    """How a series is told from the others of its metric: its line, and the tags that not all have."""
    if series == 1 and not name:
        return ""
    return draw_key("line", f"s{place}") + html.escape(name or "no other tags")


def _chart(drawn: Drawn, figures: Sequence[Summary], span: Span) -> str:
    low, high = min(one.low for one in figures), max(one.high for one in figures)
    lines, bands = [], []
    for place, shape in enumerate(drawn.shapes.values(), start=1):
        grid, kind = shape.grid, f"s{place}"
        stretches = list(enumerate(shape.stretches()))
        means = [(grid.middle(at), one and one.mean) for at, one in stretches]
        lines.append(Line("", kind, means, dots=True))
        if any(one and one.low < one.high for _, one in stretches):
            bands.append(
                Band(kind, [(grid.middle(at), one and (one.low, one.high)) for at, one in stretches])
            )
    text = (
        f"{drawn.metric.name} over {format_duration(span.until - span.since)}: "
        f"from {number(low)} to {number(high)} {drawn.metric.unit}"
    ).rstrip()
    of_bytes = drawn.metric.unit == "byte" and low >= 0
    x, y = clock_axis(span.since, span.until), byte_axis(high) if of_bytes else number_axis(low, high)
    return draw_chart(x, y, lines, (), (), text, bands, legend=False)


def _figures(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("First", number(summary.first)),
        ("Last", number(summary.last)),
        ("Min", number(summary.low)),
        ("Mean", number(summary.mean)),
        ("Max", number(summary.high)),
        ("Points", f"{summary.points:,}"),
    ]


def _stats(name: str, summary: Summary) -> str:
    cells = "".join(f"<div><dt>{head}</dt><dd>{value}</dd></div>" for head, value in _figures(summary))
    return (f'<p class="name">{name}</p>' if name else "") + f'<dl class="stats">{cells}</dl>'


def _series_table(names: Iterable[str], summaries: Iterable[Summary]) -> str:
    return render_table(
        [
            [("Series", name, "name wide"), *((head, value, "number") for head, value in _figures(summary))]
            for name, summary in zip(names, summaries, strict=True)
        ]
    )
