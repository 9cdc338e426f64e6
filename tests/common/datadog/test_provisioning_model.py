"""A model of provisioning beside people: whatever fails in whatever order, nobody's work is lost.

Runs of two instances are interleaved with edits and clones by people, at every request; answers are lost,
listings lag, processes are killed. Excused is only an edit between the last read and the write of a
document, or within a minute of our own write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from common.datadog.provisioning import DASHBOARD, DATE_TOLERANCE, MONITOR, Provisioner, Step
from common.errors import DeliveryError, RefusedError
from common.net.retry import Deadline, TransientError, persist
from support.servers.documents import Documents

T = TypeVar("T")
Document = dict[str, Any]
NO_LAG = 1e-6  # keeps the history that listings lag behind in


class Killed(BaseException):
    """The process ends at a request."""


def wanted(version: int) -> dict[str, dict[str, Document]]:
    """The declared documents in some version."""
    return {
        DASHBOARD: {
            key: {"title": key, "description": f"About {version}.", "layout_type": "ordered", "widgets": []}
            for key in ("fleet", "hosts")
        },
        MONITOR: {"gap": {"name": "gap", "type": "query alert", "query": f"q{version}", "tags": ["a:b"]}},
    }


@dataclass
class Life:
    """What happened to one document of the store."""

    kind: str
    written: float | None = None  # by a run, the last time
    worked: float | None = None  # by a person, the last time
    clone: bool = False  # made by a person, more than a minute after our own write
    read: float | None = None  # by the present run, the last time
    modified: str = ""  # as the present run read it last


@dataclass
class World:
    """Datadog, the people and the clock."""

    seed: int
    faults: bool = True
    now: float = 1_800_000_000.0
    lives: dict[str, Life] = field(default_factory=dict)
    agreed: set[tuple[str, str]] = field(default_factory=set)
    kill_at: tuple[int, bool] | None = None  # the request, and whether it is applied before
    requests: int = 0
    dated: tuple[float, float] = (0.0, 0.0)  # the Date of the last answer, and when it came

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.store = Documents(lambda: self.now, strict=False)
        self.store.lag = NO_LAG
        self.store.remember()

    def chance(self, probability: float) -> bool:
        return self.faults and self.random.random() < probability

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def stored(self, kind: str) -> dict[str, Document]:
        return self.store.dashboards if kind == "dashboard" else self.store.monitors

    def act(self) -> None:
        """Let a person edit, clone or delete a document."""
        kind = self.random.choice(["dashboard", "monitor"])
        if not self.stored(kind):
            return
        name, document = self.random.choice([*self.stored(kind).items()])
        title = "title" if kind == "dashboard" else "name"
        changed = {**document, title: f"work {self.random.random()}"}
        life = self.lives[name]
        match self.random.choice(["edit", "edit", "clone", "unsign", "delete"]):
            case "edit":
                self.store.store(kind, name, changed)
                life.worked = self.now
            case "unsign" if kind == "dashboard":  # the person removes our key
                self.store.store(kind, name, {**changed, "description": "Mine."})
                life.worked = self.now
            case "clone":
                copy = self.store.store(kind, "", changed)
                recent = life.written is not None and self.now <= life.written + DATE_TOLERANCE
                self.lives[copy] = Life(kind, life.written, self.now, not recent)
            case "delete" if self.chance(0.3):
                del self.stored(kind)[name]
                self.store.remember()

    def server_time(self) -> float:
        return self.dated[0] + self.now - self.dated[1]

    def retry(self, call: Callable[[], T]) -> T:
        try:
            return persist(call, self.deadline)
        except TransientError as error:
            raise DeliveryError(str(error)) from error

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Answer a request of a run, or fail it in one of the ways that happen."""
        self.requests += 1
        self.wait(self.random.choice([0.01, 0.2, 3.0]))
        while self.chance(0.1):
            self.wait(self.random.choice([0.1, 20, 61, 200]))
            self.act()
        if self.kill_at == (self.requests, False) or self.chance(0.01):
            raise Killed
        if self.chance(0.02):
            raise TransientError("busy", status=429)
        if self.chance(0.03):
            raise TransientError("reset before the request arrived")
        self.store.lag = self.random.choice([NO_LAG, 30, 400]) if self.faults else NO_LAG
        kind, _, name = path.removeprefix("/api/v1/").partition("?")[0].partition("/")
        if method in {"PUT", "DELETE"} and name in self.stored(kind):
            self.judge(name)
        status, document = self.store.handle(method, path, body)
        self.note(method, kind, name, status, document)
        if self.kill_at == (self.requests, True) or self.chance(0.01):
            raise Killed
        if self.chance(0.05):
            raise TransientError("unavailable", status=503)
        if status >= 400:
            raise RefusedError(f"answered {status}", status=status, problems=("No.",))
        self.dated = float(int(self.now)), self.now
        return SimpleNamespace(document=document)

    def note(self, method: str, kind: str, name: str, status: int, document: Any) -> None:
        """Remember what a request read or wrote."""
        if status >= 400:
            return
        if method == "POST":
            self.lives[str(document["id"])] = Life(kind, written=self.now)
        elif method == "PUT":
            self.lives[name].written = self.now
        elif method == "GET" and name:
            life = self.lives[name]
            life.read, life.modified = self.now, str(document.get("modified_at") or document["modified"])

    def judge(self, name: str) -> None:
        """Raise where a write of a run would lose a person's work that is not excused."""
        life = self.lives[name]
        assert not life.clone, f"{name} is a person's clone"
        if life.worked is None or (life.written is not None and life.worked <= life.written + DATE_TOLERANCE):
            return
        assert life.read is not None, f"{name} was not read before it was written"
        if life.worked > life.read or (name, life.modified) in self.agreed:
            return
        raise AssertionError(f"{name}: work of {life.worked} is lost at {self.now}; last read {life.read}")

    def run(self, instance: str, version: int, *, remove: bool = False) -> list[Step]:
        """Run the command's steps once; the steps that were not unchanged."""
        self.deadline = Deadline(3600, lambda: self.now, self.wait)
        datadog = Provisioner(self, instance)  # type: ignore[arg-type]  # the world is its client
        for life in self.lives.values():
            life.read = None
        self.agreed.clear()
        done = []
        try:
            for resource, documents in wanted(version).items():
                steps = datadog.plan(resource, {} if remove else documents)
                for step in [*steps]:
                    if step.action == "unchanged":
                        continue
                    done.append(step)
                    overwrite = step.action == "edited" and bool(step.declared) and self.chance(0.3)
                    if overwrite and step.owned:
                        self.agreed.add((step.owned.id, self.lives[step.owned.id].modified))
                    if step.action in {"create", "update", "remove"} or overwrite:
                        try:
                            datadog.apply(step, overwrite=overwrite)
                        except DeliveryError:
                            assert self.faults
        except (Killed, DeliveryError):
            assert self.faults or self.kill_at
        return done

    def settle(self, instance: str, version: int) -> None:
        """With nothing failing any more, one run completes what is missing and the next writes nothing."""
        self.faults, self.kill_at = False, None
        self.wait(3600)
        self.run(instance, version)
        self.wait(3600)
        assert [step for step in self.run(instance, version) if step.action != "edited"] == []
        for resource, documents in wanted(version).items():
            field_name = "tags" if resource == MONITOR else "description"
            for document in documents:
                shown = [str(one[field_name]) for one in self.stored(resource).values()]
                assert any(f"fleetgauge:{document}:{instance}:" in text for text in shown), document


