"""AWS clients that give up: short time-outs and three attempts, so that no deadline is lost in waiting."""

from __future__ import annotations

from typing import Any

from common.config.settings import CoreSettings

CONNECT_TIMEOUT = 3
READ_TIMEOUT = 5
ATTEMPTS = 3


def options(core: CoreSettings) -> dict[str, Any]:  # Any: the keyword arguments of boto3.client
    """What every client is made with. boto3 itself does not read AWS_REGION."""
    from botocore.config import Config

    return {
        "region_name": core.aws_region,
        "endpoint_url": core.aws_endpoint_url,
        "config": Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        ),
    }
