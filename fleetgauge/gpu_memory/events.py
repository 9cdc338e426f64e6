"""One event of a GPU memory session, whatever wrote it.

Trackers describe the same measurement in two shapes (in memory and on disk) and four schema versions. This
module turns any of them, as a mapping or as an object, into one typed value. It knows nothing of files:
`recording` reads these, and `collectors/gpu_memory` reads measurements from the same format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, TypeVar

# Most severe first. A peak is worth a mark although nothing is wrong.
ALERT_TYPES = ("critical", "error", "warning", "peak")
# A record without a version is legacy; an unknown version is refused, as its fields may mean anything.
_SCHEMA_VERSIONS = (2, 3, 4)
# Numbers beyond 64 bits do not fit into the arrays of `timeline`, and none is a size or a time.
_MAX_NUMBER = 2**63
_NO_METADATA: Mapping[str, object] = MappingProxyType({})
# Any of these makes a JSON object an event; a manifest or a list of settings has none.
_EVENT_FIELDS = ("type", "timestamp", "timestamp_ns", "memory_allocated", "allocator_allocated_bytes")
_BATCH = 512

Item = TypeVar("Item")


class BadEventError(ValueError):
    """A record that is not an event; `reason` is what it is counted under."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a GPU memory event: {reason}")
        self.reason = reason


class MemoryEvent(NamedTuple):
    """What was measured, when, and by whom. None is unknown, never zero."""

    event_type: str
    timestamp: float | None
    memory_allocated: int | None
    memory_reserved: int | None
    memory_change: int | None
    device_used: int | None
    device_total: int | None
    context: str | None
    session_id: str | None
    job_id: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    host: str | None
    pid: int | None
    metadata: Mapping[str, object]

    @property
    def is_alert(self) -> bool:
        """Whether the event deserves a mark."""
        return self.event_type in ALERT_TYPES

    @property
    def effective_device_used(self) -> int | None:
        """Used memory of the device, or what its allocator has where the device does not report it."""
        return used_memory(self.device_used, self.memory_allocated, self.memory_reserved)

    @property
    def utilization_percent(self) -> float | None:
        """Used memory as a share of the device's capacity."""
        return utilization(self.effective_device_used, self.device_total)


class Measurement(NamedTuple):
    """The fields of an event that the service reads: what was measured, and whose it is.

    A smaller tuple than `MemoryEvent`: the service reads millions of events and needs no others.
    """

    event_type: str
    timestamp: float | None
    allocated: int | None
    reserved: int | None
    used: int | None
    total: int | None
    session_id: str | None
    job_id: str | None
    rank: int | None
    host: str | None


def used_memory(used: int | None, allocated: int | None, reserved: int | None) -> int | None:
    """Return the used memory of a device, or what its allocator has where it is not reported.

    That is the larger of allocated and reserved bytes; None where none is known.
    """
    if used is not None:
        return used
    if allocated is None or reserved is None:
        return reserved if allocated is None else allocated
    return max(allocated, reserved)


def utilization(used: int | None, total: int | None) -> float | None:
    """Return used memory as a share of a device's capacity, in percent; None where either is not known."""
    return None if used is None or total is None or total <= 0 else used / total * 100.0


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield a stream as lists of a fixed size: column by column is faster than event by event."""
    stream = iter(items)
    while batch := list(islice(stream, _BATCH)):
        yield batch


def read_event(event: object) -> MemoryEvent:
    """Read an event given by a caller. Never raises: what cannot be understood is unknown.

    `event` is a mapping or an object, with the names of either shape.
    """
    return event if isinstance(event, MemoryEvent) else _read(_reader(event))


def _read(get: Callable[[str], object]) -> MemoryEvent:
    """Return the event whose fields `get` returns by name.

    Names in memory take precedence over those on disk.
    """
    metadata = get("metadata")
    return MemoryEvent(  # in the order of its fields: by name takes three times as long
        str(get("event_type") or get("type") or "sample"),
        _seconds(get("timestamp"), get("timestamp_ns")),
        _integer(get("memory_allocated"), get("allocator_allocated_bytes")),
        _integer(get("memory_reserved"), get("allocator_reserved_bytes")),
        _integer(get("memory_change"), get("allocator_change_bytes")),
        _integer(get("device_used"), get("device_used_bytes")),
        _integer(get("device_total"), get("device_total_bytes")),
        _text(get("context")),
        _text(get("session_id")),
        _text(get("job_id")),
        _integer(get("rank")),
        _integer(get("local_rank")),
        _integer(get("world_size")),
        _text(get("host")),
        _integer(get("pid")),
        metadata if type(metadata) is dict or isinstance(metadata, Mapping) else _NO_METADATA,
    )


def parse_event(record: object, default_session_id: str | None = None) -> MemoryEvent:
    """Read one decoded record of a file: sink v2, v3, v4 or legacy. Raises `BadEventError` for anything else.

    An event without a session of its own (v2, legacy) belongs to `default_session_id`.
    """
    event = _read(_checked(record).get)
    return event if event.session_id else event._replace(session_id=default_session_id)


def parse_measurement(record: object) -> Measurement:
    """Read what `parse_event` reads of one record, but only the fields of a measurement.

    Raises `BadEventError` as it does.
    """
    get = _checked(record).get
    return Measurement(
        str(get("event_type") or get("type") or "sample"),
        _seconds(get("timestamp"), get("timestamp_ns")),
        _integer(get("memory_allocated"), get("allocator_allocated_bytes")),
        _integer(get("memory_reserved"), get("allocator_reserved_bytes")),
        _integer(get("device_used"), get("device_used_bytes")),
        _integer(get("device_total"), get("device_total_bytes")),
        _text(get("session_id")),
        _text(get("job_id")),
        _integer(get("rank")),
        _text(get("host")),
    )


def _checked(record: object) -> Mapping[str, object]:
    """Return a record of a file with today's names; raises `BadEventError` where it is no event."""
    if type(record) is not dict and not isinstance(record, Mapping):
        raise BadEventError("not_an_object")
    version = record.get("schema_version")
    if version is None:
        record = _upgrade_legacy(record)
    elif version not in _SCHEMA_VERSIONS:
        raise BadEventError("unknown_version")
    if record.get("event_type") is None and all(record.get(name) is None for name in _EVENT_FIELDS):
        raise BadEventError("not_an_event")
    return record


