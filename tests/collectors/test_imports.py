"""A table of declarations costs little to import: whoever reads it needs neither settings nor a sink."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from common import registry
from support.project import ROOT


@pytest.mark.parametrize("name", registry.names())
def test_declared_metrics_load_neither_pydantic_nor_the_sink(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import collectors.{name}.metrics"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    loaded = re.findall(r"^import time: .*\| *(\S+)$", ran.stderr, flags=re.MULTILINE)
    assert f"collectors.{name}.metrics" in loaded
    heavy = (
        r"(pydantic|pydantic_core|pydantic_settings|datadog_api_client|boto3|urllib3|common\.datadog)(\.|$)"
    )
    assert [module for module in loaded if re.match(heavy, module)] == []
