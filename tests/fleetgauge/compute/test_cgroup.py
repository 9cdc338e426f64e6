"""The limits of cgroups, on machines described by a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.cgroup import Limits, Mount, levels, parse_memory, parse_quota, read_limits
from fleetgauge.compute.metadata import Host, count_cpus
from fleetgauge.compute.slurm import Detected

GIB = 2**30
UNLIMITED_4K, UNLIMITED_64K = 9223372036854771712, 9223372036854710272
NODE = Host(os_cpus=16, affinity=16, memory_bytes=64 * GIB, gpus=())
V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:15 - cgroup cgroup rw,memory"
V1_CPU = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:14 - cgroup cgroup rw,cpu,cpuacct"
HYBRID_V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw,nsdelegate"
NOISE = (
    "22 29 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n23 29 0:21 / /proc rw - proc proc rw\n"
    "35 31 0:32 / - cgroup cgroup rw,memory\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup"
)
SLURM = "system.slice/slurmstepd.scope/job_"


def machine(root: Path, cgroup: str, mounts: list[str], files: dict[str, str | int]) -> Path:
    texts = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": "\n".join([NOISE, *mounts, ""])}
    for name, content in {**texts, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n", errors="surrogateescape")
    return root


MACHINES: dict[str, tuple[str, list[str], dict[str, str | int], Limits]] = {
    "lowest limit of the ancestors": (
        f"0::/{SLURM}1/step_0/user",
        [V2],
        {
            f"{SLURM}1/memory.max": 32 * GIB,
            f"{SLURM}1/step_0/memory.max": 8 * GIB,
            f"{SLURM}1/step_0/user/memory.max": "max",
            f"{SLURM}1/cpu.max": "200000 50000",
            f"{SLURM}1/step_0/cpu.max": "600000 100000",
            f"{SLURM}1/step_0/user/cpu.max": "max 100000",
            f"{SLURM}2/memory.max": GIB,
            f"{SLURM}2/cpu.max": "100000 100000",
        },
        Limits(4.0, 8 * GIB),
    ),
    "separate hierarchies of version one": (
        "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc",
        [V1_MEMORY, V1_CPU],
        {
            "memory/docker/abc/memory.limit_in_bytes": 2 * GIB,
            "memory/docker/memory.limit_in_bytes": UNLIMITED_4K,
            # The files of one controller in the hierarchy of another are none of its own.
            "cpu,cpuacct/docker/abc/memory.limit_in_bytes": GIB,
            "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": 150000,
            "cpu,cpuacct/docker/abc/cpu.cfs_period_us": 100000,
            "cpu,cpuacct/docker/cpu.cfs_quota_us": -1,
            "cpu,cpuacct/docker/cpu.cfs_period_us": 100000,
        },
        Limits(1.5, 2 * GIB),
    ),
    "root of a partial mount is stripped": (
        "11:memory:/docker/abc/worker",
        [V1_MEMORY.replace(" / ", " /docker/abc ")],
        {"memory/worker/memory.limit_in_bytes": 3 * GIB, "memory/memory.limit_in_bytes": 5 * GIB},
        Limits(None, 3 * GIB),
    ),
    # Without the optional fields of the table, and from a source of any name.
    "mount of exactly our cgroup": (
        "0::/docker/abc",
        ["35 31 0:32 /docker/abc /sys/fs/cgroup rw - cgroup2 none rw"],
        {"memory.max": 3 * GIB},
        Limits(None, 3 * GIB),
    ),
    "path that is no text": ("0::/caf\udce9", [V2], {"caf\udce9/memory.max": GIB}, Limits(None, GIB)),
    "hybrid machine": (
        "4:memory:/job\n0::/user.slice/job",
        [V1_MEMORY, HYBRID_V2],
        {
            "memory/job/memory.limit_in_bytes": 6 * GIB,
            "unified/user.slice/cpu.max": "300000 100000",
            "unified/user.slice/job/memory.max": 7 * GIB,
        },
        Limits(3.0, 6 * GIB),
    ),
    "mount of another cgroup": (
        "0::/docker/abc",
        [V2.replace(" / /sys", " /docker/ab /sys")],
        {"memory.max": GIB, "c/memory.max": GIB},
        Limits(None, None),
    ),
    "controller without membership": (
        "4:memory:/job",
        [V1_MEMORY, V2],
        {"memory.max": GIB, "cpu.max": "1 2"},
        Limits(None, None),
    ),
    "mount from above our namespace": (
        "0::/job",
        [V2.replace(" / /sys", " /../.. /sys")],
        {"memory.max": GIB, "job/memory.max": 1},
        Limits(None, GIB),
    ),
    "cgroup outside our namespace": (
        "0::/../job",
        [V2],
        {"memory.max": GIB, "job/memory.max": GIB, "../memory.max": 1},
        Limits(None, None),
    ),
    "mount point with a space": (
        "0::/a:b",
        [V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/my\\040groups")],
        {"my groups/a:b/memory.max": GIB},
        Limits(None, GIB),
    ),
    "nothing mounted": ("0::/job", [], {"memory.max": GIB}, Limits(None, None)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_limits_are_the_lowest_of_our_cgroups(tmp_path: Path, name: str) -> None:
    cgroup, mounts, files, limits = MACHINES[name]
    assert read_limits(machine(tmp_path, cgroup, mounts, files)) == limits


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


def test_path_longer_than_any_the_kernel_makes_is_not_walked() -> None:
    mount = Mount("/", "/sys/fs/cgroup", 2, frozenset({""}))
    assert len(levels(mount, "/a" * 2048)) == 2049
    assert levels(mount, "/a" * 2048 + "/") == []
