"""A dry run makes the same checks as a delivery and writes a line per point."""

from __future__ import annotations

import json
import math
from pathlib import Path

from common.dry import FileSink
from common.metric import count, gauge
from standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "job", "x", "project")


def test_a_line_holds_what_would_be_sent_without_the_common_tags(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    sink = FileSink(path, (LOAD, DONE), 10, NOW)
    sink.send([LOAD(0.5, NOW, project="Ants"), DONE(1, NOW), DONE(2, NOW)])
    sink.send([LOAD(3, NOW - 60, on_host="node-1")])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "metric": "host.load",
            "type": "gauge",
            "unit": "process",
            "value": 0.5,
            "timestamp": NOW,
            "host": None,
            "tags": ["project:ants"],
        },
        {
            "metric": "jobs.done",
            "type": "count",
            "unit": "job",
            "value": 3,
            "timestamp": NOW,
            "host": None,
            "tags": [],
        },
        {
            "metric": "host.load",
            "type": "gauge",
            "unit": "process",
            "value": 3,
            "timestamp": NOW - 60,
            "host": "node-1",
            "tags": [],
        },
    ]
    assert (sink.points_sent, sink.dropped) == (3, {})


def test_what_a_delivery_would_drop_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    sink = FileSink(path, (LOAD,), 1, NOW)
    sink.send(
        [
            LOAD(math.nan, NOW),
            *(LOAD(1, NOW + ahead) for ahead in (-3601, -3600, 600, 601)),
            *(LOAD(1, NOW, project=project) for project in "aA"),
        ]
    )
    sink.send([LOAD(1, NOW, project="more")])
    assert [json.loads(line)["timestamp"] for line in path.read_text().splitlines()] == [
        NOW - 3600,
        NOW + 600,
    ]
    assert sink.dropped == {
        "not_finite": 1,
        "too_old": 1,
        "in_future": 1,
        "tag_collision": 2,
        "series_cap": 1,
    }
