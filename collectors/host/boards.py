"""What one GPU board says of itself, as figures: a row of a table for each question.

Knows NVML's functions and what their answers mean. A question that is not answered costs its own figure.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from collectors.host import metrics
from collectors.host.jobs import memory_by_job
from common.metric import Metric
from fleetgauge.compute.nvml import LATE, LOST, NOT_SUPPORTED, Device, error_code

_INVALID_ARGUMENT, _FUNCTION_NOT_FOUND, _UNKNOWN = 2, 13, 999
_GIB = 2.0**-30
_MEMORY_V2 = 0x02000028  # the version of the answer that tells reserved memory from used
_MEMORY_TEMPERATURE = 82  # the number of a field value
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by its type
_MAX_LINKS = 36
_LINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")  # by the number of their counter
_PROFILE = re.compile(r"MIG (?:\d+c\.)?(\S+)$")  # a part of an instance has the instance's memory


class Row(NamedTuple):
    """One figure: the question, where in the answer it is, and what it is multiplied with."""

    metric: Metric
    function: str
    arguments: tuple[int, ...] = ()
    field: str | int | None = None
    scale: float = 1
    kind: str | None = None


class Figure(NamedTuple):
    """A value and the tags that it has beside those of its board; an instance has another `gpu`."""

    metric: Metric
    value: float
    tags: dict[str, str]


ALWAYS = (
    Row(metrics.GPU_TEMPERATURE, "nvmlDeviceGetTemperature", (0,)),
    Row(metrics.GPU_POWER, "nvmlDeviceGetPowerUsage", scale=0.001),
    Row(metrics.GPU_POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", scale=0.001),
    Row(metrics.GPU_SM_CLOCK, "nvmlDeviceGetClockInfo", (1,)),
    Row(metrics.GPU_MEMORY_CLOCK, "nvmlDeviceGetClockInfo", (2,)),
    Row(metrics.GPU_PCIE_REPLAYS, "nvmlDeviceGetPcieReplayCounter"),
    Row(metrics.GPU_ECC_ERRORS, "nvmlDeviceGetTotalEccErrors", (0, 0), kind="corrected"),
    Row(metrics.GPU_ECC_ERRORS, "nvmlDeviceGetTotalEccErrors", (1, 0), kind="uncorrected"),
    Row(metrics.GPU_ECC_ERRORS_AGGREGATE, "nvmlDeviceGetTotalEccErrors", (0, 1), kind="corrected"),
    Row(metrics.GPU_ECC_ERRORS_AGGREGATE, "nvmlDeviceGetTotalEccErrors", (1, 1), kind="uncorrected"),
    Row(metrics.GPU_REMAPPED_ROWS, "nvmlDeviceGetRemappedRows", field=0, kind="correctable"),
    Row(metrics.GPU_REMAPPED_ROWS, "nvmlDeviceGetRemappedRows", field=1, kind="uncorrectable"),
    Row(metrics.GPU_REMAPPING_PENDING, "nvmlDeviceGetRemappedRows", field=2),
    Row(metrics.GPU_REMAPPING_FAILED, "nvmlDeviceGetRemappedRows", field=3),
)
UTILIZATION = (
    Row(metrics.GPU_UTILIZATION, "nvmlDeviceGetUtilizationRates", field="gpu"),
    Row(metrics.GPU_MEMORY_UTILIZATION, "nvmlDeviceGetUtilizationRates", field="memory"),
)
VIDEO = (
    Row(metrics.GPU_ENCODER, "nvmlDeviceGetEncoderUtilization", field=0),
    Row(metrics.GPU_DECODER, "nvmlDeviceGetDecoderUtilization", field=0),
)
MEMORY = (
    Row(metrics.GPU_MEMORY, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "total", _GIB),
    Row(metrics.GPU_MEMORY_FREE, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "free", _GIB),
    Row(metrics.GPU_MEMORY_USED, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "used", _GIB),
    Row(metrics.GPU_MEMORY_RESERVED, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "reserved", _GIB),
)
# What older drivers answer: `used` would be used and reserved in one.
OLDER_MEMORY = tuple(row._replace(arguments=()) for row in MEMORY[:2])
REASONS = {
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
    "board_limit": 0x200,
    "reliability": 0x400,
}
ACTED_ON = sum(REASONS[reason] for reason in ("hw_slowdown", "thermal", "hw_thermal", "power_brake"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked beyond what is always; `processes` is where their cgroups can be read."""

    video: bool = False
    processes: Path | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """One board and its figures. `lost` is None where nobody can say; `error` is why it was not read."""

    index: int
    name: str | None = None
    uuid: str | None = None
    figures: tuple[Figure, ...] = ()
    energy_mj: int | None = None
    lost: bool | None = None
    error: str | None = None


