"""Saying once, at debug level, that a part could not be collected.

A probe runs in somebody else's process: what it cannot find out is worth one line, not one per run.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("fleetgauge.compute")
said: set[str] = set()


def left_out(part: str, error: BaseException | str) -> None:
    """Say that `part` is missing from what was collected, the first time that it is."""
    if part not in said:
        said.add(part)
        reason = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        _log.debug("%s left out: %s", part, reason)
