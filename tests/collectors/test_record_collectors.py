"""What every collector over records refuses of its settings."""

from __future__ import annotations

import pytest

from common.collector import load_collector
from common.config.sources import Configuration
from common.errors import ConfigurationError, NotConfiguredError
from support.record_folder import MAKERS

each_kind = pytest.mark.parametrize("kind", MAKERS)


@each_kind
def test_without_paths_the_collector_is_not_configured(kind: str) -> None:
    with pytest.raises(NotConfiguredError, match=f"FLEETGAUGE_{kind.upper()}_PATHS is not set"):
        Configuration({}, None).table(load_collector(kind).settings, kind)


@each_kind
@pytest.mark.parametrize(
    "setting", [{"aggregate_interval": "901"}, {"settle": "601"}, {"lookback": "299"}, {"lookback": "3601"}]
)
def test_a_setting_out_of_its_limits_is_refused(kind: str, setting: dict[str, str]) -> None:
    [(name, value)] = setting.items()
    prefix = f"FLEETGAUGE_{kind.upper()}_"
    environ = {f"{prefix}PATHS": "/records", f"{prefix}{name.upper()}": value}
    with pytest.raises(ConfigurationError, match=f"{prefix}{name.upper()}"):
        Configuration(environ, None).table(load_collector(kind).settings, kind)
