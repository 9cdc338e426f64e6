"""Runs as the W&B server holds them, and a day of plausible ones.

A row may be odd in every way a real one can: summaries and times are passed on as they are.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from support.servers.mongo import instant

HOUR = 3600
THROUGHPUT_KEYS = (
    "overview/steps_per_second",
    "overview/epoch_steps_per_second",
    "overview/sps",
    "timing_cumulative/sps",
    "timing_per_epoch/sps",
)
_OWNERS = (("ann", "NVIDIA H100 80GB HBM3"), ("Bob", "NVIDIA A100-SXM4-80GB"), ("chen", None))
_TERMINAL = ("finished",) * 12 + ("failed", "failed", "crashed", "killed", "preempted")

Document = dict[str, Any] | str | None  # JSON: an object to be written, or text to be passed on
Moment = float | str | None


@dataclass
class Row:
    """A run. Times are seconds since the epoch, or text that goes out as it is.

    `filler` is summary and config that many rows share, so that a large fleet fits in memory.
    """

    id: str
    state: str | None = "finished"
    created_at: Moment = 0.0
    heartbeat_at: Moment = None
    display_name: str | None = None
    sweep: str | None = None
    compute_seconds: Any = 0  # Any: a broken server sends what it likes
    config: Document = field(default_factory=dict)
    summary: Document = field(default_factory=dict)
    gpu_count: int | None = None
    hidden: bool = False
    unservable: bool = False
    filler: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    user: str | None = "ci"
    group: str | None = None
    job_type: str | None = None
    tags: Any = ()  # Any: a broken server sends what it likes
    system: Document = field(default_factory=dict)  # the latest row of its system metrics

    def created(self) -> tuple[float, str]:
        """The order of a listing."""
        return _seconds(self.created_at) or 0.0, self.id

    def values(self) -> dict[str, Any]:
        """The run as filters see it."""
        return {
            "createdAt": _seconds(self.created_at),
            "heartbeatAt": _seconds(self.heartbeat_at),
            "state": self.state,
            "displayName": self.display_name,
            "name": self.id,
            "sweep": self.sweep,
        }

    def node(self) -> dict[str, Any]:
        """The run as the schema sees it."""
        summary, config = self.filler
        return {
            "id": f"run-{self.id}",
            "name": self.id,
            "projectId": 1,
            "displayName": self.display_name,
            "state": self.state,
            "createdAt": _text(self.created_at),
            "heartbeatAt": _text(self.heartbeat_at),
            "sweepName": self.sweep,
            "computeSeconds": self.compute_seconds,
            "config": lambda _, keys=None: _projected(self.config, config, keys),
            "summaryMetrics": lambda _, keys=None: _projected(self.summary, summary, keys),
            "systemMetrics": self.system if isinstance(self.system, str | None) else json.dumps(self.system),
            "runInfo": {"gpuCount": self.gpu_count},
            "tags": self.tags,
            "group": self.group,
            "jobType": self.job_type,
            "readOnly": False,
            "historyLineCount": 0,
            "historyKeys": {},
            "user": self.user and {"id": "VXNlcjox", "name": self.user.title(), "username": self.user},
        }


def text(seconds: float) -> str:
    """A time as W&B writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def client_config(gpus: int | None, gpu: str | None = "NVIDIA H100", **values: Any) -> dict[str, Any]:
    """A config as the client uploads it: each value wrapped, and what the client saw of the machine."""
    writer = {"os": "Linux-6.8", "python": "CPython 3.11.7", "program": "train.py"}
    writer |= {"gpu": gpu} if gpu else {}
    seen = writer if gpus is None else {**writer, "gpu_count": gpus}
    internal = {"cli_version": "0.31.0", "e": {"q1w2e3r4": seen}}
    return {"_wandb": {"value": internal}, **{key: {"value": value} for key, value in values.items()}}


def system_row(*busy: float, memory: float = 40.0, **more: Any) -> dict[str, Any]:
    """The latest row of system metrics of a run that uses these GPUs, each so busy, of a machine of eight."""
    row: dict[str, Any] = {"system.cpu": 12.5, "system.disk": 41.0, "system.network.sent": 10_000}
    for index in range(max(8, len(busy))):
        used = index < len(busy)
        figures = {
            "gpu": busy[index] if used else 97.0,  # somebody else's
            "memoryAllocated": memory if used else 88.0,
            "memoryAllocatedBytes": 34_359_738_368,
            "powerWatts": 312.0,
            "temp": 54.0,
        }
        for place in (f"{index}", *([f"process.{index}"] if used else [])):
            row |= {f"system.gpu.{place}.{name}": value for name, value in figures.items()}
    return row | more


def plausible_day(now: float, runs: int = 240, seed: int = 7) -> list[Row]:
    """The runs of a day of a team: training, push-to-main, sweeps, and the odd ones every project has."""
    rows = [*_day(now, runs, seed), *_odd(now)]
    for row in rows:
        _own(row)
    return rows


def plausible_week(now: float) -> list[Row]:
    """Return the runs of today, and of the seven days before those that ended."""
    earlier = [
        replace(row, id=f"{day}-{row.id}")
        for day in range(1, 8)
        for row in _day(now - day * 24 * HOUR, 240, 7 + day)
        if row.state != "running"
    ]
    for row in earlier:
        _own(row)
    return plausible_day(now) + earlier


