"""What a record says of itself, field by field, and why a line is none."""

from __future__ import annotations

from typing import Any

import pytest

from common.records.envelope import (
    MAX_TEXT,
    MAX_TIME,
    Envelope,
    UnusableRecordError,
    envelope,
    identity,
    text,
    time_of,
    timestamp,
)
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


def read(**fields: Any) -> Envelope | None:
    value = {"schema_version": SCHEMA_VERSION, "kind": "ant", "run_id": "r1", "seq": 0}
    return envelope({**value, "event": str(EVENT), "timestamp": 5, **fields}, "ant")


def test_an_envelope_is_what_its_record_says() -> None:
    assert read() == Envelope("r1", 0, 5.0, EVENT, "", None)
    found = read(job="j", rank=3, seq=7, schema_version=1)
    assert found is not None
    assert found[1:] == (7, 5.0, EVENT, "j", "3")
    long = read(rank="x" * 21)
    assert long is not None
    assert long.rank == "x" * 20
    assert read(kind="bee", schema_version=99) is None


@pytest.mark.parametrize(
    ("fields", "reason", "key"),
    [
        *(({"schema_version": said}, "unknown_schema_version", "schema_version") for said in NO_VERSIONS),
        ({"run_id": None}, "not_a_record", "run_id, seq"),
        ({"seq": "x"}, "not_a_record", "run_id, seq"),
        *(({"event": said}, "not_a_record", "event") for said in NO_EVENTS),
    ],
)
def test_a_line_that_is_no_record_is_refused_by_the_field_that_is_wrong(
    fields: dict[str, Any], reason: str, key: str
) -> None:
    with pytest.raises(UnusableRecordError) as caught:
        read(**fields)
    assert (caught.value.reason, caught.value.key) == (reason, key)


def test_a_line_without_a_version_is_no_record() -> None:
    with pytest.raises(UnusableRecordError) as caught:
        envelope({"kind": "ant", "run_id": "r1", "seq": 0}, "ant")
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
    assert time_of({"timestamp": said}) == seconds
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


def test_a_record_is_known_by_run_rank_and_number() -> None:
    assert identity({"run_id": "r", "seq": 0}) == ("r", 0)
    assert identity({"run_id": "r", "seq": 7, "rank": None}) == ("r", 7)
    assert identity({"run_id": "r", "seq": 7, "rank": 3}) == ("r/3", 7)
    longest, last = "r" * 200, 2**63 - 1
    assert identity({"run_id": longest, "seq": last, "rank": -last}) == (f"{longest}/-{last}", last)
    for rank, told in (("node 7", "node 7"), ("n" * 30, "n" * 20), (1.5, "1.5"), (True, "True")):
        assert identity({"run_id": "r", "seq": 7, "rank": rank}) == (f"r/{told}", 7)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"run_id": "r"},
        {"seq": 1},
        {"run_id": 5, "seq": 1},
        {"run_id": "", "seq": 1},
        {"run_id": "r" * 201, "seq": 1},
        {"run_id": "r", "seq": True},
        {"run_id": "r", "seq": -1},
        {"run_id": "r", "seq": 1.0},
        {"run_id": "r", "seq": 2**63},
        {"run_id": "r", "seq": 1, "rank": 2**63},
        {"run_id": "r", "seq": 1, "rank": -(2**63)},
        {"run_id": "r", "seq": 1, "rank": [1]},
    ],
)
def test_what_lacks_a_proper_run_or_number_has_no_identity(value: dict[str, Any]) -> None:
    assert identity(value) is None
