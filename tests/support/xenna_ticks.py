"""Runs a collector over records tick by tick, as the runner would, over files a test writes."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from collectors.xenna.collector import COLLECTOR
from common.collector import Collector, Context, Tally
from common.config.settings import ConfigurationFile, load
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.shards import split

NOW = 1_794_790_000

Points = dict[tuple[str, tuple[str, ...], int], float]


class Ticks:
    """Runs the collector again and again, as the runner would, and keeps what an intake would hold."""

    collector: Collector[Any] = COLLECTOR

    def __init__(self, path: Path, **settings: str) -> None:
        prefix = f"FLEETGAUGE_{self.collector.name.upper()}"
        environ = {f"{prefix}_{name.upper()}": value for name, value in settings.items()}
        self.path = path
        environ.setdefault(f"{prefix}_PATHS", str(path))
        self.settings = load(
            self.collector.settings, self.collector.name, environ=environ, file=ConfigurationFile()
        )
        self.state: dict[str, object] = {}
        self.points: Points = {}
        self.now = NOW
        self.tally = Tally()
        self.items: list[Sample | Mark] = []
        self.deadline: Deadline | None = None

    def context(self) -> Context[Any]:
        self.tally = Tally()
        log, deadline = logging.getLogger("test"), self.deadline or Deadline(60)
        return Context(self.settings, self.now, self.now, "node", self.state, deadline, log, self.tally)

    def tick(self) -> Points:
        """The points of one tick."""
        self.items = list(self.collector.collect(self.context()))
        points: Points = {}
        for item in self.items:
            if isinstance(item, Mark):
                self.save(item)
            else:
                points[item.metric.name, item.tags, item.timestamp] = item.value
        self.points |= points
        return points

    def be_killed(self, after: int, unsaved: int) -> None:
        """Die after so many items of a tick; some of what followed the last mark may have been delivered."""
        items = list(islice(self.collector.collect(self.context()), after))
        marks = [place for place, item in enumerate(items) if isinstance(item, Mark)]
        last = marks[-1] if marks else -1
        for item in items[: last + 1 + unsaved]:
            if isinstance(item, Mark):
                self.save(item)
            else:
                self.points[item.metric.name, item.tags, item.timestamp] = item.value

    def save(self, mark: Mark) -> None:
        merged = {**self.state, **json.loads(json.dumps(mark.changes))}
        self.state = {key: value for key, value in merged.items() if value is not None}

    @property
    def parts(self) -> dict[str, object]:
        """What is saved, by keys without their slots."""
        return {split(key)[1]: value for key, value in self.state.items()}

    def write(self, *records: Mapping[str, Any], to: str = "a.jsonl") -> None:
        path = self.path / to
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
        os.utime(path, (NOW, NOW))


def record(seq: int, ago: float, metrics: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "kind": "xenna",
        "event": "stats",
        "run_id": "r1",
        "seq": seq,
        "timestamp": NOW - ago,
        "host": "node-1",
        "pid": 7,
        "pipeline_kind": "curate",
        "run_hash": "abc",
        "metrics": {"progress": 50.0} if metrics is None else metrics,
        "stages": [],
        "xenna_version": "0.5.12",
        **more,
    }


def named(points: Points, prefix: str) -> Points:
    return {key: value for key, value in points.items() if key[0].startswith(prefix)}
