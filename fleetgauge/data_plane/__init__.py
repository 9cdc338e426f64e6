"""A wrapper around NeMo-RL's data-plane client that reports every call and the bytes outstanding."""

from __future__ import annotations

from .client import MetricsDataPlaneClient
from .events import DataPlaneEvent, EventSink, EventStatus, log_event
from .jsonl import JsonlEvents
from .operation_totals import BUCKET_ENDS_MS, OperationTotals
from .sinks import WandbEvents, chain
from .stats import DataPlaneStats, OpCounts

__all__ = [
    "BUCKET_ENDS_MS",
    "DataPlaneEvent",
    "DataPlaneStats",
    "EventSink",
    "EventStatus",
    "JsonlEvents",
    "MetricsDataPlaneClient",
    "OpCounts",
    "OperationTotals",
    "WandbEvents",
    "chain",
    "log_event",
]
