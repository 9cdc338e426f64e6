"""The contracts of pyproject.toml hold, and an import that breaks one is found, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.checkout import Checkout

LINT = ".venv/bin/lint-imports --no-cache --config pyproject.toml"


@pytest.fixture
def packages(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path, "pyproject.toml", "common", "collectors", "fleetgauge", "scripts")


def test_what_is_here_keeps_every_contract(packages: Checkout) -> None:
    ran = packages.run(LINT)
    assert ran.returncode == 0, ran.stdout
    assert "0 broken" in ran.stdout


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("collectors/xenna/metrics.py", "from collectors.host import metrics", "independent of each other"),
        ("collectors/host/collector.py", "from common.datadog import intake", "Collectors import neither"),
        ("common/net/retry.py", "from common.run import health", "Imports go one way"),
        ("common/metric.py", "from common.config import settings", "Imports go one way"),
        ("common/times.py", "from common import window", "No two modules import each other"),
        ("fleetgauge/records/writer.py", "from common import metric", "The probes know nothing"),
        ("fleetgauge/xenna/stats.py", "import numpy", "The probes need the standard library only"),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(
    packages: Checkout, module: str, planted: str, contract: str
) -> None:
    path = packages.root / module
    # Late imports count as well, wherever in a function they hide.
    path.write_text(f"{path.read_text()}\n\ndef _planted() -> None:\n    {planted}\n")
    ran = packages.run(LINT)
    assert ran.returncode == 1, ran.stdout
    [broken] = [line for line in ran.stdout.splitlines() if contract in line and "BROKEN" in line]
    assert broken
