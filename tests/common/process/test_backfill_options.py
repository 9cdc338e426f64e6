"""The options about the past: what they mean, and what is said where they do not go together."""

from __future__ import annotations

import argparse
import re
from typing import Any

import pytest

from common.errors import ConfigurationError
from common.job import Backfill
from common.process.backfill_options import interval, parse
from common.process.cli import parser

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = 86_400


def asked(line: str, *, person: bool = False, **environ: str) -> Backfill | None:
    return parse(parser().parse_args(line.split()), environ, NOON, person=person)


def test_without_since_nothing_is_asked_about_the_past() -> None:
    assert asked("wandb --push") is None


def test_the_past_ends_now_unless_it_is_told_otherwise() -> None:
    found = asked("wandb --since 7d")
    assert found == Backfill(NOON - 7 * DAY, NOON, asked=("--since", "7d"))


def test_a_span_has_two_ends_and_a_step() -> None:
    found = asked("wandb --since 2026-11-14T00:00Z --until 2026-11-15T00:00Z --step 1h --push --yes")
    words = ("--since", "2026-11-14T00:00Z", "--until", "2026-11-15T00:00Z", "--step", "1h")
    assert found == Backfill(NOON - 36 * 3600, NOON - 12 * 3600, asked=words)


@pytest.mark.parametrize(
    ("line", "person", "asks"),
    [
        ("--push", True, True),
        ("--push --yes", True, False),
        ("--push --yes", False, False),
        ("", True, False),
    ],
)
def test_a_person_is_asked_before_anything_is_sent_unless_told_yes(
    line: str, person: bool, asks: bool
) -> None:
    found = asked(f"wandb --since 1d {line}", person=person)
    assert found is not None
    assert found.ask is asks


def test_what_to_do_about_ingestion_that_is_off_is_passed_on() -> None:
    found = asked("wandb --since 1d --push --enable-historical --only-enabled --yes")
    assert found is not None
    assert (found.enable, found.only_enabled) == (True, True)


FIXED = "wandb --since 2026-11-14T00:00Z --until 2026-11-15T00:00Z"


@pytest.mark.parametrize(
    ("text", "environ", "part"),
    [
        ("0/4", {}, (0, 4)),
        ("3/4", {"JOB_COMPLETION_INDEX": "1"}, (3, 4)),
        ("/4", {"JOB_COMPLETION_INDEX": " 2 "}, (2, 4)),
    ],
)
def test_a_slice_is_one_of_several_parts(text: str, environ: dict[str, Any], part: tuple[int, int]) -> None:
    found = asked(f"{FIXED} --slice {text}", **environ)
    assert found is not None
    assert (found.part, found.parts) == part


@pytest.mark.parametrize(
    ("line", "environ", "said"),
    [
        ("wandb --until 1d", {}, "--until goes with --since"),
        ("wandb --step 1h", {}, "--step goes with --since"),
        ("wandb --html page.html", {}, "--html goes with --since"),
        ("wandb --csv page.csv", {}, "--csv goes with --since"),
        ("wandb --slice 0/2", {}, "--slice goes with --since"),
        ("wandb --push --yes", {}, "--yes goes with --since"),
        ("wandb --since 1d --yes", {}, "--yes goes with --push"),
        ("wandb --since 1d --only-enabled", {}, "--only-enabled goes with --push"),
        ("wandb --since 1d --enable-historical", {}, "--enable-historical goes with --push"),
        ("wandb --since 1d --every 60s", {}, "--every is about the present"),
        (
            "wandb --since 1d --push",
            {},
            "--push --since sends what cannot be taken back, and there is no termi",
        ),
        ("wandb --since 1d --push --enable-historical", {}, "--push --since sends what cannot be taken back"),
        ("wandb --since 1d --push --html p.html", {}, "--html is for looking: leave --push out"),
        ("wandb --since 1d --push --csv p.csv", {}, "--csv is for looking: leave --push out"),
        ("wandb --since 1d --json --csv p.csv", {}, "--json prints the points"),
        ("wandb --since 2026-11-14", {}, "'2026-11-14' does not say its time zone"),
        ("wandb --since 1d --until 2d", {}, "--until 2026-11-13T12:00:00Z is not after --since 2026-11-14"),
        ("wandb --since 1d --until 1d", {}, "--until 2026-11-14T12:00:00Z is not after --since"),
        (f"{FIXED} --slice 4/4", {}, "--slice 4/4: parts are numbered from 0 to 3"),
        (f"{FIXED} --slice 0/0", {}, "--slice 0/0: parts"),
        (f"{FIXED} --slice two", {}, "--slice 'two' is not a part: write 0/8 to 7/8"),
        (f"{FIXED} --slice /4", {}, "--slice /4 takes its part from JOB_COMPLETION_INDEX, which is not set"),
        ("wandb --since 7d --slice 0/2", {}, "--slice needs --since and --until as moments"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_do(
    line: str, environ: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match="^" + re.escape(said)):
        asked(line, **environ)


def test_a_slice_of_a_moving_span_is_told_the_fixed_one() -> None:
    with pytest.raises(
        ConfigurationError, match="write --since 2026-11-08T12:00:00Z --until 2026-11-15T12:00:00Z"
    ):
        asked("wandb --since 7d --slice 0/2")


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("1s", 1), ("15m", 900), ("1d", DAY)])
def test_an_interval_is_of_a_second_to_a_day(text: str, seconds: int) -> None:
    assert interval(text) == seconds


@pytest.mark.parametrize("text", ["0", "86401", "2d"])
def test_another_interval_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not between 1 s and 1 day$"):
        interval(text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("wandb --points --json", "--points is for looking: leave --json out"),
        ("wandb --points --print-config", "--points is for looking: leave --print-config out"),
        ("wandb --since 1d --print-config", "--print-config is about settings: leave --since out"),
        ("wandb --since 1d --json --csv x", "--json prints the points: --csv and --html are for another run"),
        (
            "wandb --since 1d --json --html x",
            "--json prints the points: --csv and --html are for another run",
        ),
    ],
)
def test_ways_of_looking_that_exclude_each_other_are_refused(line: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        asked(line)
    assert str(raised.value) == said


@pytest.mark.parametrize(
    "line",
    ["--points", "--print-config", "--json", "--since 1d --json", "--since 1d --csv x --html y --points"],
)
def test_each_of_them_goes_by_itself(line: str) -> None:
    assert (asked(f"wandb {line}") is None) is ("--since" not in line)