def load_pynvml() -> Any:
    """Return `pynvml`, or None where it is not installed: the probe's binding has the inventory."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def unread(index: int) -> Board:
    """A board that the driver lists and has not described."""
    return Board(index, error=LATE)


# The binding has no types.
def read(nvml: Any, index: int, wanted: Wanted) -> Board:
    """Ask one board everything. Whatever one answer raises costs this board alone."""
    device = Device(nvml, None)
    try:
        device.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = device.get_text("nvmlDeviceGetName"), device.get_text("nvmlDeviceGetUUID")
        figures = tuple(_figures(device, index, wanted))
        energy = device.get_number("nvmlDeviceGetTotalEnergyConsumption")
    except Exception as error:
        return Board(index, lost=True if error_code(error) in (*LOST, _UNKNOWN) else None, error=str(error))
    silent = not (name or uuid or figures or energy is not None)
    lost = device.lost or ("it answers nothing" if silent and _UNKNOWN in device.codes.values() else None)
    return Board(index, name, uuid, figures, energy, lost=lost is not None, error=lost)


def _figures(device: Device, index: int, wanted: Wanted) -> Iterator[Figure]:
    yield from _rows(device, ALWAYS)
    divided = device.get_number("nvmlDeviceGetMigMode", field=0)
    if divided == 0 or device.codes.get("nvmlDeviceGetMigMode") in (NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
        yield from _rows(device, UTILIZATION)
        yield from _rows(device, VIDEO if wanted.video else ())
    instances = list(_instances(device, index))
    for part, tags in instances or [(device, {})]:
        yield from _memory(part, tags)
        if wanted.processes is not None:
            for job, used in memory_by_job(part, wanted.processes).items():
                yield Figure(metrics.GPU_JOB_MEMORY, used * _GIB, {**tags, **dict([job])})
    yield from _memory_temperature(device)
    yield from _clock_reasons(device)
    yield from _links(device)


def _rows(device: Device, rows: tuple[Row, ...], tags: dict[str, str] | None = None) -> Iterator[Figure]:
    for row in rows:
        number = device.get_number(row.function, *row.arguments, field=row.field)
        if number is not None:
            kind = {"kind": row.kind} if row.kind else {}
            yield Figure(row.metric, round(number * row.scale, 3), {**(tags or {}), **kind})


def _memory(device: Device, tags: dict[str, str]) -> Iterator[Figure]:
    yield from list(_rows(device, MEMORY, tags)) or _rows(device, OLDER_MEMORY, tags)


def _instances(device: Device, index: int) -> Iterator[tuple[Device, dict[str, str]]]:
    """The parts of a divided board and how they are told apart; those that share their memory once."""
    seen = set()
    for part in device.instances():
        name, number = part.get_text("nvmlDeviceGetName"), part.get_number("nvmlDeviceGetGpuInstanceId")
        profile = _PROFILE.search(name or "")
        if profile and number is not None and number not in seen:
            seen.add(number)
            uuid = part.get_text("nvmlDeviceGetUUID")
            yield part, {"gpu": f"{index}:{profile[1]}:{number}"} | ({"gpu_uuid": uuid} if uuid else {})


def _memory_temperature(device: Device) -> Iterator[Figure]:
    values = device.get("nvmlDeviceGetFieldValues", (_MEMORY_TEMPERATURE,))
    if values is not None and not values[0].nvmlReturn and values[0].valueType < len(_VALUE_FIELDS):
        degrees = getattr(values[0].value, _VALUE_FIELDS[values[0].valueType])
        yield Figure(metrics.GPU_MEMORY_TEMPERATURE, degrees, {})


def _clock_reasons(device: Device) -> Iterator[Figure]:
    """Why the clocks are what they are. The function was renamed; older drivers know its older name."""
    bits = device.get_number("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:
        bits = device.get_number("nvmlDeviceGetCurrentClocksThrottleReasons")
    if bits is not None:
        for reason, bit in REASONS.items():
            yield Figure(metrics.GPU_THROTTLED, int(bool(bits & bit)), {"reason": reason})
        yield Figure(metrics.GPU_SLOWED, int(bool(bits & ACTED_ON)), {})


def _links(device: Device) -> Iterator[Figure]:
    """How many NVLinks are up, and their errors; a link that cannot be asked makes the sum unknown."""
    active, told = [], False
    for link in range(_MAX_LINKS):
        state = device.get_number("nvmlDeviceGetNvLinkState", link)
        code = device.codes.pop("nvmlDeviceGetNvLinkState", None)
        if code == _INVALID_ARGUMENT:  # beyond the last
            break
        if state is not None:
            told = True
            active += [link] if state else []
        elif code != NOT_SUPPORTED:
            return
    if told:
        yield Figure(metrics.GPU_NVLINKS_ACTIVE, len(active), {})
    for counter, kind in enumerate(_LINK_ERRORS):
        errors = [device.get_number("nvmlDeviceGetNvLinkErrorCounter", link, counter) for link in active]
        known = [count for count in errors if count is not None]
        if active and len(known) == len(active):
            yield Figure(metrics.GPU_NVLINK_ERRORS, sum(known), {"kind": kind})
