"""What every collector over records refuses of its settings, and that it emits all that it declares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collectors.xenna.metrics import CLUSTER, PIPELINE, STAGE
from common.collector import load_collector
from common.config.sources import Configuration
from common.errors import ConfigurationError
from support.record_folder import MAKERS, NOW, Folder, event, operations, outstanding, xenna

KEYS = [*PIPELINE, *(f"cluster/{key}" for key in CLUSTER), *(f"stage/a/{key}" for key in STAGE)]
INTERRUPTED = {"session_id": "s", "status": "interrupted", "ended_at_ns": (NOW - 100) * 10**9}
# By kind, the content of files from which every metric follows.
EVERYTHING: Mapping[str, Mapping[str, list[dict[str, Any]]]] = {
    "xenna": {
        "a.jsonl": [xenna(0, 100, dict.fromkeys(KEYS, 1.0))],
        "b.jsonl": [xenna(0, 100, run_id="r2", run_hash="b", event="end", status="ok")],
    },
    "gpu_memory": {
        "sink/segment-000001.jsonl": [event(100, kind="warning")],
        "sink/manifest.json": [{"sessions": [INTERRUPTED], "segments": []}],
        "oom_dump_20261116T005500Z_7/events.json": [{}],
    },
    "data_plane": {
        "a.jsonl": [operations(0, 100), outstanding(1, 100, {"p": 1}, foreign_clears=0, keys_overflowed=0)]
    },
}


@pytest.mark.parametrize("kind", EVERYTHING)
def test_every_declared_metric_is_emitted_and_no_other(kind: str, tmp_path: Path) -> None:
    folder = Folder(kind, tmp_path)
    for name, content in EVERYTHING[kind].items():
        folder.write(*content, to=name)
    ran = folder.tick()
    assert {name for name, *_ in ran.sent} == {metric.name for metric in folder.collector.metrics}
    assert (ran.report.dropped, ran.report.lost) == ({}, [])


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
