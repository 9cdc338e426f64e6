"""A queue that keeps rows in this process."""

from __future__ import annotations

from typing import Any

from nemo_rl.data_plane.interfaces import DataPlaneClient, KVBatchMeta


class TQDataPlaneClient(DataPlaneClient):
    """Built from a configuration, on the driver with the controller and on workers without."""

    def __init__(self, cfg: dict[str, Any], bootstrap: bool = True) -> None:
        self.cfg, self.bootstrap = cfg, bootstrap
        self.rows: dict[str, dict[str, dict[str, Any]]] = {}

    def register_partition(self, partition_id: str, *_: Any, **__: Any) -> None:
        self.rows[partition_id] = {}

    def claim_meta(self, partition_id: str, task_name: str, *rest: Any, **__: Any) -> KVBatchMeta:
        batch_size = rest[1]
        return KVBatchMeta(partition_id, task_name, list(self.rows[partition_id])[:batch_size])

    def get_data(self, meta: KVBatchMeta, select_fields: list[str] | None = None) -> Any:
        return self.get_samples(meta.sample_ids, meta.partition_id, select_fields or [])

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        return not self.rows[partition_id]

    def put_samples(
        self, sample_ids: list[str], partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta:
        for index, key in enumerate(sample_ids):
            row = {name: values[index] for name, values in (fields or {}).items()}
            self.rows[partition_id].setdefault(key, {}).update(row)
        return KVBatchMeta(partition_id, None, list(sample_ids))

    def get_samples(self, sample_ids: list[str], partition_id: str, select_fields: list[str]) -> Any:
        rows = self.rows[partition_id]
        return {name: [rows[key][name] for key in sample_ids] for name in select_fields}

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        for key in list(self.rows[partition_id]) if sample_ids is None else sample_ids:
            self.rows[partition_id].pop(key, None)

    def close(self) -> None:
        self.rows.clear()
