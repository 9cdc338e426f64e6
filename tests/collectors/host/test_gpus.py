"""Samples of eight GPUs: one is lost, one has MIG enabled and one supports no query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.host import gpus, metrics
from collectors.host.collector import Node
from common.metric import Metric
from support.host_node import CODES, NOW, HostRoot, Ticks, by_gpu, collected, context, table, values
from support.nvml.compiled import CompiledDriver
from support.nvml.recorded import DATA, Driver, binding, recording

H100 = "NVIDIA H100 80GB HBM3"
HEALTHY = ("0", "1", "2", "4", "7")  # neither lost, nor with MIG, nor old
RESPONDING = ("0", "1", "2", "4", "5", "7")
LOST = (15, 16)
TOTAL, INSTANCE = 85520809984 / 2**30, 42412802048 / 2**30


def test_a_lost_gpu_is_counted_and_makes_the_run_partial(driver: CompiledDriver) -> None:
    given = context(now=NOW + 5)
    found = collected(given)
    assert {(point.timestamp, point.host) for point in found} == {(NOW + 5, None)}  # the run adds its node
    [info] = values(found, metrics.INFO)
    assert f"gpu_type:{H100}" in info
    assert values(found, metrics.GPU_COUNT_LISTED) == {(): 8}
    assert values(found, metrics.GPU_COUNT) == {(): 7}
    assert by_gpu(found, metrics.GPU_LOST) == {**{str(index): 0 for index in range(8)}, "3": 1}
    for gpu in ("gpu:3", "gpu:6"):  # the lost one, and the one that supports no query
        assert {sample.metric for sample in found if gpu in sample.tags} == {metrics.GPU_LOST}
    assert given.report.lost == ["GPU 3: GPU is lost"]


def test_a_gpu_that_fails_between_or_at_all_queries_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("h100-lost")
    tape["devices"][3] = dict.fromkeys((name for name in tape["devices"][3] if name.startswith("nvml")), 999)
    binding(monkeypatch, Driver(tape))
    found = collected()
    assert by_gpu(found, metrics.GPU_LOST) == {"0": 0, "1": 1, "2": 1, "3": 1}
    assert values(found, metrics.GPU_COUNT) == {(): 1}
    assert set(by_gpu(found, metrics.GPU_UTILIZATION)) == {"0"}


@pytest.mark.parametrize("code", [15, 999])
def test_a_gpu_without_a_handle_is_lost_and_keeps_its_tags(driver: CompiledDriver, code: int) -> None:
    node, tagged = Node(), {"FLEETGAUGE_HOST_GPU_UUID": "true"}
    before = values(collected(context(environ=tagged), node), metrics.GPU_LOST)
    driver.refuse("nvmlDeviceGetHandleByIndex_v2", code)
    found = collected(context(environ=tagged), node)
    assert values(found, metrics.GPU_COUNT) == {(): 0}
    assert values(found, metrics.GPU_LOST) == dict.fromkeys(before, 1)
    assert ("gpu:4", f"gpu_type:{H100}", "gpu_uuid:GPU-00000004-45b0-95c0") in before


def test_compute_instances_of_a_gpu_instance_count_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("a100-mig")
    for number, part in enumerate(tape["devices"][0]["instances"].values()):
        part["nvmlDeviceGetName"] = [f"NVIDIA A100-SXM4-40GB MIG {number + 1}c.3g.20gb"]
        part["nvmlDeviceGetGpuInstanceId"] = [2]
    binding(monkeypatch, Driver(tape))
    tags = [sample.tags[0] for sample in collected() if sample.metric == metrics.GPU_MEMORY]
    assert tags == ["gpu:0:3g.20gb:2"]


def test_an_nvlink_of_unknown_state_makes_their_count_unknown(driver: CompiledDriver) -> None:
    driver.refuse("nvmlDeviceGetNvLinkState", 999, after=3)
    assert by_gpu(collected(), metrics.GPU_NVLINKS_ACTIVE) == {}
    driver.refuse("nvmlDeviceGetNvLinkState", 3, after=3)
    assert by_gpu(collected(), metrics.GPU_NVLINKS_ACTIVE) == {"0": 3}


def test_a_temperature_that_has_an_error_of_its_own_is_absent(driver: CompiledDriver) -> None:
    driver.fake_field(3)
    assert by_gpu(collected(), metrics.GPU_MEMORY_TEMPERATURE) == {}


def test_the_uuid_is_a_tag_only_if_configured(driver: CompiledDriver) -> None:
    assert not any("gpu_uuid" in tag for sample in collected() for tag in sample.tags)
    memory = values(collected(context(FLEETGAUGE_HOST_GPU_UUID="true")), metrics.GPU_MEMORY)
    assert ("gpu:0", f"gpu_type:{H100}", "gpu_uuid:GPU-00000000-45b0-95c0") in memory
    assert ("gpu:5:3g.40gb:1", f"gpu_type:{H100}", "gpu_uuid:MIG-00000000-5afc-978f") in memory


@pytest.mark.parametrize(
    ("bits", "reasons", "slowed"),
    [
        (0x1, set(), 0),  # idle
        (0x4 | 0x10 | 0x200 | 0x400, {"power_cap", "sync_boost", "board_limit", "reliability"}, 0),
        (0x8, {"hw_slowdown"}, 1),
        (0x20, {"thermal"}, 1),
        (0x40, {"hw_thermal"}, 1),
        (0x80, {"power_brake"}, 1),
    ],
)
def test_a_gpu_at_its_power_cap_is_not_slowed(
    driver: CompiledDriver, bits: int, reasons: set[str], slowed: int
) -> None:
    driver.reasons(bits)
    found = collected()
    throttled = {
        reason: by_gpu(found, metrics.GPU_THROTTLED, reason=reason)["0"] for reason in gpus.REASON_BITS
    }
    assert throttled == {reason: int(reason in reasons) for reason in gpus.REASON_BITS}
    assert by_gpu(found, metrics.GPU_SLOWED)["0"] == slowed


def test_mig_mode_that_is_pending_or_not_known_to_the_driver_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("h100x8")
    for index, mode in enumerate([[0, 1], [1, 0], 999, 13, 3]):  # unknown, not found, not supported
        tape["devices"][index]["nvmlDeviceGetMigMode"] = mode
    binding(monkeypatch, Driver(tape))
    found = collected()
    assert set(by_gpu(found, metrics.GPU_UTILIZATION)) == {"0", *"34567"}
    assert "2" in by_gpu(found, metrics.GPU_MEMORY)


MEMORY = {metrics.GPU_MEMORY, metrics.GPU_MEMORY_FREE, metrics.GPU_MEMORY_USED, metrics.GPU_MEMORY_RESERVED}
BUSY = {
    metrics.GPU_UTILIZATION,
    metrics.GPU_MEMORY_UTILIZATION,
    metrics.GPU_ENCODER,
    metrics.GPU_DECODER,
}
OF_INSTANCES = {*MEMORY, metrics.GPU_JOB_MEMORY}
LINKS = {metrics.GPU_NVLINKS_ACTIVE, metrics.GPU_NVLINK_ERRORS}
PER_GPU = {metric for metric in metrics.METRICS if "gpu" in metric.tags}
# What each call costs where it is refused; the tags that it fills in are not compared.
COST: dict[str, set[Metric]] = {
    "nvmlInitWithFlags": {*PER_GPU, metrics.GPU_COUNT, metrics.GPU_COUNT_LISTED},
    "nvmlDeviceGetCount_v2": {*PER_GPU, metrics.GPU_COUNT, metrics.GPU_COUNT_LISTED},
    "nvmlShutdown": set(),
    "nvmlDeviceGetHandleByIndex_v2": {*PER_GPU, metrics.GPU_COUNT},
    "nvmlDeviceGetName": OF_INSTANCES,  # of instances, whose profile it is
    "nvmlDeviceGetUUID": set(),
    "nvmlDeviceGetMigMode": OF_INSTANCES | BUSY,
    "nvmlDeviceGetMaxMigDeviceCount": OF_INSTANCES,
    "nvmlDeviceGetMigDeviceHandleByIndex": OF_INSTANCES,
    "nvmlDeviceGetGpuInstanceId": OF_INSTANCES,
    "nvmlDeviceGetUtilizationRates": {metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_UTILIZATION},
    "nvmlDeviceGetEncoderUtilization": {metrics.GPU_ENCODER},
    "nvmlDeviceGetDecoderUtilization": {metrics.GPU_DECODER},
    "nvmlDeviceGetMemoryInfo_v2": {metrics.GPU_MEMORY_USED, metrics.GPU_MEMORY_RESERVED},
    "nvmlDeviceGetMemoryInfo": set(),
    "nvmlDeviceGetTemperature": {metrics.GPU_TEMPERATURE},
    "nvmlDeviceGetFieldValues": {metrics.GPU_MEMORY_TEMPERATURE},
    "nvmlDeviceGetPowerUsage": {metrics.GPU_POWER},
    "nvmlDeviceGetEnforcedPowerLimit": {metrics.GPU_POWER_LIMIT},
    "nvmlDeviceGetTotalEnergyConsumption": set(),
    "nvmlDeviceGetClockInfo": {metrics.GPU_SM_CLOCK, metrics.GPU_MEMORY_CLOCK},
    "nvmlDeviceGetCurrentClocksEventReasons": {metrics.GPU_THROTTLED, metrics.GPU_SLOWED},
    "nvmlDeviceGetPcieReplayCounter": {metrics.GPU_PCIE_REPLAYS},
    "nvmlDeviceGetTotalEccErrors": {metrics.GPU_ECC_ERRORS, metrics.GPU_ECC_ERRORS_AGGREGATE},
    "nvmlDeviceGetRemappedRows": {
        metrics.GPU_REMAPPED_ROWS,
        metrics.GPU_REMAPPING_PENDING,
        metrics.GPU_REMAPPING_FAILED,
    },
    "nvmlDeviceGetComputeRunningProcesses_v3": {metrics.GPU_JOB_MEMORY},
    "nvmlDeviceGetNvLinkState": LINKS,
    "nvmlDeviceGetNvLinkErrorCounter": {metrics.GPU_NVLINK_ERRORS},
}
# Calls without which MIG instances are unknown, so that memory is that of the physical GPU.
NO_INSTANCES = {name for name, cost in COST.items() if cost >= MEMORY and "GetHandle" not in name}
NOT_OF_GPUS = {metric.name for metric in metrics.METRICS if not metric.name.startswith("host.gpu")}


@pytest.fixture
def everything(driver: CompiledDriver, tmp_path: Path) -> dict[str, str]:
    """Return settings with which every query runs, and a job on the first GPU."""
    HostRoot(tmp_path).process(7, "0::/system.slice/slurmstepd.scope/job_31/step_0/user/task_0\n")
    driver.process(7, 2**30)
    return {
        "FLEETGAUGE_HOST_ROOT": str(tmp_path),
        "FLEETGAUGE_HOST_GPU_VIDEO": "true",
        "FLEETGAUGE_HOST_GPU_PROCESSES": "true",
    }


def test_a_node_with_every_metric_has_the_drivers_values(
    driver: CompiledDriver, everything: dict[str, str], tmp_path: Path
) -> None:
    driver.reasons(0x4 | 0x40)
    driver.fake_zero()  # the utilisation of a GPU with MIG, which means nothing
    driver.energy(1_000_000)
    ticks = Ticks(**everything)
    ticks.tick()
    HostRoot(tmp_path).cpu(user=200, idle=1000)
    driver.energy(1_500_000)
    driver.report(0, 79)
    found = ticks.tick()
    assert {point.metric for point in found} == set(metrics.METRICS)
    of_this_machine = {metrics.INFO.name, metrics.DISK_FREE.name, metrics.DISK_USED.name}
    observed = {
        f"{name} {' '.join(tags)}": value
        for (name, tags), value in table(found).items()
        if name not in of_this_machine
    }
    assert observed == json.loads((DATA / "node.json").read_text())


def test_every_driver_call_is_covered_by_the_failure_test(
    driver: CompiledDriver, everything: dict[str, str]
) -> None:
    collected(context(environ=everything))
    # test_xids.py has those of events.
    assert {name for name in driver.called() if "Event" not in name or "Clocks" in name} == COST.keys()


@pytest.mark.parametrize("function", COST)
def test_a_failed_call_leaves_out_its_own_samples_only(
    driver: CompiledDriver, everything: dict[str, str], function: str
) -> None:
    expected = table(collected(context(environ=everything)), without="gpu_type")
    for code in CODES:
        driver.refuse(function, code)
        given = context(environ=everything)
        found = collected(given)
        observed = {
            key: value for key, value in table(found, without="gpu_type").items() if key[0] not in NOT_OF_GPUS
        }
        is_lost = code in LOST or (code == 999 and function == "nvmlDeviceGetHandleByIndex_v2")
        lost_names = {metrics.GPU_LOST.name, metrics.GPU_COUNT.name} if is_lost else set()
        cost = {metric.name for metric in COST[function]} | lost_names
        unaffected = {key: value for key, value in expected.items() if key[0] not in {*cost, *NOT_OF_GPUS}}
        assert {key: observed.get(key) for key in unaffected} == unaffected, code
        gpu_memory = {(metric.name, ("gpu:5",)) for metric in MEMORY} if function in NO_INSTANCES else set()
        changed = {key for key, value in observed.items() if expected.get(key) != value}
        assert {key for key in changed if key[0] not in lost_names} <= gpu_memory, code
        if code in LOST and lost_names & {name for name, _ in changed}:
            assert given.report.lost, code
