"""The projects of one run: all of their runs, and a second look at those that run, over a few connections."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from collectors.wandb.api import Api, Ask, RefusedProjectError, UnknownPartsError, UnknownProjectError
from collectors.wandb.listing import Listing
from collectors.wandb.pages import Page
from collectors.wandb.projects import Chosen, choose
from collectors.wandb.query import Extra, seen_running_since, touched_since, unasked
from collectors.wandb.runs import RunReader
from collectors.wandb.schedule import Request, Result, Schedule
from collectors.wandb.settings import Project, WandbSettings
from common.collector import Context
from common.errors import FleetgaugeError, SourceError
from common.net.retry import TransientError, persist

LOOK_PAGE = 200  # runs asked for in one request with their system metrics, of 10 kB each

log = logging.getLogger(__name__)

Sleep = Callable[[float], None]
T = TypeVar("T")


@dataclass
class Fleet:
    """The projects of one run, read over a few connections."""

    context: Context[WandbSettings]
    sleep: Sleep
    reading: RunReader
    api: Api
    chosen: Chosen
    missing: frozenset[Extra] = frozenset()  # what the server turned out to lack
    _gone: set[Project] = field(default_factory=set)
    _failures: dict[Project, Exception] = field(default_factory=dict)

    def gone(self, paths: Iterable[str]) -> set[str]:
        """Return the projects that are read no longer, and whose entity was not one that failed to list."""
        listed = {str(project) for project in self.chosen.projects if project not in self._gone}
        unlisted = {project.entity for project in self.chosen.unlisted}
        return {path for path in paths if path not in listed and path.partition("/")[0] not in unlisted}

    def each(
        self, since: int, answer: Callable[[Listing], T], created_before: int | None = None
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
            self.context.report.lose(str(project), why)

    def look(self, projects: list[Project]) -> Iterator[Result]:
        """The runs of some projects that are running, with what their GPUs say."""
        since = self.context.window.until - self.context.settings.stale_after
        return self._read(projects, seen_running_since(since), looking=True)

    def _read(self, projects: list[Project], filters: str, *, looking: bool) -> Iterator[Result]:
        context, settings = self.context, self.context.settings
        size = min(LOOK_PAGE, settings.page_size) if looking else None
        without = unasked(settings.told_by, looking=looking)
        http = context.network.http(settings.base_url, settings.connections)
        api = Api(settings, self.reading, http)
        progress = context.report.progress
        schedule = Schedule(api, http, settings, context.deadline, self.sleep, progress, self.missing)
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
            log.info("%s went while it was to be read", project)
            self._gone.add(project)
            return
        if isinstance(result, Exception):
            self._failures[project] = result
            return
        try:
            answers[project] = answer(result)
        except Exception as error:
            log.exception("unexpected error in the runs of %s", project)
            self._failures[project] = error
            return
        self.count_losses(result)
        log.info("%s: %d runs listed, %s unseen", project, result.listed, result.unseen)

    def count_losses(self, listing: Listing) -> None:
        """Count what was lost of single runs."""
        for reason, number in listing.dropped.items():
            self.context.report.drop(reason, number, listing.example(reason))
            log.debug("dropped %d %s, first: %s", number, reason, listing.example(reason))

    def first_row(self, project: Project, missing: frozenset[Extra]) -> tuple[Page, frozenset[Extra]]:
        """The first run of a project, and what the server turned out to lack."""
        context = self.context
        filters = touched_since(context.now - context.settings.window)
        while True:
            ask = Ask(project, filters, 0, 1, missing=missing)
            try:
                answer = persist(lambda: self.api.page(ask, context.deadline), context.deadline, self.sleep)  # noqa: B023
            except UnknownPartsError as error:
                if error.parts <= missing:
                    raise SourceError(f"{project}: {error}") from None
                missing |= error.parts
            except RefusedProjectError:
                self.api.ask_for_key(context.deadline)
                raise
            except TransientError as error:
                raise SourceError(f"{project}: {error}") from None
            else:
                return answer.page, missing


def _worst(errors: list[Exception]) -> Exception:
    """What to say where nothing could be read: that it is configuration only if it is so for all."""
    others = [error for error in errors if not isinstance(error, RefusedProjectError)]
    first = others[0] if others else errors[0]
    if isinstance(first, FleetgaugeError) and len(errors) > 1:
        return type(first)(f"{first} (and {len(errors) - 1} more could not be read)")
    return first


def open_fleet(context: Context[WandbSettings], sleep: Sleep) -> Fleet:
    """The projects that the settings name and this shard reads. Rate limits are for all shards together."""
    settings, shard = context.settings, context.shard
    settings = settings.model_copy(update={"connections": max(1, settings.connections // shard.count)})
    context = replace(context, settings=settings)
    reading = RunReader(settings.push_to_main, settings.gpu_count_key, settings.assumed_gpus, settings.owners)
    api = Api(settings, reading, context.network.http(settings.base_url))
    if any(project.name == "*" for project in settings.chosen()):
        context.report.progress("listing projects", 0, None)
    chosen = choose(settings, api, context.deadline, sleep)
    chosen.projects = [project for project in chosen.projects if shard.owns(str(project))]
    return Fleet(context, sleep, reading, api, chosen)
