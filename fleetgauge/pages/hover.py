"""The script of a page that is opened from a file: what is pointed at, and tables to sort and filter.

A page is complete without it. The policy lets exactly this script run and nothing be loaded, and the controls
that only a script can serve are made by it. What is logged elsewhere, such as to W&B, does not carry it.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

HINT = (
    "Point at a chart, tap it, or go along it with the arrow keys, for the time and the value of every line."
)
HOVER_STYLE = Path(__file__).with_name("script.css").read_text(encoding="utf-8")
SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")

# A browser runs an inline script under this policy only if the hash of its exact text matches.
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; "
    "base-uri 'none'; form-action 'none'"
)
