"""Which GPUs of a machine a process sees, by CUDA_VISIBLE_DEVICES and its relatives, parsed as PyTorch does.

An inventory lists the physical GPUs in the driver's order, each followed by its MIG instances, which have the
index of their GPU and a UUID that begins with `MIG-`. `nvml` reads the inventory, `metadata` decides whether
it, a variable or Slurm counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

_LEADING_INTEGER = re.compile(r"[+-]?[0-9]{1,9}(?![0-9])")
_UUIDS = ("GPU-", "MIG-")

Entry = TypeVar("Entry", int, str)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU or MIG instance as its driver describes it; None for what it does not report."""

    index: int | None
    name: str | bytes | None = None
    memory_bytes: int | None = None
    major: int | None = None
    minor: int | None = None
    multi_processor_count: int | None = None
    uuid: str | bytes | None = None

    @property
    def is_instance(self) -> bool:
        """Return whether this is a MIG instance."""
        return text(self.uuid).startswith("MIG-")


@dataclass(frozen=True, slots=True)
class VisibleGpus:
    """How many devices are visible, by which source, and which: None where that is unknown."""

    count: int | None
    source: str
    gpus: tuple[Gpu, ...] | None


def text(value: str | bytes | None) -> str:
    """Return text as str, empty for None; older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def devices(inventory: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the devices that CUDA can use: MIG instances, and physical GPUs without any."""
    with_mig = {gpu.index for gpu in inventory if gpu.is_instance}
    return tuple(gpu for gpu in inventory if gpu.is_instance or gpu.index not in with_mig)


def parse_visible_devices(value: str) -> tuple[int, ...] | tuple[str, ...]:
    """Return the entries up to the first invalid one, all indices or all UUIDs; none if one is repeated.

    The first entry decides which of both: CUDA does not mix them.
    """
    for prefix in _UUIDS:
        if value.startswith(prefix):
            return _distinct(entry if entry.startswith(prefix) else None for entry in value.split(","))
    return _distinct(_index(entry) for entry in value.split(","))


def _index(entry: str) -> int | None:
    """Return the index as `strtoul` reads it: `1gpu` is 1, `gpu` is none."""
    match = _LEADING_INTEGER.match(entry.strip())
    return int(match[0]) if match and int(match[0]) >= 0 else None


def _distinct(entries: Iterable[Entry | None]) -> tuple[Entry, ...]:
    """Return the entries before the first None.

    None at all where one is repeated: CUDA then sees no device.
    """
    distinct: list[Entry] = []
    for entry in entries:
        if entry is None:
            break
        if entry in distinct:
            return ()
        distinct.append(entry)
    return tuple(distinct)


def visible_by_environment(env: Mapping[str, str], inventory: tuple[Gpu, ...] | None) -> VisibleGpus | None:
    """Return the devices that the first set variable of CUDA or ROCm leaves visible; None where none is set.

    A variable that is set to the empty string hides all devices. Without an inventory, which devices they are
    is unknown, and every entry is counted.
    """
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    source = next((name for name in names if name in env), None)
    return None if source is None else _select(source, env[source], inventory)


def allocated(
    count: int, source: str, listed: tuple[int, ...], inventory: tuple[Gpu, ...] | None
) -> VisibleGpus:
    """Return the `count` devices that a scheduler allocated; `listed` are their indices, if known."""
    if inventory is None:
        return VisibleGpus(count, source, None)
    usable = devices(inventory)
    # A scheduler cannot allocate more than there is; a container may show less than was allocated.
    if count >= len(usable):
        return VisibleGpus(len(usable), source, usable)
    if len(listed) == count and all(index < len(usable) for index in listed):
        return VisibleGpus(count, source, tuple(usable[index] for index in listed))
    # Of identical GPUs only index and UUID are unknown.
    models = {replace(gpu, index=None, uuid=None) for gpu in usable}
    return VisibleGpus(count, source, tuple(models) * count if len(models) == 1 else None)


def _select(source: str, value: str, inventory: tuple[Gpu, ...] | None) -> VisibleGpus:
    """Return the devices of the inventory that the value of a variable selects."""
    entries = parse_visible_devices(value)
    if inventory is None:
        return VisibleGpus(len(entries), source, None)
    kind = str(entries[0])[:4] if entries else ""
    if kind in _UUIDS and not any(text(gpu.uuid).startswith(kind) for gpu in inventory):
        # The inventory has no such UUIDs: trust the variable, up to seven MIG instances for each GPU.
        return VisibleGpus(min(len(entries), 7 * len(inventory)), source, None)
    selected: list[int] = []
    for entry in entries:
        # An index beyond the inventory ends the list, as it does for CUDA.
        position = _position(entry, inventory)
        if position is None:
            break
        if position in selected:
            return VisibleGpus(0, source, ())
        selected.append(position)
    return VisibleGpus(len(selected), source, tuple(inventory[position] for position in selected))


def _position(entry: int | str, inventory: tuple[Gpu, ...]) -> int | None:
    """Return the position in the inventory of an index or UUID prefix, None unless it matches one device."""
    if isinstance(entry, int):
        matches = [at for at, gpu in enumerate(inventory) if not gpu.is_instance][entry : entry + 1]
    else:
        matches = [at for at, gpu in enumerate(inventory) if text(gpu.uuid).startswith(entry)]
    if len(matches) != 1:
        return None
    gpu = inventory[matches[0]]
    if gpu.is_instance:
        return matches[0]
    # With MIG enabled CUDA opens the first instance only.
    instances = (at for at, each in enumerate(inventory) if each.is_instance and each.index == gpu.index)
    return next(instances, matches[0])
