"""AWS clients with short timeouts and three attempts, so that a slow service cannot use up a deadline.

botocore's own timeouts are 60 seconds each. `sources.py` reads secrets through these clients,
`common/run/state.py` the state, and collectors records, by `Network.aws`.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from common.config.settings import CoreSettings
from common.errors import ConfigurationError

if TYPE_CHECKING:
    from botocore.loaders import Loader

CONNECT_TIMEOUT = 3
READ_TIMEOUT = 5
ATTEMPTS = 3


def client(service: str, core: CoreSettings, purpose: str) -> Any:  # Any: each service has a type of its own
    """Return a new client of a service; raises ConfigurationError, which names the purpose.

    `service` is botocore's name, such as `s3`. Credentials are looked up by botocore itself, at the first
    request. It is made by botocore, as boto3 would: boto3 adds only the transfer manager, whose import is
    slow.
    """
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    retries: Any = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    config = Config(connect_timeout=CONNECT_TIMEOUT, read_timeout=READ_TIMEOUT, retries=retries)
    try:
        # Both components must be set before the client is made.
        session = botocore.session.get_session()
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
        session.register_component("data_loader", service_models())
        # botocore itself does not read AWS_REGION.
        return session.create_client(
            service, region_name=core.aws_region, endpoint_url=core.aws_endpoint_url, config=config
        )
    except (BotoCoreError, ValueError) as error:  # no region, a malformed one, or an unknown profile
        raise ConfigurationError(f"{purpose}: {error} Check AWS_REGION and AWS_PROFILE") from None


@cache
def service_models() -> Loader:
    """Return the descriptions of services, shared by all clients: parsing them is most of a client's cost."""
    from botocore.loaders import create_loader

    return create_loader()


def _timestamp(value: Any) -> datetime:  # Any: text or a number, depending on the service
    """Parse a timestamp as botocore does, but quickly: its parser is most of the cost of listing objects.

    S3 writes ISO 8601; other forms, such as seconds since the epoch, are left to botocore.
    """
    from botocore.utils import parse_timestamp

    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        parsed: datetime = parse_timestamp(value)
        return parsed
