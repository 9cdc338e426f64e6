"""Untrusted text (responses, file names, tags), made safe to print.

An escape sequence can rewrite what a terminal shows, and a line break can forge a line of the log. Secrets
are removed by `common/logs.py`.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """Return a text on one line, with every unprintable character as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
