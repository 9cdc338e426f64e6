"""A cosmos-xenna that is only its monitor: the class is new for every test, the statistics are real dumps."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, Self

import pytest

from fleetgauge import records
from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook

DATA = Path(__file__).parents[2] / "data" / "xenna"
MONITORING = "cosmos_xenna.pipelines.private.monitoring"


def dumps(name: str) -> list[dict[str, Any]]:
    """The lines of a dump."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def stats(dump: dict[str, Any]) -> Any:
    """A dump's `stats` as objects with attributes, as upstream has them."""
    made = json.loads(json.dumps(dump["stats"]), object_hook=lambda found: SimpleNamespace(**found))
    made.resource_usage_per_stage = vars(made.resource_usage_per_stage)
    return made


def one(name: str = "streaming-0.5.12", line: int = 7) -> Any:
    """The statistics of one line."""
    return stats(dumps(name)[line])


class Pool:
    """A stage's actor pool once the pipeline has ended."""

    def __init__(self, name: str, completed: int) -> None:
        self._stats = one().actor_pools[0]
        self._stats.name, self._stats.task_stats.total_completed = name, completed
        for what in (self._stats.slot_stats, self._stats.actor_stats):
            vars(what).update(dict.fromkeys(vars(what), 0))
        self._stats.task_stats.input_queue_size = self._stats.task_stats.output_queue_size = 0

    def make_stats(self) -> Any:
        return self._stats


def monitor_class() -> Any:  # Any: tests reach into it
    """A PipelineMonitor as upstream's: `__exit__` closes it, and `update` asks for statistics."""

    class PipelineMonitor:
        def __init__(
            self, answers: Sequence[Any] = (), interval: float = 30.0, pools: Sequence[Pool] = ()
        ) -> None:
            self._log_interval_s = interval
            self._answers: Iterator[Any] = iter(answers)
            self._actor_pools = list(pools)
            self.asked: list[Any] = []
            self.closed = 0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def close(self) -> str:
            self.closed += 1
            return "closed"

        def update(self, *args: Any, **kwargs: Any) -> Any:
            return self._make_stats(*args, **kwargs)

        def _make_stats(self, *args: Any, **kwargs: Any) -> Any:
            self.asked.append((args, kwargs))
            answer = next(self._answers)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    return PipelineMonitor


def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make it importable; the class is what is patched."""
    found = monitor_class()
    parts = MONITORING.split(".")
    for depth in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
    vars(sys.modules[MONITORING])["PipelineMonitor"] = found
    v1 = ModuleType("cosmos_xenna.pipelines.v1")
    monkeypatch.setitem(sys.modules, v1.__name__, v1)
    return found


def read(directory: Path) -> list[dict[str, Any]]:
    """All records of the one file in a directory."""
    [path] = directory.glob("*.jsonl")
    return list(records.read(path))


def metrics(directory: Path, event: str = "stats") -> list[dict[str, float]]:
    """The metrics of all records of one event."""
    return [record["metrics"] for record in read(directory) if record["event"] == event]


def hook(
    directory: Path | None,
    interval: float = 30,
    *,
    wandb: bool = False,
    wandb_run: Literal["own", "shared"] = "shared",
    **options: Any,
) -> XennaWandbStatsHook:
    """A hook that records into a directory."""
    path = None if directory is None else f"{directory}/"
    config = XennaObservabilityConfig(wandb, interval, path, wandb_run)
    return XennaWandbStatsHook(config, "curate", "hash1", **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
