"""The limits of cgroups, on machines described by a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.cgroup import (
    Limits,
    Mount,
    levels,
    parse_memory,
    parse_mounts,
    parse_quota,
    read_limits,
)
from fleetgauge.compute.metadata import Host, count_cpus
from fleetgauge.compute.slurm import Detected

GIB = 2**30
UNLIMITED_4K, UNLIMITED_64K = 9223372036854771712, 9223372036854710272
NODE = Host(os_cpus=16, affinity=16, memory_bytes=64 * GIB, gpus=())

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:15 - cgroup cgroup rw,memory"
V1_CPU = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:14 - cgroup cgroup rw,cpu,cpuacct"
HYBRID_V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw,nsdelegate"
NOISE = "22 29 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n23 29 0:21 / /proc rw - proc proc rw"


def machine(root: Path, cgroup: str, mounts: list[str], files: dict[str, str | int]) -> Path:
    texts = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": "\n".join([NOISE, *mounts, ""])}
    for name, content in {**texts, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def test_a_limit_of_the_unified_hierarchy(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job", [V2], {"job/memory.max": 4 * GIB, "job/cpu.max": "250000 100000"})
    assert read_limits(root) == Limits(2.5, 4 * GIB)


def test_the_lowest_limit_of_the_ancestors_counts(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
        [V2],
        {
            "system.slice/slurmstepd.scope/memory.max": "max",
            "system.slice/slurmstepd.scope/job_4711/memory.max": 32 * GIB,
            "system.slice/slurmstepd.scope/job_4711/step_0/memory.max": 8 * GIB,
            "system.slice/slurmstepd.scope/job_4711/step_0/user/memory.max": "max",
            "system.slice/slurmstepd.scope/job_4711/step_0/user/task_0/memory.max": "max",
            "system.slice/slurmstepd.scope/job_4711/cpu.max": "400000 100000",
            "system.slice/slurmstepd.scope/job_4711/step_0/cpu.max": "max 100000",
            "system.slice/slurmstepd.scope/job_4712/memory.max": GIB,
            "system.slice/slurmstepd.scope/job_4712/cpu.max": "100000 100000",
        },
    )
    assert read_limits(root) == Limits(4.0, 8 * GIB)


def test_a_limit_of_the_root_of_a_container_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/", [V2], {"memory.max": 268435456, "cpu.max": "50000 100000"})
    assert read_limits(root) == Limits(0.5, 268435456)


def test_separate_hierarchies_of_version_one(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc",
        [V1_MEMORY, V1_CPU],
        {
            "memory/docker/abc/memory.limit_in_bytes": 2 * GIB,
            "memory/docker/memory.limit_in_bytes": UNLIMITED_4K,
            "memory/memory.limit_in_bytes": UNLIMITED_4K,
            # The files of one controller in the hierarchy of another are none of its own.
            "cpu,cpuacct/docker/abc/memory.limit_in_bytes": GIB,
            "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": 150000,
            "cpu,cpuacct/docker/abc/cpu.cfs_period_us": 100000,
            "cpu,cpuacct/docker/cpu.cfs_quota_us": -1,
            "cpu,cpuacct/docker/cpu.cfs_period_us": 100000,
        },
    )
    assert read_limits(root) == Limits(1.5, 2 * GIB)


def test_the_root_of_a_partial_mount_is_stripped(tmp_path: Path) -> None:
    mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime master:15 - cgroup cgroup rw,memory"
    root = machine(
        tmp_path,
        "11:memory:/docker/abc/worker",
        [mount],
        {"memory/worker/memory.limit_in_bytes": 3 * GIB, "memory/memory.limit_in_bytes": 5 * GIB},
    )
    assert read_limits(root) == Limits(None, 3 * GIB)


def test_a_mount_of_exactly_our_cgroup_is_ours(tmp_path: Path) -> None:
    # Without the optional fields of the table, and from a source of any name.
    mount = "35 31 0:32 /docker/abc /sys/fs/cgroup rw - cgroup2 none rw"
    root = machine(tmp_path, "0::/docker/abc", [mount], {"memory.max": 3 * GIB})
    assert read_limits(root) == Limits(None, 3 * GIB)


def test_a_path_that_is_no_text_is_found_all_the_same(tmp_path: Path) -> None:
    root = machine(tmp_path, "", [V2], {})
    (root / "proc/self/cgroup").write_bytes(b"0::/caf\xe9\n")
    (root / "sys/fs/cgroup/caf\udce9").mkdir(parents=True)
    (root / "sys/fs/cgroup/caf\udce9/memory.max").write_text(str(GIB))
    assert read_limits(root) == Limits(None, GIB)


def test_on_a_hybrid_machine_both_hierarchies_are_read(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "4:memory:/job\n0::/user.slice/job",
        [V1_MEMORY, HYBRID_V2],
        {
            "memory/job/memory.limit_in_bytes": 6 * GIB,
            "unified/user.slice/cpu.max": "300000 100000",
            "unified/user.slice/job/memory.max": 7 * GIB,
        },
    )
    assert read_limits(root) == Limits(3.0, 6 * GIB)


def test_a_mount_of_another_cgroup_is_ignored(tmp_path: Path) -> None:
    mount = V2.replace(" / /sys", " /docker/ab /sys")
    root = machine(tmp_path, "0::/docker/abc", [mount], {"memory.max": GIB, "c/memory.max": GIB})
    assert read_limits(root) == Limits(None, None)


def test_a_controller_without_membership_is_ignored(tmp_path: Path) -> None:
    root = machine(tmp_path, "4:memory:/job", [V1_MEMORY, V2], {"memory.max": GIB, "cpu.max": "1 2"})
    assert read_limits(root) == Limits(None, None)


def test_a_mount_from_above_our_namespace_limits_us_from_its_top(tmp_path: Path) -> None:
    mount = V2.replace(" / /sys", " /../.. /sys")
    root = machine(tmp_path, "0::/job", [mount], {"memory.max": GIB, "job/memory.max": 1})
    assert read_limits(root) == Limits(None, GIB)


def test_a_cgroup_outside_our_namespace_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "sys/fs").mkdir(parents=True)
    (tmp_path / "sys/fs/memory.max").write_text("1")
    root = machine(tmp_path, "0::/../job", [V2], {"memory.max": GIB, "job/memory.max": GIB})
    assert read_limits(root) == Limits(None, None)


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    mount = V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/my\\040groups")
    root = machine(tmp_path, "0::/a:b", [mount], {"my groups/a:b/memory.max": GIB})
    assert read_limits(root) == Limits(None, GIB)


def test_a_machine_without_these_files_has_no_limits(tmp_path: Path) -> None:
    assert read_limits(tmp_path) == Limits(None, None)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1073741824\n", GIB),
        ("max\n", None),
        ("", None),
        ("0", None),
        ("1", 1),
        ("-1", None),
        ("garbage", None),
        ("9" * 30, None),
        (str(UNLIMITED_4K), None),
        (str(UNLIMITED_64K), None),
        (str(2**63 - 1), None),
        (str(UNLIMITED_64K - 1), UNLIMITED_64K - 1),
    ],
)
def test_memory_limits(text: str, limit: int | None) -> None:
    assert parse_memory(text) == limit


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("50000 100000\n", 0.5),
        ("400000 100000", 4.0),
        ("max 100000", None),
        ("-1\n 100000\n", None),
        ("0 100000", None),
        ("100000 0", None),
        ("100000", None),
        ("1 2 3", None),
        ("max 1 2", None),
        ("", None),
    ],
)
def test_cpu_quotas(text: str, cpus: float | None) -> None:
    assert parse_quota(text) == cpus


@pytest.mark.parametrize(
    ("affinity", "quota", "expected"),
    [
        (None, None, Detected(16, "system")),
        (16, None, Detected(16, "system")),
        (4, None, Detected(4, "affinity")),
        (4, 2.0, Detected(2, "cgroup")),
        (4, 2.1, Detected(3, "cgroup")),
        (4, 0.01, Detected(1, "cgroup")),
        (4, 32.0, Detected(4, "affinity")),
        (64, None, Detected(16, "system")),
        (0, None, Detected(1, "affinity")),
    ],
)
def test_cpus_are_the_least_of_affinity_quota_and_the_machine(
    affinity: int | None, quota: float | None, expected: Detected
) -> None:
    host = Host(os_cpus=16, affinity=affinity, memory_bytes=GIB, gpus=())
    assert count_cpus({}, Limits(quota, None), host) == expected


def test_a_limit_above_the_memory_of_the_machine_is_ignored(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/", [V2], {"memory.max": 64 * GIB + 1})
    beside = {"SLURM_MEM_PER_NODE": "8G"}
    alone = collect_compute_metadata(env={}, root=root, host=NODE)
    assert (alone["compute.memory_gb"], alone["compute.memory_source"]) == (64.0, "system")
    assert collect_compute_metadata(env=beside, root=root, host=NODE)["compute.memory_gb"] == 8.0


def test_a_cgroup_limit_precedes_slurm(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/", [V2], {"memory.max": 64 * GIB})
    metadata = collect_compute_metadata(env={"SLURM_MEM_PER_NODE": "8G"}, root=root, host=NODE)
    assert (metadata["compute.memory_gb"], metadata["compute.memory_source"]) == (64.0, "cgroup")


def test_incomplete_lines_of_the_mount_table_are_ignored() -> None:
    table = "\n".join(
        [
            NOISE,
            V2,
            "35 31 0:32 / - cgroup cgroup rw,memory",
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup",
        ]
    )
    assert parse_mounts(table) == [Mount("/", "/sys/fs/cgroup", 2, frozenset({""}))]


def test_a_path_longer_than_any_the_kernel_makes_is_not_walked() -> None:
    mount = Mount("/", "/sys/fs/cgroup", 2, frozenset({""}))
    assert len(levels(mount, "/a" * 2048)) == 2049
    assert levels(mount, "/a" * 2048 + "/") == []
