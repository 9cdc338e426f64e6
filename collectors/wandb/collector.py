"""Reads the runs of each project and says how the fleet is doing, at one instant or at many."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

from collectors.wandb import metrics
from collectors.wandb.activity import Activity
from collectors.wandb.api import RefusedKeyError
from collectors.wandb.evaluate import Figures, Rules, evaluate_many
from collectors.wandb.fleet import Fleet, Sleep, open_fleet
from collectors.wandb.idle import remembered
from collectors.wandb.ledger import is_in_reach
from collectors.wandb.listing import Listing
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.query import Extra, unasked
from collectors.wandb.runs import SECOND
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.usage import Usage, usage_series
from common.collector import Collector, Context
from common.errors import FleetgaugeError
from common.metric import Series
from common.times import DAY, iso

_IDLE = "idle"  # in the memory: by project and run, since when its GPUs are idle

log = logging.getLogger(__name__)


def collect(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[Series]:
    """Yield the metrics of every project at each tick of the window."""
    window = context.window
    if not window.ticks:
        why = f"that of {iso(window.until)} was sent already" if window.is_live else "none is in the window"
        log.info("there is no tick to send: %s", why)
        return
    fleet = open_fleet(context, sleep)
    yield from _live(fleet, window.ticks) if window.is_live else _past(fleet, window.ticks)


def _live(fleet: Fleet, ticks: Sequence[int]) -> Iterator[Series]:
    """Yield the metrics of this tick and of those missed before it. Each project is dropped once answered."""
    context, settings = fleet.context, fleet.context.settings
    usage = Usage(ticks, settings)
    active: dict[Project, bool] = {}  # of the projects that were read, whether they have active runs

    def answer(listing: Listing) -> list[Series]:
        figures = [*evaluate_many(listing.runs, ticks, _rules(settings))]
        found = [*fleet_series(listing.project, figures, live_at=ticks[-1])]
        if listing.unseen is not None:
            entity, project = listing.project
            found.append(metrics.UNSEEN(listing.unseen, ticks[-1], entity=entity, project=project))
        usage.enter(listing.project, listing.runs)
        active[listing.project] = figures[-1].values[metrics.ACTIVE] > 0
        return found

    for series in fleet.each(ticks[0] - settings.window, answer):
        yield from series
    every = [*usage.shares()]
    yield from usage_series(every, active)
    activity = Activity(ticks[-1], settings, every[-1])
    if settings.utilization:
        yield from _look(fleet, active, activity)
    if settings.usage:
        context.report.tables["usage"] = every[-1].table(activity.utilization)


def _look(fleet: Fleet, active: Mapping[Project, bool], activity: Activity) -> Iterator[Series]:
    """Yield how busy the GPUs of active runs are. A project that cannot be looked at is unknown.

    How long a run is idle is known from the second look on, where the first is remembered.
    """
    context = fleet.context
    saved = context.memory.get(_IDLE)
    idle: dict[str, object] = {**saved} if isinstance(saved, dict) else {}
    quiet = {str(project) for project, is_active in active.items() if not is_active}
    for path in fleet.gone(idle) | quiet:
        idle.pop(path, None)
    for project, result in fleet.look([project for project, is_active in active.items() if is_active]):
        if isinstance(result, Exception):
            context.report.lose(f"the utilisation of {project}", result)
            continue
        fleet.count_losses(result)
        before = remembered(idle.pop(str(project), None))
        after = activity.enter(project, result.runs, before, 2 * context.window.step)
        if after:
            idle[str(project)] = {run: list(memory) for run, memory in after.items()}
    if Extra.SYSTEM_METRICS in fleet.missing:
        return
    context.memory[_IDLE] = idle
    yield from activity.series(remembers=saved is not None)
    if saved is not None:
        context.report.tables["idle"] = activity.idle_table()


def _past(fleet: Fleet, ticks: Sequence[int]) -> Iterator[Series]:
    """Yield the metrics of many ticks from one listing of the runs, oldest first, a day at a time."""
    context, settings = fleet.context, fleet.context.settings
    since, created_before = ticks[0] - settings.window, context.window.until + 1
    listings = [*fleet.each(since, lambda listing: listing, created_before)]
    projects = {listing.project for listing in listings}
    size = max(1, DAY // context.window.step)
    for start in range(0, len(ticks), size):
        part = ticks[start : start + size]
        reach = part[0] * SECOND, part[-1] * SECOND, settings.window * SECOND
        usage = Usage(part if settings.usage else (), settings)
        for listing in listings:
            runs = [run for run in listing.runs if is_in_reach(run, *reach)]
            yield from fleet_series(listing.project, [*evaluate_many(runs, part, _rules(settings))])
            usage.enter(listing.project, runs)
        yield from usage_series([*usage.shares()], projects)


def _rules(settings: WandbSettings) -> Rules:
    return Rules(settings.window, settings.stale_after, settings.pending_for)


def fleet_series(
    project: Project, figures: Sequence[Figures], live_at: int | None = None
) -> Iterator[Series]:
    """Yield the figures of a project; what only the present can show, at the live tick alone."""
    tags = {"entity": project.entity, "project": project.name}
    for metric in METRICS:
        points = [
            (one.at, one.values[metric])
            for one in figures
            if metric in one.values and (one.at == live_at or metric not in LIVE_ONLY)
        ]
        if points:
            times, values = zip(*points, strict=True)
            yield metric.series(times, values, **tags)
    for target in sorted({target for one in figures for target in one.by_target}):
        points = [(one.at, one.by_target[target]) for one in figures if target in one.by_target]
        times, values = zip(*points, strict=True)
        yield metrics.PUSH_CONFIG_STEPS.series(times, values, **tags, **target._asdict())


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


COLLECTOR = Collector(
    name="wandb",
    settings=WandbSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    has_history=True,
    live_only=LIVE_ONLY,
)
