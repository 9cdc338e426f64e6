"""What a run leaves for the next one: a small JSON document, in a directory or in S3, and never required.

Losing it costs repeated points or a gap, never a wrong number, so that nothing is locked or flushed. Of two
runs at once that of the later start is stored. `session.py` loads and saves the document, `run.py` decides
what is in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from common.config import aws
from common.config.settings import CoreSettings
from common.errors import ConfigurationError, StateError
from common.times import EARLIEST
from common.window import MAX_AHEAD
from fleetgauge.pages.atomic_file import atomic_file

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

MAX_PART = 24  # characters of each readable part of a key
MAX_BYTES = 2**26  # of a document that is read: what is in its place may be anything

Second = Annotated[int, Field(ge=EARLIEST)]


class Document(BaseModel):
    """The state of one collector: up to when points were sent, and what it observed and cannot query again.

    `now` is when the run began that saved it; `sent_until` and `last_success` are None where not known. All
    are seconds since the epoch. `memory` is JSON, which only the collector interprets.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    version: Literal[2] = 2
    now: Second = 0
    sent_until: Second | None = None
    last_success: Second | None = None
    memory: dict[str, Any] = {}  # Any: JSON

    def encode(self) -> bytes:
        """Return the JSON to write, in UTF-8; TypeError for memory that is not JSON."""
        return json.dumps(self.model_dump()).encode()

    @classmethod
    def decode(cls, content: bytes, now: float) -> Document:
        """Return the document of some bytes; ValueError for one that no run of ours has saved until now.

        A clock that was ahead by more than the intake takes makes it unusable: this run would skip time.
        """
        try:
            found = cls.model_validate(json.loads(content))
        # json raises RecursionError for content that is nested too deep: a bucket may be shared.
        except (ValueError, RecursionError):
            raise ValueError("it is damaged, or of another version") from None
        if max(found.now, found.sent_until or 0, found.last_success or 0) > now + MAX_AHEAD:
            raise ValueError("it has a time in the future")
        return found


def state_key(collector: str, core: CoreSettings, address: str, *more: str) -> str:
    """Return the name of a collector's document; `more` may be a node, or a shard.

    Readable parts for a person, and a hash of the exact ones, because readable parts are cut and respelt.
    Only what identifies an installation is in it, so that a run with another path or project continues with
    the document that is there.
    """
    parts = [collector, core.env, core.service, address, core.instance, *more]
    texts = [part.removeprefix("https://") for part in parts if part]
    readable = [re.sub(r"[^A-Za-z0-9.-]", "_", text)[:MAX_PART] for text in texts]
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
    return "-".join([*readable, digest])


class StateStore:
    """Documents by name: files of a directory, or objects under a prefix of a bucket.

    `address` is that of FLEETGAUGE_STATE. A directory is not created: a mistyped path or an unmounted volume
    would look like a first run. Raises ConfigurationError for an address without a bucket.
    """

    def __init__(self, address: str, core: CoreSettings) -> None:
        self._address, self._core = address.rstrip("/"), core
        if self._address == "s3:":
            raise ConfigurationError(f"FLEETGAUGE_STATE: {address} names no bucket; write s3://bucket/prefix")

    # At the first request: importing botocore and reading its models is slow.
    @cached_property
    def _s3(self) -> S3Client | None:
        if not self._address.startswith("s3://"):
            return None
        client: S3Client = aws.client("s3", self._core, f"opening the state in {self._address}")
        return client

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a document; None where it does not exist.

        Raises StateError, and ConfigurationError where no S3 client can be made (no region).
        """
        s3, path = self._s3, f"{self._address}/{name}.json"
        bucket, _, key = path.removeprefix("s3://").partition("/")
        try:
            if s3:
                return aws.request_s3(lambda: s3.get_object(Bucket=bucket, Key=key)["Body"].read(MAX_BYTES))
            # Otherwise a missing directory would be the same as a missing document.
            if not Path(self._address).is_dir():
                raise StateError(f"FLEETGAUGE_STATE: there is no directory {self._address}; create it")
            with Path(path).open("rb") as file:
                return file.read(MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {path}: {error.strerror or error}") from None

    def write(self, name: str, content: bytes) -> None:
        """Replace a document, completely or not at all; raises as `read`."""
        s3, path = self._s3, f"{self._address}/{name}.json"
        bucket, _, key = path.removeprefix("s3://").partition("/")
        try:
            if s3:
                aws.request_s3(lambda: s3.put_object(Bucket=bucket, Key=key, Body=content))
                return
            with atomic_file(Path(path)) as file:
                file.write(content.decode(errors="replace"))  # ours is ASCII; a damaged one may be anything
        except OSError as error:
            raise StateError(f"cannot write {path}: {error.strerror or error}") from None
