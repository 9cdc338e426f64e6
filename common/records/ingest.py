"""How the reading of a collector's files went: the metrics `<kind>.ingest.…`, and how they are looked at."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from common.dashboard import Condition, Monitor, Section, bars, line
from common.metric import Combine, Metric, count, gauge

_PAGE = "docs/records.md"


class IngestMetrics(NamedTuple):
    """The metrics about the reading of one collector's files."""

    files: Metric
    lag: Metric
    records: Metric
    bad_records: Metric
    other_kind: Metric


@cache
def ingest_metrics(kind: str) -> IngestMetrics:
    """Declare the metrics about reading one kind of records."""
    return IngestMetrics(
        gauge(f"{kind}.ingest.files", "file", "Files that the configured paths match.", combines=Combine.SUM),
        gauge(
            f"{kind}.ingest.lag_seconds",
            "second",
            "Longest time from a record to the write that brought it into its file.",
            combines=Combine.MAX,
        ),
        count(f"{kind}.ingest.records", "record", "Records read since the run before."),
        count(f"{kind}.ingest.bad_records", "record", "Lines read since the run before that cannot be used."),
        count(f"{kind}.ingest.other_kind", "record", "Records of another kind, read since the run before."),
    )


def ingest_section(title: str, kind: str) -> Section:
    """Return the widgets about reading one kind of records."""
    metrics = ingest_metrics(kind)
    return Section(
        title,
        (
            line("Record lag", metrics.lag),
            bars("Records read", metrics.records, metrics.bad_records, metrics.other_kind),
            line("Files", metrics.files),
        ),
    )


def late_monitor(kind: str) -> Monitor:
    """Return the monitor for records that reach their files late."""
    return Monitor(
        f"{kind.replace('_', '-')}-late",
        f"Records of {kind} come late",
        Condition((ingest_metrics(kind).lag,), *("min", "1h", ">", 900.0)),
        "half of the default lookback; records later than the lookback are not sent",
        f"Records of {kind} reach their files {{{{value}}}} s after the time they are from.",
        "A run reads as far back as its lookback. Later records are missing on the dashboards.",
        f"Let the writers flush or upload sooner, or raise FLEETGAUGE_{kind.upper()}_LOOKBACK (at "
        "most 1h). A backfill sends what is missing.",
        _PAGE,
    )
