"""What the data_plane collector emits."""

from __future__ import annotations

from common.metric import count, gauge
from common.records.reading_metrics import IngestMetrics

WRITER_TAGS = ("job", "rank")
PARTITION_TAGS = ("job", "partition_id", "rank")
OPERATION_TAGS = ("job", "op", "partition_id", "rank")

OPS = count("data_plane.ops", "operation", "Operations that succeeded in the interval.", *OPERATION_TAGS)
ERRORS = count(
    "data_plane.errors",
    "operation",
    "Operations of the interval that raised anything but a timeout.",
    *OPERATION_TAGS,
)
TIMEOUTS = count(
    "data_plane.timeouts", "operation", "Operations of the interval that timed out.", *OPERATION_TAGS
)
KEYS = count("data_plane.keys", "key", "Keys of the operations that succeeded.", *OPERATION_TAGS)
BYTES = count("data_plane.bytes", "byte", "Bytes that operations which succeeded moved.", *OPERATION_TAGS)

WALL_AVG = gauge(
    "data_plane.wall_ms.avg", "millisecond", "Mean time of the operations that succeeded.", *OPERATION_TAGS
)
WALL_PERCENTILES = {
    percent: gauge(
        f"data_plane.wall_ms.p{percent}",
        "millisecond",
        f"Time that {percent} % of the operations that succeeded did not exceed, to within 19 %.",
        *OPERATION_TAGS,
    )
    for percent in (50, 95, 99)
}
WALL_MAX = gauge(
    "data_plane.wall_ms.max", "millisecond", "Longest time of an operation that succeeded.", *OPERATION_TAGS
)

BYTES_OUTSTANDING = gauge(
    "data_plane.bytes_outstanding", "byte", "Bytes that were put and not cleared.", *PARTITION_TAGS
)
PEAK_BYTES_OUTSTANDING = gauge(
    "data_plane.peak_bytes_outstanding",
    "byte",
    "Most bytes that were ever outstanding at once; of several clients, the sum of their peaks.",
    *WRITER_TAGS,
)
KEYS_OUTSTANDING = gauge(
    "data_plane.keys_outstanding", "key", "Keys that were put and not cleared.", *WRITER_TAGS
)

READING = IngestMetrics("data_plane")

LIVE_ONLY = frozenset(READING.metrics)  # true at the time of a tick itself

METRICS = (
    *(OPS, ERRORS, TIMEOUTS, KEYS, BYTES),
    *(WALL_AVG, *WALL_PERCENTILES.values(), WALL_MAX),
    *(BYTES_OUTSTANDING, PEAK_BYTES_OUTSTANDING, KEYS_OUTSTANDING),
    *READING.metrics,
)
