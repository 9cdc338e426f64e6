"""Between a collector and a sink: samples in batches, and marks only behind what was accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from common.intake import BATCH_SIZE
from common.metric import Mark, Sample
from common.signals import shielded

MAX_UNMARKED = 200_000


class Sink(Protocol):
    """Where samples go: `send` returning means delivered."""

    points_sent: int

    @property
    def dropped(self) -> Mapping[str, int]:
        """Points that did not go, by reason."""

    def send(self, samples: Iterable[Sample]) -> None:
        """Deliver, or raise."""


class Delivery:
    """Buffers what a collector yields, and remembers its marks once everything before them is delivered.

    Batches end at marks, because only there every second is whole. Many marks become one save.
    """

    def __init__(self, sink: Sink, remember: Callable[[Mapping[str, object]], None] | None) -> None:
        self._sink = sink
        self._remember = remember
        self._waiting: list[Sample] = []
        self._changes: dict[str, object] = {}
        self._unmarked = 0

    def take(self, item: Sample | Mark) -> None:
        """Add a sample, or a mark behind all samples so far."""
        if isinstance(item, Mark):
            self._changes.update(item.changes)
            self._unmarked = 0
            if len(self._waiting) >= BATCH_SIZE:
                self.flush()
            return
        self._waiting.append(item)
        self._unmarked += 1
        if self._unmarked > MAX_UNMARKED:
            raise ValueError(f"more than {MAX_UNMARKED} samples without a mark: they cannot all be kept")

    def flush(self) -> None:
        """Deliver what waits, then remember the marks that stood before or behind it."""
        waiting, self._waiting = self._waiting, []
        try:
            self._sink.send(waiting)
        except BaseException:
            self._changes.clear()  # nothing that stands behind an undelivered sample may be remembered
            raise
        if self._changes and self._remember:
            changes, self._changes = self._changes, {}
            with shielded():
                self._remember(changes)
