"""What call sites import."""

from nemo_rl.data_plane.factory import build_data_plane_client
from nemo_rl.data_plane.interfaces import DataPlaneClient, KVBatchMeta

__all__ = ["DataPlaneClient", "KVBatchMeta", "build_data_plane_client"]
