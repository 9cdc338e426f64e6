"""Which characters a credential may have: printable ASCII without spaces, all that a header can carry."""

from __future__ import annotations

import unicodedata

_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible character, such as a zero-width space",
    "Cs": "bytes that are not UTF-8",
    "L": "a letter that is not ASCII",
    "Z": "a space",
}


def flaw(credential: str) -> str | None:
    """What keeps a text from being a credential, in words that do not repeat it; None where nothing does."""
    for character in credential:
        if not "!" <= character <= "~":
            return f"it holds {_kind(character)}; a credential is printable ASCII without spaces"
    return None


def _kind(character: str) -> str:
    if character in "\r\n\x85\u2028\u2029":
        return "a line break"
    if character == "\t":
        return "a tab"
    category = unicodedata.category(character)
    return _CATEGORIES.get(category) or _CATEGORIES.get(category[0]) or "a character that is not ASCII"
