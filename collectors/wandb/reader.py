"""Read the runs of projects over a few connections, within one deadline.

Threads only send requests. Everything else is decided in the thread that iterates: what is requested next
(`slices`), what is retried and when, and how all connections keep to the server's limits. The result does not
depend on which answer comes first. Parsing also happens in that thread, so that no state needs a lock.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import NonNegativeInt, TypeAdapter, ValidationError

from collectors.wandb.api import (
    Api,
    FailedRequestError,
    RefusedKeyError,
    RefusedProjectError,
    UnknownFieldsError,
    UnknownProjectError,
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
from collectors.wandb.slices import Failure, Slice, SliceRequest, Slices
from common.collector import Context
from common.errors import DeadlineExceededError, FleetgaugeError, SourceError
from common.net.http import MAX_RESPONSE_BYTES, Reply
from common.net.retry import TransientError, backoff, persist, requested_wait, requests_left
from common.times import iso

HEAVY_AFTER = 10.0  # seconds: what fails later failed because of its size
SYSTEM_METRICS_PAGE = 200  # runs of a page with their system metrics, of 10 kB each
ADDRESS = "WANDB_BASE_URL"
UNSERVED, KNOWN = "unserved:", "projects"  # keys of the memory

_Unserved = dict[str, dict[int, list[NonNegativeInt]]]  # by project and second of creation: offsets

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Listing:
    """The runs of a project, and what could not be read of them."""

    project: Project
    slices: Slices[Run | None]
    flaws: dict[str, list[str]] = field(default_factory=dict)  # by run
    errors: int = 0  # answers with errors beside the data
    trouble: FailedRequestError | None = None  # the last failure, while it lasts

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
        # Slices overlap by a second, so that a run may be on two pages: its flaws count once.
        if self.flaws:
            self.flaws = {run: flaws for run, flaws in self.flaws.items() if run not in read.page.rows}
        self.flaws |= read.flaws
        self.slices.served(request, read.page)


Result = tuple[Project, Listing | Exception]
_Sent = tuple[Listing, SliceRequest, float]  # a request, and when it was sent


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
        self._api = Api(settings, context.network.http(settings.base_url, ADDRESS))
        self._is_key_checked = False

    def select(self, filters: Filter) -> Projects:
        """Return the projects that the settings name and this shard reads; `filters` are of their runs.

        Collisions are resolved before the shard selects its own, as two projects with the same tags may
        belong to different shards.
        """
        context, named = self.context, self.context.settings.chosen()
        if any(project.name == "*" for project in named):
            context.report.progress("listing projects", 0, None)
        projects = Projects(self._api, context.deadline, filters, context.settings.pause)
        # The memory is a file that may be damaged: any entry that is not a path is ignored.
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

    def listings(self, projects: Projects) -> list[Listing]:
        """Return the listing of each project, in their order; count what was dropped, lose what failed.

        Where nothing could be read, the first error is raised. A project that was deleted since its entity
        was listed is neither read nor lost.
        """
        failed = dict[Project, Exception](projects.lost)
        read: dict[Project, Listing] = {}
        for project, result in self.read(projects.selected, projects.filters, skip=projects.has_no_runs):
            if isinstance(result, Listing):
                read[project] = result
            elif isinstance(result, UnknownProjectError) and projects.is_deleted(project):
                log.info("%s was deleted before it was read", project)
            else:
                failed[project] = result
        # In the order of the projects, not of the answers: the report must not depend on the network.
        failed = {each: failed[each] for each in (*projects.lost, *projects.selected) if each in failed}
        errors = [error for error in failed.values() if not isinstance(error, CollidingProjectError)]
        if errors and not read:
            raise _first_error(errors)
        for project, error in failed.items():
            reason = "tag_collision" if isinstance(error, CollidingProjectError) else "unreadable"
            self.context.report.lose(str(project), error, reason)
        listings = [read[project] for project in projects.selected if project in read]
        for listing in listings:
            self.count_dropped(listing)
        # The next run compares its listing of an entity with these: a listing that lacks one is read again.
        # Projects without runs are not worth that.
        self.context.memory[KNOWN] = [
            str(project)
            for project in projects.selected
            if project in projects.found
            and (project in read or project in failed)
            and not projects.has_no_runs(project)
        ]
        return listings

    def count_dropped(self, listing: Listing) -> None:
        """Report what was dropped of single runs, and the seconds that are not complete.

        Counts are by reason, with one example each.
        """
        report, project, slices = self.context.report, listing.project, listing.slices
        examples = {
            reason: f"{project}, run {run}" for run, reasons in listing.flaws.items() for reason in reasons
        }
        dropped = Counter(reason for reasons in listing.flaws.values() for reason in reasons)
        for second, offsets in slices.unserved.items():
            dropped["unserved_run"] += len(offsets)
            examples["unserved_run"] = f"{project}, a run created at {iso(second)}"
        if listing.errors:
            dropped["graphql_error"] = listing.errors
        for reason, number in dropped.items():
            report.drop(reason, number, examples.get(reason, str(project)))
        for second_name in slices.partial:
            what = f"{project}, runs created at {second_name}"
            report.lose(what, "not all of them could be listed", "incomplete")
        log.info("%s: %d runs listed, %s unseen", project, len(slices.rows), listing.unseen)

    def probe(self, project: Project, filters: Filter) -> int | None:
        """Read one run of a project with the complete query; return how many there are, None if unknown.

        Raises RefusedKeyError, RefusedProjectError or SourceError where the project cannot be read.
        """
        settings, deadline = self.context.settings, self.context.deadline
        unneeded_parts = unneeded(settings.grouping, system_metrics=settings.utilization)
        request = SliceRequest(Slice(None, None, 1), None, None, 1)

        def attempt() -> RunPage:
            query = runs_query(project, filters, request, self.missing | unneeded_parts, self.rows)
            return read_runs(self._api, project, self._api.post(*query, deadline), self.rows)

        # Each rejected field shrinks the query, and `without` raises where nothing more can be left out: it
        # ends.
        while True:
            try:
                return persist(attempt, deadline, deadline.sleep).page.total
            except UnknownFieldsError as error:
                self.missing = without(error, self.missing, self._api.url)
            except RefusedProjectError:
                self.check_key()
                raise
            except TransientError as error:
                raise SourceError(f"{project}: {error}") from None

    def read(
        self,
        projects: Iterable[Project],
        filters: Filter,
        *,
        system_metrics: bool = False,
        skip: Callable[[Project], bool] = lambda _: False,
    ) -> Iterator[Result]:
        """Yield the listing of each project, or why there is none, as they end.

        Those to `skip` are empty without a request. `system_metrics` selects the latest system metrics too,
        in smaller pages. RefusedKeyError ends all of them.
        """
        work = _Pass(self, projects, filters, system_metrics=system_metrics)
        for listing in [each for each in work.waiting if skip(each.project)]:
            work.waiting.remove(listing)
            yield listing.project, listing
        yield from work.results()

    def check_key(self) -> None:
        """Check the key, once: a key that is refused is refused for all projects. Raises RefusedKeyError.

        Any other failure of the check is only logged: it says nothing about the key.
        """
        if self._is_key_checked:
            return
        self._is_key_checked = True
        try:
            self._api.check_key(self.context.deadline)
        except RefusedKeyError:
            raise
        except (FleetgaugeError, TransientError, UnknownFieldsError) as error:
            log.info("cannot check the key: %s", error)


class _Pass:
    """One pass of a reader over projects, with connections of its own.

    A listing is `waiting` until its first request, then `started` until it is complete or failed.
    `_under_way` has the futures of requests that were sent and not yet handled.
    """

    def __init__(
        self, reader: Reader, projects: Iterable[Project], filters: Filter, *, system_metrics: bool
    ) -> None:
        context, settings, window = reader.context, reader.context.settings, reader.context.window
        self._reader, self._filters, self._pause = reader, filters, settings.pause
        self._report, self._deadline = context.report, context.deadline
        self._unneeded = unneeded(settings.grouping, system_metrics=system_metrics)
        # The server's limits hold for all shards.
        self._connections = max(1, settings.connections // context.shard.count)
        self._http = context.network.http(settings.base_url, ADDRESS, self._connections)
        self._api = Api(settings, self._http)
        self._under_way: dict[Future[Reply], _Sent] = {}
        self._ended: list[Result] = []
        # How many requests may be under way, when the next may start, and what it waits for.
        self._allowed = self._connections
        self._opens = 0.0
        self._obstacle: Exception | None = None
        self._refusals = 0  # answers in a row that were refused by the rate limit
        # Where most runs are expected: it only decides where slices are cut first.
        since = window.since - settings.window
        until = min(context.now, window.until) if window.is_live else window.until
        size = min(SYSTEM_METRICS_PAGE, settings.page_size) if system_metrics else settings.page_size
        key = UNSERVED + ("active" if system_metrics else "runs")
        remembered = _remembered(context.memory.get(key))
        names = {project: str(project) for project in projects}
        # Stored before anything is read, so that rows remembered of a project survive a run that fails to
        # read it.
        self._unserved = {name: _as_json(remembered[name]) for name in names.values() if name in remembered}
        context.memory[key] = self._unserved
        self.waiting = deque(  # those that were not requested yet
            Listing(project, Slices(size, settings.max_runs, since, until, remembered.get(name)))
            for project, name in names.items()
        )
        self._started: deque[Listing] = deque()  # the last one requested is the last

    def results(self) -> Iterator[Result]:
        """Yield the listing of each project that waits, or why there is none."""
        # One thread per connection: more would only wait for a connection.
        executor = ThreadPoolExecutor(self._connections, "wandb")
        try:
            while self.waiting or self._started:
                self._send(executor)
                if not self._ended:
                    self._wait()
                yield from self._ended
                self._ended.clear()
        finally:
            self._http.close()
            executor.shutdown(cancel_futures=True)

    def _send(self, executor: ThreadPoolExecutor) -> None:
        """Send what may be sent now: within the limit on requests, after the pause, before the deadline."""
        now = self._deadline.elapsed()
        while len(self._under_way) < self._allowed and self._opens <= now < self._deadline.seconds:
            found = self._next(now)
            if found is None:
                return
            listing, request = found
            self._opens, self._obstacle = now + self._pause, None
            missing = self._reader.missing | self._unneeded
            query = runs_query(listing.project, self._filters, request, missing, self._reader.rows)
            # The limit on the memory of answers is for all connections in sum.
            largest = MAX_RESPONSE_BYTES // self._connections
            future = executor.submit(self._api.post, *query, self._deadline, largest)
            self._under_way[future] = (listing, request, now)

    def _next(self, now: float) -> tuple[Listing, SliceRequest] | None:
        """Return the next request: first of a project that had none, then of each in turn, then of a cut."""
        # To the front, so that it is requested at once: the first page of every project shows early what it
        # costs.
        if self.waiting:
            self._started.append(self.waiting.popleft())
            self._started.rotate(1)
        for _ in range(len(self._started)):
            listing = self._started[0]
            self._started.rotate(-1)
            request = listing.slices.next(now)
            if request is not None:
                return listing, request
        # Slices that wait for a retry occupy a connection, too.
        if sum(listing.slices.outstanding for listing in self._started) < self._allowed:
            for listing in self._started:
                request = listing.slices.cut()
                if request is not None:
                    return listing, request
        return None

    def _wait(self) -> None:
        """Wait for an answer, or until something may be requested, or the time is over.

        Handles at most one answer. Once the time is over, every listing ends with a timeout.
        """
        now, end = self._deadline.elapsed(), self._deadline.seconds
        later = [due for each in self._started if (due := each.slices.due) is not None and due > now]
        # While a pause lasts nothing else can start, whatever is due.
        wake = self._opens if self._opens > now else min(later, default=end)
        if now >= end or (not self._under_way and wake >= end):
            for listing in [*self._started, *self.waiting]:
                self._end(listing, self._timeout(listing, now))
        elif self._under_way:
            is_full = len(self._under_way) >= self._allowed
            timeout = max(0.0, min(end if is_full else wake, end) - now)
            if done := wait(self._under_way, timeout, FIRST_COMPLETED).done:
                future = done.pop()
                listing, request, sent = self._under_way.pop(future)
                # Its project may have failed since: then the answer is of no use.
                if listing in self._started:
                    self._take(future, listing, request, sent)
        else:
            self._deadline.sleep(wake - now)

    def _take(self, future: Future[Reply], listing: Listing, request: SliceRequest, sent: float) -> None:
        """Add an answer, or note a failure. Whatever is wrong with it costs its project.

        Only RefusedKeyError is raised: no other project would fare better.
        """
        slices, now = listing.slices, self._deadline.elapsed()
        try:
            try:
                reply = future.result()
                listing.add(request, read_runs(self._api, listing.project, reply, self._reader.rows))
            except UnknownFieldsError as error:
                self._reader.missing = without(error, self._reader.missing, self._api.url)
                slices.release(request)
            except FailedRequestError as error:
                self._note_failure(listing, request, error, now - sent)
            else:
                self._refusals = 0
                # The rate limit is per user, and W&B announces it: waiting for its reset is cheaper than a
                # 429.
                left, reset = requests_left(reply.headers), requested_wait(reply.headers, 0)
                if left is not None and left <= len(self._under_way) and reset is not None:
                    self._delay(now + reset, SourceError(f"it takes no request for {reset:g} s"))
                done = len(slices.rows) if slices.total is None else min(len(slices.rows), slices.total)
                self._report.progress(f"listing the runs of {listing.project}", done, slices.total)
            if slices.is_done:
                self._end(listing, listing)
        except RefusedKeyError:
            raise
        except DeadlineExceededError:
            self._end(listing, self._timeout(listing, now))
        except Exception as error:
            # W&B refuses a bad key with the same status as a project: only a query without a project can
            # distinguish them.
            if isinstance(error, RefusedProjectError):
                self._reader.check_key()
            if not isinstance(error, FleetgaugeError):
                log.exception("unexpected error while reading %s", listing.project)
            self._end(listing, error)

    def _note_failure(
        self, listing: Listing, request: SliceRequest, error: FailedRequestError, took: float
    ) -> None:
        """Decide when a failed request may be sent again, and with how many connections.

        `took` is how long it lasted, in seconds. Raises SourceError where its listing cannot be completed.
        """
        log.debug("%s failed: %s", listing.project, error)
        now, failure = self._deadline.elapsed(), error.failure
        # A server that gives up after long work fails like any other; the time is what shows that it was too
        # much.
        if failure in (Failure.QUICK, Failure.ANSWERLESS) and took >= HEAVY_AFTER:
            failure = Failure.HEAVY
        listing.trouble = FailedRequestError(str(error), failure)
        if failure is Failure.RATE_LIMITED:
            self._refusals += 1
            # It does not grow again in this pass.
            self._allowed = max(1, self._allowed // 2)
        if error.wait is not None:
            # Jitter, so that a fleet does not come back at one instant.
            self._delay(now + error.wait + random.uniform(0, 0.5), error)  # noqa: S311
        elif failure is Failure.RATE_LIMITED:
            self._delay(now + backoff(self._refusals), error)
        else:
            # To find a run that cannot be served takes many failures.
            tries = (
                request.slice.answerless if failure is Failure.ANSWERLESS else min(listing.slices.failures, 2)
            )
            request.slice.due = now + backoff(tries + 1)
        listing.slices.failed(request, failure, error)

    def _delay(self, until: float, obstacle: Exception) -> None:
        """Let no request start before `until`."""
        if until > self._opens:
            self._opens, self._obstacle = until, obstacle

    def _end(self, listing: Listing, result: Listing | Exception) -> None:
        """End a listing with its result; remember the rows that could not be served."""
        slices, name = listing.slices, str(listing.project)
        # Only a complete listing disproves what was remembered.
        if isinstance(result, Listing):
            self._unserved.pop(name, None)
        if slices.unserved:
            self._unserved[name] = _as_json(slices.unserved)
            for second in sorted(slices.unserved):
                log.warning("stepped over a run of %s created at %s: W&B fails on it", name, iso(second))
        (self._started if listing in self._started else self.waiting).remove(listing)
        self._ended.append((listing.project, result))

    def _timeout(self, listing: Listing, now: float) -> FleetgaugeError:
        """Return the error for a listing that was not complete in time.

        It names what the listing waited for, and the setting that helps.
        """
        reason = self._obstacle if self._opens > now else listing.trouble
        slices = listing.slices
        if isinstance(reason, FailedRequestError) and reason.failure is Failure.HEAVY:
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


def _as_json(unserved: dict[int, list[int]]) -> dict[str, list[int]]:
    return {str(second): offsets for second, offsets in unserved.items()}


def _remembered(memory: object) -> _Unserved:
    """Return the rows that an earlier run could not get; none where the memory is damaged."""
    try:
        return TypeAdapter(_Unserved).validate_python(memory)
    except ValidationError:
        return {}
