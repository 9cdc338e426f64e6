"""Read the runs of projects over a few connections, within one deadline.

Threads only send requests and parse answers. Everything else is decided in the thread that iterates: what is
requested next (`slices`), what is retried and when, and how all connections keep to the server's limits. The
result does not depend on which answer comes first.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from collectors.wandb.api import (
    Api,
    FailedPageError,
    OverloadedError,
    RateLimitedError,
    RefusedKeyError,
    RefusedProjectError,
    RejectedQueryError,
    Response,
    UnknownProjectError,
)
from collectors.wandb.query import (
    WIDE,
    CollidingProjectError,
    Extra,
    Filter,
    PageRequest,
    Projects,
    RunPage,
    UnknownPartsError,
    fetch_runs,
    unneeded,
)
from collectors.wandb.runs import Run, RunReader
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.slices import Failure, SliceRequest, Slices
from common.collector import Context
from common.errors import DeadlineExceededError, FleetgaugeError, SourceError
from common.net.http import MAX_RESPONSE_BYTES
from common.net.retry import Deadline, TransientError, backoff, persist
from common.times import iso

WIDE_PAGE = 50  # runs of a page with complete configs and summaries, of 100 kB each
SYSTEM_METRICS_PAGE = 200  # runs of a page with their system metrics, of 10 kB each
JOIN_TIMEOUT = 2.0  # seconds for all threads to end once their connections are closed
ADDRESS = "WANDB_BASE_URL"
UNSERVED, KNOWN = "unserved:", "projects"  # keys of the memory

log = logging.getLogger(__name__)


@dataclass
class Listing:
    """The runs of a project that could be read, and what could not.

    `partial` names seconds of creation time that may hold more runs than were listed. `unseen` is the number
    of rows that the server counts and never shows; None where it does not count.
    """

    project: Project
    rows: Mapping[str, Run | None] = field(default_factory=dict)
    total: int | None = 0
    partial: list[str] = field(default_factory=list)
    unserved: Mapping[int, Collection[int]] = field(default_factory=dict)  # offsets by second of creation
    errors: int = 0  # beside the data
    flaws: dict[str, list[str]] = field(default_factory=dict)  # by run

    @property
    def runs(self) -> list[Run]:
        return [run for run in self.rows.values() if run is not None]

    @property
    def unseen(self) -> int | None:
        return None if self.total is None else max(0, self.total - len(self.rows))

    @property
    def dropped(self) -> Counter[str]:
        """Return how much was dropped, by reason."""
        dropped = Counter(reason for reasons in self.flaws.values() for reason in reasons)
        dropped.update(unserved_run=sum(map(len, self.unserved.values())), graphql_error=self.errors)
        return +dropped

    def example(self, reason: str) -> str:
        """Return where something was dropped for a reason."""
        if reason == "unserved_run":
            return f"{self.project}, a run created at {iso(min(self.unserved))}"
        runs = (run for run, reasons in self.flaws.items() if reason in reasons)
        return next((f"{self.project}, run {run}" for run in runs), str(self.project))

    def add(self, page: RunPage) -> None:
        """Add what is wrong with the runs of a page; a run that is shown again replaces itself."""
        self.errors += page.errors
        if self.flaws or page.flaws:
            for row in page.page.rows:
                if row.id in page.flaws:
                    self.flaws[row.id] = page.flaws[row.id]
                else:
                    self.flaws.pop(row.id, None)


Result = tuple[Project, Listing | Exception]


class Throttle:
    """How many requests may be under way, and when the next may start, on all connections."""

    def __init__(self, connections: int, pause: float) -> None:
        self.allowed = connections
        self.opens = 0.0
        self.reason: Exception | None = None
        self._pause = pause

    def start(self, now: float) -> None:
        """Note that a request starts."""
        self.opens, self.reason = now + self._pause, None

    def delay(self, until: float, reason: Exception) -> None:
        """Let no request start before `until`."""
        if until > self.opens:
            self.opens, self.reason = until, reason

    def halve(self) -> None:
        """Allow half as many requests at a time."""
        self.allowed = max(1, self.allowed // 2)

    def note(self, now: float, left: int | None, reset: float | None, under_way: int) -> None:
        """Wait until the server's limit is reset, where those under way use up what is left of it."""
        if left is not None and left <= under_way and reset is not None:
            self.delay(now + reset, SourceError(f"it takes no request for {reset:g} s"))


