"""However many shards read a fleet, its numbers are those of a single reader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import shard_fleets
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_fleets import Fleet, combined, shard_of

SEEDS = st.integers(0, 2**32 - 1)
each_collector = pytest.mark.parametrize(
    "fleet_of",
    [shard_fleets.xenna, shard_fleets.gpu_memory, shard_fleets.data_plane],
    ids=lambda fleet_of: fleet_of.__name__,
)


@each_collector
@given(seed=SEEDS, count=st.integers(1, 16))
@settings(deadline=None, max_examples=12)
def test_any_number_of_shards_sends_what_one_reader_sends(
    fleet_of: Callable[[Path, Random, int], Fleet], seed: int, count: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fleet = fleet_of(Path(folder), Random(seed), count)
        plain = {key: value for key, value in fleet.sharded.items() if shard_of(key[1]) is None}
        assert {key: fleet.live[key] for key in plain} == plain
        together = combined(fleet.collector, fleet.sharded)
        alone = {key: value for key, value in fleet.live.items() if key in together}
        assert together == pytest.approx(alone, rel=1e-9, abs=1e-9)
        assert {(name, at) for name, _, _, at in fleet.live} == {
            (name, at) for name, _, _, at in fleet.sharded
        }
