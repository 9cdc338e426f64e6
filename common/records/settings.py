"""The settings that every collector over records has; each adds what tells its series apart."""

from __future__ import annotations

from pydantic import Field

from common.config.settings import CollectorSettings, Duration, Texts


class RecordSettings(CollectorSettings):
    """Where the files are, and how they are read."""

    paths: Texts = Field(
        description="Files, directories and globs that hold records, on disk or in S3, separated by commas. "
        "`{date}` stands for a UTC day."
    )
    aggregate_interval: Duration = Field(
        60,
        ge=1,
        le=1800,  # a point stands at the start, and must be younger than the intake's hour when it is over
        description="Where writers share a series: how much time one aggregated point stands for. "
        "At least the interval of the writers.",
    )
    settle: Duration = Field(
        5, ge=0, le=600, description="Records younger than this wait for the next run: their time may grow."
    )
    forget_after: Duration = Field(
        7 * 86400, ge=86400, description="How long a file or writer that nothing was heard of is remembered."
    )
    max_objects: int = Field(
        20_000,
        ge=1,
        description="Objects that a pattern in S3 may list; with more, the run is partial.",
    )
    bytes_per_tick: int = Field(
        64_000_000,
        ge=1_000_000,
        description="Bytes after which one run stops, at the end of a second; the rest waits for the next.",
    )
