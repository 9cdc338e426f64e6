"""Reads the runs of each project and says how the fleet is doing, as of one instant or of many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from collectors.wandb import metrics
from collectors.wandb.api import Api, UnknownProjectError, UnservableError
from collectors.wandb.evaluate import Figures, Rules, evaluate_many
from collectors.wandb.fetch import TRIES, Listing, Request, fetch
from collectors.wandb.metrics import LIVE_ONLY, METRICS
from collectors.wandb.query import touched_since
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project, WandbSettings
from common.collector import Collector, Context
from common.errors import DeadlineExceededError, FleetgaugeError, SourceError
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.span import Span

Sleep = Callable[[float], None]


def collect(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[Sample | Mark]:
    """The metrics of every project, now and at the ticks that were missed and can still be sent."""
    settings = context.settings
    rules = Rules(settings.window, settings.stale_after, settings.pending_for)
    missed = {project: context.missed(context.state.get(_key(project))) for project in settings.chosen()}

    def since(project: Project) -> int:
        return min([*missed[project], context.at]) - settings.window

    for listing in _listings(context, since, sleep):
        project = listing.project
        *past, present = evaluate_many(listing.runs, [*missed[project], context.at], rules)
        for figures in past:
            yield from samples(project, figures, live=False)
        yield from live_samples(listing, present)
        yield Mark({_key(project): context.at})


def backfill(
    context: Context[WandbSettings], span: Span, sleep: Sleep = time.sleep
) -> Callable[[], Iterator[Sample | Mark]]:
    """The metrics of every project at each tick of a span, from one listing of its runs."""
    settings = context.settings
    rules = Rules(settings.window, settings.stale_after, settings.pending_for)
    listings = list(_listings(context, lambda _: span.since - settings.window, sleep, span.until))

    def recompute() -> Iterator[Sample | Mark]:
        for listing in listings:
            sent = context.state.get(_key(listing.project))
            ticks = [at for at in span.ticks if not isinstance(sent, int) or at > sent]
            for figures in evaluate_many(listing.runs, ticks, rules):
                yield from samples(listing.project, figures, live=False)
                yield Mark({_key(listing.project): figures.at})

    return recompute


def _key(project: Project) -> str:
    """Where the state remembers the last tick of a project that was delivered."""
    return f"tick:{project}"


def _listings(
    context: Context[WandbSettings],
    since: Callable[[Project], int],
    sleep: Sleep,
    created_before: int | None = None,
) -> Iterator[Listing]:
    """The runs of every project. One that fails costs itself; if all do, the run has failed."""
    settings = context.settings
    reading, api = _open(context, sleep)
    projects = settings.chosen()
    failures: list[tuple[Project, FleetgaugeError]] = []
    for left, project in zip(range(len(projects), 0, -1), projects, strict=True):
        # A project that hangs uses up its own share of the time, not that of the others.
        deadline = Deadline(max(0.0, context.deadline.remaining()) / left)
        request = Request(project, since(project), settings.max_runs, created_before)
        try:
            listing = fetch(api, request, reading, deadline, context.parent)
        except (SourceError, UnknownProjectError, DeadlineExceededError) as error:
            failures.append((project, error))
            continue
        for reason, number in listing.dropped.items():
            context.drop(reason, number)
        context.log.info("%s: %d runs listed, %s unseen", project, listing.listed, listing.unseen)
        yield listing
    if len(failures) == len(projects):
        raise failures[0][1]
    for project, why in failures:
        context.lose(str(project), why)


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


def check(context: Context[WandbSettings], sleep: Sleep = time.sleep) -> Iterator[str]:
    """Read one run of each project with the real query."""
    _, api = _open(context, sleep)
    filters = touched_since(context.at - context.settings.window)
    for project in context.settings.chosen():
        try:
            page = api.page(project, filters, 1, None, TRIES, context.deadline)
        except UnservableError as error:
            raise SourceError(f"{project}: {error}") from None
        known = "" if page.total is None else f", which has {page.total:,} runs to look at"
        yield f"the key can read {project}{known}"
    for part in sorted(api.missing, key=lambda part: part.name):
        yield f"not available at {context.settings.base_url}: {part.value}"


def _open(context: Context[WandbSettings], sleep: Sleep) -> tuple[RunReader, Api]:
    settings = context.settings
    reading = RunReader(settings.push_to_main, settings.gpu_count_key, settings.assumed_gpus)
    return reading, Api(settings, reading, context.http(settings.base_url), sleep)


COLLECTOR = Collector(
    name="wandb",
    settings=WandbSettings,
    metrics=METRICS,
    collect=collect,
    check=check,
    backfill=backfill,
    live_only=LIVE_ONLY,
)
