"""Which projects are to be read: those that are named, and all of an entity where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from collectors.wandb.api import MAX_PROJECTS, Api
from collectors.wandb.settings import Project, WandbSettings
from common.errors import FleetgaugeError, SourceError
from common.net.retry import Deadline, TransientError, persist


@dataclass
class Chosen:
    """The projects to read, in order, each once.

    Those that were `found` in the listing of an entity may go at any time, which is no error. `unlisted` are
    entities that could not be listed, and why.
    """

    projects: list[Project] = field(default_factory=list)
    found: set[Project] = field(default_factory=set)
    unlisted: dict[Project, FleetgaugeError] = field(default_factory=dict)
    entities: set[str] = field(default_factory=set)  # all of whose projects are known


def choose(settings: WandbSettings, api: Api, deadline: Deadline, sleep: Callable[[float], None]) -> Chosen:
    """Look up what `*` stands for. An entity that cannot be listed costs itself."""
    chosen = Chosen()
    named = settings.chosen()
    for project in named:
        if project.name != "*":
            chosen.projects.append(project)
            continue
        try:
            names = _projects_of(project.entity, settings, api, deadline, sleep)
        except FleetgaugeError as error:
            chosen.unlisted[project] = error
            continue
        chosen.entities.add(project.entity)
        found = [Project(project.entity, name) for name in names]
        chosen.projects += found
        chosen.found |= {*found} - {*named}
    chosen.projects = list(dict.fromkeys(chosen.projects))
    return chosen


def _projects_of(
    entity: str, settings: WandbSettings, api: Api, deadline: Deadline, sleep: Callable[[float], None]
) -> list[str]:
    names: dict[str, None] = {}
    after: str | None = None
    while True:
        before = len(names)
        try:
            page, following = persist(lambda: api.projects(entity, after, deadline), deadline, sleep)  # noqa: B023
        except TransientError as error:
            raise SourceError(f"the projects of {entity} could not be listed: {error}") from None
        names.update(dict.fromkeys(page))
        if following is None:
            return list(names)
        if following == after or len(names) == before or len(names) > MAX_PROJECTS:
            raise SourceError(f"the listing of the projects of {entity} does not end")
        after = following
        if settings.pause:
            sleep(min(settings.pause, max(0.0, deadline.remaining())))
