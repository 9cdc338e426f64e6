"""Which GPUs of a machine a process sees.

Knows the grammar of the variables that hide devices, after the parser of PyTorch; knows nothing of
drivers. An inventory lists the boards in the driver's order, each followed by its MIG instances, which
carry the index of their board and a uuid that begins with `MIG-`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

_LEADING_INTEGER = re.compile(r"[+-]?[0-9]{1,9}(?![0-9])")
_INSTANCES_PER_BOARD = 7
_UUIDS = ("GPU-", "MIG-")

Entry = TypeVar("Entry", int, str)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as its driver describes it. What the driver does not report is None."""

    index: int | None
    name: str | bytes | None = None
    memory_bytes: int | None = None
    major: int | None = None
    minor: int | None = None
    multi_processor_count: int | None = None
    uuid: str | bytes | None = None

    @property
    def is_instance(self) -> bool:
        """Whether this is a part of a board that MIG has divided."""
        return text(self.uuid).startswith("MIG-")


@dataclass(frozen=True, slots=True)
class VisibleGpus:
    """How many devices are visible, by which rule, and which ones: None where that is not known."""

    count: int | None
    source: str
    gpus: tuple[Gpu, ...] | None


def text(value: str | bytes | None) -> str:
    """Older bindings answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def devices(inventory: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """What can be computed on: the instances of divided boards, and the other boards whole."""
    divided = {gpu.index for gpu in inventory if gpu.is_instance}
    return tuple(gpu for gpu in inventory if gpu.is_instance or gpu.index not in divided)


def parse_visible_devices(value: str) -> tuple[int, ...] | tuple[str, ...]:
    """The entries up to the first invalid one, all indices or all uuids; none at all after a repetition."""
    for prefix in _UUIDS:
        if value.startswith(prefix):
            return _distinct(entry if entry.startswith(prefix) else None for entry in value.split(","))
    return _distinct(_index(entry) for entry in value.split(","))


def _index(entry: str) -> int | None:
    """Return the index as `strtoul` reads it: `1gpu` is 1, `gpu` is none."""
    match = _LEADING_INTEGER.match(entry.strip())
    return int(match[0]) if match and int(match[0]) >= 0 else None


def _distinct(entries: Iterable[Entry | None]) -> tuple[Entry, ...]:
    distinct: list[Entry] = []
    for entry in entries:
        if entry is None:
            break
        if entry in distinct:
            return ()
        distinct.append(entry)
    return tuple(distinct)


def visible_by_environment(env: Mapping[str, str], inventory: tuple[Gpu, ...] | None) -> VisibleGpus | None:
    """What the variables of the runtime leave visible, or None where none of them is set.

    A variable that is set answers, whatever it holds: empty means no device.
    """
    if (value := env.get("CUDA_VISIBLE_DEVICES")) is not None:
        return _select("CUDA_VISIBLE_DEVICES", value, inventory)
    below, above = env.get("ROCR_VISIBLE_DEVICES"), env.get("HIP_VISIBLE_DEVICES")
    left = None if below is None else _select("ROCR_VISIBLE_DEVICES", below, inventory)
    if above is None:
        return left
    # HIP numbers what the runtime below it has left over.
    if left is not None:
        numbered = (Gpu(index) for index in range(left.count or 0))
        inventory = left.gpus if left.gpus is not None else tuple(numbered)
    return _select("HIP_VISIBLE_DEVICES", above, inventory)


def allocated(
    count: int, source: str, listed: tuple[int, ...], inventory: tuple[Gpu, ...] | None
) -> VisibleGpus:
    """Return the devices of a scheduler's count; `listed` are their indices, where it lists them."""
    if inventory is None:
        return VisibleGpus(count, source, None)
    present = devices(inventory)
    if count >= len(present):
        return VisibleGpus(len(present), source, present)
    if len(listed) == count and all(index < len(present) for index in listed):
        return VisibleGpus(count, source, tuple(present[index] for index in listed))
    return VisibleGpus(count, source, same_kind(present, count))


def same_kind(gpus: tuple[Gpu, ...], count: int) -> tuple[Gpu, ...] | None:
    """`count` of these, whichever they are, if all are of one kind: then only their indices are unknown."""
    kinds = {replace(gpu, index=None, uuid=None) for gpu in gpus}
    return tuple(kinds) * count if len(kinds) == 1 else None


def _select(source: str, value: str, inventory: tuple[Gpu, ...] | None) -> VisibleGpus:
    entries = parse_visible_devices(value)
    if inventory is None:
        return VisibleGpus(len(entries), source, None)
    kind = str(entries[0])[:4] if entries else ""
    if kind in _UUIDS and not any(text(gpu.uuid).startswith(kind) for gpu in inventory):
        # Nothing to compare with: take the variable's word, up to what the boards can hold.
        boards = sum(not gpu.is_instance for gpu in inventory)
        room = boards * (_INSTANCES_PER_BOARD if kind == "MIG-" else 1)
        return VisibleGpus(min(len(entries), room), source, None)
    selected: list[int] = []
    for entry in entries:
        position = _position(entry, inventory)
        if position is None:
            break
        if position in selected:
            return VisibleGpus(0, source, ())
        selected.append(position)
    return VisibleGpus(len(selected), source, tuple(inventory[position] for position in selected))


def _position(entry: int | str, inventory: tuple[Gpu, ...]) -> int | None:
    """Where in the inventory an entry points, None where to nothing or to more than one device."""
    if isinstance(entry, int):
        matches = [at for at, gpu in enumerate(inventory) if not gpu.is_instance][entry : entry + 1]
    else:
        matches = [at for at, gpu in enumerate(inventory) if text(gpu.uuid).startswith(entry)]
    if len(matches) != 1:
        return None
    board = inventory[matches[0]]
    if board.is_instance:
        return matches[0]
    # A divided board stands for its first instance: CUDA opens nothing else of it.
    parts = (at for at, gpu in enumerate(inventory) if gpu.is_instance and gpu.index == board.index)
    return next(parts, matches[0])
