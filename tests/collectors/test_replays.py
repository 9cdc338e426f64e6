"""A backfill from files sends what live ticks sent while they were written, wherever it is cut or killed."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.collector import load_collector
from common.config.settings import ConfigurationFile, load
from common.errors import ConfigurationError
from support import replay_writers
from support.replays import Simulation, resumed, spans

SEEDS = st.integers(0, 2**32 - 1)


class Writers(Protocol):
    def __call__(self, folder: Path, chance: Random, *, rivals: bool) -> Simulation: ...


each_collector = pytest.mark.parametrize(
    "writers",
    [replay_writers.xenna, replay_writers.gpu_memory, replay_writers.data_plane],
    ids=lambda writers: writers.__name__,
)


@each_collector
@given(seed=SEEDS)
@settings(deadline=None, max_examples=60)
def test_a_replay_equals_the_live_ticks_point_by_point(writers: Writers, seed: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        # Which of two runs with the same tags is shown may depend on when a tick came between them.
        rivals = writers is replay_writers.data_plane and chance.random() < 0.5
        simulation = writers(Path(folder), chance, rivals=rivals)
        [(since, until)] = spans(chance, simulation, 1)
        later = simulation.now + chance.choice((0, 3600, 30 * 86400))
        assert simulation.replay(since, until, now=later) == simulation.live_in(since, until)
        assert simulation.tally.lost == []


@each_collector
@given(seed=SEEDS, rivals=st.booleans())
@settings(deadline=None, max_examples=60)
def test_adjacent_spans_give_the_points_of_the_whole(writers: Writers, seed: int, rivals: bool) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        simulation = writers(Path(folder), chance, rivals=rivals)
        (a, b), (_, c) = spans(chance, simulation, 2)
        assert simulation.replay(a, b) | simulation.replay(b, c) == simulation.replay(a, c)


@each_collector
@given(seed=SEEDS, rivals=st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_replay_that_was_killed_goes_on_where_it_was(writers: Writers, seed: int, rivals: bool) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        simulation = writers(Path(folder), chance, rivals=rivals)
        [(since, until)] = spans(chance, simulation, 1)
        assert resumed(simulation, since, until, chance) == simulation.replay(since, until)


@pytest.mark.parametrize("name", ["data_plane", "gpu_memory", "xenna"])
def test_a_point_may_stand_for_no_more_than_can_still_be_sent_once_it_is_over(name: str) -> None:
    model = load_collector(name).settings
    for interval, refused in (("30m", False), ("31m", True)):
        variables = {f"FLEETGAUGE_{name.upper()}_AGGREGATE_INTERVAL": interval}
        variables[f"FLEETGAUGE_{name.upper()}_PATHS"] = "records"
        with pytest.raises(ConfigurationError, match="1800") if refused else nullcontext():
            load(model, name, environ=variables, file=ConfigurationFile())
