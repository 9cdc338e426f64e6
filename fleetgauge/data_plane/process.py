"""State that every process makes for itself, and the rank of the current process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value of which every process has its own, made on first use.

    In a forked child, and out of a pickle, `get` returns a new value: counts begin at zero, and locks that
    another thread had acquired at the fork are never touched. It takes no lock itself.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        pid = os.getpid()
        value = self._by_pid.get(pid)
        return self._by_pid.setdefault(pid, self._make()) if value is None else value

    def __reduce__(self) -> tuple[type[PerProcess[T]], tuple[Callable[[], T]]]:
        return PerProcess, (self._make,)


def environment_rank() -> int | None:
    """Return the rank in `RANK`, which torchrun and NeMo-RL's workers set; None without one."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
