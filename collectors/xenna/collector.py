"""Tails the files of xenna pipelines and turns their records into gauges at the records' own times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from pydantic import Field

from collectors.xenna import metrics as emitted
from collectors.xenna.record import KIND, Record, interpret
from common.collector import Context
from common.config.settings import Duration, named
from common.metric import Metric, Sample, sample
from common.names import normalise_tag
from common.records.collector import collector_over
from common.records.engine import Ingest
from common.records.entry import Entry
from common.records.envelope import text
from common.records.paths import first_name
from common.records.settings import RecordSettings
from common.records.window import Tick
from common.times import DAY
from fleetgauge.records import Json, file_name

MAX_KEYS = 10_000  # keys remembered of runs with the same tags


class XennaSettings(RecordSettings):
    """Where the records are, and how runs are told apart."""

    model_config = named("FLEETGAUGE_XENNA_")

    stage_run_hash: bool = Field(
        True, description="Tag stage metrics with run_hash; off, the values of all runs are aggregated."
    )
    stalled_after: Duration = Field(600, ge=1, description="Silence after which a run counts as stalled.")


class XennaIngest(Ingest[XennaSettings, Record]):
    """One tick over the records of pipelines."""

    name, metrics, live_only, reading = KIND, emitted.METRICS, emitted.LIVE_ONLY, emitted.READING
    has_ends = True
    unit_in_file = True

    def __init__(self, context: Context[XennaSettings], tick: Tick, known: None = None) -> None:
        super().__init__(context, tick, known)
        self._keys: dict[tuple[str, ...], dict[str, tuple[Metric, tuple[str, ...]] | None]] = {}  # by tags
        self._tags: dict[tuple[str, ...], tuple[str, ...]] = {}

    @classmethod
    def adds_up(cls, settings: XennaSettings) -> Mapping[str, str]:
        stages = () if settings.stage_run_hash else emitted.STAGE.values()
        return {keyed.metric.name: keyed.combine for keyed in stages}

    @classmethod
    def silence(cls, settings: XennaSettings) -> int:
        return settings.stalled_after

    def family(self, path: str) -> str:
        return first_name(path)

    @classmethod
    def unit(cls, path: str, first: Json) -> str:
        """A run that is started again writes another file, named after it; what has its hash is together."""
        run_hash = text(first, "run_hash")
        names = "|".join(re.escape(file_name(said)) for said in (text(first, "run_id"), run_hash) if said)
        base = super().unit(path, first)  # which rotation leaves as it is
        named = run_hash and re.search(rf"(?<![A-Za-z0-9])({names})(?![A-Za-z0-9])", base)
        return cls.fed_by(first) if named else base

    @classmethod
    def fed_by(cls, first: Json) -> str:
        return cls.series_of((f"run_hash:{text(first, 'run_hash')}",), None)

    @classmethod
    def series_of(cls, tags: Sequence[str], host: str | None) -> str:  # noqa: ARG003
        """The tag as it is stored: runs whose hashes differ only in what Datadog drops share their series."""
        return next((normalise_tag(tag) for tag in tags if tag.startswith("run_hash:") and tag[9:]), "")

    def interpret(self, entry: Entry) -> Record | None:
        return interpret(entry, self.head)

    def ends(self, record: Record) -> bool:
        return record.ended_well is not None

    def points(self, record: Record) -> int:
        return len(record.metrics)

    def hear(self, record: Record) -> None:
        super().hear(record)
        more = self.owners.lives[record.writer].more
        more["plain"] = record.plain
        if record.ended_well is not None:
            more["ok"] = record.ended_well

    def samples(self, record: Record) -> Sequence[Sample]:
        """The numbers of a record under keys that are declared; what a key becomes is worked out once."""
        keys, at, samples = self._keys.setdefault(record.group, {}), int(record.timestamp), []
        for key, value in record.metrics.items():
            if value is None:
                continue
            if key not in keys:
                if len(keys) >= MAX_KEYS:
                    keys.clear()
                keys[key] = self._find(record, key)
            found = keys[key]
            if found is None:
                self.drop("unknown_metric", 1, key, value)
            elif type(value) is float or type(value) is int:
                samples.append(sample((found[0], value, at, found[1], None)))
            else:
                self.drop("not_a_number", 1, key, value)
        return samples

    def _find(self, record: Record, key: str) -> tuple[Metric, tuple[str, ...]] | None:
        """The metric and the tags of a key; None for a key nobody declared."""
        declared = emitted.find(key)
        if declared is None:
            return None
        keyed, stage = declared
        tags = record.group
        if stage is not None:
            if not self.settings.stage_run_hash:
                tags = (f"pipeline_kind:{record.pipeline_kind}",) if record.pipeline_kind else ()
            tags = (*tags, f"stage:{stage}")
        return keyed.metric, self._tags.setdefault(tags, tags)

    def present(self, *, sums: bool) -> Iterator[Sample]:
        """How the runs are, now. A run that has ended, or was started again, is not sent any more.

        With files left for the next tick nobody knows; with some that cannot be read, of runs just heard of.
        """
        if self.behind:
            return
        yield from self.apart(self._newest(self.owners.lives if sums else self.owners.heard))
        if sums:
            yield from self.together(self._sums())

    def _newest(self, known: Collection[str]) -> Iterator[Sample]:
        now, limit, shards = self.context.now, self.settings.stalled_after, self.context.shard.count > 1
        for name, life in self.owners.newest():
            age = max(0.0, now - life.last)
            # Else it may have gone on in a file of another shard.
            whole = not shards or not self.series_of(life.group, None) or self.of_one_unit(life.group, None)
            if life.ended is None and age <= DAY and whole and name in known:
                yield Sample(emitted.LAST_RECORD_AGE, age, now, life.group, None)
                if not life.more.get("plain"):  # the plain form has no end: silence may be one
                    yield Sample(emitted.STALLED, int(age > limit), now, life.group, None)

    def _sums(self) -> Iterator[Sample]:
        now, limit = self.context.now, self.settings.stalled_after
        runs = self.owners.lives.values()
        ended = [bool(run.more.get("ok")) for run in runs if run.ended is not None and run.ended > now - DAY]
        yield emitted.ACTIVE(sum(run.ended is None and now - run.last <= limit for run in runs), now)
        yield emitted.ENDED_OK(ended.count(True), now)
        yield emitted.ENDED_ERROR(ended.count(False), now)


COLLECTOR = collector_over(XennaIngest, XennaSettings)
