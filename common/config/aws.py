"""AWS clients that give up: short time-outs and three attempts, so that no deadline is lost in waiting."""

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


def client(service: str, core: CoreSettings, doing: str) -> Any:  # Any: each service has a type of its own
    """A client of one service. boto3 itself does not read AWS_REGION."""
    import boto3
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, NoRegionError

    retries: Any = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    limits = Config(connect_timeout=CONNECT_TIMEOUT, read_timeout=READ_TIMEOUT, retries=retries)
    try:
        session = botocore.session.get_session()
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
        create: Any = boto3.Session(botocore_session=session).client  # one overload per service
        # After boto3, which adds a place of its own to the loader that it finds, each time.
        session.register_component("data_loader", models(session.get_config_variable("data_path")))
        return create(service, region_name=core.aws_region, endpoint_url=core.aws_endpoint_url, config=limits)
    except NoRegionError:
        raise ConfigurationError(f"{doing}: no region is set; set AWS_REGION") from None
    except (BotoCoreError, ValueError) as error:  # a profile, region or endpoint that is none
        raise ConfigurationError(f"{doing}: {error}") from None


@cache
def models(data_path: str | None) -> Loader:
    """What describes the services, for all clients: reading it takes most of what a client costs."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _timestamp(value: Any) -> datetime:  # Any: text or a number, as the service writes its times
    """What botocore makes of a time; its own way takes most of what listing objects costs."""
    from botocore.utils import parse_timestamp

    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        parsed: datetime = parse_timestamp(value)
        return parsed
