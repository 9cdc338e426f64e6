"""A file that people write, with a part that is made: it stands between `NAME:begin` and `NAME:end`."""

from __future__ import annotations

import re
from pathlib import Path


def renewed(path: Path, part: str, made: str) -> str:
    """The file's text with that part made anew. The lines that hold the two markers stay."""
    pattern = re.compile(rf"^(.*\b{part}:begin\b.*\n)(?:.*\n)*?(.*\b{part}:end\b)", re.MULTILINE)
    text, count = pattern.subn(
        lambda found: found[1] + made + found[2], path.read_text("utf-8") if path.exists() else ""
    )
    if count != 1:
        raise SystemExit(f"{path}: write it, with one line `{part}:begin` and one `{part}:end` as a comment")
    return text
