"""How a collector's reading of its files went: the metrics named `<prefix>.ingest.…`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.metric import Combine, Sample, gauge

if TYPE_CHECKING:  # whoever declares metrics needs nothing of how files are read
    from common.records.tail import Tail

_DECLARED = (
    ("files", "file", "Files that the configured paths stand for."),
    ("records", "record", "Records read in this tick."),
    ("bad_records", "record", "Lines of this tick that could not be used."),
    ("other_kind", "record", "Records of this tick that are of another kind, and not for this collector."),
    ("bytes", "byte", "Bytes read in this tick."),
    ("backlog_bytes", "byte", "Bytes left for the next tick: this one had its share."),
    ("lag_seconds", "second", "How long the oldest file with a backlog has waited; 0 without one."),
)


class IngestMetrics:
    """The metrics of a collector's own reading."""

    def __init__(self, prefix: str) -> None:
        self.metrics = tuple(
            gauge(
                f"{prefix}.ingest.{name}",
                unit,
                text,
                "shard",
                combines=Combine.MAX if name == "lag_seconds" else Combine.SUM,
            )
            for name, unit, text in _DECLARED
        )

    def samples(self, tail: Tail, unusable: int, other_kind: int, now: int) -> Iterator[Sample]:
        """How a tick's reading went, once it is over; `unusable` lines were objects and still no records.

        Where no path can be read, what is left to read is not known.
        """
        lag = 0 if tail.waiting_since is None else max(0.0, now - tail.waiting_since)
        records, bad = tail.taken - unusable - other_kind, sum(tail.damage.values()) + unusable
        read, left = (tail.files_found, records, bad, other_kind, tail.bytes), (tail.backlog_bytes, lag)
        for metric, value in zip(self.metrics, read if tail.blind else read + left, strict=False):
            yield metric(value, now)
