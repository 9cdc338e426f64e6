"""How a collector is looked at, from its declarations to what travels with the samples of a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from common.dashboard import Widget, views_of
from common.metric import Combine, Metric
from common.show.points import Board, Chart


def boards(name: str, metrics: Iterable[Metric], address: str) -> list[Board]:
    """The dashboards of a collector; `address` is that of Datadog's API."""
    return [
        Board(
            board.title,
            f"{_screen(address)}/dashboard/lists?q={quote(board.title)}",
            tuple((section.title, tuple(map(_chart, section.widgets))) for section in board.sections),
        )
        for board in views_of(name, metrics).dashboards
    ]


def _screen(address: str) -> str:
    """Where people look, of the site whose API is at an address."""
    site = address.removeprefix("https://api.")
    if site == address:
        return address
    return f"https://{'app.' if site.count('.') == 1 else ''}{site}"


def _chart(widget: Widget) -> Chart:
    names = tuple(metric.name for metric in widget.metrics)
    whole = tuple(metric.name for metric in widget.share_of)
    single = any(metric.combines is Combine.NONE for metric in widget.metrics)
    return Chart(widget.title, names, None if single else widget.by, whole, widget.where, widget.text)
