"""A recording in object storage, brought to a temporary directory for as long as it is read."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .recording import RecordingError

S3 = "s3://"
MAX_BYTES = 8 * 2**30  # of a recording
SNAPSHOT = ".pickle"  # of a dump: large, and never opened


@contextmanager
def at_hand(place: str) -> Iterator[Path]:
    """The path itself, or that of a copy of what is under `s3://bucket/prefix`.

    Raises `RecordingError` where there is nothing, or it cannot be had.
    """
    if not place.startswith(S3):
        yield Path(place)
        return
    try:
        boto3 = importlib.import_module("boto3")
        failed = importlib.import_module("botocore.exceptions")
    except ImportError:
        raise RecordingError(f"{place}: reading from S3 needs boto3: pip install boto3") from None
    with tempfile.TemporaryDirectory(prefix="fleetgauge-") as folder:
        try:
            # boto3 itself does not read AWS_REGION.
            client = boto3.client("s3", region_name=os.environ.get("AWS_REGION"))
            path = _download(client, place, Path(folder))
        except (failed.BotoCoreError, failed.ClientError) as error:
            raise RecordingError(f"{place}: {error}") from None
        yield path


def _download(client: Any, place: str, folder: Path) -> Path:  # Any: boto3 makes its classes at run time
    bucket, _, prefix = place.removeprefix(S3).partition("/")
    name = Path(prefix.rstrip("/")).name or bucket
    size, found = 0, False
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix.rstrip("/")):
        for one in page.get("Contents", ()):
            below = one["Key"].removeprefix(prefix.rstrip("/"))
            if (below and prefix and not below.startswith("/")) or below.endswith(("/", SNAPSHOT)):
                continue  # another prefix that begins alike
            size += one["Size"]
            if size > MAX_BYTES:
                raise RecordingError(f"{place}: it has more than the {MAX_BYTES:,} bytes that this copies")
            target = (folder / name / below.lstrip("/")) if below else folder / name
            if folder not in target.resolve().parents:
                raise RecordingError(f"{place}: the name {one['Key']!r} leads out of its directory")
            target.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, one["Key"], str(target))
            found = True
    if not found:
        raise RecordingError(f"{place}: nothing is there")
    return folder / name
