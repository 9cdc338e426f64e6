"""Twice the writers cost twice the calls, whether they share their series or not."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest

from support.record_files import write
from support.record_fuzzer import KINDS, Kind, ticks_of
from support.xenna_ticks import NOW

TAG = {"xenna": "stage_run_hash", "gpu_memory": "tag_job_id", "data_plane": "tag_rank"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)
@pytest.mark.parametrize("tagged", ["true", "false"])
def test_calls_double_with_the_writers(kind: Kind, tagged: str, tmp_path: Path) -> None:
    calls = []
    for writers in (10, 20):
        folder = tmp_path / str(writers)
        write(kind.collector.name, folder, writers, NOW, steps=2)
        ticks = ticks_of(kind, folder, **{TAG[kind.collector.name]: tagged})
        with cProfile.Profile() as profile:
            assert len(ticks.tick()) > 10
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # not in the stubs
    assert calls[1] / calls[0] < 2.05
