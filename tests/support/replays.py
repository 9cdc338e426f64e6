"""Live ticks over files that grow in simulated time, and replays of the same files afterwards."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from common.collector import Collector, Context, Tally
from common.config.settings import ConfigurationFile, load
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.span import Span
from support.xenna_ticks import NOW

BEGIN = NOW // 3600 * 3600 - 86400
Held = dict[tuple[str, tuple[str, ...], str | None, int], float]  # as an intake holds points


class Simulation:
    """One collector, a folder of files, and a clock that only a test moves."""

    def __init__(self, collector: Collector[Any], folder: Path, **settings: str) -> None:
        prefix = f"FLEETGAUGE_{collector.name.upper()}"
        environ = {f"{prefix}_{name.upper()}": value for name, value in settings.items()}
        environ.setdefault(f"{prefix}_PATHS", str(folder))
        self.collector = collector
        self.folder = folder
        self.settings = load(collector.settings, collector.name, environ=environ, file=ConfigurationFile())
        self.now = BEGIN
        self.state: dict[str, object] = {}
        self.live: Held = {}
        self.tally = Tally()
        self._ticked = BEGIN
        self._rotations = 0

    def write(self, to: str, *records: Mapping[str, Any]) -> None:
        path = self.folder / to
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
        os.utime(path, (self.now, self.now))

    def rotate(self, name: str) -> None:
        """Rename a file as writers do when it is large."""
        path = self.folder / name
        self._rotations += 1
        if path.exists():
            path.rename(path.with_suffix(f".{self._rotations:06d}.jsonl"))

    def pass_time(self, seconds: int) -> None:
        """Let time pass, with a live tick at least every half an hour: the intake takes no older points."""
        end = self.now + seconds
        while end - self._ticked > 1800:
            self.now = max(self.now, self._ticked + 1800)
            self.tick()
        self.now = end

    def tick(self) -> None:
        """One live tick."""
        self._ticked = self.now
        samples, marks = split(self.collector.collect(self.context(self.now, self.state)))
        self.live |= held(samples)
        for mark in marks:
            self.state = saved(self.state, mark)

    def context(
        self, now: int, state: Mapping[str, object], deadline: Deadline | None = None
    ) -> Context[Any]:
        self.tally = Tally()
        left = deadline or Deadline(60, clock=lambda: 0.0)
        return Context(self.settings, now, now, "node", state, left, logging.getLogger("test"), self.tally)

    def past(
        self,
        since: int,
        until: int,
        state: Mapping[str, object] | None = None,
        *,
        now: int | None = None,
        deadline: Deadline | None = None,
    ) -> Callable[[], Iterator[Sample | Mark]]:
        """A replay of a span."""
        assert self.collector.backfill
        return self.collector.backfill(
            self.context(now or self.now, state or {}, deadline), Span(since, until, 900)
        )

    def stream(
        self, since: int, until: int, state: Mapping[str, object] | None = None, now: int | None = None
    ) -> list[Sample | Mark]:
        """What a replay yields."""
        return list(self.past(since, until, state, now=now)())

    def replay(self, since: int, until: int, now: int | None = None) -> Held:
        """What an intake holds after a replay."""
        return held(split(self.stream(since, until, now=now))[0])

    def live_in(self, since: int, until: int) -> Held:
        """What live ticks sent of a span that can be known afterwards."""
        hidden = {metric.name for metric in self.collector.live_only}
        return {key: v for key, v in self.live.items() if key[0] not in hidden and since <= key[3] < until}


def split(items: Iterable[Sample | Mark]) -> tuple[list[Sample], list[Mark]]:
    samples: list[Sample] = []
    marks: list[Mark] = []
    for item in items:
        if isinstance(item, Mark):
            marks.append(item)
        else:
            samples.append(item)
    return samples, marks


def held(samples: Iterable[Sample]) -> Held:
    """What an intake holds of samples: of one series and second, the last."""
    return {(one.metric.name, one.tags, one.host, one.timestamp): one.value for one in samples}


def saved(state: Mapping[str, object], mark: Mark) -> dict[str, object]:
    """A state after a mark, as a store gives it back."""
    merged = {**state, **json.loads(json.dumps(mark.changes))}
    return {key: value for key, value in merged.items() if value is not None}


def state_after(items: Iterable[Sample | Mark]) -> dict[str, object]:
    """What a store holds once all these items are delivered, where it held nothing before."""
    state: dict[str, object] = {}
    for mark in split(items)[1]:
        state = saved(state, mark)
    return state


def resumed(simulation: Simulation, since: int, until: int, chance: Random) -> Held:
    """A replay that is killed some points behind one of its marks, and started again."""
    items = simulation.stream(since, until)
    places = [place for place, item in enumerate(items) if isinstance(item, Mark)]
    place = chance.choice(places)
    before = held(split(items[: place + 4])[0])
    return before | held(split(simulation.stream(since, until, state_after(items[: place + 1])))[0])


def opens(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that the tail opens from now on."""
    opened: list[Path] = []

    def watched(path: str, *arguments: object, **options: object) -> object:
        opened.append(Path(path))
        return open(path, *arguments, **options)  # type: ignore[call-overload]  # noqa: PTH123

    monkeypatch.setattr("common.records.local.open", watched, raising=False)
    return opened


def spans(chance: Random, simulation: Simulation, count: int) -> list[tuple[int, int]]:
    """Adjacent spans, somewhere in what was simulated."""
    cuts = sorted(chance.sample(range(BEGIN - 100, simulation.now), count + 1))
    return list(pairwise(cuts))
