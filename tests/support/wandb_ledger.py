"""Ledgers of runs for tests: settings with short windows, and values by metric at a tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import Run
from collectors.wandb.settings import Project, WandbSettings
from common.config.sources import Configuration
from common.metric import Metric, Series

ANTS = Project("acme", "ants")
PROJECT_TAGS = ("entity:acme", "project:ants")

Points = dict[tuple[Metric, tuple[str, ...], int], float]


@lru_cache
def settings(**variables: str) -> WandbSettings:
    """Return settings, without groups by default; a variable is in lower case and without its prefix."""
    if "group_by" not in variables:
        variables = {"usage": "false", "utilization": "false", **variables}
    environ = {"WANDB_API_KEY": "k", "WANDB_PROJECTS": "acme/ants"}
    environ |= {f"FLEETGAUGE_WANDB_{name.upper()}": value for name, value in variables.items()}
    return Configuration(environ, None).table(WandbSettings, "wandb")


DEFAULTS = settings()


def points(series: Iterable[Series]) -> Points:
    """Return the values of series by metric, tags and time; each time of a series is there once."""
    found: Points = {}
    for metric, tags, host, times, values in series:
        assert host is None
        assert len(times) == len(values) > 0
        for at, value in zip(times, values, strict=True):
            assert (metric, tags, at) not in found
            found[metric, tags, at] = value
    return found


def ledger_points(
    runs: Sequence[Run], ticks: range, options: WandbSettings = DEFAULTS, *, live: bool = False
) -> Points:
    """Return all points of a project with these runs."""
    ledger = Ledger(ANTS, runs, ticks, options, live=live)
    return points(series for stretch in ledger.stretches() for series in stretch)


def at_tick(runs: Sequence[Run], at: int, options: WandbSettings = DEFAULTS) -> dict[Metric, float]:
    """Return the metrics of the project itself at one tick, which is the present."""
    found = ledger_points(runs, range(at, at + 1), options, live=True)
    return {metric: value for (metric, tags, _), value in found.items() if tags == PROJECT_TAGS}