@pytest.mark.parametrize("block", range(8))
def test_nobodys_work_is_lost_in_any_order_of_failures(block: int) -> None:
    for seed in range(40 * block, 40 * (block + 1)):
        world = World(seed)
        version = 0
        for _ in range(8):
            version += world.random.random() < 0.5
            world.run(world.random.choice(["one", "two"]), version, remove=world.random.random() < 0.15)
            for _ in range(world.random.choice([0, 1, 3])):
                world.wait(world.random.choice([1, 50, 70, 4000]))
                world.act()
            world.wait(world.random.choice([1, 20, 500, 90_000]))
        for instance in ("one", "two"):
            world.settle(instance, version)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("case", ["create", "update", "remove"])
def test_kill_at_every_request_then_edit_and_clone_loses_nothing(case: str, applied: bool) -> None:
    def prepare(world: World) -> None:
        if case != "create":
            world.run("one", 1)
            world.wait(3600)

    def work(world: World) -> None:
        world.run("one", 2, remove=case == "remove")

    undisturbed = World(0, faults=False)
    prepare(undisturbed)
    before = undisturbed.requests
    work(undisturbed)
    total = undisturbed.requests - before
    assert total >= 5
    for number in range(1, total + 1):
        world = World(number, faults=False)
        prepare(world)
        world.requests, world.kill_at = 0, (number, applied)
        work(world)
        world.kill_at = None
        world.wait(DATE_TOLERANCE + 5)
        for _ in range(4):
            world.act()
            world.wait(5)
        world.run("one", 2, remove=True)
        world.run("one", 3)
        world.settle("one", 3)
