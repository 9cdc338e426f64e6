"""The boundary: what every client is, and what a claim returns."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass


@dataclass
class KVBatchMeta:
    """What a claim returns."""

    partition_id: str
    sample_ids: list[str]


class DataPlaneClient(ABC):  # noqa: B024  # others register with it
    """Every client is one of these."""
