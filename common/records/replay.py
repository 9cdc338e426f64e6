"""The past out of files: the ticks that a collector over records would have made then, made again.

A pass is a tick with its time in the past. It reads what was over by then and leaves the rest of every file
for a later one, so that memory stays what a live tick takes, and points come out as live ticks made them.
Knows no record and no metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic

from common.collector import Context
from common.errors import DeadlineExceededError
from common.intake import MAX_AGE, MAX_AHEAD
from common.metric import Mark, Sample
from common.records.engine import Ingest
from common.records.file import NotDue
from common.records.grammar import S
from common.records.storages import Files
from common.records.window import Tick, Window
from common.span import Span

PASS = 3600  # seconds of the past that one pass takes, or as many as are whole buckets
REACHED = "reached"  # the key of the saved state that tells up to when everything was passed on


@dataclass(frozen=True)
class Replay(Generic[S]):
    """A backfill from files: called, it yields the samples of the span, and marks; as often as it is called.

    Each call begins at the saved state, and counts into the context's tally again what it drops and loses.
    A mark's changes are the live collector's, and at the end of a pass `REACHED`: with a checkpoint of its
    own a backfill that was interrupted goes on where it was.
    """

    context: Context[S]
    span: Span
    ingest: type[Ingest[S, Any]]  # Any: the records are the collector's own
    files: Files
    known: Any  # Any: see `Grammar.survey`

    @property
    def width(self) -> int:
        """How much time a point stands for."""
        return self.ingest.width(self.context.settings)

    @property
    def settle(self) -> int:
        """How long after it a point has been written."""
        return self.context.settings.settle

    def __call__(self) -> Iterator[Sample | Mark]:
        hidden, holds = {metric.name for metric in self.ingest.live_only}, self.span.holds
        state, not_due, told = dict(self.context.state), NotDue(), set[str]()
        for due in self._instants():
            behind = True
            while behind:
                self._check_deadline(state)
                context = self._context(due, state, told)
                one = self.ingest(context, self._tick(due, not_due), self.known)
                changes: dict[str, object] = {}
                for item in one.collect():
                    if isinstance(item, Mark):
                        changes |= item.changes
                        yield item
                    elif holds(item) and item.metric.name not in hidden:
                        yield item
                state, behind = _merged(state, changes), one.behind
            state[REACHED] = due
            yield Mark({REACHED: due})

    def _instants(self) -> Iterator[int]:
        """Up to when each pass takes records: whole buckets, and the same ones wherever a span is cut.

        The first pass is for what must be known of earlier times. An hour more than the span is read, because
        a record may stand behind a later one in its file; a live tick would not take one that is later still.
        """
        stride = self.width * max(1, PASS // self.width)
        settled = (self.context.now - self.settle) // self.width * self.width
        last = min(-(-(self.span.until + MAX_AGE) // stride) * stride, settled)
        reached = self.context.state.get(REACHED)
        due = reached if isinstance(reached, int) else self.span.since // stride * stride - 1
        while due < last and self.span.since < self.span.until:
            due = min((due // stride + 1) * stride, last)
            yield due

    def _tick(self, due: int, not_due: NotDue) -> Tick:
        now = self.context.now
        return Tick(
            Window(due, due - self.width - PASS - MAX_AGE, now + MAX_AHEAD),
            now,
            forget_after=now - self.span.since + self.ingest.history(self.context.settings),
            files=self.files,
            not_due=not_due,
            live=False,
        )

    def _context(self, due: int, state: Mapping[str, object], told: set[str]) -> Context[S]:
        known = {**vars(self.context), "at": due + self.settle, "now": due + self.settle, "state": state}
        return _Pass(**known, told=told, before=due <= self.span.since)

    def _check_deadline(self, state: Mapping[str, object]) -> None:
        deadline = self.context.deadline
        if deadline.remaining() > 0:
            return
        reached = state.get(REACHED)
        far = datetime.fromtimestamp(reached if isinstance(reached, int) else self.span.since, UTC)
        raise DeadlineExceededError(
            f"the deadline of {deadline.seconds:g} s has passed with the backfill at {far:%Y-%m-%dT%H:%MZ}; "
            "with FLEETGAUGE_CHECKPOINTS set, the same command goes on from there"
        )


@dataclass(frozen=True)
class _Pass(Context[S]):
    """The context of one pass: a loss is told once, and what lies before the span was not asked for."""

    told: set[str] = field(default_factory=set)
    before: bool = False

    def drop(self, reason: str, count: int = 1) -> None:
        if not (self.before and reason == "too_old"):
            super().drop(reason, count)

    def lose(self, unit: str, why: Exception | str) -> None:
        if unit not in self.told:
            self.told.add(unit)
            super().lose(unit, why)


def _merged(state: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """The state that a store would give back after these changes."""
    merged = {**state, **json.loads(json.dumps(changes))}
    return {key: value for key, value in merged.items() if value is not None}
