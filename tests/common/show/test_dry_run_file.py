"""What the child wrote is what the parent reads, as often as it likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.metric import count, gauge
from common.show.dry_run_file import Board, Chart, Declared, DryRunFile, SeriesKey, SeriesPoints
from common.show.dry_run_sink import FileSink
from support.sinks import send
from support.standins import NOW

LOAD = gauge("host.load", "process", "Processes that wait.", "project")
DONE = count("jobs.done", "job", "Jobs that ended.", "project")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two pieces of one series and one of another."""
    sink = FileSink(tmp_path / "samples", (DONE, LOAD), 10, NOW - 3600, NOW)
    send(sink, [LOAD(0.5, NOW - 2, project="ants"), LOAD(2, NOW - 1, project="ants")])
    send(sink, [LOAD(1e300, NOW, project="ants"), DONE(3, NOW, on_host="node-1")])
    return tmp_path / "samples"


ANTS = SeriesKey("host.load", ("project:ants",), None)
PIECES = [
    SeriesPoints(ANTS, "gauge", "process", (NOW - 2, NOW - 1), (0.5, 2)),
    SeriesPoints(ANTS, "gauge", "process", (NOW,), (1e300,)),
    SeriesPoints(SeriesKey("jobs.done", (), "node-1"), "count", "job", (NOW,), (3,)),
]


def test_pieces_are_read_as_often_as_asked(path: Path) -> None:
    pieces = DryRunFile(path)
    assert [*pieces] == PIECES
    assert [*pieces] == PIECES


def test_declarations_come_in_the_order_of_the_catalogue(path: Path) -> None:
    assert DryRunFile(path).declared() == [
        Declared("jobs.done", "count", "job", "Jobs that ended.", "sum"),
        Declared("host.load", "gauge", "process", "Processes that wait."),
    ]


def test_dashboards_are_read_back_and_where_none_are_declared_each_metric_has_a_chart(
    path: Path, tmp_path: Path
) -> None:
    charts = (
        Chart("Load", ("host.load",), ("project",), ("jobs.done",), ("project:ants",)),
        Chart("x", by=None),
    )
    board = Board("Jobs", "https://app.example", (("Now", charts), ("Then", ())))
    FileSink(tmp_path / "boards", (LOAD, DONE), 10, NOW - 3600, NOW, boards=[board])
    assert DryRunFile(tmp_path / "boards").boards() == [board]
    each = (Chart("jobs.done", ("jobs.done",)), Chart("host.load", ("host.load",)))
    assert DryRunFile(path).boards() == [Board("", "", (("", each),))]


def test_a_line_that_was_not_finished_is_not_there(path: Path) -> None:
    whole = path.read_bytes()
    second = whole.rindex(b"\n", 0, -1)
    for end in range(second + 1, len(whole)):
        path.write_bytes(whole[:end])
        assert [*DryRunFile(path)] == PIECES[:2]
    path.write_bytes(whole[:40])
    assert (DryRunFile(path).declared(), [*DryRunFile(path)]) == ([], [])


def test_a_child_that_never_began_left_nothing(tmp_path: Path) -> None:
    absent = DryRunFile(tmp_path / "absent")
    assert (absent.declared(), absent.boards(), [*absent]) == ([], [], [])


def test_the_host_is_a_label_beside_the_tags() -> None:
    assert [piece.series.labels for piece in PIECES[1:]] == [("project:ants",), ("host:node-1",)]
