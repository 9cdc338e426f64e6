"""What a test server does wrong, request by request.

Knows kinds of misbehaviour and the order they come in. Knows nothing of sockets or of any one service, so
every server in this directory takes the same plan.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour. Without arguments it is none at all, which lets a plan spare the first requests.

    `status` answers with that status instead of the true answer; `body` replaces the body, and `headers`
    adds to the headers (None removes one). `delay` is seconds before the answer. `hang` reads the request
    and never answers. `reset` breaks the connection with a RST before or after the body is read.
    `truncate` announces the whole body, sends half of it and closes; `stall` announces it and then sends
    nothing.

    A status, a hang or a reset leaves the server's state alone unless `applied` says that the request took
    effect first: the sender cannot tell these two apart, and must be right in both.
    """

    status: int | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes | str | None = None
    delay: float = 0.0
    hang: bool = False
    reset: Literal["before", "after"] | None = None
    truncate: bool = False
    stall: bool = False
    applied: bool = False

    def __post_init__(self) -> None:
        if self.applied and self.reset == "before":
            raise ValueError("a request whose body was never read cannot have been applied")

    @property
    def takes_effect(self) -> bool:
        """Whether the server acts on the request; it must, where its true answer is still wanted."""
        return self.applied or (self.status is None and not self.hang and self.reset is None)


@dataclass(slots=True)
class _Planned:
    fault: Fault
    left: int | None
    match: Callable[[str], bool] | None


class Faults:
    """The faults to come, in order. Each request takes the first one that matches its path."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()

    def add(
        self, fault: Fault, times: int | None = 1, match: Callable[[str], bool] | str | None = None
    ) -> None:
        """Plan a fault for the next `times` requests, or for all from here on where `times` is None.

        `match` is a path or a predicate on it; other requests pass the fault by and leave it planned.
        """
        predicate = match.__eq__ if isinstance(match, str) else match
        with self._lock:
            self._planned.append(_Planned(fault, times, predicate))

    def clear(self) -> None:
        """Forget every planned fault."""
        with self._lock:
            self._planned.clear()

    def take(self, path: str) -> Fault | None:
        """Return the fault of a request to `path`, using it up."""
        with self._lock:
            for planned in self._planned:
                if planned.match is None or planned.match(path):
                    break
            else:
                return None
            if planned.left is not None:
                planned.left -= 1
                if planned.left == 0:
                    self._planned.remove(planned)
            return planned.fault
