"""What a backfill is made of: the samples of a span, a survey of them, and how far it came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from common.collector import Collector, Context
from common.errors import ConfigurationError, NoBackfillError
from common.intake import MAX_AGE
from common.metric import Mark, Sample
from common.span import Span
from common.state.checkpoint import Checkpoint, Saved, changed

MAX_RESUME_AGE = 86_400  # seconds after which an interrupted backfill starts again
SECONDS_TO_AGREE = 120  # that a person may need, until sending begins


@dataclass(frozen=True)
class BackfillState:
    """A backfill under way, as its checkpoint remembers it."""

    since: int
    until: int
    saved_at: int
    left_out: list[str] = field(default_factory=list)
    state: dict[str, object] = field(default_factory=dict)
    done: bool = False

    @classmethod
    def parse(cls, saved: Mapping[str, object], now: int) -> Self | None:
        """The backfill that is done, or to resume; None where there is none, or it is too old to resume."""
        try:
            # Any: a document from outside; what does not fit raises
            document: dict[str, Any] = dict(saved)
            state = cls(**document)
            return state if state.done or 0 <= now - int(state.saved_at) < MAX_RESUME_AGE else None
        except (TypeError, ValueError):
            return None


@dataclass
class Survey:
    """What a stream would send."""

    points: Counter[str] = field(default_factory=Counter)  # by metric
    series: set[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=set)
    oldest: int | None = None
    needs_historical_ingestion: bool = False

    @classmethod
    def of(cls, items: Iterable[Sample | Mark], clock: Callable[[], float]) -> Self:
        """Count what a stream holds.

        Points older than the intake takes by itself, or soon to be, need Historical Metrics Ingestion.
        """
        survey = cls()
        for item in items:
            if isinstance(item, Sample):
                survey.points[item.metric.name] += 1
                survey.series.add((item.metric.name, item.host, item.tags))
                survey.oldest = min(item.timestamp, survey.oldest or item.timestamp)
        accepted_from = clock() - MAX_AGE + SECONDS_TO_AGREE
        survey.needs_historical_ingestion = survey.oldest is not None and survey.oldest < accepted_from
        return survey

    def check_cap(self, cap: int) -> None:
        """A cap that leaves some series out of a span would leave others out of its parts."""
        if len(self.series) > cap:
            raise ConfigurationError(
                f"it would send {len(self.series):,} series, more than FLEETGAUGE_SERIES_CAP ({cap:,}): "
                "raise that, or ask for less"
            )

    def without(self, names: Collection[str]) -> Survey:
        """The same, but for some metrics."""
        points = Counter({name: number for name, number in self.points.items() if name not in names})
        return replace(self, points=points, series={one for one in self.series if one[0] not in names})


# Any: the settings model differs per collector, and only the collector itself looks inside.
def no_backfill(collector: Collector[Any]) -> NoBackfillError:
    """What to say of a collector that knows only the present."""
    return NoBackfillError(f"{collector.name} cannot answer for the past: it can only measure the present")


class SpanSamples:
    """The samples of a span that can be known, as often as they are asked for."""

    # Any: the settings model differs per collector, and only the collector itself looks inside.
    def __init__(self, collector: Collector[Any], context: Context[Any], span: Span) -> None:
        if collector.backfill is None:
            raise no_backfill(collector)
        self._recompute = collector.backfill(context, span)
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


class BackfillCheckpoint:
    """Saves how far a backfill came."""

    def __init__(self, checkpoint: Checkpoint, state: BackfillState, clock: Callable[[], float]) -> None:
        self._checkpoint = checkpoint
        self._state = state
        self._clock = clock

    def __call__(self, changes: Mapping[str, object]) -> None:
        state = changed(self._state.state, changes)
        self._state = replace(self._state, state=state, saved_at=int(self._clock()))
        self._checkpoint.save(Saved(asdict(self._state)))
