"""What the data_plane collector emits."""

from __future__ import annotations

from common.metric import Combine, count, gauge

WRITER_TAGS = ("job", "rank")
PARTITION_TAGS = ("job", "partition_id", "rank")
OPERATION_TAGS = ("job", "op", "partition_id", "rank")

PERCENTS = (50, 95, 99)

COUNTED = tuple(
    count(f"data_plane.{name}", unit, text, *OPERATION_TAGS)
    for name, unit, text in (
        ("ops", "operation", "Operations that succeeded in the interval."),
        ("errors", "operation", "Operations of the interval that raised anything but a timeout."),
        ("timeouts", "operation", "Operations of the interval that timed out."),
        ("keys", "key", "Keys of the operations that succeeded."),
        ("bytes", "byte", "Bytes that operations which succeeded moved."),
    )
)
_PERCENTILE = "Time that {} % of the operations that succeeded did not exceed, to within 19 %."
TIMED = tuple(
    gauge(f"data_plane.wall_ms.{name}", "millisecond", text, *OPERATION_TAGS, combines=combines)
    for name, combines, text in (
        ("avg", Combine.NONE, "Mean time of the operations that succeeded."),
        # Of several series the highest: all of them together do not exceed it.
        *((f"p{percent}", Combine.MAX, _PERCENTILE.format(percent)) for percent in PERCENTS),
        ("max", Combine.MAX, "Longest time of an operation that succeeded."),
    )
)
OUTSTANDING = BYTES_OUTSTANDING, PEAK_BYTES_OUTSTANDING, KEYS_OUTSTANDING = tuple(
    gauge(f"data_plane.{name}", unit, text, *tags, combines=Combine.SUM)
    for name, unit, tags, text in (
        ("bytes_outstanding", "byte", PARTITION_TAGS, "Bytes that were put and not cleared."),
        ("peak_bytes_outstanding", "byte", WRITER_TAGS, "Most bytes that were ever outstanding at once."),
        ("keys_outstanding", "key", WRITER_TAGS, "Keys that were put and not cleared."),
    )
)
DOUBTS = FOREIGN_CLEARS, KEYS_OVERFLOWED = tuple(
    count(f"data_plane.{name}", "key", text, *WRITER_TAGS)
    for name, text in (
        ("foreign_clears", "Keys that clients cleared and that were not outstanding there."),
        ("keys_overflowed", "Keys that clients stopped accounting for, because there were too many."),
    )
)

METRICS = (*COUNTED, *TIMED, *OUTSTANDING, *DOUBTS)
