"""The part of the command line that asks about the past: its grammar, and what goes with what."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

from common.errors import ConfigurationError
from common.job import Backfill
from common.times import duration, iso, parse_duration, parse_moment

MAX_PARTS = 10_000
_INDEX = "JOB_COMPLETION_INDEX"  # what Kubernetes gives each pod of an Indexed Job


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command line."""
    past = parser.add_argument_group("the past (docs/backfill.md)")
    past.add_argument(
        "--since", metavar="TIME", help="answer for every step after then: 7d, or 2026-11-14T00:00Z"
    )
    past.add_argument("--until", metavar="TIME", help="up to then (default: now)")
    past.add_argument(
        "--step", metavar="INTERVAL", type=interval, help="grid of the answers (default: FLEETGAUGE_STEP)"
    )
    past.add_argument("--csv", metavar="FILE", help="without --push: write every point to a file as well")
    drawn = "without --push: draw every metric on a page to look at; in a directory it gets a name"
    past.add_argument("--html", metavar="FILE", help=drawn)
    past.add_argument(
        "--slice",
        metavar="I/N",
        help="only part I, from 0, of N equal parts; /N takes I from JOB_COMPLETION_INDEX",
    )
    past.add_argument(
        "--enable-historical",
        action="store_true",
        help="turn Historical Metrics Ingestion on where it is off (needs DD_APP_KEY)",
    )
    past.add_argument("--only-enabled", action="store_true", help="leave out the metrics for which it is off")
    past.add_argument(
        "--yes", action="store_true", help="send without asking; needed where nobody can be asked"
    )


def interval(text: str) -> int:
    """A duration of a second to a day."""
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 s and 1 day")
    return value


def parse(
    options: argparse.Namespace, environ: Mapping[str, str], now: int, *, person: bool
) -> Backfill | None:
    """What was asked about the past, None where nothing was; raises for what does not go together.

    Sending it is agreed to by `--yes`, or by a person where one can be asked.
    """
    _refuse_odd_pairs(options)
    if options.since is None:
        return None
    if not person and not options.yes and options.push:
        raise ConfigurationError(
            "--push --since sends what cannot be taken back, and there is no terminal to ask on: "
            "look at it without --push, then add --yes"
        )
    try:
        since = parse_moment(options.since, now)
        until = now if options.until is None else parse_moment(options.until, now)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if until <= since:
        raise ConfigurationError(f"--until {iso(until)} is not after --since {iso(since)}")
    part, parts = part_of("--slice", options.slice, environ)
    if parts > 1 and not all("-" in (text or "") for text in (options.since, options.until)):
        raise ConfigurationError(
            "--slice needs --since and --until as moments, so that all parts are of the same span: "
            f"write --since {iso(since)} --until {iso(until)}"
        )
    return Backfill(
        since=since,
        until=until,
        asked=_asked(options),
        part=part,
        parts=parts,
        only_enabled=options.only_enabled,
        enable=options.enable_historical,
        ask=options.push and not options.yes,
    )


def _refuse_odd_pairs(options: argparse.Namespace) -> None:
    given = [
        f"--{name.replace('_', '-')}" for name, value in vars(options).items() if value not in (None, False)
    ]
    sending = ("--enable-historical", "--only-enabled", "--yes")
    for option in ("--until", "--step", "--csv", "--html", "--slice", *sending):
        if option in given and "--since" not in given:
            raise ConfigurationError(f"{option} goes with --since")
    for option in sending:
        if option in given and "--push" not in given:
            raise ConfigurationError(f"{option} goes with --push: without it nothing is sent")
    if "--every" in given and "--since" in given:
        raise ConfigurationError("--every is about the present, --since about the past: one of them")
    for option in ("--csv", "--html"):
        if option in given and "--push" in given:
            raise ConfigurationError(f"{option} is for looking: leave --push out, and send afterwards")
    for option in {"--push", "--check", "--json", "--print-config"} & set(given):
        if "--points" in given:
            raise ConfigurationError(f"--points is for looking: leave {option} out")
    if "--since" in given and "--print-config" in given:
        raise ConfigurationError("--print-config is about settings: leave --since out")
    if "--json" in given and {"--csv", "--html"} & set(given):
        raise ConfigurationError("--json prints the points: --csv and --html are for another run")


def part_of(
    option: str, text: str | None, environ: Mapping[str, str], most: int = MAX_PARTS
) -> tuple[int, int]:
    """The part and the number of parts, from `2/8`, or from `/8` and the index of the pod."""
    if text is None:
        return 0, 1
    found = re.fullmatch(r"(\d*)/(\d+)", text.strip())
    if found is None:
        raise ConfigurationError(
            f"{option} {text!r} is not a part: write 0/8 to 7/8, or /8 in an Indexed Job"
        )
    index = found[1] or environ.get(_INDEX, "").strip()
    if not index.isdecimal():
        raise ConfigurationError(
            f"{option} {text} takes its part from {_INDEX}, which is not set to a number"
        )
    part, parts = int(index), int(found[2])
    if not 0 <= part < parts <= most:
        raise ConfigurationError(
            f"{option} {part}/{parts}: parts are numbered from 0 to {parts - 1}, and at most {most:,}"
        )
    return part, parts


def _asked(options: argparse.Namespace) -> tuple[str, ...]:
    """The span as it was typed."""
    step = duration(options.step) if options.step else None
    given = {"--since": options.since, "--until": options.until, "--step": step, "--slice": options.slice}
    return tuple(word for option, value in given.items() if value for word in (option, value))