@dataclass(eq=False)
class _Reading:
    """A project that is being read."""

    project: Project
    slices: Slices[Run | None]
    listing: Listing
    trouble: Exception | None = None  # the last failure, while it lasts


class _Workers:
    """Threads that send requests; daemons, so that none keeps the process from ending."""

    def __init__(self, number: int, work: Callable[[PageRequest], Response[RunPage]]) -> None:
        self._jobs: SimpleQueue[tuple[_Reading, SliceRequest, PageRequest] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[_Reading, SliceRequest, Response[RunPage] | Exception]] = (
            SimpleQueue()
        )
        self._work = work
        self._is_ending = False
        self._threads = [
            threading.Thread(target=self._run, name=f"wandb-{index}", daemon=True) for index in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, reading: _Reading, request: SliceRequest, page: PageRequest) -> None:
        self._jobs.put((reading, request, page))

    def receive(self, timeout: float) -> tuple[_Reading, SliceRequest, Response[RunPage] | Exception] | None:
        """Return the next result; None where there is none in time."""
        try:
            return self._results.get(timeout=max(0.0, timeout))
        except Empty:
            return None

    def end(self, close: Callable[[], None]) -> None:
        """Close the connections, and wait for the threads."""
        self._is_ending = True
        close()
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + JOIN_TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            reading, request, page = job
            result: Response[RunPage] | Exception
            try:
                result = self._work(page)
            except Exception as error:
                if not isinstance(error, _EXPECTED) and not self._is_ending:
                    log.exception("unexpected error while reading %s", page.project)
                # Its frames would keep the answer in memory, which may be large.
                error.__traceback__ = error.__context__ = error.__cause__ = None
                result = error
            self._results.put((reading, request, result))
            del job, reading, request, page, result


_EXPECTED = (FleetgaugeError, TransientError, UnknownPartsError, RejectedQueryError)


