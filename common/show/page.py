"""A span of the past as one self-contained page: the charts of the dashboards, before anything is sent.

Nothing loaded, everything escaped; a few lines of script tell what is pointed at. It stays small and readable
for any number of points and series: lines are drawn from stretches of time, and of many series only some are
drawn, which the page says, and lists the others.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.metric import Metric
from common.outcome import Outcome
from common.show.output import output_file
from common.show.page_lines import Drawn, Figures, Plan
from common.show.page_style import STYLE
from common.show.page_title import page_title
from common.show.points import Board, Chart, Points, SeriesKey
from common.show.report import number
from common.show.summaries import Stretch, Summary, shared_labels
from common.window import Window
from fleetgauge.pages.axes import byte_axis, clock_axis, format_bytes, format_duration, number_axis, plural
from fleetgauge.pages.charts import Band, Line, Reading, draw_chart, draw_key
from fleetgauge.pages.hover import HINT
from fleetgauge.pages.page import file_of, render_cards, render_document, render_table

MAX_LISTED = 2000  # series of one collector below its charts, drawn or not
_HOW_TO_READ = (
    "Times are UTC. A line is the mean of each stretch of time, the shade behind it reaches from the lowest "
    f"to the highest value in it. Where a line is broken, nothing is known. {HINT}"
)


@dataclass(frozen=True)
class Picture:
    """A chart with the lines that are drawn of it, of how many."""

    chart: Chart
    metrics: Sequence[Metric]
    lines: Sequence[Drawn]
    series: int
    listed: Sequence[tuple[SeriesKey, Summary]]  # where not every series is a line of its own
    unlisted: int


@dataclass(frozen=True)
class Account:
    """What one collector has to show: its dashboards, each with the pictures of its sections."""

    outcome: Outcome
    declared: Sequence[Metric]
    summaries: Mapping[SeriesKey, Summary]
    boards: Sequence[tuple[Board, Sequence[tuple[str, Sequence[Picture]]]]]


def write(path: Path, outcomes: Iterable[Outcome], points: Mapping[str, Points], span: Window) -> Path:
    """Write the page, and say where: in a directory it gets a name. Raises where it cannot be written."""
    accounts = [_account(outcome, points.get(outcome.collector), span) for outcome in outcomes]
    series = (key for one in accounts for key in one.summaries)
    title = page_title([one.outcome.collector for one in accounts], series, span)
    path = file_of(path, title)
    with output_file(path, "--html") as file:
        file.write(render_page(title, accounts, span))
    return path


def _account(outcome: Outcome, file: Points | None, span: Window) -> Account:
    """Read a collector's points twice: for the figures of all series, then for the lines that are drawn."""
    if file is None:
        return Account(outcome, (), {}, ())
    summaries: dict[SeriesKey, Summary] = {}
    for part in file:
        if part.series not in summaries:
            summaries[part.series] = Summary()
        summaries[part.series].add(part)
    declared = file.metrics
    plan = Plan(declared, summaries, span)
    known = {metric.name: metric for metric in declared}
    room = MAX_LISTED

    def picture(chart: Chart) -> Picture:
        nonlocal room
        lines, series = plan.lines(chart)
        every = plan.series(chart)
        every = every if len(every) > len(lines) else []
        shown = every[:room]
        room -= len(shown)
        figures = [(one, summaries[one]) for one in shown]
        metrics = [known[name] for name in chart.metrics]
        return Picture(chart, metrics, lines, series, figures, len(every) - len(shown))

    boards = [
        (board, [(title, [*map(picture, charts)]) for title, charts in board.sections])
        for board in file.boards()
    ]
    plan.fill(file)
    return Account(outcome, declared, summaries, boards)


def render_page(title: str, accounts: Sequence[Account], span: Window) -> str:
    """The whole page."""
    body = [
        f"<h1>{html.escape(title)}</h1>",
        "<p>This was a dry run: nothing was sent.</p>",
        render_cards(_cards(accounts, span)),
        _notes(accounts),
        _contents(accounts),
        f"<p>{_HOW_TO_READ}</p>",
        *(_collector(account, span) for account in accounts),
    ]
    return render_document(title, STYLE, "".join(body), script=True)


