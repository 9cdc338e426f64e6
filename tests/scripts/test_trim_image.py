"""What is taken out of the image's packages can never be missed, and what can be reached stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

MODULES = {
    "__init__.py": "from datadog_api_client.api_client import ApiClient",
    "api_client.py": "ApiClient = 1",
    "v2/__init__.py": "",
    "v2/api/__init__.py": "",
    "v2/api/metrics_api.py": "import datadog_api_client.v2.model.payload",
    "v2/api/logs_api.py": "",
    "v2/model/__init__.py": "",
    "v2/model/payload.py": "def types():\n    from datadog_api_client.v2.model.series import Series",
    "v2/model/series.py": "if TYPE_CHECKING:\n    from datadog_api_client.v2.model import point",
    "v2/model/point.py": "",
}
SERVICES = ("ec2", "s3", "secretsmanager", "signin", "sso", "sso-oidc", "sts")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """An installation with a client of a few modules and a botocore of a few services."""
    root = tmp_path / "site-packages"
    for name, text in MODULES.items():
        path = root / "datadog_api_client" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for service in SERVICES:
        (root / "botocore" / "data" / service).mkdir(parents=True)
    (root / "botocore" / "data" / "endpoints.json").write_text("{}")
    (root / "certifi" / "tests").mkdir(parents=True)
    (root / "pygments" / "lexers").mkdir(parents=True)
    for name in ("__init__", "_mapping", "cobol"):
        (root / "pygments" / "lexers" / f"{name}.py").write_text("")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "sink.py").write_text(
        "def send():\n    from datadog_api_client.v2.api.metrics_api import MetricsApi\n"
    )
    return root


def trim(packages: Path) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "scripts" / "trim_image.py")
    command = [sys.executable, script, str(packages), str(packages.parent / "app")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_the_service_can_import_however_late_stays_and_the_rest_goes(packages: Path) -> None:
    ran = trim(packages)
    assert ran.returncode == 0, ran.stderr
    left = {path.name for path in (packages / "datadog_api_client").rglob("*.py")} - {"__init__.py"}
    assert left == {"api_client.py", "metrics_api.py", "payload.py", "series.py", "point.py"}
    assert len(list((packages / "datadog_api_client").rglob("__init__.py"))) == 4
    data = {path.name for path in (packages / "botocore" / "data").iterdir()}
    assert data == {*SERVICES, "endpoints.json"} - {"ec2"}
    assert not (packages / "certifi" / "tests").exists()
    assert {path.stem for path in (packages / "pygments" / "lexers").iterdir()} == {"__init__", "_mapping"}


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        (
            "site-packages/datadog_api_client/v2/model/payload.py",
            "from . import series",
            "payload.py: a relative import, which is not followed",
        ),
        ("site-packages/botocore/data/sts", None, "botocore does not know sts"),
        ("app/sink.py", "", "imports datadog_api_client"),
    ],
)
def test_what_cannot_be_followed_or_is_missing_stops_the_build(
    packages: Path, path: str, text: str | None, reason: str
) -> None:
    if text is None:
        (packages.parent / path).rmdir()
    else:
        (packages.parent / path).write_text(text)
    ran = trim(packages)
    assert ran.returncode == 1
    assert reason in ran.stderr
