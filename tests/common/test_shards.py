"""Which slot a unit belongs to never changes, and a key says which slot it is of."""

from __future__ import annotations

import pytest

from common.shards import Shard, slot, slotted, split


def test_a_unit_stays_in_its_slot_from_version_to_version() -> None:
    units = ("", "acme/ants", "acme/bees", "run-7", "\udcff")
    assert [slot(unit) for unit in units] == ["52", "18", "45", "28", "34"]
    assert [Shard(index, 3).owns("acme/ants") for index in range(3)] == [True, False, False]
    assert Shard().owns("acme/bees")


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("07/file", ("07", "file")),
        ("07/a/b", ("07", "a/b")),
        ("07/", ("07", "")),
        ("sent_until", ("", "sent_until")),
        ("12345", ("", "12345")),
        ("ab/c", ("", "ab/c")),
        ("7/file", ("", "7/file")),
    ],
)
def test_a_key_is_of_a_slot_or_of_the_shard_itself(key: str, parts: tuple[str, str]) -> None:
    assert split(key) == parts
    assert slotted(*parts) == key
