"""AWS clients: what they share, what they import, and errors about the configuration of AWS."""

from __future__ import annotations

import subprocess
import sys

import pytest

from common.config import aws as clients
from common.errors import ConfigurationError
from support.project import ROOT
from support.servers.aws import Aws
from support.standins import core_settings


def test_clients_share_the_descriptions_of_services(aws: Aws) -> None:
    core = core_settings(AWS_ENDPOINT_URL=aws.url)
    first, second = (clients.client("s3", core, "testing") for _ in range(2))
    assert first is not second
    assert first.meta.service_model.metadata["serviceId"] == "S3"
    assert first.meta.service_model.metadata is second.meta.service_model.metadata
    paths = clients.service_models().search_paths
    assert len(paths) == len({*paths}), "a process that stays searches no more of them for each client"


def test_client_imports_no_transfer_manager() -> None:
    code = """
import sys
from common.config import aws
from common.config.settings import CoreSettings
assert "botocore" not in sys.modules
aws.client("s3", CoreSettings(AWS_REGION="us-east-1"), "testing")
assert not {"boto3", "s3transfer"} & {*sys.modules}
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("variable", "value", "error"),
    [("AWS_REGION", "eu west", "eu west"), ("AWS_PROFILE", "nobody", "nobody"), ("AWS_REGION", "", "region")],
)
def test_bad_region_or_profile_is_an_error_with_its_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, error: str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    core = core_settings(**{"AWS_REGION": "us-east-1", variable: value})
    with pytest.raises(ConfigurationError, match=f"^testing: .*{error}.*AWS_REGION and AWS_PROFILE"):
        clients.client("secretsmanager", core, "testing")
