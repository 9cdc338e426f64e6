"""Reads the records of xenna pipelines and yields their statistics at the timestamps of the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import hypot
from sys import float_info
from typing import Any, NamedTuple

from pydantic import Field

from collectors.xenna import metrics
from common.collector import Context
from common.config.settings import Duration, named
from common.metric import Combine, Metric, Series
from common.records.collector import Grammar, Problem, RecordKind, RecordSettings, collector_over
from common.records.envelope import Envelope, UnusableRecordError, envelope, text, timestamp
from common.records.files import Files, unit
from common.records.sums import Block, Key, LastValues, PointBuffer, SeriesKey
from common.times import DAY
from fleetgauge.records import Event, Json

NAME = "xenna"

_NUMBERS = {int, float}
_LARGEST = float_info.max
_STAGES: dict[str, Metric] = {metric.name: metric for metric in metrics.STAGE.values()}


class XennaSettings(RecordSettings):
    """Settings of the xenna collector: paths of the records, and tags of the series."""

    model_config = named("FLEETGAUGE_XENNA_")

    stage_run_hash: bool = Field(
        True, description="Tag stage metrics with run_hash; off, the values of all runs are aggregated."
    )
    stalled_after: Duration = Field(600, ge=1, description="Silence after which a run counts as stalled.")

    @property
    def width(self) -> int:
        """The width of a bucket in seconds: runs share series only without run_hash."""
        return 1 if self.stage_run_hash else self.aggregate_interval


class Statistics(NamedTuple):
    """What a record says of its run. Only the last record of a run has a `status`.

    `tags` are those of the run and, from the second pipeline of a run on, its number.
    """

    run_tags: Key
    tags: Key
    metrics: Mapping[str, Any]  # Any: each value is checked by itself
    status: str | None = None


class XennaGrammar(Grammar[Statistics]):
    """Parses the records of one run of the collector and accumulates their series."""

    def __init__(self, context: Context[XennaSettings], files: Files, points: PointBuffer) -> None:  # noqa: ARG002
        self._points = points
        self._settings = context.settings
        self._now = context.now
        # By writer and series; by writer, tags and keys where a record that has those is usable completely.
        self._blocks: dict[tuple[object, ...], Block] = {}
        self._shared = LastValues(context.settings.width)

    def parse(self, value: Json, path: str) -> tuple[Envelope, Statistics] | None:
        """Return the record of a JSON object, None for another kind's; raises UnusableRecordError.

        A record of the older format has no envelope, and its runs have no last record.
        """
        found = value.get("metrics")
        kind, run_hash = text(value, "pipeline_kind"), text(value, "run_hash")
        if "schema_version" in value:
            known = envelope(value, NAME)
            if known is None:
                return None
            number, status = value.get("pipeline"), None
            if known.event is Event.END:
                status = "ok" if value.get("status") == "ok" else "error"
            run_tags = _tags(kind, known.rank, run_hash)
            tags = (f"pipeline:{number}", *run_tags) if type(number) is int and number > 1 else run_tags
            return known, Statistics(run_tags, tags, found if isinstance(found, dict) else {}, status)
        if isinstance(found, dict) and "timestamp" in value:
            run, tags = f"plain:{unit(path)}:{kind}:{run_hash}", _tags(kind, "", run_hash)
            return Envelope(run, None, timestamp(value)), Statistics(tags, tags, found)
        raise UnusableRecordError("not_a_record", "metrics", found)

    def add(self, envelope: Envelope, body: Statistics, new: bool, problems: list[Problem]) -> bool:
        """Add the values of a record that have declared keys; append the others to `problems`.

        A record that is not `new` was summed by an earlier run. Returns whether it belongs to a sum.
        """
        if new and body.status:
            self._points.count(metrics.ENDED, (f"status:{body.status}",), None, int(envelope.timestamp))
        writer, values = envelope.writer, body.metrics.values()
        name = (writer, body.tags, *body.metrics)
        block = self._blocks.get(name)
        with suppress(OverflowError):  # an integer that no float represents
            # The norm of finite numbers that are not huge is finite, and that of NaN is not.
            if block and _NUMBERS.issuperset(map(type, values)) and hypot(*values) <= _LARGEST:
                block.add(envelope.timestamp, values)
                return bool(body.status)
        own, shared = self._split(body, problems)
        if own:
            block = self._blocks.get((writer, *own))
            if block is None:
                block = self._blocks[writer, *own] = self._points.block([*own], writer)
            block.add(envelope.timestamp, own.values())
            if len(own) == len(values):
                self._blocks[name] = block
        if new:
            self._shared.add(" ".join((writer, *body.tags)), envelope.timestamp, shared)
        return bool(shared or body.status)

    def _split(
        self, body: Statistics, problems: list[Problem]
    ) -> tuple[dict[SeriesKey, float], dict[Key, float]]:
        """Return the values of series of a single run, and of those that runs share."""
        own: dict[SeriesKey, float] = {}
        shared: dict[Key, float] = {}
        kind = [tag for tag in body.tags if tag.startswith("pipeline_kind:")]
        for key, value in body.metrics.items():
            metric, stage = metrics.find(key) or (None, "")
            if value is None:
                continue
            if metric is None:
                problems.append(("unknown_metric", key, value))
            elif type(value) not in _NUMBERS:
                problems.append(("not_a_number", key, value))
            elif not abs(value) <= _LARGEST:  # NaN is not
                problems.append(("not_finite", key, value))
            elif not stage:
                own[metric, body.tags, None] = value
            elif self._settings.stage_run_hash:
                own[metric, (*body.tags, f"stage:{stage}"), None] = value
            else:
                # A float, because the sum of integers may be larger than any.
                shared[metric.name, *kind, f"stage:{stage}"] = float(value)
        return own, shared

    def sums(self) -> Iterator[Series]:
        """Yield the stage series that runs share."""
        for (name, *tags), buckets in self._shared.buckets():
            metric = _STAGES[name]
            is_mean = metric.combines is Combine.MEAN
            values = [round(sum(found) / (len(found) if is_mean else 1), 9) for found in buckets.values()]
            yield Series(metric, tuple(tags), None, [*buckets], values)

    def present(self, records: Sequence[tuple[Envelope, Statistics]], *, complete: bool) -> Iterator[Series]:
        """Yield the age of the last record of each run that has not ended, and the number of active runs."""
        now, limit, active = self._now, self._settings.stalled_after, 0
        newest: dict[Key, tuple[Envelope, Statistics]] = {}  # a restarted run has the same tags
        for record in sorted(records, key=lambda record: (record[0].timestamp, record[0].writer)):
            newest[record[1].run_tags] = record
            active += record[1].status is None and now - record[0].timestamp <= limit
        for tags, (last, body) in newest.items():
            age = max(0.0, now - last.timestamp)
            if body.status is None and age <= DAY:
                yield Series(metrics.LAST_RECORD_AGE, tags, None, (now,), (age,))
                if last.event:  # a run of the older format has no last record: it may have ended
                    yield Series(metrics.STALLED, tags, None, (now,), (int(age > limit),))
        if complete:
            yield metrics.ACTIVE(active, now)


def _tags(*values: str) -> Key:
    return tuple(f"{name}:{value}" for name, value in zip(metrics.RUN_TAGS, values, strict=True) if value)


_KIND = RecordKind(NAME, XennaSettings, metrics.METRICS, XennaGrammar, current=metrics.CURRENT, watches=True)
COLLECTOR = collector_over(_KIND)
