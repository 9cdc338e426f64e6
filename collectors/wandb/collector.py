"""Reads the runs of each project and says how the fleet is doing, as of one instant or of many."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from collectors.wandb import metrics
from collectors.wandb.api import (
    Api,
    Ask,
    RefusedKeyError,
    RefusedProjectError,
    UnknownPartsError,
    UnknownProjectError,
)
from collectors.wandb.evaluate import Figures, Rules, evaluate_many
from collectors.wandb.listing import Listing
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.pages import Page
from collectors.wandb.projects import Chosen, choose
from collectors.wandb.query import Extra, touched_since
from collectors.wandb.runs import RunReader
from collectors.wandb.schedule import Request, Schedule
from collectors.wandb.settings import Project, WandbSettings
from common.collector import Collector, Context
from common.errors import FleetgaugeError, SourceError
from common.metric import Mark, Sample
from common.net.http import Http
from common.net.retry import TransientError, persist
from common.span import Span

Sleep = Callable[[float], None]
T = TypeVar("T")


def collect(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[Sample | Mark]:
    """The metrics of every project, now and at the ticks that were missed and can still be sent."""
    rules = _rules(context.settings)
    missed: dict[Project, list[int]] = {}

    def since(project: Project) -> int:
        missed[project] = context.missed(context.state.get(_key(project)))
        return min([*missed[project], context.at]) - context.settings.window

    def answer(listing: Listing) -> list[Sample | Mark]:
        project = listing.project
        *past, present = evaluate_many(listing.runs, [*missed[project], context.at], rules)
        of_the_past = [sample for figures in past for sample in samples(project, figures, live=False)]
        return [*of_the_past, *live_samples(listing, present), Mark({_key(project): context.at})]

    fleet = _open(context, sleep)
    for told in fleet.each(since, answer):
        yield from told
    gone = [key for key in context.state if (project := _project(key)) and fleet.is_gone(project)]
    if gone:
        yield Mark(dict.fromkeys(gone))


def backfill(
    context: Context[WandbSettings], span: Span, sleep: Sleep = time.sleep
) -> Callable[[], Iterator[Sample | Mark]]:
    """The metrics of every project at each tick of a span, from one listing of its runs."""
    rules = _rules(context.settings)
    since = span.since - context.settings.window
    listings = list(_open(context, sleep).each(lambda _: since, lambda listing: listing, span.until))

    def recompute() -> Iterator[Sample | Mark]:
        for listing in listings:
            sent = context.state.get(_key(listing.project))
            ticks = [at for at in span.ticks if not isinstance(sent, int) or at > sent]
            for figures in evaluate_many(listing.runs, ticks, rules):
                yield from samples(listing.project, figures, live=False)
                yield Mark({_key(listing.project): figures.at})

    return recompute


def _rules(settings: WandbSettings) -> Rules:
    return Rules(settings.window, settings.stale_after, settings.pending_for)


def _key(project: Project) -> str:
    """Where the state remembers the last tick of a project that was delivered."""
    return f"tick:{project}"


def _project(key: str) -> Project | None:
    """The project that a key of the state is about."""
    entity, slash, name = key.removeprefix("tick:").partition("/")
    return Project(entity, name) if slash and key.startswith("tick:") else None


@dataclass
class _Fleet:
    """The projects of one run, read over a few connections."""

    context: Context[WandbSettings]
    sleep: Sleep
    http: Http
    api: Api
    chosen: Chosen
    _gone: set[Project] = field(default_factory=set)
    _failures: dict[Project, Exception] = field(default_factory=dict)

    def is_gone(self, project: Project) -> bool:
        """Whether a project was one of an entity's, and is no longer."""
        return project in self._gone or self.chosen.is_gone(project)

    def each(
        self,
        since: Callable[[Project], int],
        answer: Callable[[Listing], T],
        created_before: int | None = None,
    ) -> Iterator[T]:
        """What is to be said of every project, in their order. One that fails costs itself; all, the run."""
        self._failures.update(self.chosen.unlisted)
        answers: dict[Project, T] = {}
        waiting = deque(self.chosen.projects)
        answered = 0
        for project, result in self._read(since, created_before):
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

    def _read(
        self, since: Callable[[Project], int], created_before: int | None
    ) -> Iterator[tuple[Project, Listing | Exception]]:
        context = self.context
        requests = [
            Request(project, touched_since(since(project), created_before))
            for project in self.chosen.projects
        ]
        schedule = Schedule(
            self.api, self.http, context.settings, context.deadline, self.sleep, context.parent
        )
        return schedule.read(requests)

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
        for reason, number in result.dropped.items():
            self.context.drop(reason, number)
        self.context.log.info("%s: %d runs listed, %s unseen", project, result.listed, result.unseen)


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
    missing: frozenset[Extra] = frozenset()
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
    for part in sorted(missing, key=lambda part: part.name):
        yield f"not available at {context.settings.base_url}: {part.value}"


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
    settings = context.settings
    reading = RunReader(settings.push_to_main, settings.gpu_count_key, settings.assumed_gpus)
    http = context.http(settings.base_url, settings.connections)
    api = Api(settings, reading, http)
    return _Fleet(context, sleep, http, api, choose(settings, api, context.deadline, sleep))


COLLECTOR = Collector(
    name="wandb",
    settings=WandbSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
