"""What our pages are made of: the document, its look and script, cards and tables, as text.

The look is light, dark and print, from a phone up. A page is complete without the script, which shows what is
pointed at and sorts and filters tables; the controls that only a script can serve are made by it. What is
logged elsewhere, such as to W&B, does not carry it. What is put into elements is HTML: the caller escapes
text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

MAX_SERIES = 6  # series of one chart, of the kinds `s1` to `s6`: as many as can be distinguished
# Read once, at import.
_COMMON, _NARROW, _SCRIPT_RULES, SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("page.css", "narrow.css", "script.css", "page.js")
)
HINT = (
    "Point at a chart, tap it, or go along it with the arrow keys, for the time and the value of every line."
)

# A browser runs an inline script under this policy only if the hash of its exact text matches.
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; "
    "base-uri 'none'; form-action 'none'"
)


def render_document(title: str, rules: str, body: str, *, script: bool = False) -> str:
    """Return a complete page; the title is text. With `script`, charts and tables are interactive.

    Its own `rules` of style precede those for narrow windows and for paper, which have precedence. A page
    with a script has a policy that allows this script and nothing else.
    """
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">' if script else ""
    style = f"{_COMMON}{rules}{_NARROW}"
    style, body = (style + _SCRIPT_RULES, f"{body}<script>{SCRIPT}</script>") if script else (style, body)
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
