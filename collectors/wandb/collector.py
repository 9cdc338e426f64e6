"""Reads the runs of each project and says how the fleet is doing, as of one instant or of many."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from collectors.wandb import metrics
from collectors.wandb.activity import Activity
from collectors.wandb.api import (
    Api,
    Ask,
    RefusedKeyError,
    RefusedProjectError,
    UnknownPartsError,
    UnknownProjectError,
)
from collectors.wandb.evaluate import Figures, Rules, evaluate_many
from collectors.wandb.idle import remembered
from collectors.wandb.listing import Listing
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.owners import Owners
from collectors.wandb.pages import Page
from collectors.wandb.projects import Chosen, choose
from collectors.wandb.query import Extra, seen_running_since, touched_since, unasked
from collectors.wandb.runs import RunReader
from collectors.wandb.schedule import Request, Schedule
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.usage import Shares, Usage
from common.collector import Collector, Context
from common.errors import FleetgaugeError, SourceError
from common.metric import Mark, Sample
from common.net.retry import TransientError, persist
from common.span import Span

LOOK_PAGE = 200  # runs asked for in one request with their system metrics, of 10 kB each

_TICK, _IDLE = "tick:", "idle:"  # what the state remembers of a project

Sleep = Callable[[float], None]
T = TypeVar("T")


def collect(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[Sample | Mark]:
    """The metrics of every project, now and at the ticks that were missed and can still be sent."""
    settings = context.settings
    fleet = _open(context, sleep)
    to_send = {
        project: {*context.missed(context.state.get(_key(project))), context.at}
        for project in fleet.chosen.projects
    }
    instants = sorted({context.at}.union(*to_send.values()))
    usage = Usage(instants, settings)
    active: dict[Project, bool] = {}
    sent: dict[str, object] = {}

    def answer(listing: Listing) -> list[Sample]:
        project = listing.project
        found: list[Sample] = []
        for figures in evaluate_many(listing.runs, instants, _rules(settings)):
            if figures.at == context.at:
                found += live_samples(listing, figures)
            elif figures.at in to_send[project]:
                found += samples(project, figures, live=False)
        if fleet.owners:
            usage.enter(project, listing.runs)
        sent[_key(project)] = context.at
        active[project] = figures.values[metrics.ACTIVE] > 0
        return found

    for told in fleet.each(instants[0] - settings.window, answer):
        yield from told
        yield Mark({})  # nothing is whole yet, but what was said need not be kept
    for shares in usage.shares():
        if settings.usage:
            due = {project for project in to_send if shares.at in to_send[project]}
            yield from shares.samples(due, settings)
    gone = [key for key in context.state if (project := _project(key)) and fleet.is_gone(project)]
    yield Mark(sent | dict.fromkeys(gone))
    activity = Activity(context.at, settings, shares)
    if settings.utilization and (context.step is None or context.now - context.at <= context.step):
        yield from _look(fleet, active, activity)
    if not context.fills:
        _show(context, shares, activity)


def _look(fleet: _Fleet, active: Mapping[Project, bool], activity: Activity) -> Iterator[Sample | Mark]:
    """How busy the GPUs of active runs are. A project that cannot be looked at is unknown."""
    context = fleet.context
    quiet = [f"{_IDLE}{project}" for project, is_active in active.items() if not is_active]
    changes: dict[str, object] = {key: None for key in quiet if key in context.state}
    for project, result in fleet.look([project for project, is_active in active.items() if is_active]):
        if isinstance(result, Exception):
            context.lose(f"the utilisation of {project}", result)
            continue
        fleet.count_losses(result)
        key = f"{_IDLE}{project}"
        before = remembered(context.state.get(key))
        after = activity.enter(project, result.runs, before, 2 * (context.step or 0))
        if after or before:
            changes[key] = {run: list(memory) for run, memory in after.items()} or None
    if Extra.SYSTEM_METRICS not in fleet.missing:
        yield from activity.samples(remembers=context.remembers)
        yield Mark(changes)


def _show(context: Context[WandbSettings], shares: Shares, activity: Activity) -> None:
    """What a person wants to see of a dry run: who holds most GPUs, and who does not use them."""
    if context.settings.usage:
        context.tally.tables["usage"] = shares.table(context.settings, activity.utilization)
    if context.settings.utilization and context.remembers:
        context.tally.tables["idle"] = activity.idle_table()


def backfill(
    context: Context[WandbSettings], span: Span, sleep: Sleep = time.sleep
) -> Callable[[], Iterator[Sample | Mark]]:
    """The metrics of every project at each tick of a span, from one listing of its runs."""
    settings = context.settings
    fleet = _open(context, sleep)
    listings = list(fleet.each(span.since - settings.window, lambda listing: listing, span.until))

    def left(project: Project) -> range:
        sent = context.state.get(_key(project))
        ticks = span.ticks
        return ticks[bisect_right(ticks, sent) :] if isinstance(sent, int) else ticks

    def recompute() -> Iterator[Sample | Mark]:
        if settings.usage:
            usage = Usage(span.ticks, settings)
            for listing in listings:
                usage.enter(listing.project, listing.runs)
            for shares in usage.shares():
                due = {one.project for one in listings if shares.at in left(one.project)}
                yield from shares.samples(due, settings)
                yield Mark({})
        for listing in listings:
            for figures in evaluate_many(listing.runs, left(listing.project), _rules(settings)):
                yield from samples(listing.project, figures, live=False)
                yield Mark({_key(listing.project): figures.at})

    return recompute


def _rules(settings: WandbSettings) -> Rules:
    return Rules(settings.window, settings.stale_after, settings.pending_for)


def _key(project: Project) -> str:
    """Where the state remembers the last tick of a project that was delivered."""
    return f"{_TICK}{project}"


def _project(key: str) -> Project | None:
    """The project that a key of the state is about."""
    kind, colon, path = key.partition(":")
    entity, slash, name = path.partition("/")
    return Project(entity, name) if slash and f"{kind}{colon}" in {_TICK, _IDLE} else None


@dataclass
class _Fleet:
    """The projects of one run, read over a few connections."""

    context: Context[WandbSettings]
    sleep: Sleep
    owners: Owners | None
    reading: RunReader
    api: Api
    chosen: Chosen
    missing: frozenset[Extra] = frozenset()  # what the server turned out to lack
    _gone: set[Project] = field(default_factory=set)
    _failures: dict[Project, Exception] = field(default_factory=dict)

    def is_gone(self, project: Project) -> bool:
        """Whether a project was one of an entity's, and is no longer."""
        return project in self._gone or self.chosen.is_gone(project)

    def each(
        self,
        since: int,
        answer: Callable[[Listing], T],
        created_before: int | None = None,
    ) -> Iterator[T]:
        """What is to be said of every project, in their order. One that fails costs itself; all, the run."""
        self._failures.update(self.chosen.unlisted)
        answers: dict[Project, T] = {}
        waiting = deque(self.chosen.projects)
        answered = 0
        wanted = touched_since(since, created_before)
        for project, result in self._read(self.chosen.projects, wanted, looking=False):
            self._enter(project, result, answer, answers)
            while waiting and any(waiting[0] in ended for ended in (answers, self._failures, self._gone)):
                following = waiting.popleft()
                if following in answers:
                    answered += 1
                    yield answers.pop(following)
        order = [*self.chosen.unlisted, *self.chosen.projects]
        failed = [(project, self._failures[project]) for project in order if project in self._failures]
        if failed and not answered:
            raise _worst([error for _, error in failed])
        for project, why in failed:
            self.context.lose(str(project), why)

    def look(self, projects: list[Project]) -> Iterator[tuple[Project, Listing | Exception]]:
        """The runs of some projects that are running, with what their GPUs say."""
        since = self.context.at - self.context.settings.stale_after
        return self._read(projects, seen_running_since(since), looking=True)

    def _read(
        self, projects: list[Project], filters: str, *, looking: bool
    ) -> Iterator[tuple[Project, Listing | Exception]]:
        context, settings = self.context, self.context.settings
        size = min(LOOK_PAGE, settings.page_size) if looking else None
        without = unasked(settings.group_by if self.owners else (), looking=looking)
        http = context.http(settings.base_url, settings.connections)
        api = Api(settings, self.reading, http)
        schedule = Schedule(api, http, settings, context.deadline, self.sleep, context.parent, self.missing)
        yield from schedule.read([Request(project, filters, size, without) for project in projects])
        self.missing = schedule.missing

    def _enter(
        self,
        project: Project,
        result: Listing | Exception,
        answer: Callable[[Listing], T],
        answers: dict[Project, T],
    ) -> None:
        if isinstance(result, UnknownProjectError) and project in self.chosen.found:
            self.context.log.info("%s went while it was to be read", project)
            self._gone.add(project)
            return
        if isinstance(result, Exception):
            self._failures[project] = result
            return
        try:
            answers[project] = answer(result)
        except Exception as error:
            self.context.log.exception("unexpected error in the runs of %s", project)
            self._failures[project] = error
            return
        self.count_losses(result)
        self.context.log.info("%s: %d runs listed, %s unseen", project, result.listed, result.unseen)

    def count_losses(self, listing: Listing) -> None:
        """Count what was lost of single runs."""
        for reason, number in listing.dropped.items():
            self.context.drop(reason, number)


