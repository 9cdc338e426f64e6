"""The elements that our pages are made of: documents, cards and tables, as text.

What is put in is HTML: the caller escapes text. `style` has the rules, `hover` the script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fleetgauge.pages.hover import HOVER_STYLE, POLICY, SCRIPT


def render_document(title: str, style: str, body: str, *, script: bool = False) -> str:
    """Return a complete page; the title is text. With `script`, charts and tables are interactive.

    A page with a script has a policy that allows this script and nothing else.
    """
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">' if script else ""
    style, body = (style + HOVER_STYLE, f"{body}<script>{SCRIPT}</script>") if script else (style, body)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{policy}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def name_span(since: str, until: str) -> str:
    """Return a span such as `2026-11-14 00:00 to 06:00 UTC`; a day that both times have is written once."""
    return f"{since} to {until.removeprefix(since[:11])} UTC"


def file_of(path: Path, title: str) -> Path:
    """Return the file to write a page to: in a directory, one that is named after its title."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", title).strip("-.")[:150]
    return path / f"{name}.html" if path.is_dir() else path


def render_cards(cards: Iterable[tuple[str, str, str]]) -> str:
    """Return the most important values: a name, a value, and a detail below it."""
    listed = "".join(
        f'<div class="card"><dt>{name}</dt><dd>{value}<small>{detail}</small></dd></div>'
        for name, value, detail in cards
    )
    return f'<dl class="cards">{listed}</dl>'


def render_table(rows: Sequence[Sequence[tuple[str, str, str]]], css_class: str = "") -> str:
    """Return a table of at least one row; a cell is the name of its column, its content and its CSS class.

    On a phone the head is not shown, and every cell names its column. A table of the class `listed` can be
    sorted and filtered, on a page with a script. Raises IndexError without a row.
    """
    # All rows have the columns of the first.
    head = "".join(f'<th scope="col">{name}</th>' for name, _, _ in rows[0])
    body = "".join(f"<tr>{''.join(_cell(*cell) for cell in row)}</tr>" for row in rows)
    kind = f' class="{css_class}"' if css_class else ""
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, content: str, css_class: str) -> str:
    return f'<td data-label="{name}" class="{css_class}"><span>{content}</span></td>'
