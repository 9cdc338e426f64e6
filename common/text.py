"""Text of strangers (server answers, file names, tags), made safe to show.

An escape sequence can rewrite what a terminal shows, and a line break can forge a line of the log.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """The text on one line, with every character that would not show itself written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def excerpt(text: str, most: int) -> str:
    """The start of a longer text, white space collapsed, safe to show."""
    return visible(" ".join(text.split()))[:most]
