"""Records what a cosmos-xenna pipeline says about itself, to W&B and to a JSONL file (docs/probes.md)."""

from __future__ import annotations

from .hook import XennaObservabilityConfig, XennaWandbStatsHook, make_xenna_wandb_stats_hook

__all__ = ["XennaObservabilityConfig", "XennaWandbStatsHook", "make_xenna_wandb_stats_hook"]
