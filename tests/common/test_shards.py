"""Which shard owns a unit never changes, and each unit has one owner."""

from __future__ import annotations

from common.shards import Shard


def test_a_unit_stays_with_its_shard_from_version_to_version() -> None:
    units = ("", "acme/ants", "acme/bees", "run-7", "\udcff")
    owners = [[shard for shard in range(5) if Shard(shard, 5).owns(unit)] for unit in units]
    assert owners == [[1], [4], [3], [3], [2]]
