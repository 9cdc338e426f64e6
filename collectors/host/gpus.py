"""Samples of one GPU through NVML: a table of queries, and the readings that need more than one call.

A query that fails leaves out its own sample only: what a GPU does not support is absent, and not 0.
`fleetgauge.compute.nvml` has the calls and their cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from collectors.host import metrics
from collectors.host.jobs import memory_by_job
from common.metric import Metric
from fleetgauge.compute.nvml import LOST, NOT_SUPPORTED, Device, error_code

# Codes of NVML by number: pynvml is imported only where GPUs are read.
_INVALID_ARGUMENT, _FUNCTION_NOT_FOUND, _UNKNOWN = 2, 13, 999
_BYTES_TO_GIB = 2.0**-30
_MEMORY_V2 = 0x02000028  # nvmlMemory_v2_t, which separates reserved memory from used
_MEMORY_TEMPERATURE = 82  # NVML_FI_DEV_MEMORY_TEMP
_MAX_LINKS = 36
_LINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")  # by nvmlNvLinkErrorCounter_t
# Compute instances (`1c.`) share the memory of their GPU instance.
_PROFILE = re.compile(r"MIG (?:\d+c\.)?(\S+)$")


class Query(NamedTuple):
    """How one metric is read: an NVML call, the field of its result, and the factor to the metric's unit.

    `kind` is the value of a tag of that name. Calls with equal arguments are cached, so that several queries
    may share one.
    """

    metric: Metric
    function: str
    arguments: tuple[int, ...] = ()
    field: str | int | None = None
    scale: float = 1
    kind: str | None = None


class Sample(NamedTuple):
    """A value, and its tags besides those of its GPU; a MIG instance overrides `gpu` and `gpu_uuid`."""

    metric: Metric
    value: float
    tags: dict[str, str]


BASE_QUERIES = (
    Query(metrics.GPU_TEMPERATURE, "nvmlDeviceGetTemperature", (0,)),
    Query(metrics.GPU_POWER, "nvmlDeviceGetPowerUsage", scale=0.001),
    Query(metrics.GPU_POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", scale=0.001),
    Query(metrics.GPU_SM_CLOCK, "nvmlDeviceGetClockInfo", (1,)),
    Query(metrics.GPU_MEMORY_CLOCK, "nvmlDeviceGetClockInfo", (2,)),
    Query(metrics.GPU_PCIE_REPLAYS, "nvmlDeviceGetPcieReplayCounter"),
    Query(metrics.GPU_ECC_ERRORS, "nvmlDeviceGetTotalEccErrors", (0, 0), kind="corrected"),
    Query(metrics.GPU_ECC_ERRORS, "nvmlDeviceGetTotalEccErrors", (1, 0), kind="uncorrected"),
    Query(metrics.GPU_ECC_ERRORS_AGGREGATE, "nvmlDeviceGetTotalEccErrors", (0, 1), kind="corrected"),
    Query(metrics.GPU_ECC_ERRORS_AGGREGATE, "nvmlDeviceGetTotalEccErrors", (1, 1), kind="uncorrected"),
    Query(metrics.GPU_REMAPPED_ROWS, "nvmlDeviceGetRemappedRows", field=0, kind="correctable"),
    Query(metrics.GPU_REMAPPED_ROWS, "nvmlDeviceGetRemappedRows", field=1, kind="uncorrectable"),
    Query(metrics.GPU_REMAPPING_PENDING, "nvmlDeviceGetRemappedRows", field=2),
    Query(metrics.GPU_REMAPPING_FAILED, "nvmlDeviceGetRemappedRows", field=3),
)
UTILIZATION_QUERIES = (
    Query(metrics.GPU_UTILIZATION, "nvmlDeviceGetUtilizationRates", field="gpu"),
    Query(metrics.GPU_MEMORY_UTILIZATION, "nvmlDeviceGetUtilizationRates", field="memory"),
)
VIDEO_QUERIES = (
    Query(metrics.GPU_ENCODER, "nvmlDeviceGetEncoderUtilization", field=0),
    Query(metrics.GPU_DECODER, "nvmlDeviceGetDecoderUtilization", field=0),
)
MEMORY_QUERIES = (
    Query(metrics.GPU_MEMORY, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "total", _BYTES_TO_GIB),
    Query(metrics.GPU_MEMORY_FREE, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "free", _BYTES_TO_GIB),
    Query(metrics.GPU_MEMORY_USED, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "used", _BYTES_TO_GIB),
    Query(metrics.GPU_MEMORY_RESERVED, "nvmlDeviceGetMemoryInfo", (_MEMORY_V2,), "reserved", _BYTES_TO_GIB),
)
# For drivers older than 510, whose `used` includes reserved memory.
MEMORY_QUERIES_V1 = tuple(query._replace(arguments=()) for query in MEMORY_QUERIES[:2])
REASON_BITS = {
    "power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
    "board_limit": 0x200,
    "reliability": 0x400,
}
SLOWDOWN_BITS = sum(REASON_BITS[reason] for reason in ("hw_slowdown", "thermal", "hw_thermal", "power_brake"))


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The samples of one GPU. `lost` is None where it is unknown; `error` is why the GPU was not read.

    `energy_mj` is the driver's counter since it was loaded, in millijoules.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    samples: tuple[Sample, ...] = ()
    energy_mj: int | None = None
    lost: bool | None = None
    error: str | None = None


# Any: the binding has no types.
def read(nvml: Any, index: int, video: bool, proc: Path | None) -> GpuReading:
    """Run all queries on the GPU at `index`. Never raises: an exception is the error of the reading.

    `nvml` is pynvml. `video` adds the video engines, `proc`, the host's proc file system, memory by job.
    """
    device = Device(nvml, None)
    try:
        device.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = device.get_text("nvmlDeviceGetName"), device.get_text("nvmlDeviceGetUUID")
        samples = tuple(_samples(device, index, video, proc))
        energy = device.get_number("nvmlDeviceGetTotalEnergyConsumption")
    except Exception as error:
        return GpuReading(
            index, lost=True if error_code(error) in (*LOST, _UNKNOWN) else None, error=str(error)
        )
    # A GPU that has fallen off the bus may answer NVML_ERROR_UNKNOWN to everything instead of GPU_IS_LOST.
    empty = not (name or uuid or samples or energy is not None)
    lost = device.lost or ("every query failed" if empty and _UNKNOWN in device.codes.values() else None)
    return GpuReading(index, name, uuid, samples, energy, lost=lost is not None, error=lost)


def _samples(device: Device, index: int, video: bool, proc: Path | None) -> Iterator[Sample]:
    """Yield all samples of a GPU. Memory is that of its MIG instances where there are any."""
    yield from _query(device, BASE_QUERIES)
    mig_mode = device.get_number("nvmlDeviceGetMigMode", field=0)
    # With MIG enabled NVML has no utilisation, neither of the GPU nor of its instances. A GPU without MIG
    # fails the query as not supported.
    if mig_mode == 0 or device.codes.get("nvmlDeviceGetMigMode") in (NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
        yield from _query(device, UTILIZATION_QUERIES)
        yield from _query(device, VIDEO_QUERIES if video else ())
    instances = list(_instances(device, index))
    for instance, tags in instances or [(device, {})]:
        yield from list(_query(instance, MEMORY_QUERIES, tags)) or _query(instance, MEMORY_QUERIES_V1, tags)
        # NVML lists the processes of an instance by its own handle.
        if proc is not None:
            for job, used in memory_by_job(instance, proc).items():
                yield Sample(metrics.GPU_JOB_MEMORY, used * _BYTES_TO_GIB, {**tags, **dict([job])})
    yield from _memory_temperature(device)
    yield from _clock_reasons(device)
    yield from _nvlinks(device)


def _query(
    device: Device, queries: tuple[Query, ...], tags: dict[str, str] | None = None
) -> Iterator[Sample]:
    """Yield the sample of each query that succeeds; `tags` are added to each."""
    for query in queries:
        number = device.get_number(query.function, *query.arguments, field=query.field)
        if number is not None:
            kind = {"kind": query.kind} if query.kind else {}
            yield Sample(query.metric, round(number * query.scale, 3), {**(tags or {}), **kind})


def _instances(device: Device, index: int) -> Iterator[tuple[Device, dict[str, str]]]:
    """Yield the MIG instances of a GPU and their tags; of compute instances that share memory, the first.

    The tag `gpu` is index, profile and number, such as `0:1g.10gb:7`. An instance without a profile in its
    name is left out.
    """
    seen = set()
    for instance in device.instances():
        name = instance.get_text("nvmlDeviceGetName")
        number = instance.get_number("nvmlDeviceGetGpuInstanceId")
        profile = _PROFILE.search(name or "")
        if profile and number is not None and number not in seen:
            seen.add(number)
            uuid = instance.get_text("nvmlDeviceGetUUID")
            yield instance, {"gpu": f"{index}:{profile[1]}:{number}"} | ({"gpu_uuid": uuid} if uuid else {})


def _memory_temperature(device: Device) -> Iterator[Sample]:
    """Yield the temperature of the memory, which NVML has as a field value only.

    Nothing where the GPU does not support it.
    """
    values = device.get("nvmlDeviceGetFieldValues", (_MEMORY_TEMPERATURE,))
    if values is not None and not values[0].nvmlReturn:
        # A field value is a union, whose member is documented for each field.
        yield Sample(metrics.GPU_MEMORY_TEMPERATURE, values[0].value.uiVal, {})


def _clock_reasons(device: Device) -> Iterator[Sample]:
    """Yield which reasons lower the clocks: 0 or 1 per reason, and for those that no busy GPU should have."""
    bits = device.get_number("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is not None:
        for reason, bit in REASON_BITS.items():
            yield Sample(metrics.GPU_THROTTLED, int(bool(bits & bit)), {"reason": reason})
        yield Sample(metrics.GPU_SLOWED, int(bool(bits & SLOWDOWN_BITS)), {})


def _nvlinks(device: Device) -> Iterator[Sample]:
    """Yield the number of active NVLinks and their errors; nothing where the state of a link is unknown.

    NVML has no number of links: they are queried until one is invalid.
    """
    active, supported = [], False
    # More than any GPU has: the loop ends at the first invalid link.
    for link in range(_MAX_LINKS):
        state = device.get_number("nvmlDeviceGetNvLinkState", link)
        # Removed, so that the code is that of this link and not of an earlier one.
        code = device.codes.pop("nvmlDeviceGetNvLinkState", None)
        if code == _INVALID_ARGUMENT:  # beyond the last
            break
        if state is not None:
            supported = True
            active += [link] if state else []
        elif code != NOT_SUPPORTED:
            return
    if supported:
        yield Sample(metrics.GPU_NVLINKS_ACTIVE, len(active), {})
    for counter, kind in enumerate(_LINK_ERRORS):
        errors = [device.get_number("nvmlDeviceGetNvLinkErrorCounter", link, counter) for link in active]
        known = [count for count in errors if count is not None]
        # The sum over some links would fall whenever one cannot be read.
        if active and len(known) == len(active):
            yield Sample(metrics.GPU_NVLINK_ERRORS, sum(known), {"kind": kind})
