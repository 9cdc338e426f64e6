"""As much of NeMo-RL's data plane as a job touches: its client, a queue of this process, and the factory."""

from __future__ import annotations

from typing import Any

from nemo_rl.data_plane.interfaces import DataPlaneClient as DataPlaneClient
from nemo_rl.data_plane.interfaces import KVBatchMeta as KVBatchMeta


class TQDataPlaneClient(DataPlaneClient):
    """Built from a configuration, on the driver with the controller and on workers without."""

    def __init__(self, bootstrap: bool) -> None:
        self.bootstrap = bootstrap
        self.rows: dict[str, dict[str, dict[str, Any]]] = {}

    def register_partition(self, partition_id: str, *_: Any, **__: Any) -> None:
        self.rows[partition_id] = {}

    def claim_meta(self, partition_id: str, *_: Any, **__: Any) -> KVBatchMeta:
        return KVBatchMeta(partition_id, list(self.rows[partition_id]))

    def get_data(self, meta: KVBatchMeta, select_fields: list[str]) -> Any:
        rows = self.rows[meta.partition_id]
        return {name: [rows[key][name] for key in meta.sample_ids] for name in select_fields}

    def put_samples(self, sample_ids: list[str], partition_id: str, fields: Any, tags: Any = None) -> None:
        for index, key in enumerate(sample_ids):
            row = {name: values[index] for name, values in fields.items()}
            self.rows[partition_id].setdefault(key, {}).update(row)

    def clear_samples(self, sample_ids: list[str], partition_id: str) -> None:
        for key in sample_ids:
            self.rows[partition_id].pop(key, None)

    def close(self) -> None:
        self.rows.clear()


def build_data_plane_client(cfg: dict[str, Any], *, bootstrap: bool = True) -> DataPlaneClient:
    """The client that a configuration asks for, wrapped where observability is on."""
    client = TQDataPlaneClient(bootstrap)
    observability = cfg.get("observability") or {}
    if not observability.get("enabled", False):
        return client
    from nemo_rl.data_plane.observability import MetricsDataPlaneClient

    return MetricsDataPlaneClient(client, on_event=observability.get("callback"))  # type: ignore[return-value]
