"""Read the runs of projects over a few connections, within one deadline.

Threads only send requests. Everything else is decided in the thread that iterates: what is requested next
(`slices`), what is retried and when, and how all connections keep to the server's limits. The result does not
depend on which answer comes first. Rows are also parsed in that thread, so that no state needs a lock.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated

from pydantic import Field, NonNegativeInt, TypeAdapter, ValidationError

from collectors.wandb.api import Api, FailedRequestError, GraphqlQuery, RefusedKeyError, Response
from collectors.wandb.query import Filter, Row, read_runs, runs_query
from collectors.wandb.runs import Run, RunReader
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.slices import LATEST, Failure, SliceRequest, Slices
from common.collector import Context
from common.errors import DeadlineExceededError, SourceError
from common.net.http import MAX_RESPONSE_BYTES
from common.net.retry import backoff, requested_wait, requests_left

ONE_AT_A_TIME_AFTER = 4  # failures in a row of a project, each of which counts towards losing it
SYSTEM_METRICS_PAGE = 200  # runs of a page with their system metrics, of 10 kB each
RECOVERY = 1 / 8  # of a connection, by which an answer raises the limit again after a rate limit

# The second of creation and the offset of each row that could not be served; by project in the memory.
Unserved = list[tuple[Annotated[int, Field(ge=0, lt=LATEST)], NonNegativeInt]]
_UNSERVED = TypeAdapter(dict[str, Unserved])

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Listing:
    """The runs of a project, once all are listed; `error` is why they could not be."""

    project: Project
    query: Callable[[SliceRequest], GraphqlQuery]
    slices: Slices[Row]
    error: Exception | None = None
    due: float = 0.0  # when it may be requested again

    @cached_property
    def runs(self) -> list[Run]:
        """The runs that could be read."""
        return [row.run for row in self.slices.rows.values() if row.run is not None]

    @property
    def unseen(self) -> int | None:
        """How many runs the server counts and never shows; None where it does not count."""
        total = self.slices.total
        return None if total is None else max(0, total - len(self.slices.rows))


class Reader:
    """Reads runs, as often as needed: what it learns of the server's limits holds for the next time."""

    def __init__(self, context: Context[WandbSettings]) -> None:
        settings = context.settings
        self.context = context
        self.rows = RunReader(
            settings.push_to_main, settings.gpu_count_key, settings.assumed_gpus, settings.owners
        )
        # The server's limits hold for all shards.
        self.connections = max(1, settings.connections // context.shard.count)
        self.api = Api(settings, context.http(settings.base_url, "WANDB_BASE_URL", self.connections))
        # The listings that are not complete, the last one requested last; and the requests that were sent and
        # not yet handled.
        self._open = deque[Listing]()
        self._under_way: dict[Future[Response], tuple[Listing, SliceRequest]] = {}
        # How many requests may be under way, and when the next may start.
        self._allowed = float(self.connections)
        self._opens = 0.0
        self._outages = 0  # in a row: requests that the server could not take
        self._trouble: Exception | None = None  # the last failure, until an answer comes

    def read(
        self,
        projects: Iterable[Project],
        filters: Filter,
        *,
        empty: Collection[Project] = (),
        system_metrics: bool = False,
    ) -> list[Listing]:
        """Return the listing of each project; `error` is set in those that could not be completed.

        Projects that are known to be `empty` cost no request. `system_metrics` selects the latest system
        metrics too, in smaller pages. Raises RefusedKeyError: no project would fare better.
        """
        settings, window, memory = self.context.settings, self.context.window, self.context.memory
        key = "unserved:active" if system_metrics else "unserved:runs"
        try:
            remembered = _UNSERVED.validate_python(memory.get(key, {}))
        except ValidationError:  # the memory is a file that may be damaged
            remembered = {}
        size = min(settings.page_size, SYSTEM_METRICS_PAGE) if system_metrics else settings.page_size
        # Where most runs are expected: it only decides where slices are cut first.
        since = window.since - settings.window
        until = min(self.context.now, window.until) if window.is_live else window.until
        listings = []
        for project in projects:
            unserved = remembered.get(str(project), [])
            query = partial(runs_query, project, filters, self.rows, system_metrics)
            slices = Slices[Row](size, settings.max_runs, since, until, unserved)
            listings.append(Listing(project, query, slices))
        self._open.extend(listing for listing in listings if listing.project not in empty)
        # One thread per connection: more would only wait for a connection.
        executor = ThreadPoolExecutor(self.connections, "wandb")
        try:
            while self._open:
                self._send(executor)
                self._wait()
        finally:
            self.api.http.close()
            executor.shutdown(cancel_futures=True)
            self._under_way.clear()
        memory[key] = {str(each.project): each.slices.unserved for each in listings if each.slices.unserved}
        return listings

    def _send(self, executor: ThreadPoolExecutor) -> None:
        """Send what may be sent now: within the limit on requests, after the pause, before the deadline."""
        deadline = self.context.deadline
        now = deadline.elapsed()
        while len(self._under_way) < int(self._allowed) and self._opens <= now < deadline.seconds:
            found = self._next(now)
            if found is None:
                return
            listing, request = found
            self._opens = now + self.context.settings.pause
            # The limit on the memory of answers is for all connections in sum.
            largest = MAX_RESPONSE_BYTES // self.connections
            future = executor.submit(self.api.post, listing.query(request), deadline, largest)
            self._under_way[future] = (listing, request)

    def _next(self, now: float) -> tuple[Listing, SliceRequest] | None:
        """Return the next request, of each project in turn; where there is none, one that cuts a slice.

        So the first page of every project comes before any second, and shows early what it costs. A project
        whose requests keep failing has one under way at a time: several would use up its attempts at once.
        """
        under_way = (listing for listing, _ in self._under_way.values())
        failing = {each for each in under_way if each.slices.failures >= ONE_AT_A_TIME_AFTER}
        for _ in range(len(self._open)):
            listing = self._open[0]
            self._open.rotate(-1)
            if listing not in failing and listing.due <= now and (request := listing.slices.next()):
                return listing, request
        # Slices that wait for a retry occupy a connection, too.
        if sum(listing.slices.outstanding for listing in self._open) < int(self._allowed):
            for listing in self._open:
                if listing not in failing and (request := listing.slices.cut()):
                    return listing, request
        return None

    def _wait(self) -> None:
        """Wait for an answer, or until something may be requested, or the time is over.

        Handles at most one answer. Once the time is over, every listing ends with a timeout.
        """
        deadline = self.context.deadline
        now, end = deadline.elapsed(), deadline.seconds
        times = (self._opens, *(listing.due for listing in self._open))
        wake = min((time for time in times if time > now), default=end)
        if now >= end or (not self._under_way and wake >= end):
            for listing in self._open:
                listing.error = self._timeout(listing)
            self._open.clear()
        elif not self._under_way:
            deadline.sleep(wake - now)
        elif done := wait(self._under_way, min(wake, end) - now, FIRST_COMPLETED).done:
            future = done.pop()
            listing, request = self._under_way.pop(future)
            # Its project may have failed since: then the answer is of no use.
            if listing in self._open:
                self._handle(future, listing, request)

    def _handle(self, future: Future[Response], listing: Listing, request: SliceRequest) -> None:
        """Add an answer to its listing, or note a failure. Whatever is wrong with it costs its project.

        Only RefusedKeyError is raised: no other project would fare better.
        """
        try:
            try:
                response = future.result()
                page = read_runs(listing.project, response, self.rows, request)
            except FailedRequestError as error:
                self._note_failure(listing, request, error)
            else:
                listing.slices.served(request, page)
                self._note_success(listing, response)
        except RefusedKeyError:
            raise
        except DeadlineExceededError:  # which ends all listings, at the next wait
            return
        except Exception as error:
            listing.error = error
        if listing.error or not listing.slices.outstanding:
            self._open.remove(listing)

    def _note_success(self, listing: Listing, response: Response) -> None:
        """Note an answer that was added, and how many more requests the server announces to take."""
        self._outages, self._trouble = 0, None
        if response.errors:
            beside = f"{listing.project}: {response.errors}"
            log.warning("W&B answered with errors beside the data for %s", beside)
            self.context.report.drop("graphql_error", 1, beside)
        self._allowed = min(self.connections, self._allowed + RECOVERY)
        # The rate limit is per user, and W&B announces it: waiting for its reset is cheaper than a 429.
        left, reset = requests_left(response.headers), requested_wait(response.headers)
        if left is not None and left <= len(self._under_way) and reset is not None:
            self._opens = max(self._opens, self.context.deadline.elapsed() + reset)
            self._trouble = SourceError(f"the rate limit of W&B takes no request for {reset:g} s")
        done, total = len(listing.slices.rows), listing.slices.total
        self.context.progress(f"listing the runs of {listing.project}", done, total)

    def _note_failure(self, listing: Listing, request: SliceRequest, error: FailedRequestError) -> None:
        """Decide when a failed request may be sent again, and with how many connections.

        Raises SourceError where its listing cannot be completed.
        """
        log.debug("%s failed: %s", listing.project, error)
        now, failure, delay = self.context.deadline.elapsed(), error.failure, error.wait
        self._trouble = error
        # Of the server and not of a project: all requests wait, and fewer are sent.
        if failure in (Failure.UNAVAILABLE, Failure.RATE_LIMITED):
            self._allowed = max(1.0, self._allowed / 2)
            self._outages += 1
            if delay is None:
                delay = backoff(self._outages)
        if delay is not None:
            # Jitter, so that a fleet does not come back at one instant.
            self._opens = max(self._opens, now + delay + random.uniform(0, 0.5))  # noqa: S311
        else:
            # Slower than for single requests: to find a run that cannot be served takes many failures.
            listing.due = now + backoff(1 + listing.slices.failures // 2)
        listing.slices.failed(request, failure, error)

    def _timeout(self, listing: Listing) -> DeadlineExceededError:
        """Return the error for a listing that was not complete in time."""
        seconds, slices = self.context.deadline.seconds, listing.slices
        of = f" of {slices.total:,}" if slices.total else ""
        return DeadlineExceededError(
            f"the deadline of {seconds:g} s passed after {len(slices.rows):,}{of} runs; "
            + (f"{self._trouble}; " if self._trouble else "")
            + "raise --timeout or FLEETGAUGE_WANDB_CONNECTIONS"
        )
