"""How a collector's reading of its files went: the metrics named `<prefix>.ingest.…`."""

from __future__ import annotations

from collections.abc import Iterator

from common.metric import Metric, Sample, gauge
from common.records.tail import Tail


class IngestMetrics:
    """The metrics of a collector's own reading."""

    def __init__(self, prefix: str) -> None:
        def declared(name: str, unit: str, meaning: str) -> Metric:
            return gauge(f"{prefix}.ingest.{name}", unit, meaning)

        self._files = declared("files", "file", "Files that the configured paths stand for.")
        self._records = declared("records", "record", "Records read in this tick.")
        self._bad_records = declared("bad_records", "record", "Lines of this tick that could not be used.")
        self._other_kind = declared(
            "other_kind",
            "record",
            "Records of this tick that are of another kind, and not for this collector.",
        )
        self._bytes = declared("bytes", "byte", "Bytes read in this tick.")
        self._backlog = declared(
            "backlog_bytes", "byte", "Bytes left for the next tick: this one had its share."
        )
        self._lag = declared(
            "lag_seconds", "second", "How long the oldest file with a backlog has waited; 0 without one."
        )
        self.metrics = (
            *(self._files, self._records, self._bad_records, self._other_kind),
            *(self._bytes, self._backlog, self._lag),
        )

    def samples(self, tail: Tail, unusable: int, other_kind: int, now: int) -> Iterator[Sample]:
        """How a tick's reading went, once it is over; `unusable` lines were objects and still no records."""
        yield self._files(tail.files_found, now)
        yield self._records(tail.taken - unusable - other_kind, now)
        yield self._bad_records(sum(tail.damage.values()) + unusable, now)
        yield self._other_kind(other_kind, now)
        yield self._bytes(tail.bytes, now)
        yield self._backlog(tail.backlog_bytes, now)
        yield self._lag(0 if tail.waiting_since is None else max(0.0, now - tail.waiting_since), now)
