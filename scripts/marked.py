"""Renew the generated part of a file, between the lines `NAME:begin` and `NAME:end`."""

from __future__ import annotations

import re
from pathlib import Path


def renewed(path: Path, part: str, made: str, source: str | None = None) -> str:
    """Return the file's text (or `source`) with new content between the two markers."""
    pattern = re.compile(rf"^(.*\b{part}:begin\b.*\n)(?:.*\n)*?(.*\b{part}:end\b)", re.MULTILINE)
    if source is None:
        source = path.read_text("utf-8") if path.exists() else ""
    text, count = pattern.subn(lambda found: found[1] + made + found[2], source)
    if count != 1:
        raise SystemExit(f"{path}: write it, with one line `{part}:begin` and one `{part}:end` as a comment")
    return text