def _day(now: float, runs: int, seed: int) -> list[Row]:
    chance = random.Random(seed)
    rows = [_ordinary(chance, f"r{number:05d}", now) for number in range(runs)]
    return rows + [_push(chance, f"p{number:05d}", now, number) for number in range(max(8, runs // 12))]


def _own(row: Row) -> None:
    """Give a run an owner, and GPUs that say what they do where it runs; drawn apart from everything else."""
    chance = random.Random(row.id)
    row.user, gpu = chance.choice(_OWNERS)
    row.group, row.job_type = chance.choice((None, "arena", "navigation")), chance.choice(("train", "eval"))
    row.tags = chance.choice((["team=ants"], ["baseline", "team=bees"], []))
    writer: dict[str, Any] = {}
    if isinstance(row.config, dict) and row.config:
        writer = row.config["_wandb"]["value"]["e"]["q1w2e3r4"]
    writer["gpu"] = gpu
    if row.state == "running" and not row.system and writer.get("gpu_count"):
        row.system = system_row(*(round(chance.uniform(60, 99), 1) for _ in range(writer["gpu_count"])))


def _ordinary(chance: random.Random, run: str, now: float) -> Row:
    hours = min(40.0, chance.lognormvariate(0.3, 1.0))
    end = now - chance.uniform(-2, 30) * HOUR
    running = end > now
    seen = now - chance.uniform(1, 50) if running else end
    in_sweep = chance.random() < 0.3
    sweep = f"sw{chance.randrange(4)}" if in_sweep else None
    return Row(
        run,
        state="running" if running else chance.choice(_TERMINAL),
        created_at=round(end - hours * HOUR, 3),
        heartbeat_at=round(seen, 3),
        display_name=f"{'arena.sweep' if in_sweep else 'train'}.{run}",
        sweep=sweep,
        compute_seconds=round(hours * HOUR) if chance.random() < 0.9 else 0,
        config=client_config(chance.choice((1, 4, 8, None)), seed=chance.randrange(100)),
        summary={"_step": chance.randrange(10**6), "losses/total": chance.random()},
    )


def _push(chance: random.Random, run: str, now: float, number: int) -> Row:
    end = now - (number + chance.random()) * 2 * HOUR
    ref = "main" if number % 3 else f"pr{4000 + number}"
    config = ("arena", "navigation", "cvc.fixed")[number % 3 or number // 3 % 3]
    steps = chance.uniform(30_000, 45_000)
    values = {key: round(steps * chance.uniform(0.9, 1.1), 1) for key in THROUGHPUT_KEYS}
    state = "failed" if number % 7 == 5 else "finished"
    return Row(
        run,
        state=state,
        created_at=round(end - chance.uniform(0.5, 1.5) * HOUR, 3),
        heartbeat_at=round(end, 3),
        display_name=f"github.sky.{ref}.{chance.randrange(16**7):07x}.{config}.20261114_{number:06d}",
        compute_seconds=0,
        config=client_config(4),
        summary=values if state == "finished" else None,
    )


def _odd(now: float) -> list[Row]:
    """Idle runs, one that began days ago, a zombie, one that waits, hidden ones, a broken summary."""
    idle = [
        Row(
            f"idle{number}",
            "running",
            now - hours * HOUR,
            now - 20,
            f"train.forgotten.{number}",
            config=client_config(gpus),
            system=system_row(*(gpus * [0.5]), memory=71.0),
        )
        for number, (gpus, hours) in enumerate(((8, 30), (4, 12), (1, 5)))
    ]
    return [
        *idle,
        Row("old", "running", now - 90 * HOUR, now - 20, "train.long", config=client_config(8)),
        Row("zombie", "running", now - 500 * HOUR, now - 480 * HOUR, "train.zombie"),
        Row("waiting", "pending", now - HOUR, None, "train.waiting"),
        Row("secret1", "finished", now - 5 * HOUR, now - 4 * HOUR, "train.secret", hidden=True),
        Row("secret2", "finished", now - 5 * HOUR, now - 3 * HOUR, "train.secret", hidden=True),
        Row(
            "broken",
            "crashed",
            now - 5 * HOUR,
            now - 4 * HOUR,
            "github.sky.main.abc1234.arena.20261114_1",
            config=client_config(4),
            summary='{"overview/sps": 31',
        ),
    ]


def _seconds(moment: Moment) -> float | None:
    if not isinstance(moment, str):
        return moment
    try:
        return instant(moment)
    except ValueError:
        return 2.0**40  # what cannot be read is listed all the same


def _text(moment: Moment) -> str | None:
    if moment is None or isinstance(moment, str):
        return moment
    stamp = datetime.fromtimestamp(moment, UTC)
    return stamp.isoformat(timespec="microseconds" if stamp.microsecond else "seconds").replace("+00:00", "Z")


def _projected(document: Document, filler: Mapping[str, Any], keys: list[str] | None) -> str | None:
    """The JSON text, with only the top-level keys asked for; text that is no JSON goes out whole."""
    if isinstance(document, str):
        if keys is None:
            return document
        try:
            document = json.loads(document)
        except ValueError:
            return str(document)
    if not isinstance(document, dict):
        return None if document is None else json.dumps(document)
    if keys is None:
        return json.dumps({**filler, **document})
    return json.dumps(
        {key: document.get(key, filler.get(key)) for key in keys if key in document or key in filler}
    )
