"""A span of the past as a person sees it in a terminal."""

from __future__ import annotations

import pytest

from common.metric import count, gauge
from common.outcome import Outcome, Status
from common.show.layout import Look
from common.show.overview import describe, show, sparkline
from common.show.points import Points
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
def points() -> dict[str, Points]:
    """Two projects of which one is not known for a while."""
    kept = Points((RATE, ACTIVE), 100, HOUR.since, HOUR.until)
    for half in (HOUR.slice(0, 2), HOUR.slice(1, 2)):
        for tick in half.ticks:
            number = (tick - SINCE) // 300 - 1
            send(kept, [ACTIVE(number % 8 * 100, tick, entity="acme", project="ants")])
            if number not in {3, 4}:
                send(kept, [ACTIVE(5, tick, entity="acme", project="bees")])
    send(kept, [RATE(0.25, SINCE + 600, entity="acme", project="ants")])
    return {"wandb": kept}


def test_every_series_has_a_row_in_the_order_of_the_catalogue(points: dict[str, Points]) -> None:
    assert list(show(OUTCOMES, points, Look(120), HOUR)) == [
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


def test_in_a_narrow_terminal_figures_stand_under_their_names(points: dict[str, Points]) -> None:
    assert list(show(OUTCOMES, points, Look(60), HOUR))[2:] == [
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


def test_what_is_not_of_a_span_says_over_which_time_it_is(points: dict[str, Points]) -> None:
    lines = list(show(OUTCOMES, points, Look(120)))
    assert lines[2] == "  23 points in 3 series, 2026-11-07 00:05 to 01:00 UTC"
    assert lines[5] == (
        "  wandb.runs.active      0   300    0  283.3  700  ▁▃▆█▁▃         12  run   project:ants"
    )


def test_a_course_fills_the_blocks_that_there_is_room_for() -> None:
    kept = Points((SIZE,), 100, HOUR.since, HOUR.until)
    send(kept, [SIZE(second, SINCE + second) for second in range(30)])
    points = {"jobs": kept}

    def course(width: int | None, span: Window | None = None) -> str:
        text = " ".join(show([Outcome("jobs", Status.OK)], points, Look(width), span))
        return "".join(one for one in text if "▁" <= one <= "█")

    assert course(None) == "▁▁▂▂▃▄▄▅▅▆▆▇███"  # of two seconds each
    assert course(60) == "▁▂▃▄▅▇██"  # as narrow as it gets
    assert course(60, Window(SINCE, SINCE + 9, 1)) == "▁▃▅▇█"


def one_point(*labels: str) -> dict[str, Points]:
    kept = Points((RATE, ACTIVE), 100, HOUR.since, HOUR.until)
    send(kept, [ACTIVE(1234567, SINCE, project=label) for label in labels])
    return {"wandb": kept}


def test_a_series_with_one_point_is_its_value() -> None:
    points = one_point("ants", "bees")
    assert list(show(OUTCOMES[:1], points, Look(80)))[1:] == [
        "  wandb.runs.active  1,234,567  run  project:ants",
        "  wandb.runs.active  1,234,567  run  project:bees",
        "",
    ]


def test_tags_that_do_not_fit_stand_under_their_row_and_in_a_pipe_beside_it() -> None:
    points = one_point("ants", "a-project-with-a-long-name")
    row = "  wandb.runs.active  1,234,567  run"
    wide = f"{row}  project:a-project-with-a-long-name"
    lines = list(show(OUTCOMES[:1], points, Look(len(wide))))
    assert lines[1:3] == [wide, f"{row}  project:ants"]
    lines = list(show(OUTCOMES[:1], points, Look(len(wide) - 1)))
    assert lines[1:4] == [row, "      project:a-project-with-a-long-name", f"{row}  project:ants"]
    [_, piped, *_] = show(OUTCOMES[:1], one_point("x" * 150), Look())
    assert piped == f"{row}  project:{'x' * 150}"


def test_in_a_pipe_every_line_has_all_tags(points: dict[str, Points]) -> None:
    rows = [line for line in show(OUTCOMES, points, Look(), HOUR) if "wandb." in line]
    assert len(rows) == 3
    assert all("entity:acme project:" in row for row in rows)


def test_values_of_one_unit_may_be_shown_in_several() -> None:
    kept = Points((SIZE,), 100, HOUR.since, HOUR.until)
    send(kept, [SIZE(1000 ** (1 + number), tick) for number, tick in enumerate(HOUR.ticks[:2])])
    points = {"jobs": kept}
    [*_, row, _] = show([Outcome("jobs", Status.OK)], points, Look(), HOUR)
    assert row.split("  ")[1:6] == ["jobs.size", "1,000 B", "976.6 KiB", "1,000 B", "488.8 KiB"]


def test_a_collector_that_left_nothing_has_only_its_headline() -> None:
    points = {"jobs": Points((DONE,), 100, HOUR.since, HOUR.until)}
    outcomes = [Outcome("jobs", Status.EMPTY), Outcome("gone", Status.FAILED, lost=["all"])]
    assert list(show(outcomes, points, Look(100), HOUR))[1:] == [
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
