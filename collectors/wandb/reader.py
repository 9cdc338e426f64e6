"""Read the runs of projects over a few connections, within one deadline.

Threads only send requests. Everything else is decided in the thread that iterates: what is requested next
(`slices`), what is retried and when, and how all connections keep to the server's limits. The result does not
depend on which answer comes first. Rows are also parsed in that thread, so that no state needs a lock.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from pydantic import Field, NonNegativeInt, TypeAdapter, ValidationError

from collectors.wandb.api import (
    Api,
    FailedRequestError,
    RefusedKeyError,
    RefusedProjectError,
    Response,
    UnknownFieldsError,
)
from collectors.wandb.query import (
    CollidingProjectError,
    Extra,
    Filter,
    Projects,
    RunPage,
    read_runs,
    runs_query,
    unneeded,
    without,
)
from collectors.wandb.runs import Run, RunReader
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.slices import LATEST, Failure, SliceRequest, Slices
from common.collector import Context
from common.errors import DeadlineExceededError, FleetgaugeError, SourceError
from common.net.http import MAX_RESPONSE_BYTES
from common.net.retry import backoff, requested_wait, requests_left
from common.times import iso

HEAVY_AFTER = 10.0  # seconds: what fails later failed because of its size
RATE_LIMIT_DELAY = 5.0  # seconds, where the server does not say how long
SYSTEM_METRICS_PAGE = 200  # runs of a page with their system metrics, of 10 kB each
RECOVERY = 1 / 8  # of a connection, by which an answer raises the limit again after a rate limit

# By project, the second of creation and the offset of each row that could not be served.
_UNSERVED = TypeAdapter(dict[str, list[tuple[Annotated[int, Field(ge=0, lt=LATEST)], NonNegativeInt]]])

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Listing:
    """The runs of a project, and what could not be read of them."""

    project: Project
    slices: Slices[Run | None]
    flaws: dict[str, list[str]] = field(default_factory=dict)  # by run
    errors: int = 0  # answers with errors beside the data
    trouble: Exception | None = None  # the last failure, while it lasts
    due: float = 0.0  # when it may be requested again

    @cached_property
    def runs(self) -> list[Run]:
        """The runs that could be read, once all are listed."""
        return [run for run in self.slices.rows.values() if run is not None]

    @property
    def unseen(self) -> int | None:
        """How many runs the server counts and never shows; None where it does not count."""
        total = self.slices.total
        return None if total is None else max(0, total - len(self.slices.rows))

    def add(self, request: SliceRequest, read: RunPage) -> None:
        """Add a page; a run that is shown again replaces itself, with its flaws.

        Raises SourceError as `Slices` does.
        """
        self.trouble = None
        if read.errors:
            self.errors += 1
            log.warning("W&B answered for %s with errors beside the data: %s", self.project, read.errors)
        for run in read.page.rows:
            self.flaws.pop(run, None)
        self.flaws |= read.flaws
        self.slices.served(request, read.page)


Result = tuple[Project, Listing | Exception]


class Reader:
    """Reads the projects of one run; `missing` are the parts of the query that the server does not know.

    What a server rejects once is left out of every later query, whatever its project.
    """

    def __init__(self, context: Context[WandbSettings]) -> None:
        settings = context.settings
        self.missing: frozenset[Extra] = frozenset()
        self.context = context
        self.rows = RunReader(
            settings.push_to_main, settings.gpu_count_key, settings.assumed_gpus, settings.owners
        )
        # The server's limits hold for all shards.
        self.connections = max(1, settings.connections // context.shard.count)
        self.http = context.http(settings.base_url, "WANDB_BASE_URL", self.connections)
        self.api = Api(settings, self.http)

    def select(self, filters: Filter) -> Projects:
        """Return the projects that the settings name and this shard reads; `filters` are of their runs."""
        return Projects(self.api, self.context, filters)

    def listings(self, projects: Projects) -> list[Listing]:
        """Return the listing of each project, in their order; count what was dropped, lose what failed.

        Where nothing could be read, the first error is raised.
        """
        failed = dict[Project, Exception](projects.lost)
        # Those without runs are empty without a request.
        read = {project: Listing(project, Slices(1, 0, 0, 0)) for project in projects.selected}
        for project, result in self.read(projects.with_runs, projects.filters):
            if isinstance(result, Listing):
                read[project] = result
            else:
                del read[project]
                failed[project] = result
        # In the order of the projects, not of the answers: the report must not depend on the network.
        failed = {each: failed[each] for each in (*projects.lost, *projects.selected) if each in failed}
        errors = [error for error in failed.values() if not isinstance(error, CollidingProjectError)]
        if errors and not read:
            raise _first_error(errors)
        for project, error in failed.items():
            reason = "tag_collision" if isinstance(error, CollidingProjectError) else "unreadable"
            self.context.report.lose(str(project), error, reason)
        for listing in read.values():
            self.count_dropped(listing)
        return [*read.values()]

    def count_dropped(self, listing: Listing) -> None:
        """Report what was dropped of single runs, and the seconds that are not complete."""
        report, project, slices = self.context.report, listing.project, listing.slices
        for run, reasons in listing.flaws.items():
            for reason in reasons:
                report.drop(reason, 1, f"{project}, run {run}")
        for second, _ in slices.unserved:
            report.drop("unserved_run", 1, f"{project}, a run created at {iso(second)}")
        if listing.errors:
            report.drop("graphql_error", listing.errors, str(project))
        for name in slices.partial:
            why = "not all of them could be listed"
            report.lose(f"{project}, runs created at {name}", why, "incomplete")
        log.info("%s: %d runs listed, %s unseen", project, len(slices.rows), listing.unseen)

    def probe(self, project: Project, filters: Filter) -> int | None:
        """Read one run of a project with the complete query; return how many there are, None if unknown.

        Raises RefusedKeyError, RefusedProjectError or SourceError where the project cannot be read.
        """
        parts = self.context.settings.utilization
        work = _Pass(self, [project], filters, system_metrics=parts, is_probe=True)
        [(_, result)] = work.results()
        if isinstance(result, Exception):
            raise result
        return result.slices.total

    def read(
        self, projects: Iterable[Project], filters: Filter, *, system_metrics: bool = False
    ) -> Iterator[Result]:
        """Yield the listing of each project, or why there is none, as they end.

        `system_metrics` selects the latest system metrics too, in smaller pages. RefusedKeyError ends all of
        them.
        """
        return _Pass(self, projects, filters, system_metrics=system_metrics).results()


class _Pass:
    """One pass of a reader over projects. With `is_probe`, a listing ends after its first page, of one run.

    `_open` has the listings that are not complete, the last one requested last; `_under_way` the requests
    that were sent and not yet handled, and when they were sent.
    """

    def __init__(
        self,
        reader: Reader,
        projects: Iterable[Project],
        filters: Filter,
        *,
        system_metrics: bool,
        is_probe: bool = False,
    ) -> None:
        context, settings, window = reader.context, reader.context.settings, reader.context.window
        self._reader, self._filters, self._is_probe = reader, filters, is_probe
        self._settings, self._report, self._deadline = settings, context.report, context.deadline
        self._unneeded = unneeded(settings.grouping, system_metrics=system_metrics)
        self._under_way: dict[Future[Response], tuple[Listing, SliceRequest, float]] = {}
        self._ended: list[Result] = []
        # How many requests may be under way, when the next may start, and why not earlier.
        self._allowed = float(reader.connections)
        self._opens = 0.0
        self._obstacle: Exception | None = None
        self._outages = 0  # in a row: requests that the server could not take
        size = 1 if is_probe else settings.page_size
        if system_metrics:
            size = min(size, SYSTEM_METRICS_PAGE)
        # Where most runs are expected: it only decides where slices are cut first.
        since = window.since - settings.window
        until = min(context.now, window.until) if window.is_live else window.until
        key = "unserved:active" if system_metrics else "unserved:runs"
        try:
            remembered = _UNSERVED.validate_python(context.memory.get(key, {}))
        except ValidationError:  # the memory is a file that may be damaged
            remembered = {}
        unserved = {project: remembered.get(str(project), []) for project in projects}
        # Stored before anything is read: what is remembered survives a run that fails to read its project,
        # and is forgotten of projects that are no longer read.
        self._unserved = {str(project): rows for project, rows in unserved.items() if rows}
        context.memory[key] = self._unserved
        self._open = deque(
            Listing(project, Slices(size, settings.max_runs, since, until, rows))
            for project, rows in unserved.items()
        )

    def results(self) -> Iterator[Result]:
        """Yield the listing of each project, or why there is none."""
        # One thread per connection: more would only wait for a connection.
        executor = ThreadPoolExecutor(self._reader.connections, "wandb")
        try:
            while self._open:
                self._send(executor)
                self._wait()
                yield from self._ended
                self._ended.clear()
        finally:
            self._reader.http.close()
            executor.shutdown(cancel_futures=True)

    def _send(self, executor: ThreadPoolExecutor) -> None:
        """Send what may be sent now: within the limit on requests, after the pause, before the deadline."""
        now, reader = self._deadline.elapsed(), self._reader
        while len(self._under_way) < int(self._allowed) and self._opens <= now < self._deadline.seconds:
            found = self._next(now)
            if found is None:
                return
            listing, request = found
            self._opens = now + self._settings.pause
            missing = reader.missing | self._unneeded
            query = runs_query(listing.project, self._filters, request, missing, reader.rows)
            # The limit on the memory of answers is for all connections in sum.
            largest = MAX_RESPONSE_BYTES // reader.connections
            future = executor.submit(reader.api.post, *query, self._deadline, largest)
            self._under_way[future] = (listing, request, now)

    def _next(self, now: float) -> tuple[Listing, SliceRequest] | None:
        """Return the next request, of each project in turn; where there is none, one that cuts a slice.

        So the first page of every project comes before any second, and shows early what it costs.
        """
        for _ in range(len(self._open)):
            listing = self._open[0]
            self._open.rotate(-1)
            if listing.due <= now and (request := listing.slices.next()):
                return listing, request
        # Slices that wait for a retry occupy a connection, too.
        if sum(listing.slices.outstanding for listing in self._open) < int(self._allowed):
            for listing in self._open:
                if request := listing.slices.cut():
                    return listing, request
        return None

    def _wait(self) -> None:
        """Wait for an answer, or until something may be requested, or the time is over.

        Handles at most one answer. Once the time is over, every listing ends with a timeout.
        """
        now, end = self._deadline.elapsed(), self._deadline.seconds
        times = (self._opens, *(listing.due for listing in self._open))
        wake = min((time for time in times if time > now), default=end)
        if now >= end or (not self._under_way and wake >= end):
            for listing in [*self._open]:
                self._end(listing, self._timeout(listing))
        elif not self._under_way:
            self._deadline.sleep(wake - now)
        elif done := wait(self._under_way, min(wake, end) - now, FIRST_COMPLETED).done:
            future = done.pop()
            listing, request, sent = self._under_way.pop(future)
            # Its project may have failed since: then the answer is of no use.
            if listing in self._open:
                self._handle(future, listing, request, sent)

    def _handle(self, future: Future[Response], listing: Listing, request: SliceRequest, sent: float) -> None:
        """Add an answer, or note a failure. Whatever is wrong with it costs its project.

        Only RefusedKeyError is raised: no other project would fare better.
        """
        try:
            is_added = self._add(future, listing, request, sent)
            if not listing.slices.outstanding or (self._is_probe and is_added):
                self._end(listing, listing)
        except RefusedKeyError:
            raise
        except DeadlineExceededError:
            pass  # which ends all listings, at the next wait
        except Exception as error:
            self._end(listing, error)

    def _add(self, future: Future[Response], listing: Listing, request: SliceRequest, sent: float) -> bool:
        """Add an answer to its listing; return whether it had a page.

        Raises an error where the listing cannot be completed.
        """
        reader, slices, now = self._reader, listing.slices, self._deadline.elapsed()
        try:
            response = future.result()
            page = read_runs(listing.project, response, reader.rows)
        except UnknownFieldsError as error:
            reader.missing = without(error, reader.missing)
            slices.release(request)
            return False
        except FailedRequestError as error:
            self._note_failure(listing, request, error, now - sent)
            return False
        listing.add(request, page)
        self._outages, self._obstacle = 0, None
        self._allowed = min(reader.connections, self._allowed + RECOVERY)
        # The rate limit is per user, and W&B announces it: waiting for its reset is cheaper than a 429.
        left, reset = requests_left(response.headers), requested_wait(response.headers)
        if left is not None and left <= len(self._under_way) and reset is not None:
            self._opens = max(self._opens, now + reset)
            self._obstacle = SourceError(f"the rate limit of W&B takes no request for {reset:g} s")
        reader.context.progress(f"listing the runs of {listing.project}", len(slices.rows), slices.total)
        return True

    def _note_failure(
        self, listing: Listing, request: SliceRequest, error: FailedRequestError, took: float
    ) -> None:
        """Decide when a failed request may be sent again, and with how many connections.

        `took` is how long it lasted, in seconds. Raises SourceError where its listing cannot be completed.
        """
        log.debug("%s failed: %s", listing.project, error)
        now, failure = self._deadline.elapsed(), error.failure
        listing.trouble = error
        # A server that gives up after long work fails like any other; the time shows that it was too much.
        if failure in (Failure.QUICK, Failure.UNAVAILABLE) and took >= HEAVY_AFTER:
            failure = Failure.HEAVY
        delay = error.wait
        # Of the server and not of a project: all requests wait, and fewer are sent.
        if failure in (Failure.UNAVAILABLE, Failure.RATE_LIMITED):
            self._allowed = max(1.0, self._allowed / 2)
            if failure is Failure.UNAVAILABLE:
                self._outages += 1
            if delay is None:
                delay = RATE_LIMIT_DELAY if failure is Failure.RATE_LIMITED else backoff(self._outages)
        if delay is not None:
            # Jitter, so that a fleet does not come back at one instant.
            self._opens = max(self._opens, now + delay + random.uniform(0, 0.5))  # noqa: S311
            self._obstacle = error
        else:
            # Slower than for single requests: to find a run that cannot be served takes many failures.
            listing.due = now + backoff(1 + listing.slices.failures // 2)
        listing.slices.failed(request, failure, error)

    def _end(self, listing: Listing, result: Listing | Exception) -> None:
        """End a listing with its result; remember the rows that could not be served."""
        slices, name = listing.slices, str(listing.project)
        # Only a complete listing disproves what was remembered.
        if isinstance(result, Listing):
            self._unserved.pop(name, None)
        if slices.unserved:
            self._unserved[name] = slices.unserved
            for second, _ in slices.unserved:
                log.warning("stepped over a run of %s created at %s: W&B fails on it", name, iso(second))
        self._open.remove(listing)
        self._ended.append((listing.project, result))

    def _timeout(self, listing: Listing) -> FleetgaugeError:
        """Return the error for a listing that was not complete in time."""
        slices, reason = listing.slices, listing.trouble or self._obstacle
        of = "" if slices.total is None else f" of {slices.total:,}"
        return DeadlineExceededError(
            f"the deadline of {self._deadline.seconds:g} s passed after {len(slices.rows):,}{of} runs; "
            + (f"{reason}; " if reason else "")
            + "raise --timeout or FLEETGAUGE_WANDB_CONNECTIONS"
        )


def _first_error(errors: list[Exception]) -> Exception:
    """Return the error of a run that read nothing: one of configuration only if all are."""
    others = [error for error in errors if not isinstance(error, RefusedProjectError)]
    first = (others or errors)[0]
    if isinstance(first, FleetgaugeError) and len(errors) > 1:
        return type(first)(f"{first} (and {len(errors) - 1} more could not be read)")
    return first
