"""How W&B projects are spread over processes. Standard library only.

`--shard` of the command line makes a shard, the `wandb` collector reads the projects that it owns.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

# The only collector that has shards: its projects share no series. A sum over record files needs all of them.
SHARDED = "wandb"


@dataclass(frozen=True)
class Shard:
    """One of `count` runs that read a source together, counted from 0. A single one reads all of it."""

    index: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def owns(self, unit: str) -> bool:
        """Return whether this shard reads a unit: by a hash of its name, so that nothing is coordinated.

        The hash is the same in every process and version: `hash()` of Python is randomised.
        """
        digest = blake2b(unit.encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.index


ALONE = Shard()
