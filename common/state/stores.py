"""Which store keeps checkpoints: the one that FLEETGAUGE_CHECKPOINTS names."""

from __future__ import annotations

from pathlib import Path

from common.config.settings import CoreSettings
from common.errors import ConfigurationError
from common.state.checkpoint import Store


def store(core: CoreSettings) -> Store | None:
    """The configured store, or None where there is none."""
    place = core.checkpoints
    if place is None:
        return None
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        if not bucket:
            raise ConfigurationError(
                f"FLEETGAUGE_CHECKPOINTS: {place} names no bucket; write s3://bucket/prefix"
            )
        from common.state.s3 import S3Store

        return S3Store(bucket, prefix.strip("/"), core)
    from common.state.directory import DirectoryStore

    return DirectoryStore(Path(place))
