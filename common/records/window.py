"""Which times one reading of the files takes, and which files it looks into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from common.intake import MAX_AGE, MAX_AHEAD
from common.records.file import NotDue
from common.records.storages import Files
from common.records.tail import TailedFile


class Window(NamedTuple):
    """Which times a tick can send: what was over by `due`, and lies between `oldest` and `furthest`."""

    due: int
    oldest: float
    furthest: float

    @classmethod
    def of(cls, now: float, settle: int = 0) -> Window:
        """What the intake takes at a time, but for the last `settle` seconds."""
        return cls(int(now) - settle, now - MAX_AGE, now + MAX_AHEAD)

    def may_grow(self, second: int, width: int) -> bool:
        """Whether more may still be written of the bucket of a width that a second is in."""
        return self.due < (second // width + 1) * width and second <= self.furthest

    def refuses(self, second: int, width: int) -> str | None:
        """Why a point of that second's bucket cannot be sent; None where it can."""
        if second // width * width < self.oldest:
            return "too_old"
        return "in_future" if second > self.furthest else None


@dataclass(frozen=True)
class Tick:
    """One reading of the files.

    A pass of a replay is a tick whose time lies in the past: what its files hold of later times is not due
    yet, and waits. `now` is the machine's time all the same, because files' own times are told by that.
    """

    window: Window
    now: int
    forget_after: int  # files that nobody wrote to for so long are neither read nor remembered
    files: Files = field(default_factory=Files)
    not_due: NotDue = field(default_factory=dict)
    live: bool = True

    def window_of(self, file: TailedFile) -> Window:
        """The times that can be sent of one file.

        In a replay what comes later is no sign of a wrong clock, unless it is later than the last write.
        """
        if self.live:
            return self.window
        return self.window._replace(furthest=min(self.window.furthest, file.written + MAX_AHEAD))
