"""Read the runs of each project, and yield its metrics at one tick or at many.

The entry points of `--check`, `--explain` and a run. Reading is in `reader`, computing in `ledger` and
`utilization`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from collectors.wandb import metrics
from collectors.wandb.api import RefusedKeyError
from collectors.wandb.explain import Row, as_table, explain_project
from collectors.wandb.groups import unmatched_prices
from collectors.wandb.ledger import TABLE_ROWS, Ledger
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.query import CollidingProjectError, Extra, active_since, touched_since
from collectors.wandb.reader import Listing, Reader
from collectors.wandb.runs import Run
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.utilization import (
    Observation,
    active_runs,
    idle_table,
    load_observations,
    observe,
    observed_series,
    save_observations,
    usage_table,
    with_observed_gpus,
)
from common.collector import Collector, Context
from common.errors import FleetgaugeError
from common.metric import Metric, Series
from common.times import iso

log = logging.getLogger(__name__)


class _ReadProject(NamedTuple):
    """A project whose runs were listed; what was observed of those that are active, where it is known."""

    listing: Listing
    runs: list[Run]
    ledger: Ledger
    observation: Observation | None


def collect(context: Context[WandbSettings]) -> Iterator[Series]:
    """Yield the metrics of every project at each tick of the window, oldest first.

    A project that cannot be read or computed is reported as lost. Raises FleetgaugeError where none can be
    read.
    """
    window = context.window
    if not window.ticks:
        why = f"that of {iso(window.until)} was sent already" if window.is_live else "none is in the window"
        log.info("there is no tick to send: %s", why)
        return
    projects = _read(context)
    # Day by day over all projects, as the series are to be yielded oldest first.
    for stretches in zip_longest(*(_stretches(project, context) for project in projects), fillvalue=()):
        for series in stretches:
            yield from series
    if window.is_live:
        yield from _present(projects, context)


def _stretches(project: _ReadProject, context: Context[WandbSettings]) -> Iterator[list[Series]]:
    """Yield the series of each stretch of a project. One that cannot be computed is lost, and no other."""
    # The ledger sees whatever users put into W&B: a fault in one project must not cost the others.
    try:
        yield from project.ledger.stretches()
    except Exception as error:
        log.exception("cannot compute the metrics of %s", project.listing.project)
        context.report.lose(str(project.listing.project), error)


def _present(projects: list[_ReadProject], context: Context[WandbSettings]) -> Iterator[Series]:
    """Yield what is known of the present alone, and report the tables for a person."""
    settings, at = context.settings, context.window.ticks[-1]
    usage: list[dict[str, object]] = []
    idle: list[dict[str, object]] = []
    for listing, _, ledger, observation in projects:
        if listing.unseen is not None:
            entity, name = listing.project
            yield metrics.UNSEEN(listing.unseen, at, entity=entity, project=name)
        if observation is not None:
            yield from observed_series(observation, ledger, settings)
            idle += idle_table(observation, settings)
        usage += usage_table(ledger, observation)
    if settings.usage:
        usage.sort(key=lambda row: -float(str(row["gpu_hours_24h"])))
        context.report.tables["usage"] = usage[:TABLE_ROWS]
    if any(project.observation and project.observation.has_before for project in projects):
        context.report.tables["idle"] = idle


def explain(
    context: Context[WandbSettings], metric: Metric, tags: Mapping[str, str]
) -> list[dict[str, object]]:
    """Return the runs behind one number at the last tick of the window.

    `tags` select the series. Raises FleetgaugeError where nothing can be read.
    """
    rows: list[Row] = []
    for _, runs, ledger, observation in _read(context):
        # The limit on groups is only known once the last tick is computed.
        for _ in ledger.stretches():
            pass
        rows += explain_project(metric, tags, ledger, runs, observation, context.settings)
    return as_table(metric, rows)


def _read(context: Context[WandbSettings]) -> list[_ReadProject]:
    """Read every project, and store in the memory what was observed of active runs.

    Stored before anything is sent: what was observed remains true where Datadog refuses the points.
    """
    settings, window = context.settings, context.window
    ticks, at, max_gap = window.ticks, window.ticks[-1], 2 * window.step
    reader = Reader(context)
    # A backfill ends in the past: runs created after its last tick cannot count in it.
    created_before = None if window.is_live else ticks[-1] + 1
    listings = reader.listings(reader.select(touched_since(ticks[0] - settings.window, created_before)))
    if unmatched := _unmatched_prices(listings, settings):
        log.warning("%s", unmatched)
    active = _read_active(reader, listings, context) if window.is_live and settings.utilization else {}
    projects: list[_ReadProject] = []
    stored = load_observations(context.memory)
    for listing in listings:
        project, observation = listing.project, None
        runs = with_observed_gpus(listing.runs, active.get(project, ()))
        if project in active:
            observation = observe(project, active[project], at, max_gap, settings, stored)
        ledger = Ledger(project, runs, ticks, settings, live=window.is_live)
        projects.append(_ReadProject(listing, runs, ledger, observation))
    if window.is_live:
        save_observations(context.memory, stored, at, max_gap)
    return projects


def _read_active(
    reader: Reader, listings: list[Listing], context: Context[WandbSettings]
) -> dict[Project, list[Run]]:
    """Return the running runs of each project with their system metrics; a project that fails is lost.

    System metrics are heavy, so that they are a second listing, of active runs only. Empty where the server
    does not know them.
    """
    settings, at = context.settings, context.window.ticks[-1]
    # A project without an active run needs no request: nothing of it can be observed.
    found: dict[Project, list[Run]] = {
        listing.project: [] for listing in listings if not active_runs(listing.runs, at, settings)
    }
    projects = [listing.project for listing in listings if listing.project not in found]
    active = active_since(at - settings.stale_after)
    for project, result in reader.read(projects, active, system_metrics=True):
        if isinstance(result, Exception):
            context.report.lose(f"the utilisation of {project}", result)
        else:
            reader.count_dropped(result)
            found[project] = result.runs
    return {} if Extra.SYSTEM_METRICS in reader.missing else found


def _unmatched_prices(listings: Iterable[Listing], settings: WandbSettings) -> str | None:
    """Return the warning for prices that match no GPU type of any run; None where there are none."""
    types = {run.owner.gpu_type for listing in listings for run in listing.runs if run.gpus}
    unmatched = unmatched_prices(settings.prices, types) if types else []
    if not unmatched:
        return None
    return (
        f"FLEETGAUGE_WANDB_GPU_PRICES: no run has a GPU of type {', '.join(unmatched)}; "
        f"types seen: {', '.join(sorted(types))}"
    )


def check(context: Context[WandbSettings]) -> Iterator[str | FleetgaugeError]:
    """Read one run of each project that is named, and of one of each entity, with the complete query.

    Yields a line for each thing that is good, and an error for each that is not. Raises RefusedKeyError.
    """
    settings, reader = context.settings, Reader(context)
    filters = touched_since(context.now - settings.window)
    projects = reader.select(filters)
    for project, error in projects.lost.items():
        is_collision = isinstance(error, CollidingProjectError)
        yield CollidingProjectError(f"{project}: {error}") if is_collision else error
    for entity, number in sorted(Counter(project.entity for project in projects.found).items()):
        yield f"{entity}/* stands for {number:,} projects"
    entities = set()
    for project in projects.selected:
        if project in projects.found and project.entity in entities:
            continue
        entities.add(project.entity)
        try:
            total = reader.probe(project, filters)
        except RefusedKeyError:  # no other project would answer better
            raise
        except FleetgaugeError as error:
            yield error
            continue
        known = "" if total is None else f", which has {total:,} runs to look at"
        yield f"the key can read {project}{known}"
    if settings.gpu_prices:
        listed = (result for _, result in reader.read(projects.with_runs, filters))
        unmatched = _unmatched_prices((each for each in listed if isinstance(each, Listing)), settings)
        if unmatched:
            yield unmatched
    for part in sorted(reader.missing | projects.missing, key=lambda part: part.name):
        yield f"not available at {settings.base_url}: {part}"
    hashed = settings.user_hash_key is not None
    yield "usernames are sent as keyed hashes" if hashed else "usernames are sent as they are"


COLLECTOR = Collector(
    name="wandb",
    settings=WandbSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    explain=explain,
    has_history=True,
    live_only=LIVE_ONLY,
)
