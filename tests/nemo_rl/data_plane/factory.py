"""The one place where clients are built."""

from __future__ import annotations

from typing import Any

from nemo_rl.data_plane.interfaces import DataPlaneClient


def build_data_plane_client(cfg: dict[str, Any] | None, *, bootstrap: bool = True) -> DataPlaneClient:
    """The client that a configuration asks for, wrapped where observability is on."""
    if cfg is None or not cfg["enabled"]:
        raise ValueError("the data plane is disabled")
    if cfg["impl"] != "transfer_queue":
        raise ValueError(f"unknown data_plane impl: {cfg['impl']!r}")
    from nemo_rl.data_plane.adapters.transfer_queue import TQDataPlaneClient

    client: DataPlaneClient = TQDataPlaneClient(cfg, bootstrap=bootstrap)
    observability = cfg.get("observability") or {}
    if observability.get("enabled", False):
        from nemo_rl.data_plane.observability import MetricsDataPlaneClient

        return MetricsDataPlaneClient(client, on_event=observability.get("callback"))  # type: ignore[return-value]
    return client
