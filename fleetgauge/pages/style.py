"""The look that our pages share: light, dark and print, from a phone up.

The rules are in the `.css` files beside this module, and are read once, at import.
"""

from __future__ import annotations

from pathlib import Path

MAX_SERIES = 6  # series of one chart, of the kinds `s1` to `s6`: as many as can be distinguished
SERIES_LIGHT = "--s1:#1d4ed8;--s2:#c2410c;--s3:#0f766e;--s4:#9333ea;--s5:#be185d;--s6:#4d7c0f"
SERIES_DARK = "--s1:#7aa2ff;--s2:#fdba74;--s3:#4fd1c5;--s4:#d0a2ff;--s5:#f9a8d4;--s6:#bef264"
SERIES_RULES, _COMMON, _NARROW = (
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("series.css", "page.css", "narrow.css")
)


def page_style(light: str, dark: str, rules: str) -> str:
    """Return the style of a page that adds colours, as custom properties in light and in dark, and rules.

    The rules precede those for narrow windows and for paper, which have precedence. Paper is light.
    """
    # Only on screens: what is printed from a dark window is light.
    dark_rule = f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f"{_COMMON}:root{{{light}}}{dark_rule}{rules}{_NARROW}"
