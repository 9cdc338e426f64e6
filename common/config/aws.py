"""AWS clients with short timeouts and three attempts, so that a slow service cannot use up a deadline.

botocore's own timeouts are 60 seconds each. `sources.py` reads secrets through these clients,
`common/run/state.py` the state, and `common/records/files.py` records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from common.config.settings import CoreSettings
from common.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from botocore.loaders import Loader

CONNECT_TIMEOUT = 3
READ_TIMEOUT = 5
ATTEMPTS = 3

_DENIED = "; the role needs the permissions of docs/iam-policy.json"
_REGION = "; the bucket is in another region; set AWS_REGION to its own"
_FIXES = {
    **dict.fromkeys(("AccessDenied", "403"), _DENIED),
    **dict.fromkeys(("PermanentRedirect", "301", "AuthorizationHeaderMalformed"), _REGION),
}

T = TypeVar("T")

log = logging.getLogger(__name__)


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


class ChangedFileError(OSError):
    """A file or object has another version than the one that was requested."""


def request_s3(request: Callable[[], T]) -> T:
    """Return the result of a request to S3.

    Where it fails it raises OSError with a reason that a person can act on: FileNotFoundError for an object
    that does not exist, ChangedFileError for one of another version.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return request()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        if code in {"PreconditionFailed", "412", "InvalidRange", "416"}:
            raise ChangedFileError("it was uploaded again while it was read") from None
        if code in {"NoSuchKey", "404"}:
            raise FileNotFoundError("it does not exist") from None
        raise OSError(f"S3 answers {code}{_FIXES.get(code, '')}") from None
    except BotoCoreError as error:
        raise OSError(str(error)) from None


def read_secret(client: Any, secret_id: str) -> dict[str, Any] | None:  # Any: see `client`, and JSON
    """Return the JSON object of a secret of AWS Secrets Manager, None where there is no such secret.

    No error quotes the secret. Raises ConfigurationError for what a person must correct: access, region,
    credentials, content; SourceError for what a later run may not see.
    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    purpose = f"reading the AWS secret {secret_id}"
    log.debug("%s from %s", purpose, client.meta.endpoint_url)
    try:
        text = client.get_secret_value(SecretId=secret_id).get("SecretString")
    except ClientError as error:
        code = error.response["Error"].get("Code", "unknown")
        if code == "ResourceNotFoundException":
            return None
        # botocore retries all that is temporary, so that an error at the first attempt is final.
        if retries := error.response["ResponseMetadata"].get("RetryAttempts", 0):
            raise SourceError(f"{purpose}: AWS answered {code} {1 + retries} times") from None
        fix = "check the secret, and that the role has secretsmanager:GetSecretValue on it"
        raise ConfigurationError(f"{purpose}: AWS answered {code}; {fix}") from None
    except BotoCoreError as error:
        fix = "check AWS_REGION and AWS_ENDPOINT_URL, and the role of the pod or AWS_ACCESS_KEY_ID"
        # Timeouts and connections that were closed may not happen again; wrong credentials do.
        kind = SourceError if isinstance(error, HTTPClientError) else ConfigurationError
        raise kind(f"{purpose}: {error}; {fix}") from None
    # The error of json contains the text, so that it is not chained. A binary secret has no text.
    with suppress(ValueError, TypeError, RecursionError):
        if isinstance(content := json.loads(text), dict):
            return content
    fix = 'store {"NAME": "value", ...} as text, or check AWS_ENDPOINT_URL'
    raise ConfigurationError(f"{purpose}: the answer is not a JSON object; {fix}")
