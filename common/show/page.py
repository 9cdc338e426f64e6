"""A span of the past as one self-contained page: the charts of the dashboards, before anything is sent.

It leads with the numbers of the dashboards' overviews. Nothing is loaded and everything is escaped. It stays
small for any number of points and series: lines are drawn from intervals, and of many series some are drawn,
which the page states; the table in the terminal and `--csv` have them all.

`grid.py` computes the lines, `fleetgauge/pages/` draws charts and renders documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from common.dashboard import Dashboard, Draw, Widget
from common.metric import Series
from common.outcome import Outcome
from common.show.export import output_file
from common.show.grid import ChartLine, Grid, chart_lines
from common.show.points import Points, labels
from common.show.table import describe, from_to, rounded, shared_labels
from common.window import Window
from fleetgauge.pages.axes import byte_axis, clock_axis, format_bytes, format_duration, number_axis, plural
from fleetgauge.pages.charts import Band, Line, Reading, draw_chart, draw_key
from fleetgauge.pages.hover import HINT
from fleetgauge.pages.page import file_of, render_cards, render_document, render_table
from fleetgauge.pages.style import MAX_SERIES, SERIES_DARK, SERIES_LIGHT, SERIES_RULES, page_style

# More numbers than this at the top are no summary.
MAX_CARDS = 12
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


class Chart(NamedTuple):
    """A widget with the lines that are drawn, of `total`; `why_empty` is why there would be none."""

    widget: Widget
    grid: Grid
    lines: Sequence[ChartLine]
    total: int
    why_empty: str

    @property
    def unit(self) -> str:
        """The unit of what is drawn."""
        return "percent" if self.widget.share_of else self.widget.metrics[0].unit


_Board = tuple[Dashboard, Mapping[str, Sequence[Chart]]]


def write_page(
    path: Path,
    outcomes: Sequence[Outcome],
    points: Mapping[str, Points],
    span: Window,
    dashboards: Mapping[str, Sequence[Dashboard]],
) -> Path:
    """Write the page and return its file: in a directory its title names it.

    `points` are the series of each collector, `dashboards` its dashboards; `span` is what the axis shows.
    ConfigurationError where the page cannot be written.
    """
    # Sorted, so that two runs over the same data make the same page.
    found = {
        name: sorted(some, key=lambda series: (series.metric.name, labels(series)))
        for name, some in points.items()
    }
    shared = {name: shared_labels(every) for name, every in found.items() if every}
    # A collector without points has no dashboards on the page: its section has the reason.
    boards = {
        name: [*_draw(dashboards.get(name, ()), found[name], points[name].live_only, shared[name], span)]
        for name in shared
    }
    collectors = ", ".join(outcome.collector for outcome in outcomes)
    title = f"Dry run of {collectors}, {from_to(span.since, span.until)}"
    body = [
        f"<h1>{escape(title)}</h1>",
        render_cards(islice(_cards(board for some in boards.values() for board in some), MAX_CARDS)),
        f"<p>{_totals([series for every in found.values() for series in every], span)}</p>",
        _notes(outcomes),
        _contents(boards),
        f"<details><summary>How to read this page</summary><p>{_HOW_TO_READ}</p></details>",
    ]
    for outcome in outcomes:
        name = outcome.collector
        body.append(_collector(outcome, shared.get(name, ()), boards.get(name), span))
    path = file_of(path, title)
    with output_file(path, "--html") as file:
        file.write(render_document(title, _STYLE, "".join(body), script=True))
    return path


def _draw(
    dashboards: Iterable[Dashboard],
    found: Iterable[Series],
    live_only: frozenset[str],
    shared: Sequence[str],
    span: Window,
) -> Iterator[_Board]:
    """Yield dashboards with the charts of each section; labels that all series share are left out.

    `live_only` are the metrics that a backfill does not have, for the reason of an empty chart.
    """
    by_metric: dict[str, list[Series]] = {}
    for series in found:
        by_metric.setdefault(series.metric.name, []).append(series)

    def chart(widget: Widget) -> Chart:
        grid, lines, total = chart_lines(widget, by_metric, span, MAX_SERIES)
        named = [
            line._replace(labels=tuple(label for label in line.labels if label not in shared))
            for line in lines
        ]
        return Chart(widget, grid, named, total, _why_empty(widget, by_metric, live_only))

    for board in dashboards:
        yield board, {title: [*map(chart, widgets)] for title, widgets in board.sections.items()}


def _why_empty(widget: Widget, by_metric: Mapping[str, object], live_only: frozenset[str]) -> str:
    """Return why a chart of this widget would have no line, most specific reason first."""
    # `live_only` is empty where the page has the present as well (`Points.add_present`).
    if live_only.issuperset(metric.name for metric in widget.metrics):
        return "only measured live, not for the past"
    names = dict.fromkeys(metric.name for metric in (*widget.metrics, *widget.share_of))
    if missing := [name for name in names if name not in by_metric]:
        return f"no point of {', '.join(missing)} in this span"
    return f"no series with {' '.join(widget.where)}" if widget.where else "nothing to divide by"


def _cards(boards: Iterable[_Board]) -> Iterator[tuple[str, str, str]]:
    """Yield title, number and detail of what the dashboards show as single numbers, escaped.

    The number is the last value, the detail the range of values.
    """
    for board, sections in boards:
        for chart in (chart for charts in sections.values() for chart in charts):
            if chart.widget.draw is Draw.VALUE and chart.lines:
                summary, unit = chart.lines[0].summary, chart.unit
                low, last, high = (_value(value, unit) for value in (summary.low, summary.last, summary.high))
                detail = f"{board.title}: {low} to {high} {'' if unit == 'byte' else unit}".rstrip()
                yield escape(chart.widget.title), escape(last), escape(detail)


def _totals(every: Sequence[Series], span: Window) -> str:
    """Return a sentence with the numbers of points, series and metrics."""
    metrics = len({series.metric.name for series in every})
    points = sum(len(series.values) for series in every)
    return (
        f"Nothing was sent: this was a dry run. {describe(span)}: {plural(points, 'point')} in "
        f"{plural(len(every), 'series')} of {plural(metrics, 'metric')}."
    )


def _notes(outcomes: Iterable[Outcome]) -> str:
    """Return what failed, was lost and was dropped, by collector; empty where nothing was."""
    notes = []
    for outcome in outcomes:
        notes += [f"{outcome.collector}: {outcome.error.message}"] if outcome.error else []
        notes += [f"{outcome.collector} lost {unit}" for unit in outcome.lost]
        if outcome.counts.dropped:
            reasons = ", ".join(
                f"{count:,} {reason}" for reason, count in sorted(outcome.counts.dropped.items())
            )
            notes.append(f"{outcome.collector} dropped {reasons}")
    listed = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f'<div class="note">{listed}</div>' if listed else ""


def _contents(boards: Mapping[str, Sequence[_Board]]) -> str:
    """Return links to the dashboards; none where there are fewer than two."""
    links = [
        f'<a href="#{escape(board.key)}">{escape(board.title)}</a>'
        for some in boards.values()
        for board, _ in some
    ]
    return f"<nav>{''.join(links)}</nav>" if len(links) > 1 else ""


def _collector(outcome: Outcome, shared: Sequence[str], boards: Sequence[_Board] | None, span: Window) -> str:
    """Return the section of one collector: its status, the labels of all series, its dashboards.

    `boards` is None where it found no point.
    """
    badge = f'<span class="status {outcome.status}">{outcome.status}</span>'
    parts = [f'<div class="head"><h2>{escape(outcome.collector)}</h2>{badge}</div>']
    if shared:
        parts.append(f"<p>All series: {escape(' '.join(shared))}</p>")
    if boards is None:
        why = "it failed" if outcome.error else "it found no point in this span"
        parts.append(f"<p>There is nothing to draw: {why}.</p>")
    for board, sections in boards or ():
        parts.append(f'<div class="board" id="{escape(board.key)}"><h2>{escape(board.title)}</h2>')
        parts += [_section(title, charts, span) for title, charts in sections.items()]
        parts.append("</div>")
    return f"<section>{''.join(parts)}</section>"


def _section(title: str, charts: Sequence[Chart], span: Window) -> str:
    """Return the charts of a section; those that are empty are named, with the reason.

    Empty charts with the same reason share a line: a collector without GPUs has many of them.
    """
    drawn = "".join(_article(chart, span) for chart in charts if chart.lines)
    notes = [f"<p>{escape(chart.widget.text)}</p>" for chart in charts if chart.widget.text]
    empty: dict[str, list[str]] = {}
    for chart in charts:
        if not chart.lines and not chart.widget.text:
            empty.setdefault(chart.why_empty, []).append(chart.widget.title)
    notes += [
        f'<p class="absent">{escape(" · ".join(titles))}: {escape(why)}.</p>' for why, titles in empty.items()
    ]
    body = f'<div class="charts">{drawn}</div>' if drawn else ""
    return f"<h3>{escape(title)}</h3>{body}{''.join(notes)}"


def _article(chart: Chart, span: Window) -> str:
    """Return a chart under its title, with the statistics of its lines and what they mean."""
    widget, unit = chart.widget, chart.unit
    # A single line without labels needs no column with its name.
    is_alone = chart.total == 1 and not chart.lines[0].labels
    rows = []
    for number, line in enumerate(chart.lines, start=1):
        name = draw_key("line", f"s{number}") + escape(" ".join(line.labels) or "no other tags")
        statistics = line.summary
        cells = [
            ("Last", _value(statistics.last, unit), "number"),
            ("Min", _value(statistics.low, unit), "number"),
            ("Mean", _value(statistics.mean, unit), "number"),
            ("Max", _value(statistics.high, unit), "number"),
            ("Points", f"{statistics.points:,}", "number"),
        ]
        rows.append(cells if is_alone else [("Series", name, "name wide"), *cells])
    hidden = chart.total - len(chart.lines)
    more = f"<p>The {len(rows)} lines that reach highest are drawn, {hidden:,} are not.</p>" if hidden else ""
    kind = " · ".join(filter(None, (unit, "" if widget.share_of else widget.metrics[0].kind)))
    return (
        f'<article class="metric{" several" if len(rows) > 2 else ""}"><div class="head">'
        f'<h4>{escape(widget.title)}</h4><span class="unit">{escape(kind)}</span></div>'
        f"{_figure(chart, span)}{render_table(rows)}{more}{_about(widget)}</article>"
    )


def _about(widget: Widget) -> str:
    """Return the metrics of a chart and what they mean, folded; of a share also its formula."""
    texts = [
        # A long metric name may be broken at its dots, but is copied without a space.
        f"<p>{escape(metric.name).replace('.', '.<wbr>')}: {escape(metric.help)}</p>"
        for metric in dict.fromkeys((*widget.metrics, *widget.share_of))
    ]
    if widget.share_of:
        above = " + ".join(metric.name for metric in widget.metrics)
        below = " + ".join(metric.name for metric in widget.share_of)
        texts.insert(0, f"<p>100 * ({escape(above)}) / ({escape(below)})</p>")
    return f'<details class="about"><summary>What it shows</summary>{"".join(texts)}</details>'


def _figure(chart: Chart, span: Window) -> str:
    """Return the chart itself: a line of means per series, and a band from lowest to highest value."""
    grid, unit = chart.grid, chart.unit
    low = min(line.summary.low for line in chart.lines)
    high = max(line.summary.high for line in chart.lines)
    lines, bands = [], []
    for number, line in enumerate(chart.lines, start=1):
        kind = f"s{number}"
        drawn = [(grid.end(at), interval) for at, interval in enumerate(line.intervals)]
        means = [(end, interval and interval[1]) for end, interval in drawn]
        lines.append(Line(" ".join(line.labels), kind, means, dots=True))
        # With one point per interval the band would have no height.
        if any(interval and interval[0] < interval[2] for interval in line.intervals):
            bands.append(
                Band(kind, [(end, interval and (interval[0], interval[2])) for end, interval in drawn])
            )
    text = f"{chart.widget.title} over {format_duration(span.seconds)}: " + (
        f"from {_value(low, unit)} to {_value(high, unit)} {'' if unit == 'byte' else unit}".rstrip()
    )
    is_bytes = unit == "byte"
    # The axis of bytes begins at zero.
    y = byte_axis(high) if is_bytes and low >= 0 else number_axis(low, high)
    reading = Reading("clock", "byte" if is_bytes else "number", grid.width / 2)
    x = clock_axis(span.since, span.until)
    return draw_chart(x, y, lines, (), (), text, bands, legend=False, reading=reading)


def _value(value: float, unit: str) -> str:
    """Return a value for a person: bytes in a suitable unit, other values rounded."""
    return format_bytes(value) if unit == "byte" else rounded(value)
