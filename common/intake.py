"""The limits of Datadog's intake that more than the sink must know."""

from __future__ import annotations

MAX_AGE = 3600  # seconds: the intake silently drops points that are older,
MAX_AHEAD = 600  # or further ahead
