"""A span of the past as a person sees it in a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.metric import count, gauge
from common.outcome import Outcome, Status
from common.show.dry_run_file import DryRunFile
from common.show.dry_run_sink import FileSink
from common.show.layout import Look
from common.show.overview import describe, show, sparkline
from common.window import Window
from support.sinks import send

SINCE = 1_794_009_600
HOUR = Window(SINCE, SINCE + 3600, 300)
ACTIVE = gauge("wandb.runs.active", "run", "x", "project", "entity")
RATE = gauge("wandb.rate", "", "x", "project", "entity")
DONE = count("jobs.done", "job", "x")
SIZE = gauge("jobs.size", "byte", "x")
OUTCOMES = [Outcome("wandb", Status.OK, seconds=1.26), Outcome("host", Status.SKIPPED)]


@pytest.fixture
def pieces(tmp_path: Path) -> dict[str, DryRunFile]:
    """Two projects of which one is not known for a while, in two pieces."""
    sink = FileSink(tmp_path / "wandb", (RATE, ACTIVE), 100, HOUR.since, HOUR.until)
    for half in (HOUR.slice(0, 2), HOUR.slice(1, 2)):
        for tick in half.ticks:
            number = (tick - SINCE) // 300 - 1
            send(sink, [ACTIVE(number % 8 * 100, tick, entity="acme", project="ants")])
            if number not in {3, 4}:
                send(sink, [ACTIVE(5, tick, entity="acme", project="bees")])
    send(sink, [RATE(0.25, SINCE + 600, entity="acme", project="ants")])
    return {"wandb": DryRunFile(tmp_path / "wandb")}


def test_every_series_has_a_row_in_the_order_of_the_catalogue(pieces: dict[str, DryRunFile]) -> None:
    assert list(show(OUTCOMES, pieces, Look(120), HOUR)) == [
        "2026-11-07 00:00 to 01:00 UTC, every 5 min",
        "wandb: ok in 1.3 s",
        "  every series: entity:acme",
        "  metric             first  last  min   mean  max  over time     points  unit",
        "  wandb.rate                0.25                                      1        project:ants",
        "  wandb.runs.active      0   300    0  283.3  700  ▁▂▃▄▅▆▇█▁▂▃▄      12  run   project:ants",
        "  wandb.runs.active      5     5    5      5    5  ▁▁▁  ▁▁▁▁▁▁▁      10  run   project:bees",
        "",
        "host: skipped in 0.0 s",
    ]


def test_in_a_narrow_terminal_figures_stand_under_their_names(pieces: dict[str, DryRunFile]) -> None:
    assert list(show(OUTCOMES, pieces, Look(60), HOUR))[2:] == [
        "  every series: entity:acme",
        "  wandb.rate project:ants",
        "      last 0.25  points 1",
        "  wandb.runs.active project:ants",
        "      first 0  last 300  min 0  mean 283.3  max 700",
        "      over time ▁▃▆█▁▃  points 12  unit run",
        "  wandb.runs.active project:bees",
        "      first 5  last 5  min 5  mean 5  max 5",
        "      over time ▁▁▁▁▁▁  points 10  unit run",
        "",
        "host: skipped in 0.0 s",
    ]


def test_what_is_not_of_a_span_says_over_which_time_it_is(pieces: dict[str, DryRunFile]) -> None:
    lines = list(show(OUTCOMES, pieces, Look(120)))
    assert lines[2] == "  23 points in 3 series, 2026-11-07 00:05 to 01:00 UTC"
    assert lines[5] == (
        "  wandb.runs.active      0   300    0  283.3  700  ▁▃▆█▁▃         12  run   project:ants"
    )


def test_a_course_fills_the_blocks_that_there_is_room_for(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "jobs", (SIZE,), 100, HOUR.since, HOUR.until)
    send(sink, [SIZE(second, SINCE + second) for second in range(30)])
    pieces = {"jobs": DryRunFile(tmp_path / "jobs")}

    def course(width: int | None, span: Window | None = None) -> str:
        text = " ".join(show([Outcome("jobs", Status.OK)], pieces, Look(width), span))
        return "".join(one for one in text if "▁" <= one <= "█")

    assert course(None) == "▁▁▂▂▃▄▄▅▅▆▆▇███"  # of two seconds each
    assert course(60) == "▁▂▃▄▅▇██"  # as narrow as it gets
    assert course(60, Window(SINCE, SINCE + 9, 1)) == "▁▃▅▇█"


def test_every_point_has_a_line_with_its_time_where_that_is_asked_for(pieces: dict[str, DryRunFile]) -> None:
    lines = list(show(OUTCOMES, pieces, Look(120), points=True))
    assert len(lines) == 2 + 23 + 2
    assert lines[:4] == [
        "wandb: ok in 1.3 s",
        "  every series: entity:acme",
        "  wandb.runs.active  2026-11-07T00:05:00Z     0  run  project:ants",
        "  wandb.runs.active  2026-11-07T00:05:00Z     5  run  project:bees",
    ]


def one_point(tmp_path: Path, *labels: str) -> dict[str, DryRunFile]:
    sink = FileSink(tmp_path / "wandb", (RATE, ACTIVE), 100, HOUR.since, HOUR.until)
    send(sink, [ACTIVE(1234567, SINCE, project=label) for label in labels])
    return {"wandb": DryRunFile(tmp_path / "wandb")}


def test_a_series_with_one_point_is_its_value(tmp_path: Path) -> None:
    pieces = one_point(tmp_path, "ants", "bees")
    assert list(show(OUTCOMES[:1], pieces, Look(80)))[1:] == [
        "  wandb.runs.active  1,234,567  run  project:ants",
        "  wandb.runs.active  1,234,567  run  project:bees",
        "",
    ]


def test_tags_that_do_not_fit_stand_under_their_row_and_in_a_pipe_beside_it(tmp_path: Path) -> None:
    pieces = one_point(tmp_path, "ants", "a-project-with-a-long-name")
    row = "  wandb.runs.active  1,234,567  run"
    wide = f"{row}  project:a-project-with-a-long-name"
    lines = list(show(OUTCOMES[:1], pieces, Look(len(wide))))
    assert lines[1:3] == [wide, f"{row}  project:ants"]
    lines = list(show(OUTCOMES[:1], pieces, Look(len(wide) - 1)))
    assert lines[1:4] == [row, "      project:a-project-with-a-long-name", f"{row}  project:ants"]
    [_, piped, *_] = show(OUTCOMES[:1], one_point(tmp_path, "x" * 150), Look())
    assert piped == f"{row}  project:{'x' * 150}"


def test_in_a_pipe_every_line_has_all_tags(pieces: dict[str, DryRunFile]) -> None:
    rows = [line for line in show(OUTCOMES, pieces, Look(), HOUR) if "wandb." in line]
    assert len(rows) == 3
    assert all("entity:acme project:" in row for row in rows)


def test_values_of_one_unit_may_be_shown_in_several(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "jobs", (SIZE,), 100, HOUR.since, HOUR.until)
    send(sink, [SIZE(1000 ** (1 + number), tick) for number, tick in enumerate(HOUR.ticks[:2])])
    pieces = {"jobs": DryRunFile(tmp_path / "jobs")}
    [*_, row, _] = show([Outcome("jobs", Status.OK)], pieces, Look(), HOUR)
    assert row.split("  ")[1:6] == ["jobs.size", "1,000 B", "976.6 KiB", "1,000 B", "488.8 KiB"]


def test_a_collector_that_left_nothing_has_only_its_headline(tmp_path: Path) -> None:
    FileSink(tmp_path / "jobs", (DONE,), 100, HOUR.since, HOUR.until)
    pieces = {"jobs": DryRunFile(tmp_path / "jobs"), "gone": DryRunFile(tmp_path / "gone")}
    outcomes = [Outcome("jobs", Status.EMPTY), Outcome("gone", Status.FAILED, lost=["all"])]
    assert list(show(outcomes, pieces, Look(100), HOUR))[1:] == [
        "jobs: empty in 0.0 s",
        "gone: failed in 0.0 s",
        "  lost all",
    ]


@pytest.mark.parametrize(
    ("means", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([7, None, 0], "█ ▁"),
        ([5, 5, 5], "▁▁▁"),
        ([0, 0, 0], "▁▁▁"),
        ([-1, 0, 1], "▁▅█"),
        ([-1.7e308, 1.7e308], "▁█"),
        ([None, None], "  "),
        ([], ""),
    ],
)
def test_a_sparkline_is_blank_where_nothing_is_known_and_low_where_nothing_moves(
    means: list[float | None], drawn: str
) -> None:
    assert sparkline(means) == drawn


def test_a_span_is_described_to_the_second_where_it_must_be() -> None:
    span = Window(SINCE + 1, SINCE + 3600, 60)
    assert describe(span) == "2026-11-07 00:00:01 to 01:00 UTC, every 1 min"
