"""Reads the records of xenna pipelines and yields their statistics at the timestamps of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from collectors.xenna import metrics
from common.collector import Context
from common.config.settings import Duration, named
from common.metric import Combine, Metric, Series
from common.records.collector import Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import UnusableRecordError, envelope, text, timestamp
from common.records.files import Files
from common.records.names import unit
from common.records.sums import Block, Counts, Gauges, Key, LastValues, SeriesKey
from common.times import DAY
from common.window import Window
from fleetgauge.records import Event, Json

NAME = "xenna"

_NUMBERS = {int, float}
_TOO_LARGE = 1e300


class XennaSettings(RecordSettings):
    """Settings of the xenna collector: paths of the records, and tags of the series."""

    model_config = named("FLEETGAUGE_XENNA_")

    stage_run_hash: bool = Field(
        True, description="Tag stage metrics with run_hash; off, the values of all runs are aggregated."
    )
    stalled_after: Duration = Field(600, ge=1, description="Silence after which a run counts as stalled.")


class Record(NamedTuple):
    """One record of a run. Only the last one of a run has a `status`.

    `tags` are those of the run and, from the second pipeline of a run on, its number. A `plain` record is of
    the older format, whose runs have no last record.
    """

    writer: str
    seq: int | None
    timestamp: float
    run_tags: Key
    tags: Key
    metrics: Mapping[str, Any]  # Any: each value is checked by itself
    status: str | None = None
    plain: bool = False


class _Layout(NamedTuple):
    """Where the values of records with the same keys are appended, in the order of the keys.

    Series of a single run are in `block`. Values of series that runs share are appended to `pending`, in the
    order of the series `shared`.
    """

    block: Block
    append: tuple[Callable[[float], None], ...]
    shared: tuple[Key, ...]
    pending: list[float]


class XennaGrammar:
    """Parses the records of one run of the collector and accumulates their series."""

    def __init__(self, context: Context[XennaSettings], files: Files) -> None:  # noqa: ARG002
        self.gauges = Gauges()
        self._settings = context.settings
        self._now = context.now
        self._layouts: dict[tuple[str, Key, Key], _Layout] = {}  # by writer, tags and keys
        self._shared = LastValues(_width(context.settings))
        self._ended = Counts()

    def parse(self, value: Json, path: str) -> Record | None:
        """Return the record of a JSON object, None for another kind's; raises UnusableRecordError."""
        found = value.get("metrics")
        kind, run_hash = text(value, "pipeline_kind"), text(value, "run_hash")
        if "schema_version" in value:
            known = envelope(value, NAME)
            if known is None:
                return None
            tags, number, status = _tags(kind, known.rank, run_hash), value.get("pipeline"), None
            if known.event is Event.END:
                status = "ok" if value.get("status") == "ok" else "error"
            pipeline = (f"pipeline:{number}",) if type(number) is int and number > 1 else ()
            metrics = found if isinstance(found, dict) else {}
            return Record(*known[:3], tags, (*pipeline, *tags), metrics, status)
        if isinstance(found, dict) and "timestamp" in value:
            run, tags = f"plain:{unit(path)}:{kind}:{run_hash}", _tags(kind, None, run_hash)
            return Record(run, None, timestamp(value), tags, tags, found, plain=True)
        raise UnusableRecordError("not_a_record", "metrics", found)

    def add(self, record: Record, new: bool, problems: list[Problem]) -> bool:
        """Add the values of a record that have declared keys; append the others to `problems`.

        A record that is not `new` was summed by an earlier run. Returns whether it belongs to a sum.
        """
        found = record.metrics
        if not _NUMBERS.issuperset(map(type, found.values())):
            found = _numbers(found, problems)
        name = (record.writer, record.tags, tuple(found))
        layout = self._layouts.get(name)
        if layout is None:
            layout = self._layouts[name] = self._new_layout(record, found)
        if len(layout.append) < len(found):
            problems += [("unknown_metric", key, found[key]) for key in found if not metrics.find(key)]
            found = {key: value for key, value in found.items() if metrics.find(key)}
        try:
            for append, value in zip(layout.append, found.values(), strict=True):
                append(value)
        except OverflowError:  # an integer too large for a float: leave it out
            for column in layout.block.values:
                del column[len(layout.block.times) :]
            layout.pending.clear()
            small = {key: value for key, value in found.items() if abs(value) < _TOO_LARGE}
            problems += [("not_finite", key, found[key]) for key in found.keys() - small.keys()]
            return self.add(record._replace(metrics=small), new, problems)
        layout.block.times.append(record.timestamp)
        if new:
            values = dict(zip(layout.shared, layout.pending, strict=True))
            shared = {key: value for key, value in values.items() if abs(value) < _TOO_LARGE}  # NaN is not
            problems += [("not_finite", key[0], values[key]) for key in values.keys() - shared.keys()]
            self._shared.add(" ".join((record.writer, *record.tags)), record.timestamp, shared)
            if record.status:
                self._ended.add(metrics.ENDED, (f"status:{record.status}",), None, int(record.timestamp))
        layout.pending.clear()
        return bool(layout.shared or record.status)

    def _new_layout(self, record: Record, found: Iterable[str]) -> _Layout:
        declared = [known for known in map(metrics.find, found) if known]
        is_shared = [bool(stage) and not self._settings.stage_run_hash for _, stage in declared]
        own: list[SeriesKey] = []
        shared: list[Key] = []
        for (metric, stage), shares in zip(declared, is_shared, strict=True):
            stages = (f"stage:{stage}",) if stage else ()
            if shares:
                kind = (tag for tag in record.tags if tag.startswith("pipeline_kind:"))
                shared.append((metric.name, *kind, *stages))
            else:
                own.append((metric, (*record.tags, *stages), None))
        block = self.gauges.block(own, record.writer)
        pending: list[float] = []
        arrays = iter(block.values)
        append = tuple(pending.append if shares else next(arrays).append for shares in is_shared)
        return _Layout(block, append, tuple(shared), pending)

    def sums(self, window: Window) -> Iterator[Series]:  # noqa: ARG002
        """Yield the stage series that runs share, and the number of runs that ended."""
        for (name, *tags), buckets in self._shared.buckets():
            metric = _STAGES[name]
            is_mean = metric.combines is Combine.MEAN
            values = [round(sum(found) / (len(found) if is_mean else 1), 9) for found in buckets.values()]
            yield Series(metric, tuple(tags), None, [*buckets], values)
        yield from self._ended.series()

    def present(self, records: Sequence[Record], *, complete: bool) -> Iterator[Series]:
        """Yield the age of the last record of each run that has not ended, and the number of active runs."""
        now, limit = self._now, self._settings.stalled_after
        newest: dict[Key, Record] = {}  # a restarted run has the same tags
        for record in sorted(records, key=lambda record: (record.timestamp, record.writer)):
            newest[record.run_tags] = record
        for tags, record in newest.items():
            age = max(0.0, now - record.timestamp)
            if record.status is None and age <= DAY:
                yield Series(metrics.LAST_RECORD_AGE, tags, None, (now,), (age,))
                if not record.plain:  # a plain run has no last record: it may have ended
                    yield Series(metrics.STALLED, tags, None, (now,), (int(age > limit),))
        if complete:
            running = (record for record in records if record.status is None)
            active = {record.writer for record in running if now - record.timestamp <= limit}
            yield metrics.ACTIVE(len(active), now)


_STAGES: dict[str, Metric] = {metric.name: metric for metric in metrics.STAGE.values()}


def _numbers(found: Mapping[str, Any], problems: list[Problem]) -> dict[str, float]:
    """Return the values that are numbers; append the others, except null, to `problems`."""
    for key, value in found.items():
        if value is not None and type(value) not in _NUMBERS:
            problems.append(("not_a_number" if metrics.find(key) else "unknown_metric", key, value))
    return {key: value for key, value in found.items() if type(value) in _NUMBERS}


def _tags(*values: str | None) -> tuple[str, ...]:
    return tuple(f"{name}:{value}" for name, value in zip(metrics.RUN_TAGS, values, strict=True) if value)


def _width(settings: XennaSettings) -> int:
    """Return the width of a bucket in seconds: runs share series only without run_hash."""
    return 1 if settings.stage_run_hash else settings.aggregate_interval


COLLECTOR = collector_over(
    RecordKind(
        name=NAME,
        settings=XennaSettings,
        metrics=metrics.METRICS,
        current=metrics.CURRENT,
        grammar=XennaGrammar,
        width=_width,
        watches=True,
    )
)