def event_value(event: object, name: str) -> object:
    """Return one field of an event, a mapping or an object; None where it has none."""
    return _reader(event)(name)


def event_int_value(event: object, *names: str) -> int | None:
    """Return the first of these fields that is an integer within bounds; None where none is."""
    get = _reader(event)
    return next((found for name in names if (found := _integer(get(name))) is not None), None)


def event_timestamp_seconds(event: object) -> float | None:
    """Return the time of an event in seconds, None where it has none."""
    get = _reader(event)
    return _seconds(get("timestamp"), get("timestamp_ns"))


def _reader(event: object) -> Callable[[str], object]:
    """Return the function that reads a field of an event by name, and returns None where it is absent."""
    if type(event) is dict or isinstance(event, Mapping):  # far cheaper for a dict
        return event.get
    return lambda name: getattr(event, name, None)


def _seconds(seconds: object, nanoseconds: object) -> float | None:
    """Return a time in seconds: `seconds` where it is a number, else `nanoseconds`; None without either."""
    # A bool is an int in Python, and never a time.
    if seconds is not None and isinstance(seconds, int | float) and not isinstance(seconds, bool):
        return float(seconds) if abs(seconds) < _MAX_NUMBER else None  # neither infinite nor not a number
    integer = _integer(nanoseconds)
    return None if integer is None else integer / 1_000_000_000.0


def _integer(found: object, other: object = None) -> int | None:
    """Return the first of two that is an integer within bounds, None where neither is; a bool is none."""
    number = other if found is None else found
    if number is None or (type(number) is int and -_MAX_NUMBER < number < _MAX_NUMBER):
        return number  # nearly every one
    for number in (found, other):
        if isinstance(number, int) and -_MAX_NUMBER < number < _MAX_NUMBER and not isinstance(number, bool):
            return int(number)
    return None


def _text(found: object) -> str | None:
    return found if found is None or isinstance(found, str) else str(found)


def _upgrade_legacy(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return a record from before schema versions, with the names of today beside its own.

    Legacy trackers write megabytes, flatten metadata into `metadata_…` keys, and put the session into
    metadata.
    """
    metadata = dict(given) if isinstance(given := record.get("metadata"), Mapping) else {}
    metadata |= {key.removeprefix("metadata_"): record[key] for key in record if key.startswith("metadata_")}
    modern = {**record, "metadata": metadata}
    for name in ("session_id", "job_id", "rank", "local_rank", "world_size", "host", "pid"):
        if modern.get(name) is None:
            modern[name] = metadata.get(name)
    if modern.get("context") is None:
        modern["context"] = record.get("message")
    megabytes = record.get("memory_mb")
    if record.get("memory_allocated") is None and isinstance(megabytes, int | float):
        # The comparison is false for NaN and infinity, which `int` would raise for.
        modern["memory_allocated"] = int(megabytes * 2**20) if abs(megabytes) < _MAX_NUMBER else None
    for name in ("total_memory", "total_bytes"):
        if modern.get("device_total") is None and modern.get("device_total_bytes") is None:
            modern["device_total"] = record.get(name, metadata.get(name))
    return modern