def _cards(accounts: Sequence[Account], span: Window) -> Iterable[tuple[str, str, str]]:
    declared = sum(len(account.declared) for account in accounts)
    present = {series.metric for account in accounts for series in account.summaries}
    series = [summary for account in accounts for summary in account.summaries.values()]
    dropped = sum(sum(account.outcome.dropped.values()) for account in accounts)
    lost = sum(len(account.outcome.lost) for account in accounts)
    yield "Span", format_duration(span.seconds), "its last tick included"
    yield "Step", format_duration(span.step), f"{len(span.ticks):,} ticks"
    yield "Metrics", f"{len(present):,}", f"of {declared:,} declared"
    yield "Series", f"{len(series):,}", "metrics by tags"
    yield "Points", f"{sum(one.points for one in series):,}", "none of them sent"
    yield "Dropped", f"{dropped:,}", f"{lost:,} lost"


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
    boards = [(account, board) for account in accounts if account.summaries for board, _ in account.boards]
    links = "".join(
        f'<a href="#{html.escape(_anchor(account, board))}">'
        f"{html.escape(board.title or account.outcome.collector)}</a>"
        for account, board in boards
    )
    return f"<nav>{links}</nav>" if len(boards) > 1 else ""


def _anchor(account: Account, board: Board) -> str:
    return f"{account.outcome.collector} {board.title}".strip().replace(" ", "-")


def _collector(account: Account, span: Window) -> str:
    outcome, shared = account.outcome, shared_labels(account.summaries)
    badge = f'<span class="status {outcome.status}">{outcome.status}</span>'
    parts = [f'<div class="head"><h2>{html.escape(outcome.collector)}</h2>{badge}</div>']
    parts += [f"<p>Every series: {html.escape(' '.join(shared))}</p>"] if shared else []
    if not account.summaries:
        parts.append("<p>There is nothing to draw: no sample is of this span.</p>")
        return f"<section>{''.join(parts)}</section>"
    for board, sections in account.boards:
        parts.append(f'<div class="board" id="{html.escape(_anchor(account, board))}">')
        if board.title:
            name = html.escape(board.title)
            parts.append(f'<h2>Dashboard <a href="{html.escape(board.url)}">{name}</a></h2>')
        parts += [_section(title, pictures, shared, span) for title, pictures in sections]
        parts.append("</div>")
    return f"<section>{''.join(parts)}</section>"


def _section(title: str, pictures: Sequence[Picture], shared: Sequence[str], span: Window) -> str:
    """Charts under the title that they have on the dashboard; those without a value are only named."""
    drawn = [_picture(one, shared, span) for one in pictures if one.lines]
    notes = [f"<p>{html.escape(one.chart.text)}</p>" for one in pictures if one.chart.text]
    absent = [one.chart.title for one in pictures if not one.lines and not one.chart.text]
    named = f'<p class="absent">Without a value in this span: {html.escape(" · ".join(absent))}.</p>'
    head = f"<h3>{html.escape(title)}</h3>" if title else ""
    charts = f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""
    return head + charts + "".join(notes) + (named if absent else "")


def _picture(picture: Picture, shared: Sequence[str], span: Window) -> str:
    stretches = [line.stretches() for line in picture.lines]
    figures = [line.figures(each) for line, each in zip(picture.lines, stretches, strict=True)]
    plain = [" ".join(label for label in line.labels if label not in shared) for line in picture.lines]
    names = [_name(place, name, picture.series) for place, name in enumerate(plain, start=1)]
    several, hidden = len(names) > 2, picture.series - len(names)  # too many to stand beside another chart
    unit = "percent" if picture.chart.share_of else picture.metrics[0].unit
    listed = _series_table(names, figures, unit) if several else _stats(names, figures, unit)
    more = _all_series(picture, shared) or (f"<p>All {len(names)} series are drawn.</p>" if several else "")
    if hidden:
        more = f"<p>The {len(names)} series that reach highest are drawn, {hidden:,} are not.</p>{more}"
    kind = " · ".join(filter(None, (unit, "" if picture.chart.share_of else picture.metrics[0].kind)))
    named = ", ".join(name for name in picture.chart.metrics if name != picture.chart.title)
    named += f" in percent of {', '.join(picture.chart.share_of)}" if picture.chart.share_of else ""
    text = picture.metrics[0].help if len(picture.metrics) == 1 and not picture.chart.share_of else ""
    said = " · ".join(filter(None, (named, text)))
    return (
        f'<article class="metric{" several" if several else ""}"><div class="head">'
        f"<h4>{html.escape(picture.chart.title)}</h4>"
        f'<span class="unit">{html.escape(kind)}</span></div>'
        f"{_chart(picture, plain, stretches, figures, unit, span)}{listed}{more}"
        f'<p class="said">{html.escape(said).replace(".", ".<wbr>")}</p></article>'
    )


