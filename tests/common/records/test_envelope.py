"""What a record says of itself, field by field, and why a line is none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from common.records.envelope import MAX_TEXT, MAX_TIME, Envelope, UnusableRecordError, envelope, time_of
from common.times import EARLIEST
from fleetgauge.records import SCHEMA_VERSION, Event

EVENT = next(iter(Event))
AT = 1_794_614_400.0
NO_TIMES: list[Any] = [
    *(0, -1, EARLIEST - 1, MAX_TIME, math.nan, math.inf),
    *(True, None, "5", "yesterday", "0001-01-01", "1970-01-01T00:05:00Z", []),
]


def read(**fields: Any) -> Envelope | None:
    value = {"schema_version": SCHEMA_VERSION, "kind": "ant", "run_id": "r1", "seq": 0}
    return envelope({**value, "event": str(EVENT), "timestamp": AT, **fields}, "ant")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("r1", 0, AT, EVENT, "", "")),
        ({"job": "j", "rank": 3, "seq": 2**63 - 1}, ("r1/3", 2**63 - 1, AT, EVENT, "j", "3")),
        ({"rank": "n" * 201, "job": 7}, (f"r1/{'n' * 200}", 0, AT, EVENT, "7", "n" * 200)),
        ({"run_id": "r" * MAX_TEXT, "job": "j" * 201}, ("r" * 200, 0, AT, EVENT, "j" * 200, "")),
    ],
)
def test_an_envelope_is_what_its_record_says(fields: dict[str, Any], expected: tuple[object, ...]) -> None:
    assert read(**fields) == expected


@pytest.mark.parametrize(
    ("key", "values", "reason"),
    [
        ("schema_version", [0, SCHEMA_VERSION + 1, "1", None], "unknown_schema_version"),
        ("run_id", [None, 5, "", "r" * 201], "not_a_record"),
        ("seq", [None, "x", True, -1, 1.0, 2**63], "not_a_record"),
        ("event", [None, "nothing", 7, []], "not_a_record"),
        ("rank", [[1], {}], "not_a_record"),
        ("timestamp", NO_TIMES, "bad_timestamp"),
    ],
)
def test_a_line_that_is_no_record_is_refused_by_the_field_that_is_wrong(
    key: str, values: list[object], reason: str
) -> None:
    for value in values:
        with pytest.raises(UnusableRecordError) as caught:
            read(**{key: value})
        assert (caught.value.reason, caught.value.key) == (reason, key)


def test_a_time_is_a_number_or_iso_8601_and_utc_where_it_does_not_say() -> None:
    stamps = ["2026-11-14T00:00:00", "2026-11-14T00:00:00Z", "2026-11-14T01:00:00.5+01:00"]
    assert [time_of({"timestamp": stamp}) for stamp in stamps] == [AT, AT, AT + 0.5]
    assert [time_of({"timestamp": stamp}) for stamp in (EARLIEST, MAX_TIME - 1)] == [EARLIEST, MAX_TIME - 1]
