"""Wrap NeMo-RL's data-plane client: report every call, and the bytes that are outstanding.

`client` is the wrapper, `stats` and `ledger` count, `row_bytes` measures a batch, `sinks` sends events to W&B
or to record files. The records are described in docs/data-plane.md and read by `collectors/data_plane`.
"""

from __future__ import annotations

from .client import MetricsDataPlaneClient as MetricsDataPlaneClient
from .events import DataPlaneEvent as DataPlaneEvent
from .events import EventSink as EventSink
from .events import EventStatus as EventStatus
from .events import log_event as log_event
from .operation_totals import BUCKET_ENDS_MS as BUCKET_ENDS_MS
from .operation_totals import OperationTotals as OperationTotals
from .sinks import JsonlEvents as JsonlEvents
from .sinks import WandbEvents as WandbEvents
from .sinks import chain as chain
from .stats import DataPlaneStats as DataPlaneStats
from .stats import OpCounts as OpCounts
