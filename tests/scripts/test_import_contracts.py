"""An import that breaks a contract of pyproject.toml is found, by name; `scripts/lint` says there is none."""

from __future__ import annotations

from pathlib import Path

from support.checkout import Checkout

PLANTED = [  # module, import, contract
    ("collectors/xenna/metrics.py", "from collectors.host import metrics", "independent of each other"),
    ("collectors/host/collector.py", "from common.datadog import intake", "Collectors import neither"),
    ("common/net/retry.py", "from common.run import health", "Imports go one way"),
    ("common/metric.py", "from common.config import settings", "Imports go one way"),
    ("common/times.py", "from common import window", "No two modules import each other"),
    ("fleetgauge/records/writer.py", "from common import metric", "The probes know nothing"),
    ("fleetgauge/xenna/stats.py", "import numpy", "The probes need the standard library only"),
]


def test_every_import_that_breaks_a_contract_is_found(tmp_path: Path) -> None:
    packages = Checkout(tmp_path, "pyproject.toml", "common", "collectors", "fleetgauge", "scripts")
    for module, planted, _ in PLANTED:
        path = packages.root / module
        # Late imports count as well, wherever in a function they hide.
        path.write_text(f"{path.read_text()}\n\ndef _planted() -> None:\n    {planted}\n")
    ran = packages.run(".venv/bin/lint-imports --no-cache --config pyproject.toml")
    assert ran.returncode == 1, ran.stdout
    summary, _, details = ran.stdout.partition("Broken contracts")
    for module, _, contract in PLANTED:
        [line] = [line for line in summary.splitlines() if contract in line]
        assert line.endswith("BROKEN")
        assert f".{Path(module).stem}" in details
