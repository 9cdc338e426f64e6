"""What every collector over records says of its paths, its settings and its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config.settings import ConfigurationFile, load
from common.errors import ConfigurationError, NotConfiguredError
from common.records.tail import NOT_THERE
from support.record_fuzzer import KINDS, Kind, ticks_of
from support.xenna_ticks import NOW, named

ROOT = Path(__file__).parents[2]

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)


@each_kind
def test_what_cannot_be_looked_into_is_lost_and_the_rest_is_read(kind: Kind, tmp_path: Path) -> None:
    name = kind.collector.name
    ticks = ticks_of(kind, tmp_path, paths=f"{tmp_path}/{kind.name}, {tmp_path}/gone/")
    ticks.write(kind.make("w", 0, NOW - 100), to=kind.name)
    assert len(named(ticks.tick(), kind.metric)) == 1
    [lost] = ticks.tally.lost
    assert lost.startswith(f"{tmp_path}/gone")
    assert lost.endswith(f": {NOT_THERE}")
    [error, *_] = kind.collector.check(ticks.context())
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"FLEETGAUGE_{name.upper()}_PATHS: cannot look into {tmp_path}/gone")


@each_kind
def test_the_check_tells_how_many_files_there_are_and_what_the_newest_says(
    kind: Kind, tmp_path: Path
) -> None:
    ticks = ticks_of(kind, tmp_path)
    ticks.write(kind.make("w", 0, NOW - 100), to=f"a/{kind.name}")
    [said] = map(str, kind.collector.check(ticks.context()))
    assert said.startswith(str(tmp_path))
    found = f": 1 files; in the newest, {tmp_path}/a/{kind.name}: 1 records of {kind.collector.name}"
    assert said.endswith(found)


@each_kind
def test_without_paths_the_collector_is_not_configured(kind: Kind) -> None:
    name = kind.collector.name
    with pytest.raises(NotConfiguredError, match=f"FLEETGAUGE_{name.upper()}_PATHS is not set"):
        load(kind.collector.settings, name, environ={}, file=ConfigurationFile())


@each_kind
def test_the_readme_tells_every_metric_and_setting(kind: Kind) -> None:
    collector = kind.collector
    readme = (ROOT / "collectors" / collector.name / "README.md").read_text()
    for metric in collector.metrics:
        assert f"| `{metric.name}` |" in readme
        assert f"| {metric.help} |" in readme
    for name, field in collector.settings.model_fields.items():
        assert f"| `FLEETGAUGE_{collector.name.upper()}_{name.upper()}` |" in readme
        assert field.description
