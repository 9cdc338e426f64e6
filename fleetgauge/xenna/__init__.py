"""Record the statistics of cosmos-xenna pipelines, to W&B and to a JSONL file (docs/probes.md).

`hook` is what a recipe uses, `patch` observes pipelines, `recording` queues what they report, `stats`
computes the metrics, `wandb_log` logs them. `collectors/xenna` reads the records.
"""

from __future__ import annotations

from .hook import XennaObservabilityConfig as XennaObservabilityConfig
from .hook import XennaWandbStatsHook as XennaWandbStatsHook
from .hook import make_xenna_wandb_stats_hook as make_xenna_wandb_stats_hook
from .hook import xenna_stats as xenna_stats
from .stats import flatten_stats as flatten_stats
