"""Waiting for processes without sleeping."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path


def ended(pid: int) -> bool:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([descriptor], [], [], 30)
        return bool(readable)
    finally:
        os.close(descriptor)


def alive(group: int) -> list[int]:
    """The processes of a group that run; one that has ended may still wait for somebody to notice."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just gone
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state != "Z":
                found.append(int(path.parent.name))
    return found
