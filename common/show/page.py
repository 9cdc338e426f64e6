"""A span of the past as one self-contained page: the charts of the dashboards, before anything is sent.

It leads with the numbers of the dashboards' overviews. Nothing is loaded and everything is escaped. It stays
small for any number of points and series: lines are drawn from intervals, and of many series some are drawn,
which the page states; the table in the terminal and `--csv` have them all.

`grid.py` computes the lines, `fleetgauge/pages/` draws charts and renders documents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from common.dashboard import DECIMALS, Dashboard, Draw, Widget
from common.metric import Metric, Series
from common.outcome import Outcome
from common.show.export import output_file
from common.show.grid import ChartLine, Grid, chart_lines
from common.show.points import Points, by_name
from common.show.table import describe, for_people, rounded, shared_labels
from common.text import visible
from common.window import Window
from fleetgauge.pages.axes import byte_axis, clock_axis, number_axis, plural
from fleetgauge.pages.charts import Line, Reading, draw_chart
from fleetgauge.pages.page import HINT, MAX_SERIES, file_of, render_cards, render_document

# Numbers at the top from one collector; more of them are no summary.
MAX_CARDS = 8
_RULES = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def write_page(
    path: Path,
    outcomes: Sequence[Outcome],
    points: Mapping[str, Points],
    span: Window,
    dashboards: Mapping[str, Sequence[Dashboard]],
    live_only: Collection[Metric] = (),
) -> Path:
    """Write the page and return its file: in a directory its title names it.

    `points` are the series of each collector, `dashboards` its dashboards; `span` is what the axis shows.
    `live_only` are metrics that were not measured for it. ConfigurationError where the page cannot be
    written.
    """
    title = f"Dry run of {', '.join(outcome.collector for outcome in outcomes)}, {span}"
    cards: list[tuple[str, str, str]] = []
    notes: list[str] = []
    sections: list[str] = []
    total = 0
    for outcome in outcomes:
        name = outcome.collector
        # Sorted, so that two runs over the same data make the same page.
        found = sorted(points.get(name, ()), key=by_name)
        total += len(found)
        badge = f'<span class="status {outcome.status}">{outcome.status}</span>'
        sections.append(f'<section><div class="head"><h2>{escape(name)}</h2>{badge}</div>')
        if found:
            if shared := shared_labels(found):
                sections.append(f"<p>All series: {escape(' '.join(shared))}</p>")
            own_cards: list[tuple[str, str, str]] = []
            for board in dashboards.get(name, ()):
                sections += _board(board, found, live_only, span, own_cards)
            cards += own_cards[:MAX_CARDS]
        else:
            why = "it failed" if outcome.error else "it found no point in this span"
            sections.append(f"<p>There is nothing to draw: {why}.</p>")
        sections.append("</section>")
        notes += [f"{name}: {outcome.error.message}"] if outcome.error else []
        notes += [f"{name} lost {unit}" for unit in outcome.report.lost]
        notes += [f"{name} dropped {n:,} {reason}" for reason, n in sorted(outcome.report.dropped.items())]
    # What an error quotes may contain what UTF-8 cannot encode.
    listed = "".join(f"<p>{escape(visible(note))}</p>" for note in notes)
    body = (
        f"<h1>{escape(title)}</h1>{render_cards(cards)}"
        f"<p>Nothing was sent: this was a dry run. {describe(span)}: {plural(total, 'series')}. A line is "
        "the mean of each interval, of counts their sum; where it is broken, nothing is known. "
        f"Times are UTC. {HINT}</p>"
        + (f'<div class="note">{listed}</div>' if listed else "")
        + "".join(sections)
    )
    path = file_of(path, title)
    with output_file(path, "--html") as file:
        file.write(render_document(title, _RULES, body, script=True))
    return path


def _board(
    board: Dashboard,
    found: Sequence[Series],
    live_only: Collection[Metric],
    span: Window,
    cards: list[tuple[str, str, str]],
) -> Iterator[str]:
    """Yield a dashboard by its sections; charts that are empty are named, with the reason.

    What the dashboard shows as single numbers is added to `cards`.
    """
    shared = shared_labels(found)
    by_metric: dict[str, list[Series]] = {}
    for series in found:
        by_metric.setdefault(series.metric.name, []).append(series)
    yield f"<h2>{escape(board.title)}</h2>"
    for title, widgets in board.sections.items():
        charts: list[str] = []
        absent: list[str] = []
        for widget in widgets:
            grid, lines, total = chart_lines(widget, by_metric, span, MAX_SERIES)
            if not lines:
                why = f"{widget.title}: {_why_empty(widget, live_only)}."
                absent.append(f'<p class="absent">{escape(why)}</p>')
                continue
            charts.append(_chart(widget, grid, lines, total, shared, span))
            if widget.draw is Draw.VALUE and lines[0].number is not None:
                number, unit = _value(lines[0].number, _unit(widget))
                detail = " · ".join(filter(None, (unit, board.title)))
                cards.append((escape(widget.title), escape(number), escape(detail)))
        yield f'<h3>{escape(title)}</h3><div class="charts">{"".join(charts)}</div>{"".join(absent)}'


def _why_empty(widget: Widget, live_only: Collection[Metric]) -> str:
    """Return why a chart of this widget would have no line."""
    if all(metric in live_only for metric in widget.metrics):
        return "only measured live, not for the past"
    names = dict.fromkeys(metric.name for metric in (*widget.metrics, *widget.share_of))
    return f"no value of {', '.join((*names, *widget.where))} in this span"


def _unit(widget: Widget) -> str:
    return "percent" if widget.share_of else widget.metrics[0].unit


def _value(value: float, unit: str) -> tuple[str, str]:
    """Return a value for a person, and its unit; bytes and durations have a suitable one in the text."""
    if text := for_people(value, unit):
        return text, ""
    if unit in DECIMALS and 1 <= abs(value) < 1e15:
        return f"{value:,.{DECIMALS[unit]}f}", unit
    return rounded(value), unit


def _chart(
    widget: Widget, grid: Grid, lines: Sequence[ChartLine], total: int, shared: Sequence[str], span: Window
) -> str:
    """Return a chart under its title, with a legend, and folded below it what its metrics mean.

    `lines` are drawn, of `total`; labels that all series share are left out.
    """
    unit = _unit(widget)
    known = [value for line in lines for value in line.values if value is not None]
    low, high = min(known), max(known)
    lowest, highest = (" ".join(filter(None, _value(value, unit))) for value in (low, high))
    drawn = [
        Line(
            " ".join(label for label in line.labels if label not in shared),
            f"s{number}",
            [(grid.end(at), value) for at, value in enumerate(line.values)],
        )
        for number, line in enumerate(lines, start=1)
    ]
    is_bytes = unit == "byte"
    figure = draw_chart(
        clock_axis(span.since, span.until),
        # The axis of bytes begins at zero.
        byte_axis(high) if is_bytes and low >= 0 else number_axis(low, high),
        drawn,
        (),
        (),
        f"{widget.title}: from {lowest} to {highest}",
        Reading("clock", "byte" if is_bytes else "number", grid.width / 2),
    )
    more = f"<p>The {len(lines)} largest of {total:,} lines are drawn.</p>" if total > len(lines) else ""
    texts = [f"{m.name}: {m.help}" for m in dict.fromkeys((*widget.metrics, *widget.share_of))]
    if widget.share_of:
        above, below = (" + ".join(m.name for m in some) for some in (widget.metrics, widget.share_of))
        texts.insert(0, f"100 * ({above}) / ({below})")
    about = "".join(f"<p>{escape(text)}</p>" for text in texts)
    return (
        f'<article class="metric"><div class="head"><h4>{escape(widget.title)}</h4>'
        f'<span class="unit">{escape(unit)}</span></div>{figure}{more}'
        f'<details class="about"><summary>What it shows</summary>{about}</details></article>'
    )
