"""The runs that are known: when each began, was last heard of, and ended. Saved from tick to tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collectors.xenna.metrics import ACTIVE, ENDED_ERROR, ENDED_OK, LAST_RECORD_AGE, STALLED
from collectors.xenna.record import Record
from common.metric import Sample

PREFIX = "run:"
DAY = 86400


@dataclass
class PipelineRun:
    """What is remembered of a run; every field is JSON."""

    tags: dict[str, str]
    started: float
    last: float
    plain: bool = False
    ended: float | None = None
    ok: bool = False

    @classmethod
    def from_state(cls, saved: object) -> PipelineRun | None:
        """The run that was saved, or None where it is not one of ours."""
        try:
            run = cls(**saved)  # type: ignore[arg-type]  # a wrong type is what the except is for
        except TypeError:
            return None
        times = (run.started, run.last, 0 if run.ended is None else run.ended)
        tags = isinstance(run.tags, dict) and all(isinstance(value, str) for value in run.tags.values())
        return run if tags and all(type(time) in (int, float) for time in times) else None

    def alive_at(self, time: float, silence: int) -> bool:
        """Whether the run had begun by then, and had neither ended nor been silent for so long."""
        return self.started <= time <= (self.last + silence if self.ended is None else self.ended)


class PipelineRuns:
    """All runs heard of since they would be forgotten."""

    def __init__(self, state: Mapping[str, object], now: int, stalled_after: int, forget_after: int) -> None:
        self._now = now
        self._stalled_after = stalled_after
        self._before = now - forget_after
        self._runs: dict[str, PipelineRun] = {}
        self._sharing: dict[frozenset[tuple[str, str]], list[str]] = {}  # by tags
        self._touched: set[str] = set()
        for key, saved in state.items():
            if key.startswith(PREFIX) and (run := PipelineRun.from_state(saved)):
                self._know(key.removeprefix(PREFIX), run)
        self._foreign = {
            key for key in state if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in self._runs
        }

    def _know(self, name: str, run: PipelineRun) -> None:
        self._runs[name] = run
        self._sharing.setdefault(_group(run.tags), []).append(name)

    def hear(self, record: Record) -> None:
        """Take note of a record."""
        run = self._runs.get(record.run)
        if run is None:
            run = PipelineRun(record.tags(), record.timestamp, record.timestamp, record.plain)
            self._know(record.run, run)
        run.started = min(run.started, record.timestamp)
        run.last = max(run.last, record.timestamp)
        if record.ended_well is not None:
            run.ended, run.ok = record.timestamp, record.ended_well
        self._touched.add(record.run)

    def contested(self, record: Record) -> bool:
        """Whether a run that began later may own the series: it depends on what it has written since."""
        return any(run.ended is None and run.started <= record.timestamp for run in self._later(record))

    def superseded(self, record: Record) -> bool:
        """Whether a run that began later was alive with the same tags then, and so owns the series.

        A job that starts again takes the series over at once; of two at the same time, one is shown.
        """
        return any(run.alive_at(record.timestamp, self._stalled_after) for run in self._later(record))

    def _later(self, record: Record) -> list[PipelineRun]:
        """The runs with the same tags that began later."""
        rivals = self._sharing[_group(record.tags())]
        if len(rivals) == 1:
            return []
        began = (self._runs[record.run].started, record.run)
        return [self._runs[name] for name in rivals if (self._runs[name].started, name) > began]

    def changes(self) -> dict[str, object]:
        """What to save of the runs heard of since this was last asked."""
        touched, self._touched = self._touched, set()
        return {PREFIX + name: {**vars(self._runs[name])} for name in sorted(touched)}

    def expired(self) -> dict[str, None]:
        """The keys of runs not heard of for long, and of what is not ours, as changes that forget them."""
        old = {PREFIX + name for name, run in self._runs.items() if run.last < self._before}
        return dict.fromkeys(sorted(old | self._foreign))

    def samples(self) -> Iterator[Sample]:
        """How the runs are, now. A run that has ended, or was started again, is not sent any more."""
        now, limit = self._now, self._stalled_after
        for names in self._sharing.values():
            run = self._runs[max(names, key=lambda name: (self._runs[name].started, name))]
            age = max(0.0, now - run.last)
            if run.ended is None and age <= DAY:
                yield LAST_RECORD_AGE(age, now, **run.tags)
                if not run.plain:  # the plain form has no end: silence may be one
                    yield STALLED(int(age > limit), now, **run.tags)
        runs = self._runs.values()
        ended = [run.ok for run in runs if run.ended is not None and run.ended > now - DAY]
        yield ACTIVE(sum(run.ended is None and now - run.last <= limit for run in runs), now)
        yield ENDED_OK(ended.count(True), now)
        yield ENDED_ERROR(ended.count(False), now)


def _group(tags: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(tags.items())