def _all_series(picture: Picture, shared: Sequence[str]) -> str:
    """What can be opened below a chart that does not show every series: their figures."""
    more = f"<p>{picture.unlisted:,} series more are not listed.</p>" if picture.unlisted else ""
    if not picture.listed:
        return more
    several = len({one.metric for one, _ in picture.listed}) > 1
    names = []
    for one, _ in picture.listed:
        labels = [label for label in one.labels if label not in shared]
        names.append(html.escape(" ".join([one.metric, *labels] if several else labels) or "no other tags"))
    figures = (summary for _, summary in picture.listed)
    table = _series_table(names, figures, picture.metrics[0].unit, "listed")
    drawn = f"{len(names) + picture.unlisted:,} series, {plural(len(picture.lines), 'line')} drawn"
    return f"<details><summary>All {drawn}</summary>{table}{more}</details>"


def _name(place: int, name: str, series: int) -> str:
    """How a line is told from the others of its chart: its look, and the tags that not all have."""
    if series == 1 and not name:
        return ""
    return draw_key("line", f"s{place}") + html.escape(name or "no other tags")


def _chart(
    picture: Picture,
    names: Sequence[str],
    each: Sequence[Sequence[Stretch | None]],
    figures: Sequence[Figures | Summary],
    unit: str,
    span: Window,
) -> str:
    low, high = min(one.low for one in figures), max(one.high for one in figures)
    lines, bands = [], []
    for place, (line, stretches) in enumerate(zip(picture.lines, each, strict=True), start=1):
        grid, kind = line.parts[0].grid, f"s{place}"
        means = [(grid.middle(at), one and one.mean) for at, one in enumerate(stretches)]
        lines.append(Line(names[place - 1], kind, means, dots=True))
        if any(one and one.low < one.high for one in stretches):
            lows = [(grid.middle(at), one and (one.low, one.high)) for at, one in enumerate(stretches)]
            bands.append(Band(kind, lows))
    text = (
        f"{picture.chart.title} over {format_duration(span.until - span.since)}: "
        f"from {_worded(low, unit)} to {_worded(high, unit)} {'' if unit == 'byte' else unit}"
    ).rstrip()
    x = clock_axis(span.since, span.until)
    y = byte_axis(high) if unit == "byte" and low >= 0 else number_axis(low, high)
    within = picture.lines[0].parts[0].grid.width / 2
    reading = Reading("clock", "byte" if unit == "byte" else "number", within)
    return draw_chart(x, y, lines, (), (), text, bands, legend=False, reading=reading)


def _worded(value: float, unit: str) -> str:
    return format_bytes(value) if unit == "byte" else number(value)


def _figures(one: Figures | Summary, unit: str) -> list[tuple[str, str]]:
    values = {"First": one.first, "Last": one.last, "Min": one.low, "Mean": one.mean, "Max": one.high}
    told = [(head, _worded(value, unit)) for head, value in values.items()]
    return [*told, ("Points", f"{one.points:,}")]


def _stats(names: Iterable[str], summaries: Iterable[Figures | Summary], unit: str) -> str:
    told = []
    for name, summary in zip(names, summaries, strict=True):
        told.append(f'<p class="name">{name}</p>' if name else "")
        figures = _figures(summary, unit)
        cells = "".join(f"<div><dt>{head}</dt><dd>{value}</dd></div>" for head, value in figures)
        told.append(f'<dl class="stats">{cells}</dl>')
    return "".join(told)


def _series_table(
    names: Iterable[str], summaries: Iterable[Figures | Summary], unit: str, css_class: str = ""
) -> str:
    rows = [
        [("Series", name, "name wide"), *((head, value, "number") for head, value in _figures(one, unit))]
        for name, one in zip(names, summaries, strict=True)
    ]
    return render_table(rows, css_class)