class Reader:
    """Reads the projects of one run; `missing` are the parts of the query that the server does not know."""

    def __init__(self, context: Context[WandbSettings], reading: RunReader) -> None:
        self.missing: frozenset[Extra] = frozenset()
        self._context, self._settings = context, context.settings
        self._runs = reading
        # The server's limits hold for all shards.
        self._connections = max(1, self._settings.connections // context.shard.count)
        self._api = Api(self._settings, context.network.http(self._settings.base_url, ADDRESS))
        self._is_key_checked = False

    @property
    def _deadline(self) -> Deadline:
        return self._context.deadline

    def select(self, filters: Filter) -> Projects:
        """Return the projects that the settings name and this shard reads; `filters` are of their runs.

        Collisions are resolved over the projects of all shards.
        """
        context, named = self._context, self._settings.chosen()
        if any(project.name == "*" for project in named):
            context.report.progress("listing projects", 0, None)
        projects = Projects(self._api, self._deadline, filters, self._settings.pause)
        known = context.memory.get(KNOWN)
        paths = [path for path in known if isinstance(path, str)] if isinstance(known, list) else []
        projects.select(named, [Project(*path.split("/", 1)) for path in paths if "/" in path])
        owns = context.shard.owns
        projects.selected = [project for project in projects.selected if owns(str(project))]
        projects.lost = {
            project: error
            for project, error in projects.lost.items()
            if project.name == "*" or owns(str(project))
        }
        return projects

    def listings(self, projects: Projects) -> Iterator[Listing]:
        """Yield the listing of each project, in their order; count what was dropped, lose what failed.

        Where nothing could be read, the first error is raised.
        """
        failed = dict[Project, Exception](projects.lost)
        waiting, deleted, any_read = deque(projects.selected), set[Project](), False
        read: dict[Project, Listing] = {}
        for project, result in self.read(projects.selected, projects.filters, skip=projects.has_no_runs):
            if isinstance(result, Listing):
                read[project] = result
            elif isinstance(result, UnknownProjectError) and projects.is_deleted(project):
                log.info("%s was deleted before it was read", project)
                deleted.add(project)
            else:
                failed[project] = result
            while waiting and (waiting[0] in read or waiting[0] in failed or waiting[0] in deleted):
                listing = read.pop(waiting.popleft(), None)
                if listing is not None:
                    any_read = True
                    self.count_dropped(listing)
                    yield listing
        failed = {each: failed[each] for each in (*projects.lost, *projects.selected) if each in failed}
        errors = [error for error in failed.values() if not isinstance(error, CollidingProjectError)]
        if errors and not any_read:
            raise _first_error(errors)
        for project, error in failed.items():
            reason = "tag_collision" if isinstance(error, CollidingProjectError) else "unreadable"
            self._context.report.lose(str(project), error, reason)
        self._context.memory[KNOWN] = [
            str(project)
            for project in projects.selected
            if project in projects.found and project not in deleted and not projects.has_no_runs(project)
        ]

    def active(self, projects: Iterable[Project], filters: Filter) -> Iterator[Result]:
        """Yield the runs of projects that pass a filter, with their system metrics, or why there are none."""
        return self.read([*projects], filters, system_metrics=True)

    def count_dropped(self, listing: Listing) -> None:
        """Report what was dropped of single runs, and the seconds that are not complete."""
        report = self._context.report
        for reason, number in listing.dropped.items():
            report.drop(reason, number, listing.example(reason))
        for second in listing.partial:
            what = f"{listing.project}, runs created at {second}"
            report.lose(what, "not all of them could be listed", "incomplete")
        log.info("%s: %d runs listed, %s unseen", listing.project, len(listing.rows), listing.unseen)

    def probe(self, project: Project, filters: Filter) -> int | None:
        """Read one run of a project with the complete query; return how many there are, None if unknown."""
        unneeded_parts = unneeded(self._settings.grouping, system_metrics=self._settings.utilization)
        while True:
            page = PageRequest(project, filters, 1, missing=self.missing | unneeded_parts)
            try:
                response = persist(
                    lambda: fetch_runs(self._api, page, self._runs, self._deadline),  # noqa: B023
                    self._deadline,
                    self._deadline.sleep,
                )
            except UnknownPartsError as error:
                self.missing |= error.parts
            except RefusedProjectError:
                self._check_key()
                raise
            except TransientError as error:
                raise SourceError(f"{project}: {error}") from None
            else:
                return response.content.page.total

    def read(
        self,
        projects: list[Project],
        filters: Filter,
        *,
        system_metrics: bool = False,
        skip: Callable[[Project], bool] = lambda _: False,
    ) -> Iterator[Result]:
        """Yield the listing of each project, or why there is none, as they end.

        Those to `skip` are empty without a request. RefusedKeyError ends all of them.
        """
        yield from ((project, Listing(project)) for project in projects if skip(project))
        projects = [project for project in projects if not skip(project)]
        if projects:
            yield from _Run(self, projects, filters, system_metrics=system_metrics).results()

    def _check_key(self) -> None:
        """Check the key, once: a key that is refused is refused for all projects."""
        if self._is_key_checked:
            return
        self._is_key_checked = True
        try:
            self._api.check_key(self._deadline)
        except RefusedKeyError:
            raise
        except _EXPECTED as error:
            log.info("cannot check the key: %s", error)


class _Run:
    """One pass of a reader over projects, with connections of its own."""

    def __init__(
        self, reader: Reader, projects: list[Project], filters: Filter, *, system_metrics: bool
    ) -> None:
        context, settings = reader._context, reader._settings
        self._reader, self._filters = reader, filters
        self._report, self._deadline = context.report, context.deadline
        self._unneeded = unneeded(settings.grouping, system_metrics=system_metrics)
        self._throttle = Throttle(reader._connections, settings.pause)
        self._page_size = settings.page_size
        if system_metrics:
            self._page_size = min(SYSTEM_METRICS_PAGE, settings.page_size)
        self._under_way = 0
        self._limited = 0  # answers in a row that were refused by the rate limit
        self._ended: list[Result] = []
        self._http = context.network.http(settings.base_url, ADDRESS, reader._connections)
        self._largest = MAX_RESPONSE_BYTES // reader._connections
        self._api = Api(settings, self._http)
        key = UNSERVED + ("active" if system_metrics else "runs")
        remembered = _seconds_by_project(context.memory.get(key), {*map(str, projects)})
        self._unserved: dict[str, object] = {
            project: {str(second): offsets for second, offsets in seconds.items()}
            for project, seconds in remembered.items()
        }
        context.memory[key] = self._unserved
        window, now = context.window, context.now
        since = window.since - settings.window
        until = min(now, window.until) if window.is_live else window.until
        self._waiting = deque(  # those that were not requested yet
            _Reading(
                project,
                Slices(self._page_size, settings.max_runs, since, until, remembered.get(str(project))),
                Listing(project),
            )
            for project in projects
        )
        self._readings: deque[_Reading] = deque()  # the last one requested is the last

    def results(self) -> Iterator[Result]:
        def fetch(page: PageRequest) -> Response[RunPage]:
            return fetch_runs(self._api, page, self._reader._runs, self._deadline)

        workers = _Workers(self._reader._connections, fetch)
        try:
            while self._waiting or self._readings:
                self._start(workers)
                if not self._ended:
                    self._wait(workers)
                yield from self._ended
                self._ended.clear()
        finally:
            workers.end(self._http.close)

    def _start(self, workers: _Workers) -> None:
        """Send what may be sent now."""
        now = self._deadline.elapsed()
        throttle = self._throttle
        while self._under_way < throttle.allowed and throttle.opens <= now < self._deadline.seconds:
            found = self._next(now)
            if found is None:
                return
            reading, request = found
            throttle.start(now)
            self._under_way += 1
            page = PageRequest(
                reading.project,
                self._filters,
                request.rows,
                request.since,
                request.until,
                request.offset,
                request.cursor,
                self._reader.missing | self._unneeded,
                self._largest,
            )
            workers.send(reading, request, page)

    def _next(self, now: float) -> tuple[_Reading, SliceRequest] | None:
        """Return the next request: first of a project that had none, then of each in turn, then of a cut."""
        limit = WIDE_PAGE if self._reader.missing & WIDE else self._page_size
        if self._waiting:
            self._readings.append(self._waiting.popleft())
            self._readings.rotate(1)
        for _ in range(len(self._readings)):
            reading = self._readings[0]
            self._readings.rotate(-1)
            request = reading.slices.next(now, limit)
            if request is not None:
                return reading, request
        # Slices that wait for a retry occupy a connection, too.
        if sum(reading.slices.outstanding for reading in self._readings) < self._throttle.allowed:
            for reading in self._readings:
                request = reading.slices.cut(limit)
                if request is not None:
                    return reading, request
        return None

    def _wait(self, workers: _Workers) -> None:
        """Wait for an answer, or until something may be requested, or the time is over."""
        now, end = self._deadline.elapsed(), self._deadline.seconds
        later = [due for reading in self._readings if (due := reading.slices.due) is not None and due > now]
        wake = self._throttle.opens if self._throttle.opens > now else min(later, default=end)
        if now >= end or (not self._under_way and wake >= end):
            for reading in [*self._readings, *self._waiting]:
                self._end(reading, self._timeout(reading, now))
        elif self._under_way:
            is_full = self._under_way >= self._throttle.allowed
            done = workers.receive(min(end if is_full else wake, end) - now)
            if done is not None:
                self._under_way -= 1
                if done[0] in self._readings:
                    self._take(*done)
        else:
            self._deadline.sleep(wake - now)

    def _take(self, reading: _Reading, request: SliceRequest, result: Response[RunPage] | Exception) -> None:
        """Add an answer, or note a failure. Whatever is wrong with it costs its project."""
        try:
            if isinstance(result, Exception):
                self._note_failure(reading, request, result)
            else:
                now, reading.trouble, self._limited = self._deadline.elapsed(), None, 0
                self._throttle.note(now, result.requests_left, result.reset, self._under_way)
                reading.listing.add(result.content)
                reading.slices.served(request, result.content.page)
                slices = reading.slices
                done = len(slices.rows) if slices.total is None else min(len(slices.rows), slices.total)
                self._report.progress(f"listing the runs of {reading.project}", done, slices.total)
            if reading.slices.is_done:
                self._end(reading, reading.listing)
        except RefusedKeyError:
            raise
        except Exception as error:
            if not isinstance(error, FleetgaugeError):
                log.exception("unexpected error while reading %s", reading.project)
            self._end(reading, error)

    def _note_failure(self, reading: _Reading, request: SliceRequest, error: Exception) -> None:
        now, slices = self._deadline.elapsed(), reading.slices
        if isinstance(error, UnknownPartsError):
            self._reader.missing |= error.parts
            return slices.release(request)
        if isinstance(error, RefusedProjectError):
            self._reader._check_key()
        if isinstance(error, DeadlineExceededError):
            raise self._timeout(reading, now)
        if not isinstance(error, TransientError):
            raise error
        log.debug("%s failed: %s", reading.project, error)
        reading.trouble = error
        is_limited = isinstance(error, RateLimitedError)
        self._limited += is_limited
        if error.wait is not None:
            # Jitter, so that a fleet does not come back at one instant.
            self._throttle.delay(now + error.wait + random.uniform(0, 0.5), error)  # noqa: S311
        elif is_limited:
            self._throttle.delay(now + backoff(self._limited), error)
        if is_limited:
            self._throttle.halve()
            return slices.release(request)
        failure = Failure.ANSWERLESS
        tries = request.slice.answerless + 1
        if isinstance(error, OverloadedError | FailedPageError):
            failure = Failure.HEAVY if isinstance(error, OverloadedError) else Failure.QUICK
            tries = min(slices.failures + 1, 3)  # to find a run that cannot be served takes many
        request.slice.due = now if error.wait is not None else now + backoff(tries)
        return slices.failed(request, failure, error)

    def _end(self, reading: _Reading, result: Listing | Exception) -> None:
        slices, project = reading.slices, reading.project
        if isinstance(result, Listing):
            result.rows, result.total = slices.rows, slices.total
            result.partial, result.unserved = slices.partial, slices.unserved
            self._unserved.pop(str(project), None)
        if slices.unserved:
            self._unserved[str(project)] = {str(at): offsets for at, offsets in slices.unserved.items()}
            for second in sorted(slices.unserved):
                log.warning("stepped over a run of %s created at %s: W&B fails on it", project, iso(second))
        (self._readings if reading in self._readings else self._waiting).remove(reading)
        self._ended.append((project, result))

    def _timeout(self, reading: _Reading, now: float) -> FleetgaugeError:
        reason = self._throttle.reason if self._throttle.opens > now else reading.trouble
        slices = reading.slices
        if isinstance(reason, OverloadedError):
            return SourceError(
                f"W&B could not be read in time: {reason}; lower FLEETGAUGE_WANDB_PAGE_SIZE (it went down to "
                f"{slices.size} runs by itself), or raise --timeout"
            )
        if reason is not None:
            return SourceError(f"W&B could not be read in time: {reason}")
        of = "" if slices.total is None else f" of {slices.total:,}"
        return DeadlineExceededError(
            f"the deadline of {self._deadline.seconds:g} s passed after {len(slices.rows):,}{of} runs; raise "
            "--timeout or FLEETGAUGE_WANDB_CONNECTIONS"
        )


def _first_error(errors: list[Exception]) -> Exception:
    """Return the error of a run that read nothing: one of configuration only if all are."""
    others = [error for error in errors if not isinstance(error, RefusedProjectError)]
    first = (others or errors)[0]
    if isinstance(first, FleetgaugeError) and len(errors) > 1:
        return type(first)(f"{first} (and {len(errors) - 1} more could not be read)")
    return first


def _seconds_by_project(memory: object, projects: Collection[str]) -> dict[str, dict[int, list[int]]]:
    """Return what an earlier run remembered of rows that cannot be served, as far as it is readable."""
    found: dict[str, dict[int, list[int]]] = {}
    for project, seconds in memory.items() if isinstance(memory, dict) else ():
        if project in projects and isinstance(seconds, dict):
            for second, offsets in seconds.items():
                if isinstance(second, str) and second.isdecimal() and isinstance(offsets, list):
                    numbers = [offset for offset in offsets if isinstance(offset, int) and offset >= 0]
                    found.setdefault(project, {})[int(second)] = numbers
    return found
