"""Where a run remembers how far it came: a directory, or a prefix in S3.

A checkpoint is one JSON document per key. It moves only forward and only for one run at a time: in a
directory a lock keeps the second run out, in S3 a conditional write refuses it. What is on disk is always a
whole document, old or new, whatever happens to the process that writes it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from common.config.file import is_deeper
from common.errors import BusyError, FleetgaugeError

VERSION = 1
MAX_DEPTH = 32  # of a state; ours need a handful
MAX_AHEAD = 86_400  # seconds that the clock of an earlier run may have been ahead of ours

_LONG_NUMBER = re.compile("[0-9]{19}")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds: the collector's state, and when a run last succeeded."""

    state: Mapping[str, object] = field(default_factory=dict)
    last_success: int | None = None
    # What was written before, by key: what has not changed since is not serialised again.
    written: dict[str, tuple[object, bytes]] = field(default_factory=dict, repr=False, compare=False)

    def document(self) -> bytes:
        """The document to write; the writer's name makes each one unique."""
        import orjson

        state = {key: orjson.Fragment(self._serialised(key, value)) for key, value in self.state.items()}
        content = {"version": VERSION, "written_by": writer(), "last_success": self.last_success}
        return orjson.dumps({**content, "state": state})

    def _serialised(self, key: str, value: object) -> bytes:
        before, text = self.written.get(key, (None, b""))
        if before is not value or not text:
            text = json.dumps(value).encode()
            self.written[key] = (value, text)
        return text

    @classmethod
    def parse(cls, text: str) -> Saved:
        """The document read back; ValueError for one that is not ours, or of another version."""
        try:
            content = json.loads(text, parse_int=_whole_number if _LONG_NUMBER.search(text) else None)
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ValueError(f"not a checkpoint of version {VERSION}")
        state, last_success = content.get("state"), content.get("last_success")
        if not isinstance(state, dict):
            raise ValueError("a checkpoint without a state")
        if is_deeper(state, MAX_DEPTH):  # what can just be read might not be written again
            raise ValueError("nested too deep")
        if last_success is not None and not _is_past(last_success):
            raise ValueError("a last success that cannot be")
        return cls(state, last_success)


def _whole_number(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError("a number that no run has written")
    return number


def _is_past(moment: object) -> bool:
    """Whether it is a time of a run; a clock that was a little ahead is no damage."""
    return type(moment) is int and 0 <= moment <= time.time() + MAX_AHEAD


def changed(state: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """A state with the changes of a mark; None forgets its key."""
    return {key: value for key, value in {**state, **changes}.items() if value is not None}


class Checkpoint:
    """One key of a store, held by this run until it is closed.

    By itself it is never moved: that of a dry run, or where there is no store.
    """

    set_aside = 0

    def __init__(self, saved: Saved | None = None) -> None:
        self.saved = saved or Saved()

    def save(self, saved: Saved) -> None:
        """Replace the document, durably, or raise and leave the old one."""

    def change(self, changes: Mapping[str, object], last_success: int | None = None) -> None:
        """Save a state with the changes of marks, and perhaps a success."""
        success = self.saved.last_success if last_success is None else last_success
        self.save(replace(self.saved, state=changed(self.saved.state, changes), last_success=success))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the key."""


class Store(ABC):
    """A place that keeps checkpoints."""

    @abstractmethod
    def open(self, key: str) -> Checkpoint:
        """Hold a key for this run; raises BusyError where another run holds it."""

    @abstractmethod
    def look(self, key: str) -> Saved:
        """What a key holds, without holding it; a damaged one counts as empty and stays as it is."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """The keys that begin like that."""

    def peek(self, key: str) -> Saved:
        """What a key holds; one that is out of reach counts as empty, too."""
        try:
            return self.look(key)
        except FleetgaugeError:
            return Saved()

    def check(self, key: str) -> None:
        """Raise where a run could not read or move a key, without touching it.

        A document of its own beside it is written and overwritten: a run may be moving the key meanwhile.
        """
        try:
            with self.open(f"{key}.check") as trial:
                trial.save(Saved())
                trial.save(Saved())
        except BusyError:  # another check is doing the same, and gets as far
            pass
        self.names(key)


def writer() -> str:
    """Who writes, in words a person can act on, and unlike any other write."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()} at {at} ({uuid.uuid4().hex[:8]})"
