"""Durations, ticks and dates."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.times import iso, parse_duration, parse_http_date, parse_moment

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("900", 900),
        (" 15m ", 900),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1 H", 3600),
        ("7d", 604800),
        ("2w", 1209600),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "m", "15x", "1.5h", "-5", "1m5", "1h,30m", "mm", "1 5"])
def test_another_text_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: write seconds \(900\) or units \(15m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((f"Fri, 15 Jan 2027 08:00:00 {zone}", 1_800_000_000) for zone in ("GMT", "-0000")),
        ("Fri, 15 Jan 2027 10:00:00 +0200", 1_800_000_000),
        *((text, None) for text in ("", "soon", "Fri, 15 Jan 99999 08:00:00 GMT")),
        ("Fri, 15 Jan 2027 08:00:00 +99999999999999999999999", None),
    ],
)
def test_a_date_without_a_zone_is_in_utc(text: str, seconds: float | None) -> None:
    assert parse_http_date(text) == seconds


@given(st.text())
def test_no_text_makes_parsing_fail_in_another_way(text: str) -> None:
    assert isinstance(parse_http_date(text), float | None)
    with suppress(ValueError):
        assert parse_duration(text) >= 0
    with suppress(ValueError):
        assert 946_684_800 <= parse_moment(text, NOON) <= NOON


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("7d", "2026-11-08T12:00:00Z"),
        ("90s", "2026-11-15T11:58:30Z"),
        (" Now ", "2026-11-15T12:00:00Z"),
        ("2026-11-14T00:00Z", "2026-11-14T00:00:00Z"),
        ("2026-11-14 01:30+02:00", "2026-11-13T23:30:00Z"),
        ("2026-11-14T00:00:01.9Z", "2026-11-14T00:00:01Z"),
    ],
)
def test_a_moment_is_how_long_ago_or_a_time_with_its_zone(text: str, moment: str) -> None:
    assert iso(parse_moment(text, NOON)) == moment


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "2026-11-14T10:00",
            "'2026-11-14T10:00' has no time zone: write 2026-11-14T10:00Z for UTC",
        ),
        ("2026-11-14", "'2026-11-14' has no time zone: write 2026-11-14T00:00Z for UTC"),
        ("yesterday", "'yesterday' is not a time: write how long ago (7d, 12h) or a moment"),
        ("2026-11-15T12:00:01Z", "'2026-11-15T12:00:01Z' is in the future"),
        ("1794744000", "'1794744000' is not a time"),
        ("20261114", "'20261114' is not a time"),
        ("99999w", "'99999w' is too long ago"),
        ("", "'' is not a time"),
    ],
)
def test_a_moment_that_could_mean_two_things_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        parse_moment(text, NOON)


@given(st.integers(946_684_800, NOON))
def test_a_moment_is_read_back_as_it_is_written(moment: int) -> None:
    assert parse_moment(iso(moment), NOON) == moment
