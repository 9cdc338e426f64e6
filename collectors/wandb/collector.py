"""Read the runs of each project, and yield its metrics at one tick or at many.

The entry points of `--check`, `--explain` and a run. Reading is in `reader`, computing in `ledger` and
`utilization`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from collectors.wandb.api import Extra
from collectors.wandb.explain import explain_project
from collectors.wandb.groups import unmatched_prices
from collectors.wandb.ledger import Ledger
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.query import CollidingProjectError, active_since, select_projects, touched_since
from collectors.wandb.reader import Listing, Reader
from collectors.wandb.runs import Run
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.utilization import MEMORY_KEY, active_runs, load_observations, observe
from common.collector import Collector, Context
from common.errors import ConfigurationError
from common.metric import Metric, Series
from common.outcome import Report
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
    deadline = context.deadline
    rows = [row for ledger in _read(context) for row in explain_project(metric, tags, ledger, deadline)]
    return [row._asdict() for row in sorted(rows, key=lambda row: -row.adds)]


def _read(context: Context[WandbSettings]) -> list[Ledger]:
    """Read every project, and store in the memory what was observed of active runs.

    Stored before anything is sent: what was observed remains true where Datadog refuses the points.
    """
    settings, window = context.settings, context.window
    ticks, at = window.ticks, window.ticks[-1]
    reader = Reader(context)
    listings = read_listings(reader)
    for warning in _unmatched_prices(listings, settings):
        log.warning("%s", warning)
    runs = {listing.project: listing.runs for listing in listings}
    if window.is_live:
        stored = load_observations(context.memory, at, 2 * window.step)
        if settings.utilization:
            for project, active in _read_active(reader, listings).items():
                runs[project] = observe(project, runs[project], active, at, settings, stored)
        context.memory[MEMORY_KEY] = stored
    return [
        Ledger(each.project, runs[each.project], ticks, settings, window.is_live, each.unseen)
        for each in listings
    ]


def read_listings(reader: Reader) -> list[Listing]:
    """Return the listing of each project of the settings that could be read.

    What was dropped is counted, what failed is lost. Raises one of the errors where nothing could be read:
    one of configuration only if all are.
    """
    context, report = reader.context, reader.context.report
    ticks = context.window.ticks
    # A backfill ends in the past: runs created after its last tick cannot count in it.
    created_before = None if context.window.is_live else ticks[-1] + 1
    filters = touched_since(ticks[0] - context.settings.window, created_before)
    projects = select_projects(reader.api, context, filters)
    empty = {project for project, information in projects.found.items() if information.runs == 0}
    listings = reader.read(projects.selected, filters, empty=empty)
    complete = [listing for listing in listings if listing.error is None]
    failed = {**projects.lost, **{each.project: each.error for each in listings if each.error}}
    errors = [error for error in failed.values() if not isinstance(error, CollidingProjectError)]
    is_empty = bool(errors) and not complete
    # The error of a run names the only project; several are named one by one.
    for project, error in failed.items() if len(failed) > 1 or not is_empty else ():
        reason = "tag_collision" if isinstance(error, CollidingProjectError) else "unreadable"
        report.lose(str(project), error, reason)
    if is_empty:
        raise min(errors, key=lambda error: isinstance(error, ConfigurationError))
    for listing in complete:
        _count_dropped(listing, report)
    return complete


def _count_dropped(listing: Listing, report: Report, earlier: Listing | None = None) -> None:
    """Report what was dropped of single runs, and the seconds that are not complete.

    What was dropped of a run in the `earlier` listing, too, was reported with that.
    """
    project, slices = listing.project, listing.slices
    counted = earlier.slices.rows if earlier else {}
    for run, row in slices.rows.items():
        for reason in row.flaws:
            if run not in counted or reason not in counted[run].flaws:
                report.drop(reason, 1, f"{project}, run {run:.100}")
    for second, _ in slices.unserved:
        log.warning("stepped over a run of %s created at %s: W&B fails on it", project, iso(second))
        report.drop("unserved_run", 1, f"{project}, a run created at {iso(second)}")
    for name in slices.partial:
        why = "not all of them could be listed"
        report.lose(f"{project}, runs created at {name}", why, "incomplete")
    log.info("%s: %d runs listed, %s unseen", project, len(slices.rows), listing.unseen)


def _read_active(reader: Reader, listings: list[Listing]) -> dict[Project, list[Run]]:
    """Return the running runs of each project with their system metrics; a project that fails is lost.

    System metrics are heavy, so that they are a second listing, of active runs only. Empty where the server
    does not know them.
    """
    settings, at, report = reader.context.settings, reader.context.window.ticks[-1], reader.context.report
    # A project without an active run needs no request: nothing of it can be observed.
    empty = {each.project for each in listings if not active_runs(each.runs, at, settings)}
    earlier = {each.project: each for each in listings}
    found: dict[Project, list[Run]] = {}
    filters = active_since(at - settings.stale_after)
    for listing in reader.read(earlier, filters, empty=empty, system_metrics=True):
        if listing.error:
            report.lose(f"the utilisation of {listing.project}", listing.error)
        else:
            _count_dropped(listing, report, earlier[listing.project])
            found[listing.project] = listing.runs
    return {} if Extra.SYSTEM_METRICS in reader.api.missing else found


def _unmatched_prices(listings: Iterable[Listing], settings: WandbSettings) -> Iterator[str]:
    """Yield a warning for prices that match no GPU type of any run."""
    types = {run.owner.gpu_type for listing in listings for run in listing.runs if run.gpus}
    unmatched = unmatched_prices(settings.prices, types) if types else []
    if unmatched:
        yield (
            f"FLEETGAUGE_WANDB_GPU_PRICES: no run has a GPU of type {', '.join(unmatched)}; "
            f"types seen: {', '.join(sorted(types))}"
        )


def check(context: Context[WandbSettings]) -> Iterator[str]:
    """Read what a run at this tick would read, and lose what it would lose.

    Yields a line for each thing that is good. Raises what a run would raise.
    """
    settings, reader = context.settings, Reader(context)
    hashed = settings.user_hash_key is not None
    yield "usernames are sent as keyed hashes" if hashed else "usernames are sent as they are"
    listings = read_listings(reader)
    for entity in sorted({listing.project.entity for listing in listings}):
        runs = [len(listing.runs) for listing in listings if listing.project.entity == entity]
        yield f"projects of {entity} that the key can read: {len(runs):,}, with {sum(runs):,} runs to look at"
    yield from _unmatched_prices(listings, settings)
    if settings.utilization:
        _read_active(reader, listings)
    for part in sorted(reader.api.missing, key=lambda part: part.name):
        yield f"not available at {settings.base_url}: {part}"


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
