"""The CPU quota and memory limit of this process, from its cgroups.

Reads cgroup v1, v2 and hybrid machines, below a root directory that tests replace. `metadata` compares the
limits with those of Slurm and the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# v1 writes "no limit" as the largest multiple of the page size below 2**63: 9223372036854771712 with pages of
# 4 KiB, 9223372036854710272 with pages of 64 KiB.
_UNLIMITED = 2**63 - 2**16
_NUMBER = re.compile("[0-9]{1,19}")


class Limits(NamedTuple):
    """The lowest limit of this process's cgroup and all its ancestors; None without a limit."""

    cpus: float | None
    memory_bytes: int | None


class Mount(NamedTuple):
    """A cgroup line of the mount table: the mounted cgroup (`root`) and its mount point."""

    root: str
    point: str
    version: int
    controllers: frozenset[str]


def read_limits(root: Path) -> Limits:
    """Read the limits of this process from `proc` and `sys` below `root`. Never raises.

    The lowest of all ancestors counts: Slurm limits the job and the step, while the innermost cgroup has
    `max`.
    """
    memberships = parse_memberships(_read(root / "proc/self/cgroup"))
    mounts = parse_mounts(_read(root / "proc/self/mountinfo"))
    memory = [
        parse_memory(_read(directory / ("memory.max" if version == 2 else "memory.limit_in_bytes")))
        for version, directory in _directories(root, mounts, memberships, "memory")
    ]
    cpus = [
        _read_quota(directory, version)
        for version, directory in _directories(root, mounts, memberships, "cpu")
    ]
    return Limits(min(filter(None, cpus), default=None), min(filter(None, memory), default=None))


def parse_memberships(text: str) -> dict[str, str]:
    """Return `/proc/self/cgroup` as controller to path; the unified hierarchy has the empty name."""
    memberships: dict[str, str] = {}
    for line in text.split("\n"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(","):
                memberships[controller] = fields[2]
    return memberships


def parse_mounts(text: str) -> list[Mount]:
    """Return the cgroup mounts of `/proc/self/mountinfo`."""
    mounts = []
    for line in text.split("\n"):
        fields, _, file_system = line.partition(" - ")
        mount, kind = fields.split(" "), file_system.split(" ")
        if len(mount) >= 6 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            version = 2 if kind[0] == "cgroup2" else 1
            # In v1 the controllers of a mount are among its options; v2 has one hierarchy, whose name is
            # empty.
            controllers = frozenset(kind[2].split(",")) if version == 1 else frozenset({""})
            mounts.append(Mount(_unescape(mount[3]), _unescape(mount[4]), version, controllers))
    return mounts


def levels(mount: Mount, path: str) -> list[str]:
    """Return the directories of the cgroup `path` and of its ancestors in a mount, deepest first.

    Empty where the mount does not contain the cgroup. A container mounts only its part of the hierarchy, so
    that the root of the mount is stripped from the path.
    """
    stem = mount.root.rstrip("/")
    if path == stem or path.startswith(f"{stem}/"):
        below = path.removeprefix(stem)
    elif mount.root.startswith("/.."):
        # Mounted outside our cgroup namespace: the mount point is an ancestor of our cgroup.
        below = "/"
    else:
        return []
    # The names from the mount point to our cgroup.
    names = [name for name in below.split("/") if name]
    # A path with ".." is outside our namespace, hence outside the mount.
    if ".." in names:
        return []
    return ["/".join((mount.point.rstrip("/"), *names[:depth])) for depth in range(len(names), -1, -1)]


def parse_memory(text: str) -> int | None:
    """Return a memory limit in bytes, None where there is none.

    That is `max` in v2, and a number near 2**63 in v1.
    """
    match = _NUMBER.fullmatch(text.strip())
    limit = int(match[0]) if match else 0
    return limit if 0 < limit < _UNLIMITED else None


def parse_quota(text: str) -> float | None:
    """Return the CPUs of `<quota> <period>`, None where the quota is `max` or -1."""
    numbers = [int(field) for field in text.split() if _NUMBER.fullmatch(field)]
    if len(numbers) != 2 or not all(numbers) or len(text.split()) != 2:
        return None
    return numbers[0] / numbers[1]


def _read_quota(directory: Path, version: int) -> float | None:
    if version == 2:
        return parse_quota(_read(directory / "cpu.max"))
    quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
    return parse_quota(f"{quota} {period}")


def _directories(
    root: Path, mounts: list[Mount], memberships: dict[str, str], controller: str
) -> Iterator[tuple[int, Path]]:
    """Yield the version and directories of a controller, which on a hybrid machine is in either hierarchy."""
    for mount in mounts:
        name = "" if mount.version == 2 else controller
        if name in mount.controllers and name in memberships:
            for level in levels(mount, memberships[name]):
                yield mount.version, root / level.lstrip("/")


def _unescape(path: str) -> str:
    """Decode the octal escapes of spaces and backslashes in a path of the mount table."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _read(path: Path) -> str:
    """Return a file of the kernel, empty where it cannot be read: most cgroups lack most files."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""
