"""Every shape a tracker ever wrote becomes the same event."""

from __future__ import annotations

import math
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.gpu_memory import BadEvent, parse_event
from fleetgauge.gpu_memory.events import read_event

CASES = yaml.safe_load((Path(__file__).parents[2] / "data" / "stormlog" / "events.yaml").read_text())
SINK, IN_MEMORY = CASES["same"] | CASES["sink"], CASES["same"] | CASES["in_memory"]


def test_both_shapes_as_mappings_and_objects_are_one_event() -> None:
    events = [
        read_event(shape)
        for shape in (SINK, IN_MEMORY, SimpleNamespace(**SINK), SimpleNamespace(**IN_MEMORY))
    ]
    events.append(parse_event(SINK))
    assert all(event == events[0] for event in events)
    assert tuple(events[0]) == (
        ("warning", 1.5, 60, 80, -5, 90, 100, "large", "s", "j", 3, 1, 8, "n1", 7, {"backend": "cuda"})
    )  # fmt: skip
    assert events[0].is_alert
    assert events[0].utilization_percent == 90.0
    assert read_event(events[0]) is events[0]
    of_another_class = MappingProxyType(SINK | {"metadata": MappingProxyType({"backend": "cuda"})})
    assert read_event(of_another_class) == parse_event(of_another_class) == events[0]
    assert read_event(SINK | {"metadata": "cuda"}).metadata == {}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_is_read_and_v2_belongs_to_the_session_of_its_file(version: int) -> None:
    record = {key: value for key, value in SINK.items() if key != "session_id"} | {"schema_version": version}
    assert parse_event(record, "of the file").session_id == "of the file"
    assert parse_event(record | {"session_id": ""}, "of the file").session_id == "of the file"
    assert parse_event(SINK | {"schema_version": version}, "of the file").session_id == "s"


@pytest.mark.parametrize("case", CASES["legacy"], ids=str)
def test_legacy_names_are_read_where_today_s_are_absent(case: dict[str, dict[str, object]]) -> None:
    event = parse_event({"timestamp": 1.0} | case["record"])._asdict()
    assert {name: event[name] for name in case["expected"]} == case["expected"]


def test_what_is_no_event_says_why() -> None:
    no_events: list[tuple[object, str]] = [([1], "not_an_object"), (None, "not_an_object")]
    no_events += [(SINK | {"schema_version": version}, "unknown_version") for version in (5, True)]
    no_events += [({"schema_version": 4, "backend": "cuda"}, "not_an_event"), ({}, "not_an_event")]
    for record, reason in no_events:
        with pytest.raises(BadEvent) as caught:
            parse_event(record)
        assert caught.value.reason == reason


def test_the_time_is_that_in_seconds_first_and_never_a_truth_or_infinite() -> None:
    assert read_event({"timestamp": 7, "timestamp_ns": 1}).timestamp == 7.0
    assert read_event({"timestamp": True, "timestamp_ns": 2_000_000_000}).timestamp == 2.0
    assert read_event({"timestamp": "7", "timestamp_ns": 2_000_000_000}).timestamp == 2.0
    assert read_event({"timestamp_ns": True}).timestamp is None
    assert read_event({"timestamp_ns": 2.0}).timestamp is None
    for odd in (math.nan, math.inf, -math.inf, 10**400, 2.0**63):
        assert read_event({"timestamp": odd}).timestamp is None
    assert read_event({"timestamp_ns": 10**400}).timestamp is None


def test_bytes_are_whole_numbers_and_the_name_in_memory_comes_first() -> None:
    assert read_event({"memory_allocated": 1, "allocator_allocated_bytes": 2}).memory_allocated == 1
    assert read_event({"memory_allocated": None, "allocator_allocated_bytes": 2}).memory_allocated == 2
    assert read_event({"memory_allocated": 0, "allocator_allocated_bytes": 2}).memory_allocated == 0
    for odd in (True, 1.0, "1", math.nan, 2**63, -(2**63)):
        assert read_event({"memory_allocated": odd}).memory_allocated is None
        assert read_event({"memory_allocated": odd, "allocator_allocated_bytes": 2}).memory_allocated == 2
        assert (
            read_event({"memory_allocated": None, "allocator_allocated_bytes": odd}).memory_allocated is None
        )
    assert read_event({"memory_allocated": 2**63 - 1}).memory_allocated == 2**63 - 1


def test_what_the_device_uses_is_at_least_what_its_allocator_holds() -> None:
    assert read_event({"device_used": 0, "memory_allocated": 5}).effective_device_used == 0
    assert read_event({"memory_allocated": 5, "memory_reserved": 9}).effective_device_used == 9
    assert read_event({"memory_allocated": 5}).effective_device_used == 5
    assert read_event({"memory_reserved": 9}).effective_device_used == 9
    assert read_event({}).effective_device_used is None
    for total in (0, -1, None):
        assert read_event({"device_used": 5, "device_total": total}).utilization_percent is None
    assert read_event({"device_total": 5}).utilization_percent is None
    assert read_event({"device_used": 1, "device_total": 1}).utilization_percent == 100.0


values = st.sampled_from([*CASES["odd"], 10**400])
names = st.sampled_from([*SINK, *IN_MEMORY, "type", "memory_mb", "total_memory", "metadata_rank", "message"])


@given(st.dictionaries(names, values))
def test_no_record_is_worse_than_a_bad_event(record: dict[str, object]) -> None:
    read_event(record)
    try:
        event = parse_event(record, "default")
    except BadEvent:
        return
    assert event.timestamp is None or math.isfinite(event.timestamp)
    for size in (event.memory_allocated, event.memory_reserved, event.memory_change, event.rank):
        assert size is None or type(size) is int
    assert isinstance(event.session_id, str)
