"""A span of the past as a person sees it in a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.metric import count, gauge
from common.outcome import Outcome, Status
from common.show.dry_run_file import DryRunFile
from common.show.dry_run_sink import FileSink
from common.show.overview import describe, show, sparkline
from common.show.summaries import Stretch
from common.span import Span

SINCE = 1_794_009_600
HOUR = Span(SINCE, SINCE + 3600, 300)
ACTIVE = gauge("wandb.runs.active", "run", "x", "project", "entity")
RATE = gauge("wandb.rate", "", "x", "project", "entity")
DONE = count("jobs.done", "job", "x")
OUTCOMES = [Outcome("wandb", Status.OK, seconds=1.26), Outcome("host", Status.SKIPPED)]


@pytest.fixture
def pieces(tmp_path: Path) -> dict[str, DryRunFile]:
    """Two projects of which one is not known for a while, in two pieces."""
    sink = FileSink(tmp_path / "wandb", (RATE, ACTIVE), 100, HOUR.since, HOUR.until)
    for half in (HOUR.part(0, 2), HOUR.part(1, 2)):
        for tick in half.ticks:
            number = (tick - SINCE) // 300
            sink.take([ACTIVE(number % 8 * 100, tick, entity="acme", project="ants")])
            if number not in {3, 4}:
                sink.take([ACTIVE(5, tick, entity="acme", project="bees")])
    sink.take([RATE(0.25, SINCE + 600, entity="acme", project="ants")])
    return {"wandb": DryRunFile(tmp_path / "wandb")}


def test_every_series_has_a_row_in_the_order_of_the_catalogue(pieces: dict[str, DryRunFile]) -> None:
    assert list(show(OUTCOMES, pieces, HOUR, 120)) == [
        "2026-11-07 00:00 to 2026-11-07 01:00 UTC, every 5 min",
        "wandb: ok in 1.3 s",
        "  every series: entity:acme",
        "  metric             first   last    min     mean    max  over time     points  unit  tags",
        "  wandb.rate         0.250  0.250  0.250    0.250  0.250    ▁                1        project:ants",
        "  wandb.runs.active      0    300      0  283.333    700  ▁▂▃▄▅▆▇█▁▂▃▄      12  run   project:ants",
        "  wandb.runs.active      5      5      5        5      5  ▁▁▁  ▁▁▁▁▁▁▁      10  run   project:bees",
        "",
        "host: skipped in 0.0 s",
    ]


def test_in_a_narrow_terminal_names_and_tags_stand_above_their_figures(
    pieces: dict[str, DryRunFile],
) -> None:
    assert list(show(OUTCOMES, pieces, HOUR, 80))[2:] == [
        "  every series: entity:acme",
        "  metric  tags",
        "    first   last    min     mean    max  over time  points  unit",
        "  wandb.rate  project:ants",
        "    0.250  0.250  0.250    0.250  0.250   ▁              1",
        "  wandb.runs.active  project:ants",
        "        0    300      0  283.333    700  ▁▃▆█▁▃         12  run",
        "  wandb.runs.active  project:bees",
        "        5      5      5        5      5  ▁▁▁▁▁▁         10  run",
        "",
        "host: skipped in 0.0 s",
    ]


@pytest.mark.parametrize("width", [1, 30, 64, 97, 98])
def test_nothing_is_wider_than_the_terminal(pieces: dict[str, DryRunFile], width: int) -> None:
    lines = list(show([Outcome("wandb", Status.OK)], pieces, HOUR, width))
    assert max(len(line) for line in lines[2:]) <= width
    single = [line for line in lines if line.endswith("project:ants") and "0.250" in line]
    assert len(single) == (width == 98)


def test_a_head_that_heads_nothing_is_left_out(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "jobs", (DONE,), 100, HOUR.since, HOUR.until)
    sink.take(DONE(2, tick) for tick in HOUR.ticks)
    assert list(show([Outcome("jobs", Status.OK)], {"jobs": DryRunFile(tmp_path / "jobs")}, HOUR, 100)) == [
        "2026-11-07 00:00 to 2026-11-07 01:00 UTC, every 5 min",
        "jobs: ok in 0.0 s",
        "  metric     first  last  min  mean  max  over time     points  unit",
        "  jobs.done      2     2    2     2    2  ▁▁▁▁▁▁▁▁▁▁▁▁      12  job",
        "",
    ]


def test_a_collector_that_left_nothing_has_only_its_headline(tmp_path: Path) -> None:
    FileSink(tmp_path / "jobs", (DONE,), 100, HOUR.since, HOUR.until)
    pieces = {"jobs": DryRunFile(tmp_path / "jobs"), "gone": DryRunFile(tmp_path / "gone")}
    outcomes = [Outcome("jobs", Status.EMPTY), Outcome("gone", Status.FAILED, lost=["all"])]
    assert list(show(outcomes, pieces, HOUR, 100))[1:] == [
        "jobs: empty in 0.0 s",
        "gone: failed in 0.0 s\n  lost all",
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
    assert sparkline(None if mean is None else Stretch(mean, mean, mean) for mean in means) == drawn


def test_a_span_is_described_to_the_second_where_it_must_be() -> None:
    span = Span(SINCE + 1, SINCE + 3600, 60)
    assert describe(span) == "2026-11-07 00:00:01 to 2026-11-07 01:00 UTC, every 1 min"
