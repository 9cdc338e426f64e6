"""Runs a record collector as the runner does, over files that a test writes, at times that it chooses."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from common.collector import Collector, Context, load_collector
from common.config.settings import CoreSettings
from common.config.sources import Configuration
from common.metric import Series
from common.net.retry import Deadline
from common.outcome import Report
from common.window import Window
from support.record_fleets import SETTLE, STEP, Key, Points

TIMEOUT = 600  # seconds that a run may take
HOUR = 3600


class Ran(NamedTuple):
    """One run. `sent` is what the intake accepted of it; it is `killed` where its state was not saved."""

    now: int
    window: Window
    sent: Points
    report: Report
    killed: bool


class Runs:
    """A collector, its state, and an intake that keeps the last value of each series and second."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        store: bool = True,
        core: CoreSettings | None = None,
    ) -> None:
        self.collector: Collector[Any] = load_collector(kind)  # Any: see there
        prefix = f"FLEETGAUGE_{kind.upper()}"
        environ = {f"{prefix}_{name.upper()}": value for name, value in (settings or {}).items()}
        environ.setdefault(f"{prefix}_PATHS", str(folder))
        environ.setdefault(f"{prefix}_SETTLE", str(SETTLE))
        self.settings = Configuration(environ, None).table(self.collector.settings, kind)
        self.store = store
        self.core = core or CoreSettings()
        self.points: Points = {}
        self.values: defaultdict[Key, list[tuple[float, Ran]]] = defaultdict(list)  # all that were sent
        self.ran: list[Ran] = []
        self._memory = "{}"
        self._sent_until: int | None = None

    def run(self, now: int, steps: Callable[[int], int] | None = None, chunk: int = 10_000) -> Ran:
        """Run once. `steps` chooses, out of how many there are, the steps after which the run is killed.

        The steps are: collecting, saving the memory, sending each payload of `chunk` points, and saving up to
        when points were sent. A payload whose answer is not read was accepted all the same.
        """
        earliest = now + TIMEOUT - HOUR
        window = self.collector.due(self.settings, now, STEP, self._sent_until, earliest)
        context = self._context(window, now, json.loads(self._memory))
        points = list(points_of(self.collector.collect(context)).items())
        payloads = [dict(points[start : start + chunk]) for start in range(0, len(points), chunk)]
        last = len(payloads) + 3
        stop = last if steps is None else steps(last)
        if stop >= 2 and self.store:
            self._memory = json.dumps(context.memory)
        sent = {key: value for payload in payloads[: max(0, stop - 2)] for key, value in payload.items()}
        ran = Ran(now, window, sent, context.report, stop < last)
        if not ran.killed and self.store:
            self._sent_until = window.until
        self.points |= sent
        for key, value in sent.items():
            self.values[key].append((value, ran))
        self.ran.append(ran)
        return ran

    def backfill(self, since: int, until: int, now: int) -> Points:
        """Return the points of a backfill, window by window, without what cannot be known of the past."""
        memory: dict[str, object] = {}
        hidden = {metric.name for metric in self.collector.live_only}
        points: Points = {}
        for window in Window(since, until, STEP).split(HOUR):
            context = self._context(window, now, memory)
            found = points_of(self.collector.collect(context))
            points |= {key: value for key, value in found.items() if key[0] not in hidden}
            self.ran.append(Ran(now, window, found, context.report, killed=False))
        return points

    def _context(self, window: Window, now: int, memory: dict[str, object]) -> Context[Any]:
        return Context(
            settings=self.settings,
            window=window,
            now=now,
            deadline=Deadline(TIMEOUT, clock=lambda: 0.0),
            memory=memory,
            report=Report(),
            core=self.core,
        )


def points_of(series: Iterable[Series]) -> Points:
    """Return the points of series; a run gives each second of a series once."""
    points: Points = {}
    for metric, tags, host, times, values in series:
        assert list(tags) == sorted(set(tags))
        for at, value in zip(times, values, strict=True):
            key = (metric.name, tags, host, int(at))
            assert key not in points, f"{key} was yielded twice"
            points[key] = value
    return points


def differences(found: Points, expected: Points) -> list[tuple[Key, float | None, float | None]]:
    """Return the points that differ, in order of time: each with the value found and the expected one."""
    keys = sorted(found.keys() | expected.keys(), key=lambda key: (key[3], repr(key)))
    return [(key, found.get(key), expected.get(key)) for key in keys if found.get(key) != expected.get(key)]


@contextmanager
def unreadable(paths: Collection[str]) -> Iterator[None]:
    """Make files and directories refuse to be read, also for root, to whom permissions do not apply."""
    refused = frozenset(paths)
    originals: Any = (builtins.open, io.open, os.open, os.scandir)

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, *arguments: Any, **options: Any) -> Any:
            if not isinstance(path, int) and os.fsdecode(os.fspath(path)) in refused:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return original(path, *arguments, **options)

        return opened

    builtins.open, io.open, os.open, os.scandir = (guarded(each) for each in originals)
    try:
        yield
    finally:
        builtins.open, io.open, os.open, os.scandir = originals
