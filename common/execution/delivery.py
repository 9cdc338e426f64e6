"""Between a collector and a sink: samples in batches, and marks only behind what was accepted."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Protocol, Self

from common.errors import FleetgaugeError, Interrupted
from common.intake import BATCH_SIZE
from common.metric import Mark, Sample
from common.signals import shielded

MAX_UNMARKED = 200_000
SAVE_EVERY = 10.0  # seconds: sending again changes nothing, so that saving more often would only cost
LAST_DELIVERY = 2.0  # seconds to deliver what waits once a signal asks to end

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where samples go. What it took it delivers in the same order."""

    points_sent: int

    @property
    def examples(self) -> Mapping[str, str]:
        """By reason, the first point that did not go."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """Points that did not go, by reason."""

    @property
    def taken(self) -> int:
        """How many points it took so far."""

    @property
    def settled(self) -> int:
        """How many of these, counted from the first, were accepted."""

    def take(self, samples: Iterable[Sample]) -> None:
        """Keep samples, to be delivered."""

    def deliver(self, *, everything: bool, within: float | None = None) -> None:
        """Deliver what fills payloads, or everything, perhaps within so many seconds; or raise."""


class Delivery:
    """Buffers what a collector yields, and remembers its marks once everything before them is accepted.

    Samples are grouped in batches that end at marks, because only there every second is whole. Of a batch
    only full payloads leave; the rest waits for the next batch, and with it the batch's marks, which wait
    for the last of its points. Leaving the context delivers everything, however it is left.

        samples  1 2 3 M 4 5 6 7 8 M 9 …     payloads of four points, batches of at least three
        batch 1  [1 2 3]        nothing leaves, and the first mark waits for three points
        batch 2  [4 5 6 7 8]    [1 2 3 4] and [5 6 7 8] leave: both marks are passed

    State is saved at most every ten seconds, and at the end.
    """

    def __init__(
        self,
        sink: Sink,
        remember: Callable[[Mapping[str, object]], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._remember = remember
        self._clock = clock
        self._saved_at = clock()
        self._waiting: list[Sample] = []
        self._changes: dict[str, object] = {}  # of marks behind samples that wait here
        self._marks: deque[tuple[int, dict[str, object]]] = deque()  # and behind points that wait there
        self._passed: dict[str, object] = {}  # of marks before which everything was accepted
        self._most = MAX_UNMARKED  # samples that may wait here
        self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Interrupted):
            self._end_at_once()
            return
        try:
            self.flush()
        except Interrupted:
            self._end_at_once()
            raise

    def take(self, item: Sample | Mark) -> None:
        """Add a sample, or a mark behind all samples so far."""
        waiting = self._waiting
        if isinstance(item, Sample):
            waiting.append(item)
            if len(waiting) > self._most:
                raise ValueError(f"more than {MAX_UNMARKED} samples without a mark: they cannot all be kept")
            return
        self._changes.update(item.changes)
        self._most = len(waiting) + MAX_UNMARKED
        if len(waiting) >= BATCH_SIZE:
            self._deliver(everything=False)
            self._save(at_once=False)

    def flush(self, within: float | None = None) -> None:
        """Deliver all that waits, then remember the marks that stood before or behind it."""
        try:
            if not self._failed:
                self._deliver(everything=True, within=within)
        finally:
            self._save(at_once=True)

    def _end_at_once(self) -> None:
        """What was accepted is remembered first: what still waits may take longer than there is."""
        self._save(at_once=True)
        try:
            self.flush(LAST_DELIVERY)
        except FleetgaugeError as error:
            log.warning("not all that was collected could be sent before the end: %s", error)

    def _deliver(self, *, everything: bool, within: float | None = None) -> None:
        try:
            with shielded():  # an interruption must not lose what was taken from here and not kept there
                samples, self._waiting, self._most = self._waiting, [], MAX_UNMARKED
                self._sink.take(samples)
                self._marks.append((self._sink.taken, self._changes))
                self._changes = {}
            self._sink.deliver(everything=everything, within=within)
        except Exception:
            self._failed = True  # nothing that stands behind an undelivered sample is remembered
            raise

    def _save(self, *, at_once: bool) -> None:
        """Remember the marks that were passed, where it is time to."""
        while self._marks and self._marks[0][0] <= self._sink.settled:
            self._passed.update(self._marks.popleft()[1])
        now = self._clock()
        if not self._passed or not self._remember or not (at_once or now - self._saved_at >= SAVE_EVERY):
            return
        with shielded():
            passed, self._passed, self._saved_at = self._passed, {}, now
            self._remember(passed)
            log.debug("saved how far this came: %d parts of the state changed", len(passed))
