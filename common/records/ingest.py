"""How the reading of a collector's files went: the metrics `<kind>.ingest.…`, and how they are looked at."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from common.dashboard import Condition, Dashboard, Monitor, Views, bars, line
from common.metric import Combine, Metric, count, gauge


@cache
def ingest_metrics(kind: str) -> tuple[Metric, Metric, Metric, Metric, Metric]:
    """Declare the metrics about reading one kind: files, lag, records, bad lines, records of other kinds."""
    lag = "Longest time from a record to the write that brought it into its file."
    return (
        gauge(f"{kind}.ingest.files", "file", "Files that the configured paths match.", combines=Combine.SUM),
        gauge(f"{kind}.ingest.lag_seconds", "second", lag, combines=Combine.MAX),
        count(f"{kind}.ingest.records", "record", "Records read since the run before."),
        count(f"{kind}.ingest.bad_records", "record", "Lines read since the run before that cannot be used."),
        count(f"{kind}.ingest.other_kind", "record", "Records of another kind, read since the run before."),
    )


def record_views(kind: str, dashboard: Dashboard, *monitors: Monitor) -> Views:
    """Return the views of a collector, with those of its reading."""
    files, lag, *lines = ingest_metrics(kind)
    late = Monitor(
        f"{kind.replace('_', '-')}-late",
        f"Records of {kind} come late",
        # Nodes report at different seconds: in a shorter bucket those in time would hide a late one.
        Condition((lag,), *("min", "1h", ">", 900.0), formula="{}.rollup(max, 900)"),
        "half of the default lookback; records later than the lookback are not sent",
        f"Records of {kind} reach their files {{{{value}}}} s after the time they are from.",
        "A run reads as far back as its lookback. Later records are missing on the dashboards.",
        f"Let the writers flush or upload sooner, or raise FLEETGAUGE_{kind.upper()}_LOOKBACK (at "
        "most 1h). A backfill sends what is missing.",
        "docs/records.md",
    )
    reading = (line("Record lag", lag), bars("Records read", *lines), line("Files", files))
    sections = {**dashboard.sections, "Reading": reading}
    return Views((replace(dashboard, sections=sections),), (*monitors, late))
