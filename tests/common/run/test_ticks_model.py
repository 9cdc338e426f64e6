"""A model of live ticks: killed anywhere, run twice, left out, without a store for a while.

Time, the store and the intake are simulated; the runner is the real one. A killed process does nothing more:
from then on every read, write and request of the run raises.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.collector import Collector, Context
from common.datadog import payloads
from common.datadog.client import DatadogClient
from common.errors import DeliveryError, StateError
from common.metric import Series
from common.options import Mode, Options
from common.outcome import Outcome, Status
from common.run.run import run
from support.project import KEY
from support.servers.series import decoded
from support.toy_runs import TOTAL, VALUE, ToySettings, install

STEP = 900
START = 1_800_000_000 // STEP * STEP
TIMEOUT, REACH = 60, 3600 - 60 - 30  # seconds back from the start of a run that can be sent


class KilledError(BaseException):
    """The process is gone."""


class Event(NamedTuple):
    """A run so many ticks after the last event, late by some seconds, and what befalls it.

    `kill` is the effect (a read, a write, a request) at which it is killed, before or after it happens.
    """

    ticks: int
    delay: int
    kill: int | None
    after: bool
    unreadable: bool
    unwritable: bool
    refused: int | None  # the request from which on the intake does not accept


CALM = Event(0, 0, kill=None, after=False, unreadable=False, unwritable=False, refused=None)
EVENTS = st.builds(
    Event,
    st.sampled_from([0, 1, 1, 1, 1, 2, 3, 6]),
    st.integers(0, 600),
    st.none() | st.integers(0, 12),
    st.booleans(),
    *(st.sampled_from([False, False, False, False, True]) for _ in range(2)),
    st.none() | st.none() | st.integers(0, 5),
)


def truth(second: int) -> dict[str, float]:
    return {"toy.value": second % 977, "toy.total": second // STEP % 7}


def collect(context: Context[Any]) -> Iterator[Series]:
    """Answer for each tick, and remember the runs that there were."""
    runs = context.memory.get("runs", [])
    assert isinstance(runs, list)
    context.memory["runs"] = [*runs, context.now]
    for at in context.window.ticks:
        for kind in "ab":
            yield VALUE(truth(at)["toy.value"], at, kind=kind)
        yield TOTAL(truth(at)["toy.total"], at)


@dataclass
class World:
    """What lasts from run to run: a store and an intake; and what befalls the run that is under way."""

    now: int = START
    store: dict[str, bytes] = field(default_factory=dict)
    points: dict[tuple[str, str, int], set[float]] = field(default_factory=dict)
    gap: float | None = None
    event: Event = CALM
    effects: int = 0
    requests: int = 0
    is_dead: bool = False

    def happen(self, effect: Callable[[], Any]) -> Any:
        """Let something happen outside of the process, unless it is or becomes dead."""
        number, self.effects = self.effects, self.effects + 1
        is_hit = number == self.event.kill
        if self.is_dead or (is_hit and not self.event.after):
            self.is_dead = True
            raise KilledError
        result = effect()
        if is_hit:
            self.is_dead = True
            raise KilledError
        return result

    def read(self, name: str) -> bytes | None:
        def effect() -> bytes | None:
            if self.event.unreadable:
                raise StateError("unreadable")
            return self.store.get(name)

        result: bytes | None = self.happen(effect)
        return result

    def write(self, name: str, content: bytes) -> None:
        def effect() -> None:
            if self.event.unwritable:
                raise StateError("unwritable")
            self.store[name] = content

        self.happen(effect)

    def submit(self, client: DatadogClient, body: bytes) -> None:
        def effect() -> None:
            number, self.requests = self.requests, self.requests + 1
            if self.event.refused is not None and number >= self.event.refused:
                raise DeliveryError("not now")
            for series in json.loads(decoded(body, client.encoding))["series"]:
                for point in series["points"]:
                    self._store(series["metric"], str(series["tags"]), point["timestamp"], point["value"])

        self.happen(effect)

    def _store(self, metric: str, tags: str, second: int, value: float) -> None:
        assert self.now - 3600 <= second <= self.now + 600, "the intake would drop it silently"
        if metric == "collector.gap_seconds":
            self.gap = value
        elif metric.startswith("toy."):
            self.points.setdefault((metric, tags, second), set()).add(value)

    def ticks(self) -> set[int]:
        """The ticks of which everything arrived."""
        arrived = Counter(second for _, _, second in self.points)
        return {second for second, number in arrived.items() if number == 3}

    def run(self, event: Event) -> Outcome | None:
        """Run once; None where it was killed."""
        self.event, self.effects, self.requests, self.is_dead, self.gap = event, 0, 0, False, None
        environ = {"DD_API_KEY": KEY, "DD_ENV": "test", "FLEETGAUGE_STATE": "/simulated"}
        try:
            return run("toy", Options(Mode.PUSH, TIMEOUT), environ, clock=lambda: self.now)
        except KilledError:
            return None


@pytest.fixture(scope="module", autouse=True)
def world_of_modules() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        check: Callable[[Context[Any]], Iterator[str]] = lambda _: iter(())  # noqa: E731
        install(patch, Collector("toy", ToySettings, (VALUE, TOTAL), collect, check, has_history=True))
        patch.setattr(payloads, "POINT_LIMIT", 2)
        yield patch


@settings(max_examples=200)
@given(st.lists(EVENTS, min_size=2, max_size=14))
def test_ticks_end_with_the_truth_whatever_befalls_them(
    world_of_modules: pytest.MonkeyPatch, events: list[Event]
) -> None:
    world = World()
    world_of_modules.setattr("common.run.session.StateStore", lambda *_: world)
    world_of_modules.setattr(DatadogClient, "submit", lambda client, body: world.submit(client, body))
    at = START
    complete: list[int] = []  # starts of runs that sent all of their window, and knew what was sent before
    first: int | None = None  # up to when points were first saved as sent
    for event in events:
        at += event.ticks * STEP
        world.now = max(world.now, at + event.delay)
        saved = _saved(world)
        before = dict.fromkeys(world.points)
        outcome = world.run(event)
        tick = world.now // STEP * STEP
        assert all(len(values) == 1 for values in world.points.values()), "no second has two values"
        first = _saved(world) if first is None else first
        if outcome is None:
            continue
        if event.unreadable:
            assert outcome.status in {Status.PARTIAL, Status.FAILED}
            assert [unit.partition(": ")[0] for unit in outcome.report.lost] == ["the state of earlier runs"]
            assert world.gap is None
        elif event.unwritable and outcome.error is None:
            assert outcome.status is Status.PARTIAL
        if outcome.error is not None:
            continue
        assert tick in world.ticks()
        if not event.unreadable:
            complete.append(world.now)
        if saved is not None and not event.unreadable:
            assert world.gap == max(0, min(tick, -(-(world.now - REACH) // STEP) * STEP) - STEP - saved)
            if saved == tick:
                assert outcome.status is not Status.OK or before.keys() == world.points.keys()
            document = json.loads(next(iter(world.store.values())))
            if not event.unwritable:
                assert (document["sent_until"], document["memory"]["runs"][-1]) == (tick, world.now)
    assert {key: values.pop() for key, values in world.points.items()} == {
        (metric, tags, second): truth(second)[metric] for metric, tags, second in world.points
    }
    if first is not None and complete:
        arrived = world.ticks()
        for tick in range(first + STEP, complete[-1] + 1, STEP):
            following = next(now for now in complete if now >= tick)
            assert tick in arrived or following - tick > REACH, "what can be filled is filled"


def _saved(world: World) -> int | None:
    """Up to when the store says that points were sent."""
    for content in world.store.values():
        until: int | None = json.loads(content)["sent_until"]
        return until
    return None
