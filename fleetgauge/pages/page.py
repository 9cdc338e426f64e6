"""The elements that our pages are made of: whole documents, cards and tables, as text.

What is put in is HTML: whoever has text escapes it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable


def render_document(title: str, style: str, body: str) -> str:
    """A whole page; the title is text."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def render_cards(cards: Iterable[tuple[str, str, str]]) -> str:
    """What a reader wants to know first: names, values, and a detail below each."""
    return (
        '<dl class="cards">'
        + "".join(
            f'<div class="card"><dt>{name}</dt><dd>{value}<small>{detail}</small></dd></div>'
            for name, value, detail in cards
        )
        + "</dl>"
    )


def render_table(heads: Iterable[str], rows: Iterable[str]) -> str:
    """A table. On a phone its head is not shown, and every cell says itself what it is."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def render_row(*cells: tuple[str, str, str]) -> str:
    """A row of a table; a cell is its label, its content and the class that gives it its look."""
    return (
        "<tr>"
        + "".join(
            f'<td data-label="{label}" class="{look}"><span>{content}</span></td>'
            for label, content, look in cells
        )
        + "</tr>"
    )
