"""One collector's answer for a span of the past: computed, surveyed, agreed to and delivered.

A backfill keeps a checkpoint of its own, under what was asked for, and never touches the one of the live
ticks. It reports no self-metrics: those tell how the live ticks fare.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from common import checkpoints
from common.checkpoints import Checkpoint, Saved, changed
from common.collector import Collector, Context
from common.configuration import Configuration
from common.datadog import OLDEST
from common.delivery import Delivery, Sink
from common.errors import ConfigurationError, Declined, NoPast
from common.metric import Mark, Sample
from common.protocol import Backfill, Mode
from common.run import Run
from common.settings import CollectorSettings
from common.span import Span

if TYPE_CHECKING:
    from common.history import History

GOES_ON_FOR = 86_400  # seconds after which an interrupted backfill is not gone on with but begun anew

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begun:
    """A backfill under way, as its checkpoint remembers it."""

    since: int
    until: int
    began: int
    left_out: list[str] = field(default_factory=list)
    state: dict[str, object] = field(default_factory=dict)

    @classmethod
    def parse(cls, saved: Mapping[str, object], now: int) -> Self | None:
        """What was begun and can be gone on with; None where nothing was, or too long ago."""
        try:
            # Any: a document from outside; what does not fit raises
            document: dict[str, Any] = dict(saved)
            begun = cls(**document)
            return begun if 0 <= now - int(begun.began) < GOES_ON_FOR else None
        except (TypeError, ValueError):
            return None


@dataclass
class Survey:
    """What a stream would send."""

    points: Counter[str] = field(default_factory=Counter)  # by metric
    series: set[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=set)
    oldest: int | None = None
    newest: int | None = None

    @classmethod
    def of(cls, items: Iterable[Sample | Mark]) -> Self:
        """Count what a stream holds."""
        survey = cls()
        for item in items:
            if isinstance(item, Sample):
                survey.points[item.metric.name] += 1
                survey.series.add((item.metric.name, item.host, item.tags))
                survey.oldest = min(item.timestamp, survey.oldest or item.timestamp)
                survey.newest = max(item.timestamp, survey.newest or item.timestamp)
        return survey

    def needs_history(self, now: float) -> bool:
        """Whether any of it is older than the intake takes without being told to."""
        return self.oldest is not None and self.oldest < now - OLDEST

    def without(self, names: Collection[str]) -> Survey:
        """The same, but for some metrics."""
        points = Counter({name: number for name, number in self.points.items() if name not in names})
        return replace(self, points=points, series={one for one in self.series if one[0] not in names})


class Past:
    """The samples of a span that can be known, as often as they are asked for."""

    # Any: the settings model differs per collector, and only the collector itself looks inside.
    def __init__(self, collector: Collector[Any], context: Context[Any], span: Span) -> None:
        if collector.past is None:
            raise NoPast(
                f"the past of {collector.name} cannot be asked: it can only look at what is there now"
            )
        self._recompute = collector.past(context, span)
        self._live_only = collector.live_only
        self._span = span
        self.left_out: frozenset[str] = frozenset()

    def items(self) -> Iterator[Sample | Mark]:
        """Everything of the span, but for metrics that are left out."""
        for item in self._recompute():
            if isinstance(item, Mark) or (
                self._span.holds(item)
                and item.metric not in self._live_only
                and item.metric.name not in self.left_out
            ):
                yield item


class BackfillRun(Run):
    """A run that answers for a span of the past."""

    @property
    def _asked(self) -> Backfill:
        if self._job.backfill is None:
            raise ValueError("a backfill needs a span")
        return self._job.backfill

    def _work(
        self, configuration: Configuration, collector: Collector[Any], settings: CollectorSettings
    ) -> None:
        step = self._job.step or configuration.core.step
        whole = Span(self._asked.since, self._asked.until, step)
        span = whole.part(self._asked.part, self._asked.parts)
        if self._job.mode is Mode.DRY:
            past = Past(collector, self._context(configuration.core, settings, {}, span.until, None), span)
            self._sink = sink = self._open_sink(configuration, collector, span.since)
            self._deliver(collector, self._counted(past.items(), "computing", None), Delivery(sink, None))
            return
        key = f"backfill-{collector.name}-{_digest(self._asked, step, settings, configuration)}"
        with self._hold_own(configuration, key) as checkpoint:
            self._push(configuration, collector, settings, checkpoint, span)

    def _push(
        self,
        configuration: Configuration,
        collector: Collector[Any],
        settings: CollectorSettings,
        checkpoint: Checkpoint,
        span: Span,
    ) -> None:
        begun = Begun.parse(checkpoint.saved.state, self._job.now) or Begun(
            span.since, span.until, self._job.now
        )
        span = Span(begun.since, begun.until, span.step)
        if begun.state:
            log.info("going on with what was begun: %s", span)
        context = self._context(configuration.core, settings, begun.state, span.until, None)
        past = Past(collector, context, span)
        survey = self._survey(past)
        past.left_out = self._preflight(configuration, survey)
        if set(begun.left_out) - past.left_out:
            log.info("metrics that were left out before can be sent now: beginning anew")
            checkpoint.save(Saved())
            self._push(configuration, collector, settings, checkpoint, span)
            return
        survey = survey.without(past.left_out)
        self._agree(survey, span)
        oldest = span.since if survey.needs_history(self._clock()) else None
        self._sink = sink = self._datadog_sink(configuration, self._deadline, oldest)
        remember = _Memory(checkpoint, replace(begun, left_out=sorted(past.left_out)))
        with self._told_how_to_go_on(configuration):
            total = survey.points.total()
            items = self._counted(past.items(), "sending", total, sink)
            self._deliver(collector, items, Delivery(sink, remember))
            self._parent.progress("sending", sink.points_sent, total)
        if not self._tally.lost:  # a project that could not be read is what is left to do
            checkpoint.save(Saved())

    def _survey(self, past: Past) -> Survey:
        """Look at all that would be sent. What is met on the way is counted when it is sent."""
        dropped, lost = self._tally.dropped.copy(), list(self._tally.lost)
        survey = Survey.of(self._counted(past.items(), "computing", None))
        self._tally.dropped, self._tally.lost[:] = dropped, lost
        return survey

    def _preflight(self, configuration: Configuration, survey: Survey) -> frozenset[str]:
        """The metrics to leave out because Datadog would drop their past in silence.

        Raises where that was not agreed to: a backfill must not succeed into the void.
        """
        if not survey.needs_history(self._clock()):
            return frozenset()
        from common.history import History, refusal

        history = History(configuration.datadog(), configuration.core, self._deadline, clock=self._clock)
        off = sorted(set(survey.points) - history.enabled(survey.points))
        refused = self._enable(history, off) if self._asked.enable else {}
        if self._asked.only_enabled:
            return frozenset(refused if self._asked.enable else off)
        if refused:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
            raise ConfigurationError(
                f"Historical Metrics Ingestion could not be turned on for {reasons}. "
                "Nothing was sent; --only-enabled leaves these out"
            )
        if off and not self._asked.enable:
            asked = f"run_collector.py {self._job.collector} {self._asked.asked} --push"
            raise ConfigurationError(refusal(off, f"{asked} --enable-historical"))
        return frozenset()

    @staticmethod
    def _enable(history: History, names: Iterable[str]) -> dict[str, str]:
        """Turn it on where Datadog allows; why not, for the others."""
        refused = {}
        for name in names:
            if reason := history.enable(name):
                refused[name] = reason
            else:
                log.info("%s: Historical Metrics Ingestion is on now", name)
        return refused

    def _agree(self, survey: Survey, span: Span) -> None:
        """Say what will be sent, and where a person is there, wait for a yes."""
        from common.history import visible

        points = survey.points.total()
        text = f"{points:,} points in {len(survey.series):,} series, {span}"
        if points and survey.oldest is not None:
            text += f"; visible {visible(self._clock() - survey.oldest)}"
        if not self._asked.ask or not points:
            log.info("%s", text)
        elif not self._parent.agrees(text):
            raise Declined("nothing was sent: it was not agreed to")

    def _counted(
        self, items: Iterator[Sample | Mark], doing: str, total: int | None, sink: Sink | None = None
    ) -> Iterator[Sample | Mark]:
        """The same items, with progress told at every mark: what a sink took, or what went by."""
        passed = 0
        for item in items:
            passed += isinstance(item, Sample)
            yield item
            if isinstance(item, Mark):
                self._parent.progress(doing, sink.points_sent if sink else passed, total)

    @contextmanager
    def _told_how_to_go_on(self, configuration: Configuration) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if configuration.core.checkpoints:
                log.warning("not all was sent; the same command goes on from here for a day")
            else:
                log.warning(
                    "not all was sent; the same command begins anew, which changes nothing "
                    "(with FLEETGAUGE_CHECKPOINTS it would go on from here)"
                )
            raise

    def _hold_own(self, configuration: Configuration, key: str) -> Checkpoint:
        """The backfill's own checkpoint, or none where there is no store."""
        place = checkpoints.store(configuration.core)
        return place.open(key) if place else checkpoints.Unkept()


class _Memory:
    """Saves how far a backfill came."""

    def __init__(self, checkpoint: Checkpoint, begun: Begun) -> None:
        self._checkpoint = checkpoint
        self._begun = begun

    def __call__(self, changes: Mapping[str, object]) -> None:
        self._begun = replace(self._begun, state=changed(self._begun.state, changes))
        self._checkpoint.save(Saved(asdict(self._begun)))


def _digest(asked: Backfill, step: int, settings: CollectorSettings, configuration: Configuration) -> str:
    """What an interrupted backfill is known by: all that decides what is sent where, secrets masked."""
    core, datadog = configuration.core, configuration.datadog()
    told = [asked.asked, asked.part, asked.parts, step, settings.model_dump_json()]
    told += [core.env, core.service, datadog.address]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=6).hexdigest()
