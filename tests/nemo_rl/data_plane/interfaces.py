"""The boundary: what every client is, and what a claim returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass
class KVBatchMeta:
    """What a claim returns."""

    partition_id: str
    sample_ids: list[str]


class DataPlaneClient(ABC):
    """Every client is one of these."""

    @abstractmethod
    def put_samples(
        self, sample_ids: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta: ...
