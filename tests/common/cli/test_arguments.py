"""What a command line asks for, and which of its options do not go together."""

from __future__ import annotations

import argparse
import re

import pytest

from common.cli.arguments import interval, options_of, parser
from common.errors import ConfigurationError
from common.options import Backfill, Mode, Options
from common.shards import Shard

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = 86_400
FIXED = "wandb --since 2026-11-14T00:00Z --until 2026-11-15T00:00Z"
BAD_PARTS = ("4/4", "0/0", "two", "/4", "-1/4", "1/2/3")


def options(line: str, *, can_ask: bool = False, **environ: str) -> Options:
    given = parser().parse_args(line.split())
    return options_of(given, given.names, environ, NOON, can_ask=can_ask)


def backfill(line: str, *, can_ask: bool = False, **environ: str) -> Backfill:
    found = options(line, can_ask=can_ask, **environ).backfill
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("wandb", Mode.DRY_RUN),
        ("wandb --push", Mode.PUSH),
        ("wandb --check", Mode.CHECK),
        ("wandb --print-config", Mode.PRINT_CONFIG),
        ("wandb --explain wandb.runs.active project:a=b", Mode.EXPLAIN),
    ],
)
def test_mode_is_dry_run_unless_another_is_named(line: str, mode: Mode) -> None:
    explained = ("wandb.runs.active", "project:a=b") if mode is Mode.EXPLAIN else ()
    assert options(line) == Options(mode, explain=explained)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("wandb", 120),
        ("wandb --timeout 90", 90),
        ("wandb --timeout 2m", 120),
        ("wandb --since 1d", 3600),
        ("wandb --since 1d --timeout 5m", 300),
        ("wandb --push --every 30s", 120),  # too short to end a child that hangs before the next run
        ("wandb --push --every 31s", 16),
        ("wandb --push --every 15m", 120),
    ],
)
def test_deadline_follows_mode_timeout_and_interval(line: str, seconds: float) -> None:
    assert options(line).timeout == seconds


def test_interval_is_the_step_and_all_names_no_collector() -> None:
    found = options("all --push --every 60s")
    assert (found.every, found.step, found.named) == (60, 60, False)


def test_backfill_has_a_start_and_may_have_an_end_and_a_step() -> None:
    assert backfill("wandb --since 7d") == Backfill(NOON - 7 * DAY, NOON)
    line = f"{FIXED} --step 1h --push --yes"
    assert backfill(line) == Backfill(NOON - 36 * 3600, NOON - 12 * 3600)
    assert options(line).step == 3600


@pytest.mark.parametrize(
    ("line", "can_ask", "asks"),
    [
        ("--push", True, True),
        ("--push --yes", True, False),
        ("--push --yes", False, False),
        ("", True, False),
    ],
)
def test_backfill_asks_before_it_sends_unless_yes_is_given(line: str, can_ask: bool, asks: bool) -> None:
    assert backfill(f"wandb --since 1d {line}", can_ask=can_ask).confirm is asks


def test_backfill_knows_what_to_do_about_ingestion_that_is_off() -> None:
    found = backfill("wandb --since 1d --push --enable-historical --only-enabled --yes")
    assert (found.enable, found.only_enabled) == (True, True)


@pytest.mark.parametrize(
    ("text", "index", "part"), [("0/4", "", (0, 4)), ("63/64", "1", (63, 64)), ("/4", " 2 ", (2, 4))]
)
def test_part_comes_from_the_option_or_the_index_of_the_pod(
    text: str, index: str, part: tuple[int, int]
) -> None:
    found = backfill(f"{FIXED} --slice {text}", JOB_COMPLETION_INDEX=index)
    assert (found.part, found.parts) == part
    assert options(f"wandb --shard {text}", JOB_COMPLETION_INDEX=index).shard == Shard(*part)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        *((f"wandb --{option}", f"--{option.split()[0]} requires --since") for option in
          ("until 1d", "step 1h", "csv p.csv", "slice 0/2", "yes")),
        *((f"wandb --since 1d --{option}", f"--{option} requires --push") for option in
          ("yes", "only-enabled", "enable-historical")),
        ("wandb --every 60s", "--every requires --push"),
        ("wandb --since 1d --push --yes --every 60s", "--since and --every exclude each other"),
        *((f"wandb --since 1d --{option}", f"--since and --{option.split()[0]} exclude") for option in
          ("print-config", "explain wandb.runs")),
        *((f"wandb --html p.html --{option}", f"--html and --{option.split()[0]} exclude") for option in
          ("check", "explain wandb.runs")),
        *((f"wandb --since 1d --push --yes --{option} p", f"--push and --{option} exclude") for option in
          ("csv", "html")),
        *((f"wandb --since 1d --json --{option} p", f"--json and --{option} exclude") for option in
          ("csv", "html")),
        ("wandb --since 1d --push", "--push --since sends what cannot be taken back, and there is no termi"),
        ("wandb --since 2026-11-14", "--since, --until: '2026-11-14' has no time zone"),
        ("wandb --since 1d --until 2d", "--until 2026-11-13T12:00:00Z is not after --since 2026-11-14"),
        ("wandb --since 1d --until 1d", "--until 2026-11-14T12:00:00Z is not after --since"),
        *((f"{FIXED} --slice={part}", f"--slice {part} is not a part: write 0/8") for part in BAD_PARTS),
        *((f"wandb --shard={part}", f"--shard {part} is not a part") for part in (*BAD_PARTS, "0/10001")),
        ("wandb --since 7d --until 2026-11-15T00:00Z --slice 0/2",
         ("--slice needs --since and --until as moments, so that all parts are of the same span: "
          "write --since 2026-11-08T12:00:00Z --until 2026-11-15T00:00:00Z")),
        ("host --shard 0/2", "--shard is for wandb alone"),
        ("wandb host --shard 0/2", "--shard is for wandb alone"),
        ("wandb --explain wandb.runs ref", "--explain: 'ref' is not a tag: write tag=value"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(line: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match="^" + re.escape(error)):
        options(line)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, None) for text in ("1", "1s", "1d")),
        *((text, f"{text} is not between 1 s and 1 day") for text in ("0", "86401", "2d")),
        *((text, f"{text!r} is not a duration") for text in ("-1", "nan", "inf", "soon")),
    ],
)
def test_interval_is_a_second_to_a_day(text: str, error: str | None) -> None:
    if error is None:
        assert interval(text) in {1, DAY}
        return
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{error}"):
        interval(text)


def test_several_backfills_need_yes_also_at_a_terminal() -> None:
    with pytest.raises(ConfigurationError, match="there are several collectors"):
        options("wandb xenna --since 1d --push", can_ask=True)
