"""The limits of Datadog's intake, as far as more than the sink must know them."""

from __future__ import annotations

MAX_AGE = 3600  # seconds: the intake silently drops points further back than this,
MAX_AHEAD = 600  # or further ahead than this
BATCH_SIZE = 9_500  # points: a little less than a payload takes, because a batch ends at the mark behind it
