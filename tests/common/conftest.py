"""What the tests of the service share: time that never really passes, and an AWS account."""

from __future__ import annotations

import pytest

from support.servers.aws import Aws
from support.standins import Time


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def aws(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An empty AWS account that the process's own environment leads to."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return aws
