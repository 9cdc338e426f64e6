"""Read the runs of each project, and yield its metrics at one tick or at many.

The entry points of `--check`, `--explain` and a run. Reading is in `reader`, computing in `ledger` and
`utilization`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from collectors.wandb.api import RefusedKeyError
from collectors.wandb.explain import explain_project
from collectors.wandb.groups import unmatched_prices
from collectors.wandb.ledger import Ledger
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.query import CollidingProjectError, Extra, active_since, touched_since
from collectors.wandb.reader import Listing, Reader
from collectors.wandb.runs import Run
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.utilization import MEMORY_KEY, active_runs, load_observations, observe
from common.collector import Collector, Context
from common.errors import FleetgaugeError
from common.metric import Metric, Series
from common.times import iso

log = logging.getLogger(__name__)


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
    # Day by day over all projects, as the series are to be yielded oldest first.
    for stretches in zip_longest(*(_stretches(ledger, context) for ledger in _read(context)), fillvalue=()):
        for series in stretches:
            yield from series


def _stretches(ledger: Ledger, context: Context[WandbSettings]) -> Iterator[list[Series]]:
    """Yield the series of each stretch of a project. One that cannot be computed is lost, and no other."""
    # The ledger sees whatever users put into W&B: a fault in one project must not cost the others.
    try:
        yield from ledger.stretches()
    except Exception as error:
        context.report.lose(str(ledger.project), error)


def explain(
    context: Context[WandbSettings], metric: Metric, tags: Mapping[str, str]
) -> list[dict[str, object]]:
    """Return the runs behind one number at the last tick of the window.

    `tags` select the series. Raises FleetgaugeError where nothing can be read.
    """
    rows = [row for ledger in _read(context) for row in explain_project(metric, tags, ledger)]
    return [row._asdict() for row in sorted(rows, key=lambda row: -row.adds)]


def _read(context: Context[WandbSettings]) -> list[Ledger]:
    """Read every project, and store in the memory what was observed of active runs.

    Stored before anything is sent: what was observed remains true where Datadog refuses the points.
    """
    settings, window = context.settings, context.window
    ticks, at = window.ticks, window.ticks[-1]
    reader = Reader(context)
    # A backfill ends in the past: runs created after its last tick cannot count in it.
    created_before = None if window.is_live else ticks[-1] + 1
    listings = reader.listings(reader.select(touched_since(ticks[0] - settings.window, created_before)))
    if unmatched := _unmatched_prices(listings, settings):
        log.warning("%s", unmatched)
    runs = {listing.project: listing.runs for listing in listings}
    if window.is_live:
        stored = load_observations(context.memory, at, 2 * window.step)
        if settings.utilization:
            for project, active in _read_active(reader, runs, context).items():
                runs[project] = observe(project, runs[project], active, at, settings, stored)
        context.memory[MEMORY_KEY] = stored
    return [
        Ledger(each.project, runs[each.project], ticks, settings, window.is_live, each.unseen)
        for each in listings
    ]


def _read_active(
    reader: Reader, runs: Mapping[Project, list[Run]], context: Context[WandbSettings]
) -> dict[Project, list[Run]]:
    """Return the running runs of each project with their system metrics; a project that fails is lost.

    System metrics are heavy, so that they are a second listing, of active runs only. Empty where the server
    does not know them.
    """
    settings, at = context.settings, context.window.ticks[-1]
    # A project without an active run needs no request: nothing of it can be observed.
    found: dict[Project, list[Run]] = {
        project: [] for project, listed in runs.items() if not active_runs(listed, at, settings)
    }
    projects = [project for project in runs if project not in found]
    for project, result in reader.read(
        projects, active_since(at - settings.stale_after), system_metrics=True
    ):
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
