"""A dry run makes the same checks as a delivery and writes a line per piece of a series."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from common.metric import count, gauge
from common.show.dry_run_sink import MAX_POINTS, FileSink
from support.sinks import send
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "job", "y", "project")


def open_sink(path: Path, cap: int = 10) -> FileSink:
    return FileSink(path, (LOAD, DONE), cap, NOW - 3600, NOW + 600)


def written(path: Path) -> list[Any]:
    """The lines behind the declarations."""
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_a_line_holds_what_would_be_sent_without_the_common_tags(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    sink = open_sink(path)
    send(sink, [LOAD(0.5, NOW, project="Ants"), DONE(1, NOW), DONE(2, NOW), LOAD(1, NOW - 1, project="Ants")])
    send(sink, [LOAD(3, NOW - 60, on_host="node-1")])
    assert written(path) == [
        {
            "metric": "host.load",
            "type": "gauge",
            "unit": "process",
            "host": None,
            "tags": ["project:ants"],
            "points": [[NOW - 1, 1], [NOW, 0.5]],
        },
        {
            "metric": "jobs.done",
            "type": "count",
            "unit": "job",
            "host": None,
            "tags": [],
            "points": [[NOW, 3]],
        },
        {
            "metric": "host.load",
            "type": "gauge",
            "unit": "process",
            "host": "node-1",
            "tags": [],
            "points": [[NOW - 60, 3]],
        },
    ]
    assert (sink.points_sent, sink.dropped) == (4, {})


def test_the_first_line_declares_the_metrics_in_order_whatever_is_sent(tmp_path: Path) -> None:
    open_sink(tmp_path / "samples")
    assert json.loads((tmp_path / "samples").read_text()) == {
        "metrics": [
            {"name": "host.load", "type": "gauge", "unit": "process", "help": "x", "combines": "none"},
            {"name": "jobs.done", "type": "count", "unit": "job", "help": "y", "combines": "sum"},
        ]
    }


def test_a_long_series_is_cut_into_pieces_that_are_light_to_read(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    sink = FileSink(path, (LOAD,), 10, NOW, NOW + 2 * MAX_POINTS)
    send(sink, [LOAD(second, NOW + second) for second in range(2 * MAX_POINTS + 1)])
    pieces = [line["points"] for line in written(path)]
    assert [len(points) for points in pieces] == [MAX_POINTS, MAX_POINTS, 1]
    assert [point for points in pieces for point in points] == [
        [NOW + second, second] for second in range(2 * MAX_POINTS + 1)
    ]
    assert sink.points_sent == 2 * MAX_POINTS + 1


def test_what_a_delivery_would_drop_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    sink = open_sink(path)
    send(
        sink,
        [
            LOAD(math.nan, NOW),
            *(LOAD(1, NOW + ahead) for ahead in (-3601, -3600, 600, 601)),
            *(LOAD(1, NOW, project=project) for project in "aA"),
        ],
    )
    assert [line["points"] for line in written(path)] == [[[NOW - 3600, 1], [NOW + 600, 1]]]
    assert sink.dropped == {
        "not_finite": 1,
        "too_old": 1,
        "in_future": 1,
        "tag_collision": 2,
    }
