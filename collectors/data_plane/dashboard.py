"""The dashboard of the data plane."""

from __future__ import annotations

from collectors.data_plane import metrics as m
from common.dashboard import Dashboard, bad_above, heat_map, line, table, toplist, value
from common.records.ingest import record_views

_OPS, *_FAILED, _KEYS, _BYTES = m.COUNTED
_AVG, _P50, _P95, _P99, _MAX = m.TIMED

DATA_PLANE = Dashboard(
    "data-plane",
    "Data plane",
    "How the data plane of reinforcement learning keeps up: operations, how long they take, and what is put "
    "and not cleared. Of several series a percentile shown is the highest of theirs. Bytes "
    "outstanding are sent for jobs with a single client that writes.",
    {
        "Overview": (
            value("Operations", _OPS),
            value("Error rate", *_FAILED, share_of=(_OPS, *_FAILED), colours=bad_above(1)),
            value("Bytes outstanding", m.BYTES_OUTSTANDING),
        ),
        "Operations": (
            line("Operations by type", _OPS, by=("op",)),
            line("Errors and timeouts by type", *_FAILED, by=("op",)),
            line("Bytes moved by type", _BYTES, by=("op",)),
            line("Keys by type", _KEYS, by=("op",)),
        ),
        "Latency": (
            line("Latency p50/p95/p99/max", _P50, _P95, _P99, _MAX),
            line("Latency p99 by operation", _P99, by=("op",)),
            table("Latency mean", _AVG, by=m.OPERATION_TAGS),
            heat_map("Latency p95 by rank", _P95, by=("rank",)),
        ),
        "Outstanding data": (
            line("Bytes outstanding by job", m.BYTES_OUTSTANDING, by=("job",)),
            toplist("Bytes outstanding by partition", m.BYTES_OUTSTANDING, by=("job", "partition_id")),
            line("Peak bytes outstanding by job", m.PEAK_BYTES_OUTSTANDING, by=("job",)),
            line("Keys outstanding by job", m.KEYS_OUTSTANDING, by=("job",)),
            line("Incomplete data by job", m.FOREIGN_CLEARS, m.KEYS_OVERFLOWED, by=("job",)),
        ),
    },
    ("docs/data-plane.md", "docs/metrics.md"),
)

VIEWS = record_views("data_plane", DATA_PLANE)
