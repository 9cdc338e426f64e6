"""The limits of cgroups, on machines described by a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.cgroup import Limits, parse_memory, parse_quota, read_limits
from fleetgauge.compute.metadata import Host, count_cpus
from fleetgauge.compute.slurm import Detected

GIB = 2**30
UNLIMITED_4K, UNLIMITED_64K = 9223372036854771712, 9223372036854710272
NODE = Host(os_cpus=16, affinity=16, memory_bytes=64 * GIB, gpus=())
V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
NOISE = (
    "22 29 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n23 29 0:21 / /proc rw - proc proc rw\n"
    "35 31 0:32 / - cgroup cgroup rw,memory\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup"
)
MACHINES = yaml.safe_load((Path(__file__).parents[2] / "data" / "cgroups.yaml").read_text())


def machine(root: Path, cgroup: str, mounts: list[str], files: dict[str, str | int]) -> Path:
    texts = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": "\n".join([NOISE, *mounts, ""])}
    for name, content in {**texts, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n", errors="surrogateescape")
    return root


@pytest.mark.parametrize("given", MACHINES, ids=lambda given: given["name"])
def test_limits_are_the_lowest_of_our_cgroups(tmp_path: Path, given: dict[str, Any]) -> None:
    root = machine(tmp_path, given["cgroup"], given["mounts"], given["files"])
    assert read_limits(root) == Limits(*given["limits"])


def test_limits_of_a_file_are_numbers_within_bounds() -> None:
    memory = {"1073741824\n": GIB, "1": 1, str(UNLIMITED_64K - 1): UNLIMITED_64K - 1}
    unlimited = ("max\n", "", "0", "-1", "garbage", "9" * 30, str(UNLIMITED_4K), str(UNLIMITED_64K))
    for text, limit in (memory | dict.fromkeys(unlimited)).items():
        assert parse_memory(text) == limit, text
    quotas = {"50000 100000\n": 0.5, "400000 100000": 4.0}
    none = ("max 100000", "-1\n 100000\n", "0 100000", "100000 0", "100000", "1 2 3", "max 1 2", "")
    for text, cpus in (quotas | dict.fromkeys(none)).items():
        assert parse_quota(text) == cpus, text


def test_cpus_are_the_least_of_affinity_quota_and_the_machine() -> None:
    for affinity, quota, count, source in (
        (None, None, 16, "system"),
        (16, None, 16, "system"),
        (4, 2.1, 3, "cgroup"),
        (4, 0.01, 1, "cgroup"),
        (4, 32.0, 4, "affinity"),
        (64, None, 16, "system"),
        (0, None, 1, "affinity"),
    ):
        host = Host(os_cpus=16, affinity=affinity, memory_bytes=GIB, gpus=())
        assert count_cpus({}, Limits(quota, None), host) == Detected(count, source)


def test_memory_limit_of_a_cgroup_precedes_slurm_up_to_the_total(tmp_path: Path) -> None:
    slurm = {"SLURM_MEM_PER_NODE": "8G"}
    for limit, env, size, source in (
        (64 * GIB + 1, {}, 64.0, "system"),
        (64 * GIB + 1, slurm, 8.0, "SLURM_MEM_PER_NODE"),
        (64 * GIB, slurm, 64.0, "cgroup"),
    ):
        root = machine(tmp_path, "0::/", [V2], {"memory.max": limit})
        metadata = collect_compute_metadata(env=env, root=root, host=NODE)
        assert (metadata["compute.memory_gb"], metadata["compute.memory_source"]) == (size, source)
