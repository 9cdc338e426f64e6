"""The host collector on recorded drivers, mounted roots and this machine."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collectors.host import metrics
from support.host_node import by_gpu, collected, context, values
from support.nvml.compiled import CompiledDriver
from support.nvml.recorded import Driver, binding, recording
from support.project import Project


def test_without_a_mounted_root_this_machine_is_measured_not_its_os(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_PARTITION", "gpu-long")
    found = collected()
    assert values(found, metrics.INFO) == {
        (f"arch:{platform.machine()}", f"kernel:{platform.release()}", "slurm_partition:gpu-long"): 1
    }
    assert values(found, metrics.CPU_COUNT) == {(): psutil.cpu_count()}
    assert values(found, metrics.MEMORY) == {(): round(psutil.virtual_memory().total / 2**30, 2)}
    assert values(found, metrics.DISK_USED) == {
        ("path:/",): pytest.approx(psutil.disk_usage("/").percent, abs=1)
    }


@pytest.mark.parametrize("code", [1, 4, 9, 12, 17, 18, 999])
def test_a_driver_that_cannot_be_started_makes_the_run_partial(driver: CompiledDriver, code: int) -> None:
    driver.refuse("nvmlInitWithFlags", code)
    given = context()
    found = collected(given)
    assert values(found, metrics.GPU_COUNT) == values(found, metrics.GPU_COUNT_LISTED) == {}
    # Without a library of the driver, or with none loaded, there is nothing to miss.
    assert [unit.partition(":")[0] for unit in given.report.lost] == (
        [] if code in (9, 12) else ["the GPU driver"]
    )


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver(recording("h100x8"), hang_in="nvmlDeviceGetHandleByIndex_v2", hang_on=2)
    binding(monkeypatch, driver)
    yield driver
    driver.release.set()


def test_a_driver_that_hangs_loses_only_the_gpus_not_yet_read(hanging: Driver) -> None:
    given = context(seconds=0.5)
    found = collected(given)
    assert set(by_gpu(found, metrics.GPU_POWER)) == set(by_gpu(found, metrics.GPU_LOST)) == {"0", "1"}
    assert values(found, metrics.GPU_COUNT_LISTED) == {(): 8}
    assert values(found, metrics.GPU_COUNT) == {}
    assert given.report.lost[0] == "GPU 2: no answer before the deadline"
    assert len(given.report.lost) == 6
    later = context()
    assert values(collected(later), metrics.GPU_COUNT_LISTED) == {}
    assert later.report.lost == ["the GPU driver: an earlier call still hangs"]


def test_the_command_line_finds_the_drivers_library_by_itself(library: str, project: Project) -> None:
    project.keep("host")
    environ = {"LD_LIBRARY_PATH": str(Path(library).parent), "FLEETGAUGE_NODE_NAME": "node-7"}
    [entry] = project.document("host", **environ)["collectors"]
    assert entry["status"] == "partial"
    untagged = {sample["metric"]: sample["value"] for sample in entry["samples"] if not sample["tags"]}
    assert (untagged["host.gpu_count"], untagged["host.gpu_count_listed"]) == (7, 8)
    assert sum(sample["metric"] == "host.gpu.power_watts" for sample in entry["samples"]) == 7