def _worst(errors: list[Exception]) -> Exception:
    """What to say where nothing could be read: that it is configuration only if it is so for all."""
    others = [error for error in errors if not isinstance(error, RefusedProjectError)]
    first = others[0] if others else errors[0]
    if isinstance(first, FleetgaugeError) and len(errors) > 1:
        return type(first)(f"{first} (and {len(errors) - 1} more could not be read)")
    return first


def live_samples(listing: Listing, figures: Figures) -> Iterator[Sample]:
    """All that is known of a project at the present."""
    yield from samples(listing.project, figures, live=True)
    if listing.unseen is not None:
        entity, project = listing.project
        yield metrics.UNSEEN(listing.unseen, figures.at, entity=entity, project=project)


def samples(project: Project, figures: Figures, *, live: bool) -> Iterator[Sample]:
    """The figures of a project as samples; of the past, without what only the present can show."""
    tags = {"entity": project.entity, "project": project.name}
    for metric in METRICS:
        if metric in figures.values and (live or metric not in LIVE_ONLY):
            yield metric(figures.values[metric], figures.at, **tags)
    for target, value in sorted(figures.by_target.items()):
        yield metrics.PUSH_CONFIG_STEPS(value, figures.at, **tags, **target._asdict())


def check(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[str | FleetgaugeError]:
    """Read one run of each project that is named, and of one of each entity, with the real query."""
    fleet = _open(context, sleep)
    yield from fleet.chosen.unlisted.values()
    for entity in sorted(fleet.chosen.entities):
        number = sum(project.entity == entity for project in fleet.chosen.projects)
        yield f"{entity}/* stands for {number:,} projects"
    settings = context.settings
    asked_for = settings.group_by if fleet.owners else ()
    missing = without = unasked(asked_for, looking=settings.utilization)
    entities = set()
    for project in fleet.chosen.projects:
        if project in fleet.chosen.found and project.entity in entities:
            continue
        entities.add(project.entity)
        try:
            page, missing = _first_row(fleet, project, missing)
        except RefusedKeyError:  # no other project would answer better
            raise
        except FleetgaugeError as error:
            yield error
            continue
        known = "" if page.total is None else f", which has {page.total:,} runs to look at"
        yield f"the key can read {project}{known}"
    for part in sorted(missing - without, key=lambda part: part.name):
        yield f"not available at {settings.base_url}: {part.value}"
    if settings.utilization and not context.remembers:
        yield "which runs are idle is not told: that needs a checkpoint store (FLEETGAUGE_CHECKPOINTS)"


def _first_row(fleet: _Fleet, project: Project, missing: frozenset[Extra]) -> tuple[Page, frozenset[Extra]]:
    """The first run of a project, and what the server turned out to lack."""
    context = fleet.context
    filters = touched_since(context.at - context.settings.window)
    while True:
        ask = Ask(project, filters, 0, 1, missing=missing)
        try:
            answer = persist(lambda: fleet.api.page(ask, context.deadline), context.deadline, fleet.sleep)  # noqa: B023
        except UnknownPartsError as error:
            if error.parts <= missing:
                raise SourceError(f"{project}: {error}") from None
            missing |= error.parts
        except RefusedProjectError:
            fleet.api.ask_for_key(context.deadline)
            raise
        except TransientError as error:
            raise SourceError(f"{project}: {error}") from None
        else:
            return answer.page, missing


def _open(context: Context[WandbSettings], sleep: Sleep) -> _Fleet:
    settings, owners = context.settings, context.settings.owners
    reading = RunReader(settings.push_to_main, settings.gpu_count_key, settings.assumed_gpus, owners)
    api = Api(settings, reading, context.http(settings.base_url))
    return _Fleet(context, sleep, owners, reading, api, choose(settings, api, context.deadline, sleep))


COLLECTOR = Collector(
    name="wandb",
    settings=WandbSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
