"""Small JSON documents beside the events, and their members as the types that they should have."""

from __future__ import annotations

import json
from pathlib import Path

MAX_DOCUMENT_BYTES = 64 * 2**20


def read_document(path: Path) -> object:
    """One small JSON document. Raises OSError where it cannot be read, ValueError where it is not one."""
    if (size := path.stat().st_size) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"{size:,} bytes are more than the {MAX_DOCUMENT_BYTES:,} this reads")
    try:
        return json.loads(path.read_bytes().decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_object(path: Path) -> dict[str, object]:
    """The members of a document that is an object; none where it is not, or cannot be read."""
    try:
        document = read_document(path)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def integer(found: object) -> int | None:
    """The value, if it is an integer."""
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def text_or_none(found: object) -> str | None:
    """Return the value, if it is text that is not blank."""
    return found if isinstance(found, str) and found.strip() else None
