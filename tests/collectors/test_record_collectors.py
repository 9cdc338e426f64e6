"""What every collector over records refuses of its settings."""

from __future__ import annotations

import pytest

from common.collector import load_collector
from common.config.sources import Configuration
from common.errors import ConfigurationError
from support.record_folder import MAKERS


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("FLEETGAUGE_{}_PATHS", ""),
        ("FLEETGAUGE_{}_AGGREGATE_INTERVAL", "901"),
        ("FLEETGAUGE_{}_SETTLE", "601"),
        ("FLEETGAUGE_{}_LOOKBACK", "299"),
        ("FLEETGAUGE_{}_LOOKBACK", "3601"),
        ("FLEETGAUGE_CHECKPOINTS", "/state"),
    ],
)
def test_setting_that_is_missing_out_of_its_limits_or_gone_is_refused(
    kind: str, setting: str, value: str
) -> None:
    name = setting.format(kind.upper())
    environ = {f"FLEETGAUGE_{kind.upper()}_PATHS": "/records", name: value}
    with pytest.raises(ConfigurationError, match=name):
        Configuration(environ, None).table(load_collector(kind).settings, kind)
