"""Random fleets of record files under runs that are killed, repeated and left out: see `record_model`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.record_model import check

pytestmark = pytest.mark.slow

FLEETS = 50  # benchmarks/record_fleets.py has 1,000


@pytest.mark.parametrize("seed", range(FLEETS))
def test_a_fleet_leaves_the_truth_or_a_named_loss(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path / "records")
