"""How work is spread: what is read falls into units, units into slots, and a shard owns some of the slots.

A unit is what one shard reads alone: a project, a job, a run, a directory. Which slot it belongs to never
changes; the state of a slot moves as a whole to whichever shard owns it. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

SLOTS = 64


@dataclass(frozen=True)
class Shard:
    """One of `count` runs that read a source together, counted from 0. A single one reads all of it."""

    index: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def owns(self, unit: str) -> bool:
        """Whether a unit is for this shard to read."""
        return self.owns_slot(slot(unit))

    def owns_slot(self, number: str) -> bool:
        """Whether the units of a slot are."""
        return int(number) % self.count == self.index

    @property
    def tags(self) -> tuple[str, ...]:
        """What tells apart the points of shards that feed one series."""
        return (f"shard:{self.index}",) if self.count > 1 else ()

    @property
    def options(self) -> tuple[str, ...]:
        """The part of a command line that asks for it."""
        return ("--shard", str(self)) if self.count > 1 else ()


ALONE = Shard()


def slot(unit: str) -> str:
    """The slot of a unit, as two digits."""
    digest = blake2b(unit.encode(errors="surrogatepass"), digest_size=8).digest()
    return f"{int.from_bytes(digest, 'big') % SLOTS:02}"


def slotted(number: str, key: str) -> str:
    """The key of a saved state that belongs to a slot; without one it is the shard's own."""
    return f"{number}/{key}" if number else key


def split(key: str) -> tuple[str, str]:
    """The slot that a key of a saved state belongs to, or nothing, and the rest of the key."""
    return (key[:2], key[3:]) if key[2:3] == "/" and key[:2].isdecimal() else ("", key)
