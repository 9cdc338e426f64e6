"""The boundary: the operations of every client, with the parameters of release 7ea279abf."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass
class KVBatchMeta:
    """What a claim returns."""

    partition_id: str
    task_name: str | None
    sample_ids: list[str]
    fields: list[str] | None = None


class DataPlaneClient(ABC):
    """A client that lacks one of these cannot be built."""

    @abstractmethod
    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None: ...

    @abstractmethod
    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta: ...

    @abstractmethod
    def get_data(self, meta: KVBatchMeta, select_fields: list[str] | None = None) -> Any: ...

    @abstractmethod
    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool: ...

    @abstractmethod
    def put_samples(
        self, sample_ids: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta: ...

    @abstractmethod
    def get_samples(self, sample_ids: list[str], partition_id: str, select_fields: list[str]) -> Any: ...

    @abstractmethod
    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None: ...

    @abstractmethod
    def close(self) -> None: ...
