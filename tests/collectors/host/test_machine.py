"""CPUs, memory and OS of the machine, and of a mounted root."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from collectors.host import machine, metrics
from collectors.host.collector import NODE
from common.errors import ConfigurationError
from support.host_node import HostRoot, Ticks, collected, context, values


def test_a_mounted_root_is_the_host_that_is_measured(tmp_path: Path) -> None:
    HostRoot(tmp_path)
    (tmp_path / "data").mkdir()
    found = collected(context(FLEETGAUGE_HOST_ROOT=str(tmp_path), FLEETGAUGE_HOST_PATHS="/,/data"))
    assert list(values(found, metrics.DISK_USED)) == [("path:/",), ("path:/data",)]
    assert values(found, metrics.INFO) == {
        (f"arch:{platform.machine()}", f"kernel:{platform.release()}", "os:Ubuntu 24.04.1 LTS"): 1
    }


def test_a_link_out_of_the_root_and_a_missing_path_lose_only_themselves(tmp_path: Path) -> None:
    HostRoot(tmp_path)
    (tmp_path / "etc/os-release").unlink()
    (tmp_path / "etc/os-release").symlink_to("/etc/os-release")
    (tmp_path / "scratch").symlink_to("/var")
    paths = {"FLEETGAUGE_HOST_PATHS": "/scratch,/nonexistent,/"}
    given = context(environ=paths, FLEETGAUGE_HOST_ROOT=str(tmp_path))
    found = collected(given)
    assert not any(tag.startswith("os:") for tags in values(found, metrics.INFO) for tag in tags)
    assert list(values(found, metrics.DISK_USED)) == [("path:/",)]
    assert given.report.lost == [
        f"the file system of /scratch: a symbolic link leads out of {tmp_path}",
        "the file system of /nonexistent: No such file or directory",
    ]


def test_os_release_is_also_read_below_usr_lib(tmp_path: Path) -> None:
    HostRoot(tmp_path)
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "etc/os-release").rename(tmp_path / "usr/lib/os-release")
    assert machine.os_name(tmp_path) == "Ubuntu 24.04.1 LTS"
    (tmp_path / "usr/lib/os-release").write_bytes(b"ID=\xff\nPRETTY_NAME\n")
    assert machine.os_name(tmp_path) == ""


def test_a_root_that_is_not_mounted_is_a_configuration_error(tmp_path: Path) -> None:
    given = context(FLEETGAUGE_HOST_ROOT=str(tmp_path))
    with pytest.raises(ConfigurationError, match="which has no proc/stat"):
        list(NODE.collect(given))


def test_with_every_cpu_utilization_is_that_of_the_interval(tmp_path: Path) -> None:
    root = HostRoot(tmp_path)
    ticks = Ticks(FLEETGAUGE_HOST_ROOT=str(tmp_path))
    root.cpu(user=1_000, idle=9_000)
    ticks.tick()
    root.cpu(user=4_000, idle=11_000, iowait=1_000, guest=500)
    assert values(ticks.tick(), metrics.CPU_UTILIZATION) == {(): 50}
    root.cpu(user=4_000, idle=12_000, iowait=1_000, guest=500)
    assert values(ticks.tick(), metrics.CPU_UTILIZATION) == {(): 0}
    for user, idle in ((3_900, 13_000), (3_900, 13_000), (3_900, 100)):  # a counter that does not advance
        root.cpu(user=user, idle=idle, iowait=1_000, guest=500)
        assert values(ticks.tick(), metrics.CPU_UTILIZATION) == {}
