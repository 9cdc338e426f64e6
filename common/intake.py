"""The limits of Datadog's intake, as far as more than the sink must know them."""

from __future__ import annotations

MAX_AGE = 3600  # seconds: the intake silently drops points further back than this,
MAX_AHEAD = 600  # or further ahead than this
BATCH_SIZE = 10_000  # points that one payload takes; as many samples are checked and grouped at once
