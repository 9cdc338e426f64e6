"""What a record says of itself, field by field, and why a line is none."""

from __future__ import annotations

from typing import Any

import pytest

from common.records.entry import Entry
from common.records.envelope import MAX_TEXT, Envelope, UnusableRecordError, envelope, text, timestamp
from common.records.saved import MAX_TIME
from fleetgauge.records import SCHEMA_VERSION, Event

EVENT = next(iter(Event))
NO_VERSIONS: list[object] = [0, SCHEMA_VERSION + 1, "1", None]
NO_EVENTS: list[object] = [None, "nothing", 7, []]
NO_TIMES: list[object] = [
    0,
    -1,
    MAX_TIME,
    True,
    None,
    "5",
    "yesterday",
    "0001-01-01",
    [],
    float("nan"),
    float("inf"),
]


def read(known: tuple[str, int] | None = ("r1", 0), **fields: Any) -> Envelope | None:
    value = {"schema_version": SCHEMA_VERSION, "kind": "ant", "event": str(EVENT), "timestamp": 5, **fields}
    return envelope(Entry(value, 0, known, 1), "ant")


def test_an_envelope_is_what_its_record_says() -> None:
    assert read() == Envelope("r1", 5.0, EVENT, "", None)
    assert read(job="j", rank=3, schema_version=1) == Envelope("r1", 5.0, EVENT, "j", "3")
    assert read(rank="x" * 21) == Envelope("r1", 5.0, EVENT, "", "x" * 20)
    assert read(kind="bee", schema_version=99) is None


@pytest.mark.parametrize(
    ("fields", "reason", "key"),
    [
        *(({"schema_version": said}, "unknown_schema_version", "schema_version") for said in NO_VERSIONS),
        ({"known": None}, "not_a_record", "run_id, seq"),
        *(({"event": said}, "not_a_record", "event") for said in NO_EVENTS),
    ],
)
def test_a_line_that_is_no_record_is_refused_by_the_field_that_tells(
    fields: dict[str, Any], reason: str, key: str
) -> None:
    with pytest.raises(UnusableRecordError) as caught:
        read(**fields)
    assert (caught.value.reason, caught.value.key) == (reason, key)


def test_a_line_without_a_version_is_nobodys_record() -> None:
    with pytest.raises(UnusableRecordError) as caught:
        envelope(Entry({"kind": "ant"}, 0, ("r1", 0), 1), "ant")
    assert (caught.value.reason, caught.value.key) == ("not_a_record", "schema_version")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (MAX_TIME - 1, MAX_TIME - 1.0),
        ("2026-11-14T00:00:00", 1_794_614_400.0),
        ("2026-11-14T00:00:00Z", 1_794_614_400.0),
        ("2026-11-14T01:00:00.5+01:00", 1_794_614_400.5),
        *((bad, None) for bad in NO_TIMES),
    ],
)
def test_a_time_is_a_number_or_iso_8601_and_utc_where_it_does_not_say(
    said: object, seconds: float | None
) -> None:
    if seconds is not None:
        assert timestamp({"timestamp": said}) == seconds
    else:
        with pytest.raises(UnusableRecordError, match="bad_timestamp"):
            timestamp({"timestamp": said})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, ""),
        ("", ""),
        ("x" * MAX_TEXT, "x" * MAX_TEXT),
        ("x" * (MAX_TEXT + 1), "x" * MAX_TEXT),
        (7, "7"),
    ],
)
def test_a_text_is_cut_to_the_length_of_a_tag(said: object, told: str) -> None:
    assert text({"job": said}, "job") == told
