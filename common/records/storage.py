"""What reading asks of a place that holds files, wherever that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

MAX_DOCUMENT = 8 << 20  # bytes
RACY = 2  # seconds in which a file may change and still look the same


class Status(NamedTuple):
    """What is known of a file that is not open. An unchanged one still `looks` like that.

    All names of one file have the same `node`.
    """

    size: int
    written: float
    looks: list[int | str]
    node: object


class Wanted(NamedTuple):
    """A file to be opened, and from where on it will probably be read."""

    path: str
    status: Status
    offset: int


class Raw(Protocol):
    """A file's bytes as they are stored. `version` is another where they may be, and empty where unknown."""

    @property
    def status(self) -> Status: ...

    @property
    def version(self) -> str: ...

    def read(self, size: int, /) -> bytes | None:
        """At most `size` bytes; nothing at the end."""

    def seek(self, offset: int, /) -> object:
        """Go to a byte."""

    def at(self, offset: int, size: int) -> bytes:
        """Some bytes, without going there."""


class ChangedFileError(OSError):  # it is handled, never reported
    """A file that is another since reading it began; what is left waits for the next tick."""


@dataclass
class Found:
    """Regular files by path, what could not be looked into with the reason, and what is not there.

    `missing` has a pattern's path up to its first wildcard, which must exist, by the pattern; `blind` are
    patterns of which nothing could be looked into.
    """

    files: dict[str, Status] = field(default_factory=dict)
    pattern_of: dict[str, str] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    blind: set[str] = field(default_factory=set)


class Storage(ABC):
    """One kind of place."""

    @abstractmethod
    def find(self, pattern: str, found: Found) -> None:
        """Add every file that a path, a directory or a glob stands for, and what cannot be looked into.

        A directory stands for all `.jsonl` files in it and below.
        """

    @abstractmethod
    def absent(self, pattern: str) -> str | None:
        """The path up to the first wildcard of a pattern, where that is not there."""

    @abstractmethod
    def is_directory(self, path: str) -> bool:
        """Whether a path stands for what is below it."""

    @abstractmethod
    def tree(self, path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each directory from a path on down, with the names of those and of the files in it.

        Raises OSError where that cannot be told, which `find` reports.
        """

    @abstractmethod
    def looks(self, path: str, now: float) -> list[int | str] | None:
        """How a file in a `tree` looks that has changed once it looks different; None where it may already.

        Raises OSError, as where it is not there.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """A small file, or the beginning of a large one: a byte more than a document may have."""

    @abstractmethod
    def opened(self, files: Iterable[Wanted]) -> Iterator[tuple[str, Raw | OSError]]:
        """Each file, open until the next is asked for, in order; or why it cannot be."""
