"""A span of the past as one self-contained page: the charts of the dashboards, before anything is sent.

It leads with the numbers of the dashboards' overviews. Nothing is loaded and everything is escaped. It stays
small for any number of points and series: lines are drawn from intervals, and of many series some are drawn,
which the page says; the table in the terminal and `--csv` have them all.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from common.dashboard import Dashboard, Draw, Section, Widget
from common.outcome import Outcome
from common.show.export import output_file
from common.show.grid import ChartLine, Grid, Summary, chart_lines
from common.show.points import Points, SeriesPoints
from common.show.table import describe, from_to, rounded, shared_labels, symbol
from common.window import Window
from fleetgauge.pages.axes import byte_axis, clock_axis, format_bytes, format_duration, number_axis, plural
from fleetgauge.pages.charts import Band, Line, Reading, draw_chart, draw_key
from fleetgauge.pages.hover import HINT
from fleetgauge.pages.page import file_of, render_cards, render_document, render_table
from fleetgauge.pages.style import MAX_SERIES, SERIES_DARK, SERIES_LIGHT, SERIES_RULES, page_style

MAX_CARDS = 12
_CARD = ("low", "last", "high")  # of a summary
MAX_PROJECTS = 3  # named in a title
_RULES = f"""
{SERIES_RULES}main section{{background:none;border:0;padding:0;margin-top:2rem}}
nav{{display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.875rem;margin-top:.75rem}}
nav a,h3{{overflow-wrap:anywhere}}
.ok{{color:var(--good)}}.partial,.failed{{color:var(--bad)}}.empty,.skipped{{color:var(--odd)}}
.charts{{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.9rem;margin-top:.6rem}}
.metric{{background:var(--card);border:1px solid var(--edge);border-radius:10px}}
.metric{{padding:.8rem .9rem;min-width:0;display:flex;flex-direction:column}}
.card{{background:var(--card)}}
.metric.several{{grid-column:1/-1}}
.metric h4{{font-size:.9375rem;line-height:1.35;margin:0;overflow-wrap:anywhere}}
.metric .plot{{height:9.5rem}}
.metric.several .plot{{height:13rem}}
.metric .chart{{margin-top:.7rem}}
.unit{{color:var(--muted);font-size:.8125rem;overflow-wrap:anywhere;min-width:0}}
.name{{font-size:.8125rem;overflow-wrap:anywhere}}
.name svg{{width:1.6rem;height:.8rem;margin-right:.5rem;overflow:visible;vertical-align:middle}}
.name path{{fill:none}}
td.name::before{{display:none}}
@media (max-width:52rem){{.charts{{grid-template-columns:minmax(0,1fr)}}}}
@media (max-width:40rem){{.metric tr{{grid-template-columns:repeat(3,minmax(0,1fr))}}}}
@media (min-width:96rem){{main{{max-width:94rem}}.charts{{grid-template-columns:repeat(3,minmax(0,1fr))}}}}
@media print{{.metric{{break-inside:avoid}}.charts{{grid-template-columns:repeat(2,minmax(0,1fr))}}}}
"""
_STYLE = page_style(SERIES_LIGHT, SERIES_DARK, _RULES)
_HOW_TO_READ = (
    "Times are UTC. A line is the mean of each interval, the shade behind it reaches from the lowest to the "
    f"highest value in it. Where a line is broken, nothing is known. {HINT}"
)


class DrawnChart(NamedTuple):
    """A widget and its lines, of how many."""

    widget: Widget
    grid: Grid
    lines: Sequence[ChartLine]
    total: int

    @property
    def unit(self) -> str:
        """The unit of what is drawn."""
        return "percent" if self.widget.share_of else self.widget.metrics[0].unit


class Report(NamedTuple):
    """What a page shows of one collector: its dashboards, with the pictures of each section."""

    outcome: Outcome
    points: Points | None
    shared: Sequence[str]
    boards: Sequence[tuple[Dashboard, Sequence[tuple[Section, Sequence[DrawnChart]]]]]


def write_page(
    path: Path,
    outcomes: Iterable[Outcome],
    points: Mapping[str, Points],
    span: Window,
    dashboards: Mapping[str, Sequence[Dashboard]],
) -> Path:
    """Write the page and return its file: in a directory its title names it.

    `dashboards` are those of each collector. ConfigurationError where the page cannot be written.
    """
    reports = [
        _report(outcome, points.get(outcome.collector), span, dashboards.get(outcome.collector, ()))
        for outcome in outcomes
    ]
    title = _title(reports, span)
    body = [
        f"<h1>{html.escape(title)}</h1>",
        render_cards(_cards(reports)),
        f"<p>{_totals(reports, span)}</p>",
        _notes(reports),
        _contents(reports),
        f"<details><summary>How to read this page</summary><p>{_HOW_TO_READ}</p></details>",
        *(_collector(report, span) for report in reports),
    ]
    path = file_of(path, title)
    with output_file(path, "--html") as file:
        file.write(render_document(title, _STYLE, "".join(body), script=True))
    return path


def _report(outcome: Outcome, points: Points | None, span: Window, boards: Sequence[Dashboard]) -> Report:
    by_metric: dict[str, list[SeriesPoints]] = {}
    for entry in sorted(points or (), key=lambda entry: (entry.series.metric, entry.series.labels)):
        by_metric.setdefault(entry.series.metric, []).append(entry)

    def chart(widget: Widget) -> DrawnChart:
        grid, lines, count = chart_lines(widget, by_metric, span, MAX_SERIES)
        return DrawnChart(widget, grid, lines, count)

    shared = shared_labels(entry for some in by_metric.values() for entry in some)
    drawn = [
        (board, [(section, [*map(chart, section.widgets)]) for section in board.sections]) for board in boards
    ]
    return Report(outcome, points if by_metric else None, shared, drawn if by_metric else ())


def _title(reports: Sequence[Report], span: Window) -> str:
    """Return the title: the collectors, the projects and the span."""
    tags = (
        dict(label.partition(":")[::2] for label in entry.series.labels)
        for report in reports
        for entry in report.points or ()
    )
    projects = sorted(
        {"/".join((tag.get("entity", "?"), tag["project"])) for tag in tags if "project" in tag}
    )
    named = ", ".join(projects) if len(projects) <= MAX_PROJECTS else f"{len(projects)} projects"
    collectors = ", ".join(report.outcome.collector for report in reports)
    return f"Dry run of {collectors}{f' of {named}' if named else ''}, {from_to(span.since, span.until)}"


def _cards(reports: Iterable[Report]) -> Iterator[tuple[str, str, str]]:
    """Yield what the dashboards show as single numbers: the last value, and from what to what it went."""
    charts = (
        (report, board, chart)
        for report in reports
        for board, sections in report.boards
        for _, some in sections
        for chart in some
        if chart.widget.draw is Draw.VALUE and (chart.lines or _is_live_only(chart, report))
    )
    for report, board, chart in islice(charts, MAX_CARDS):
        if chart.lines:
            low, last, high = (_short(getattr(chart.lines[0].summary, name), chart.unit) for name in _CARD)
            value, detail = f"{last} {symbol(chart.unit)}".strip(), f"{low} to {high}"
        else:
            value, detail = "unknown", _why_empty(chart, report)
        yield html.escape(chart.widget.title), html.escape(value), html.escape(f"{board.title}: {detail}")


def _short(value: float, unit: str) -> str:
    if unit == "byte":
        return format_bytes(value)
    return f"{value:,.1f}" if abs(value) >= 1 and value != int(value) else rounded(value)


def _totals(reports: Sequence[Report], span: Window) -> str:
    every = [entry for report in reports for entry in report.points or ()]
    metrics = len({entry.series.metric for entry in every})
    points = sum(len(entry.values) for entry in every)
    return (
        f"Nothing was sent: this was a dry run. {describe(span)}: {plural(points, 'point')} in "
        f"{plural(len(every), 'series')} of {plural(metrics, 'metric')}."
    )


def _notes(reports: Iterable[Report]) -> str:
    """Return what failed, was lost and was dropped."""
    notes = []
    for outcome in (report.outcome for report in reports):
        notes += [f"{outcome.collector}: {outcome.error.message}"] if outcome.error else []
        notes += [f"{outcome.collector} lost {unit}" for unit in outcome.lost]
        if outcome.counts.dropped:
            reasons = ", ".join(
                f"{count:,} {reason}" for reason, count in sorted(outcome.counts.dropped.items())
            )
            notes.append(f"{outcome.collector} dropped {reasons}")
    listed = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return f'<div class="note">{listed}</div>' if listed else ""


def _contents(reports: Iterable[Report]) -> str:
    links = [
        f'<a href="#{_anchor(report, board)}">{html.escape(board.title)}</a>'
        for report in reports
        for board, _ in report.boards
    ]
    return f"<nav>{''.join(links)}</nav>" if len(links) > 1 else ""


def _anchor(report: Report, board: Dashboard) -> str:
    return html.escape(f"{report.outcome.collector} {board.key}".replace(" ", "-"))


def _collector(report: Report, span: Window) -> str:
    outcome = report.outcome
    badge = f'<span class="status {outcome.status}">{outcome.status}</span>'
    parts = [f'<div class="head"><h2>{html.escape(outcome.collector)}</h2>{badge}</div>']
    if report.shared:
        parts.append(f"<p>All series: {html.escape(' '.join(report.shared))}</p>")
    if report.points is None:
        why = "it failed" if outcome.error else "it found no point in this span"
        parts.append(f"<p>There is nothing to draw: {why}.</p>")
    for board, sections in report.boards:
        parts.append(f'<div class="board" id="{_anchor(report, board)}"><h2>{html.escape(board.title)}</h2>')
        parts += [_section(section, charts, report, span) for section, charts in sections]
        parts.append("</div>")
    return f"<section>{''.join(parts)}</section>"


def _section(section: Section, charts: Sequence[DrawnChart], report: Report, span: Window) -> str:
    """Return the charts of a section; those that are empty are named, with the reason."""
    drawn = [_draw_chart(entry, report.shared, span) for entry in charts if entry.lines]
    notes = [f"<p>{html.escape(entry.widget.text)}</p>" for entry in charts if entry.widget.text]
    empty: dict[str, list[str]] = {}
    for entry in charts:
        if not entry.lines and not entry.widget.text:
            empty.setdefault(_why_empty(entry, report), []).append(entry.widget.title)
    absent = [
        f'<p class="absent">{html.escape(" · ".join(titles))}: {html.escape(why)}.</p>'
        for why, titles in empty.items()
    ]
    body = f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""
    return f"<h3>{html.escape(section.title)}</h3>{body}{''.join(notes + absent)}"


def _why_empty(chart: DrawnChart, report: Report) -> str:
    widget = chart.widget
    found = {entry.series.metric for entry in report.points or ()}
    names = dict.fromkeys(metric.name for metric in (*widget.metrics, *widget.share_of))
    if _is_live_only(chart, report):
        return "only measured live, not for the past"
    if missing := [name for name in names if name not in found]:
        return f"no point of {', '.join(missing)} in this span"
    if widget.where:
        return f"no series with {' '.join(widget.where)}"
    return "nothing to divide by"


def _is_live_only(chart: DrawnChart, report: Report) -> bool:
    live_only = report.points.live_only if report.points else frozenset[str]()
    return bool(chart.widget.metrics) and {metric.name for metric in chart.widget.metrics} <= live_only


def _draw_chart(chart: DrawnChart, shared: Sequence[str], span: Window) -> str:
    widget, unit = chart.widget, chart.unit
    names = [" ".join(label for label in line.labels if label not in shared) for line in chart.lines]
    is_alone = chart.total == 1 and names == [""]
    keys = [
        "" if is_alone else draw_key("line", f"s{number}") + html.escape(name or "no other tags")
        for number, name in enumerate(names, start=1)
    ]
    table = _table(keys, [line.summary for line in chart.lines], unit)
    hidden = chart.total - len(chart.lines)
    more = (
        f"<p>The {len(chart.lines)} lines that reach highest are drawn, {hidden:,} are not.</p>"
        if hidden
        else ""
    )
    kind = " · ".join(filter(None, (unit, "" if widget.share_of else widget.metrics[0].kind)))
    return (
        f'<article class="metric{" several" if len(names) > 2 else ""}"><div class="head">'
        f'<h4>{html.escape(widget.title)}</h4><span class="unit">{html.escape(kind)}</span></div>'
        f"{_chart(chart, names, span)}{table}{more}{_about(widget)}</article>"
    )


def _about(widget: Widget) -> str:
    """Return the metrics of a chart and what they mean, folded."""
    metrics = dict.fromkeys((*widget.metrics, *widget.share_of))
    texts = [
        f"<p>{html.escape(entry.name).replace('.', '.<wbr>')}: {html.escape(entry.help)}</p>"
        for entry in metrics
    ]
    if widget.share_of:
        above, below = (
            " + ".join(entry.name for entry in some) for some in (widget.metrics, widget.share_of)
        )
        texts.insert(0, f"<p>100 * ({html.escape(above)}) / ({html.escape(below)})</p>")
    return f'<details class="about"><summary>What it shows</summary>{"".join(texts)}</details>'


def _chart(chart: DrawnChart, names: Sequence[str], span: Window) -> str:
    grid, unit = chart.grid, chart.unit
    low = min(line.summary.low for line in chart.lines)
    high = max(line.summary.high for line in chart.lines)
    lines, bands = [], []
    for number, (name, line) in enumerate(zip(names, chart.lines, strict=True), start=1):
        kind, middles = f"s{number}", [(grid.middle(at), entry) for at, entry in enumerate(line.intervals)]
        lines.append(Line(name, kind, [(at, entry and entry.mean) for at, entry in middles], dots=True))
        if any(entry and entry.low < entry.high for entry in line.intervals):
            bands.append(Band(kind, [(at, entry and (entry.low, entry.high)) for at, entry in middles]))
    text = f"{chart.widget.title} over {format_duration(span.seconds)}: " + (
        f"from {_value(low, unit)} to {_value(high, unit)} {'' if unit == 'byte' else unit}".rstrip()
    )
    is_bytes = unit == "byte"
    y = byte_axis(high) if is_bytes and low >= 0 else number_axis(low, high)
    reading = Reading("clock", "byte" if is_bytes else "number", grid.width / 2)
    x = clock_axis(span.since, span.until)
    return draw_chart(x, y, lines, (), (), text, bands, legend=False, reading=reading)


def _value(value: float, unit: str) -> str:
    return format_bytes(value) if unit == "byte" else rounded(value)


def _table(names: Iterable[str], summaries: Iterable[Summary], unit: str) -> str:
    rows = []
    for name, entry in zip(names, summaries, strict=True):
        values = {"Last": entry.last, "Min": entry.low, "Mean": entry.mean, "Max": entry.high}
        cells = [(head, _value(value, unit), "number") for head, value in values.items()]
        cells.append(("Points", f"{entry.points:,}", "number"))
        rows.append([("Series", name, "name wide"), *cells] if name else cells)
    return render_table(rows)
