"""What a process can tell by itself of other clients of its job, which may write where it cannot see.

Every sign is here before another client can have written: that copies were made, that a forked child is about
to write, what the environment says. So what a record says of it never depends on whose records have arrived.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fleetgauge.data_plane.events import HasSnapshot
from fleetgauge.records.background import renewed_in_child

# How many processes there are: torchrun's, and those of MPI and of a step of Slurm.
_SIZES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")

# What a client's own snapshot counts, any of which makes its figures worth nothing.
_DOUBTS = {
    "foreign_clears": "it cleared keys that it had not put",
    "keys_overflowed": "it gave up keys that are held",
    "measure_errors": "it could not measure all",
}


class Peers:
    """Of one job, in one process: why clients that are not at hand may write to it."""

    def __init__(self) -> None:
        self.copied = False
        self._sources: set[str] = set()  # that have written
        self._forked = False
        self._sign = ""
        try:
            self._child_writes: mmap.mmap | bytearray = mmap.mmap(-1, 1)  # memory that forked children share
        except OSError:
            self._child_writes = bytearray(b"\1")  # one cannot be told of: it may
        renewed_in_child.add(self)

    def after_fork(self) -> None:
        self._forked = True

    def begin(self, source: str) -> None:
        """Take note that a source is about to write. What it leaves behind outlives it."""
        if self._forked:
            self._child_writes[0] = 1
        self._sources.add(source)

    def unknown(
        self, read: Mapping[HasSnapshot, Mapping[str, Any]], n_attached: int, rank: int | None
    ) -> str:
        """Why what was just read of the clients of a sink is not what the job holds; nothing where it is."""
        for name, why in _DOUBTS.items():
            if any(snapshot.get(name) for snapshot in read.values()):
                return why
        if len(self._sources) > 1 or n_attached > 1:
            return "there are several clients in this process"
        for client in read:
            alone = getattr(client, "alone", None)
            if alone is not None:
                return "" if alone else "it is not alone: so it was told, or it is a copy"
        if self.copied:
            return "it was copied, or its sink was"
        if self._forked or self._child_writes[0]:
            return "a forked process writes too"
        self._sign = self._sign or sign_of_others(rank)
        return self._sign


known: dict[tuple[str | None, str], Peers] = {}


def peers_of(job: str | None, path: str) -> Peers:
    """Those of the job that writes its records there, whichever sink asks."""
    if (job, path) not in known:
        known[job, path] = Peers()
    return known[job, path]


def sign_of_others(rank: int | None) -> str:
    """What tells that this process is one of several that were started together; nothing where none does."""
    for name in _SIZES:
        if (_whole(os.environ.get(name)) or 0) > 1:
            return f"{name} is {os.environ[name]}"
    if rank:
        return f"its rank is {rank}"
    process, ray = sys.modules.get("multiprocessing.process"), sys.modules.get("ray")
    with suppress(Exception):
        if process is not None and process.parent_process() is not None:
            return "it is a process of multiprocessing"
    with suppress(Exception):
        if ray is not None and ray.is_initialized():
            return "it is a process of Ray"
    return ""


def rank_here() -> int | None:
    """The rank that the environment of this process tells, as torchrun and NeMo-RL's workers set it."""
    rank, node, place, places = (
        _whole(os.environ.get(name)) for name in ("RANK", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    if rank is not None or place is None or node is None:
        return rank
    if places is None:
        return None if node else place
    return node * places + place


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
