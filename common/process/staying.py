"""What a process that stays shows of itself, and when its ticks come.

Standard library only.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import registry
from common.errors import ConfigurationError
from common.job import Job
from common.outcome import Outcome, Status
from common.process.environment import configured

MAX_BAD = 3  # ticks in a row that may pass
YES = {"1", "on", "t", "true", "y", "yes"}  # as pydantic reads them
_FORBIDDEN = 403

log = logging.getLogger(__name__)


def pause(now: float, interval: int, later: float) -> float:
    """Seconds until the next tick, which is so much later than a multiple of the interval."""
    return interval - (now - later) % interval


def delay(names: Sequence[str], job: Job, environ: Mapping[str, str], interval: int) -> float:
    """Seconds after each multiple of the interval; collectors of nodes do not all send at once."""
    node_local = configured(job, environ, "node_local").lower() in YES
    if not node_local and not all(map(registry.per_node, names)):
        return 0.0
    node = configured(job, environ, "node_name") or socket.gethostname()
    digest = hashlib.sha256(node.encode("utf-8", "surrogateescape")).digest()
    return interval * int.from_bytes(digest[:4], "big") / 2**32


class Watch:
    """Counts bad ticks, and keeps the ready file: there from the first good one until three bad in a row."""

    def __init__(self, path: str) -> None:
        self._file = Path(path) if path else None
        self._bad = 0
        self.refused = 0
        try:
            self._show(ready=False)
        except OSError as error:
            raise ConfigurationError(
                f"FLEETGAUGE_READY_FILE is {path}, which cannot be removed: {error.strerror or error}"
            ) from error

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Take what became of one tick; a unit that was lost does not make it bad, an error does."""
        errors = [one.error for one in outcomes if one.error and one.status is not Status.SKIPPED]
        self._bad = 0 if outcomes and not errors else self._bad + 1
        self.refused = self.refused + 1 if any(error.status == _FORBIDDEN for error in errors) else 0
        if self._bad in (0, MAX_BAD):
            try:
                self._show(ready=not self._bad)
            except OSError as error:
                log.error("FLEETGAUGE_READY_FILE: %s: %s", self._file, error.strerror or error)

    def _show(self, *, ready: bool) -> None:
        if self._file and ready:
            self._file.touch()
        elif self._file:
            self._file.unlink(missing_ok=True)
