"""Record the statistics of cosmos-xenna pipelines, to W&B and to a JSONL file (docs/probes.md)."""

from __future__ import annotations

from .hook import (
    XennaObservabilityConfig,
    XennaWandbStatsHook,
    make_xenna_wandb_stats_hook,
    xenna_stats,
)
from .stats import flatten_stats

__all__ = [
    "XennaObservabilityConfig",
    "XennaWandbStatsHook",
    "flatten_stats",
    "make_xenna_wandb_stats_hook",
    "xenna_stats",
]
