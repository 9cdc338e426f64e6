"""Reads the runs of each project and says how the fleet is doing, as of one instant or of many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from collectors.wandb import metrics
from collectors.wandb.activity import Activity
from collectors.wandb.api import RefusedKeyError
from collectors.wandb.evaluate import Figures, Rules, evaluate_many
from collectors.wandb.fleet import Fleet, Sleep, open_fleet
from collectors.wandb.idle import remembered
from collectors.wandb.listing import Listing
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.query import Extra, unasked
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.usage import Usage
from common.collector import Collector, Context
from common.errors import FleetgaugeError
from common.metric import Mark, Sample
from common.shards import slot, slotted, split
from common.span import Span

_TICK, _USAGE, _IDLE = "tick:", "usage:", "idle:"  # what the state remembers of a project


def collect(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[Sample | Mark]:
    """The metrics of every project, now and at the ticks that were missed and can still be sent."""
    settings = context.settings
    fleet = open_fleet(context, sleep)
    to_send = {
        project: {*context.missed(context.state.get(_key(project))), context.at}
        for project in fleet.chosen.projects
    }
    instants = sorted({context.at}.union(*to_send.values()))
    usage = Usage(instants, settings)
    active: dict[Project, bool] = {}  # of the projects that were read, whether they have active runs

    def answer(listing: Listing) -> list[Sample]:
        project = listing.project
        found: list[Sample] = []
        for figures in evaluate_many(listing.runs, instants, _rules(settings)):
            if figures.at == context.at:
                found += live_samples(listing, figures)
            elif figures.at in to_send[project]:
                found += samples(project, figures, live=False)
        usage.enter(project, listing.runs)
        active[project] = figures.values[metrics.ACTIVE] > 0
        return found

    for told in fleet.each(instants[0] - settings.window, answer):
        yield from told
        yield Mark({})  # whom the GPUs belong to is known once all are read, but this need not wait
    for shares in usage.shares():
        yield from shares.samples({project for project in active if shares.at in to_send[project]})
    gone = [key for key in context.state if (project := _project(key)) and fleet.is_gone(project)]
    yield Mark({**{_key(project): context.at for project in active}, **dict.fromkeys(gone)})
    activity = Activity(context.at, settings, shares)
    if settings.utilization and (context.step is None or context.now - context.at <= context.step):
        yield from _look(fleet, active, activity)
    if settings.usage and not context.fills:
        context.tally.tables["usage"] = shares.table(activity.utilization)


def _look(fleet: Fleet, active: Mapping[Project, bool], activity: Activity) -> Iterator[Sample | Mark]:
    """How busy the GPUs of active runs are. A project that cannot be looked at is unknown."""
    context = fleet.context
    quiet = [_key(project, _IDLE) for project, is_active in active.items() if not is_active]
    changes: dict[str, object] = {key: None for key in quiet if key in context.state}
    for project, result in fleet.look([project for project, is_active in active.items() if is_active]):
        if isinstance(result, Exception):
            context.lose(f"the utilisation of {project}", result)
            continue
        fleet.count_losses(result)
        key = _key(project, _IDLE)
        before = remembered(context.state.get(key))
        after = activity.enter(project, result.runs, before, 2 * (context.step or 0))
        if after or before:
            changes[key] = {run: list(memory) for run, memory in after.items()} or None
    if Extra.SYSTEM_METRICS in fleet.missing:
        return
    yield from activity.samples(remembers=context.remembers)
    yield Mark(changes)
    if context.remembers and not context.fills:
        context.tally.tables["idle"] = activity.idle_table()


def backfill(
    context: Context[WandbSettings], span: Span, sleep: Sleep = time.sleep
) -> Callable[[], Iterator[Sample | Mark]]:
    """The metrics of every project at each tick of a span, from one listing of its runs."""
    settings = context.settings
    fleet = open_fleet(context, sleep)
    listings = list(fleet.each(span.since - settings.window, lambda listing: listing, span.until))
    projects = [one.project for one in listings]
    sent, told = (
        {one: at if isinstance(at := context.state.get(_key(one, kind)), int) else -1 for one in projects}
        for kind in (_TICK, _USAGE)
    )

    def recompute() -> Iterator[Sample | Mark]:
        usage = Usage(span.ticks if settings.usage else (), settings)
        for listing in listings:
            usage.enter(listing.project, listing.runs)
        for shares in usage.shares():
            due = {project for project in projects if shares.at > told[project]}
            yield from shares.samples(due)
            yield Mark({_key(project, _USAGE): shares.at for project in due})
        for listing in listings:
            ticks = [at for at in span.ticks if at > sent[listing.project]]
            for figures in evaluate_many(listing.runs, ticks, _rules(settings)):
                yield from samples(listing.project, figures, live=False)
                yield Mark({_key(listing.project): figures.at})

    return recompute


def _rules(settings: WandbSettings) -> Rules:
    return Rules(settings.window, settings.stale_after, settings.pending_for)


def _key(project: Project, kind: str = _TICK) -> str:
    """Where the state remembers something of a project, such as the last tick that was delivered."""
    return slotted(slot(str(project)), f"{kind}{project}")


def _project(key: str) -> Project | None:
    """The project that a key of the state is about."""
    kind, colon, path = split(key)[1].partition(":")
    entity, slash, name = path.partition("/")
    return Project(entity, name) if slash and f"{kind}{colon}" in {_TICK, _IDLE} else None


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
    fleet = open_fleet(context, sleep)
    yield from fleet.chosen.unlisted.values()
    for entity in sorted(fleet.chosen.entities):
        number = sum(project.entity == entity for project in fleet.chosen.projects)
        yield f"{entity}/* stands for {number:,} projects"
    settings = context.settings
    missing = without = unasked(settings.told_by, looking=settings.utilization)
    entities = set()
    for project in fleet.chosen.projects:
        if project in fleet.chosen.found and project.entity in entities:
            continue
        entities.add(project.entity)
        try:
            page, missing = fleet.first_row(project, missing)
        except RefusedKeyError:  # no other project would answer better
            raise
        except FleetgaugeError as error:
            yield error
            continue
        known = "" if page.total is None else f", which has {page.total:,} runs to look at"
        yield f"the key can read {project}{known}"
    for part in sorted(missing - without, key=lambda part: part.name):
        yield f"not available at {settings.base_url}: {part.value}"
    if settings.user_hash_key is not None:
        yield "usernames are sent as keyed hashes"
    if settings.utilization and not context.remembers:
        yield "which runs are idle is not told: that needs a checkpoint store (FLEETGAUGE_CHECKPOINTS)"


COLLECTOR = Collector(
    name="wandb",
    settings=WandbSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
