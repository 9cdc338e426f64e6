"""What eight boards say, one of them lost, one divided and one too old for any question."""

from __future__ import annotations

from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest

from collectors.host import boards, metrics
from collectors.host.collector import Node
from common.metric import Metric
from support.host_node import CODES, HostRoot, Ticks, by_gpu, collected, context, table, values
from support.nvml.compiled import CompiledDriver
from support.nvml.recorded import Driver, binding, recording

H100 = "NVIDIA H100 80GB HBM3"
WHOLE = ("0", "1", "2", "4", "7")  # neither lost, nor divided, nor old
ANSWERING = ("0", "1", "2", "4", "5", "7")
LOST = (15, 16)
TOTAL, PART = 85520809984 / 2**30, 42412802048 / 2**30


@pytest.mark.slow
def test_every_figure_of_a_board_is_what_the_driver_says(driver: CompiledDriver) -> None:
    driver.reasons(0x4 | 0x40)
    found = collected(context(FLEETGAUGE_HOST_GPU_VIDEO="true"))
    of_the_fifth: list[tuple[Metric, dict[str, str], float]] = [
        (metrics.GPU_LOST, {}, 0),
        (metrics.GPU_UTILIZATION, {}, 94),
        (metrics.GPU_MEMORY_UTILIZATION, {}, 34),
        (metrics.GPU_ENCODER, {}, 5),
        (metrics.GPU_DECODER, {}, 6),
        (metrics.GPU_MEMORY, {}, round(TOTAL, 3)),
        (metrics.GPU_MEMORY_USED, {}, 0.75),
        (metrics.GPU_MEMORY_FREE, {}, round(TOTAL - 1, 3)),
        (metrics.GPU_MEMORY_RESERVED, {}, 0.25),
        (metrics.GPU_TEMPERATURE, {}, 44),
        (metrics.GPU_MEMORY_TEMPERATURE, {}, 64),
        (metrics.GPU_POWER, {}, 104.5),
        (metrics.GPU_POWER_LIMIT, {}, 700),
        (metrics.GPU_SM_CLOCK, {}, 1980),
        (metrics.GPU_MEMORY_CLOCK, {}, 2619),
        *(
            (metrics.GPU_THROTTLED, {"reason": reason}, int(reason in {"power_cap", "hw_thermal"}))
            for reason in boards.REASONS
        ),
        (metrics.GPU_SLOWED, {}, 1),
        (metrics.GPU_PCIE_REPLAYS, {}, 4),
        (metrics.GPU_ECC_ERRORS, {"kind": "corrected"}, 12),
        (metrics.GPU_ECC_ERRORS, {"kind": "uncorrected"}, 1),
        (metrics.GPU_ECC_ERRORS_AGGREGATE, {"kind": "corrected"}, 112),
        (metrics.GPU_ECC_ERRORS_AGGREGATE, {"kind": "uncorrected"}, 101),
        (metrics.GPU_REMAPPED_ROWS, {"kind": "correctable"}, 2),
        (metrics.GPU_REMAPPED_ROWS, {"kind": "uncorrectable"}, 3),
        (metrics.GPU_REMAPPING_PENDING, {}, 0),
        (metrics.GPU_REMAPPING_FAILED, {}, 0),
        (metrics.GPU_NVLINKS_ACTIVE, {}, 17),
        *(
            (metrics.GPU_NVLINK_ERRORS, {"kind": kind}, 17 * (1 + number))
            for number, kind in enumerate(("replay", "recovery", "crc_flit", "crc_data"))
        ),
    ]
    expected = {
        (
            metric.name,
            tuple(sorted(["gpu:4", f"gpu_type:{H100}", *(f"{key}:{value}" for key, value in tags.items())])),
        ): value
        for metric, tags, value in of_the_fifth
    }
    assert {key: value for key, value in table(found).items() if "gpu:4" in key[1]} == expected
    assert by_gpu(found, metrics.GPU_REMAPPING_PENDING) == {**dict.fromkeys(ANSWERING, 0), "1": 1}
    assert by_gpu(found, metrics.GPU_REMAPPING_FAILED) == {**dict.fromkeys(ANSWERING, 0), "2": 1}


@pytest.mark.slow
def test_what_is_declared_is_what_is_emitted(driver: CompiledDriver, tmp_path: Path) -> None:
    root = HostRoot(tmp_path)
    root.process(7, "0::/system.slice/slurmstepd.scope/job_31/step_0/user/task_0\n")
    driver.process(7, 2**30)
    ticks = Ticks(
        FLEETGAUGE_HOST_ROOT=str(tmp_path),
        FLEETGAUGE_HOST_GPU_VIDEO="true",
        FLEETGAUGE_HOST_GPU_PROCESSES="true",
    )
    ticks.tick()
    root.cpu(user=200, idle=1000)
    driver.report(0, 79)
    assert {point.metric for point in ticks.tick()} == set(metrics.METRICS)


def test_a_lost_board_is_a_number_and_makes_the_run_partial(driver: CompiledDriver) -> None:
    given = context()
    found = collected(given)
    assert values(found, metrics.GPU_COUNT_LISTED) == {(): 8}
    assert values(found, metrics.GPU_COUNT) == {(): 7}
    assert by_gpu(found, metrics.GPU_LOST) == {**{str(index): 0 for index in range(8)}, "3": 1}
    assert {sample.metric for sample in found if "gpu:3" in sample.tags} == {metrics.GPU_LOST}
    assert given.report.lost == ["GPU 3: GPU is lost"]


def test_a_board_lost_between_two_questions_keeps_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("h100-lost")))
    found = collected()
    assert by_gpu(found, metrics.GPU_LOST) == {"0": 0, "1": 1, "2": 1, "3": 0}
    assert values(found, metrics.GPU_COUNT) == {(): 2}
    assert set(by_gpu(found, metrics.GPU_UTILIZATION)) == {"0", "3"}


def test_a_board_that_answers_unknown_to_everything_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("h100x8")
    tape["devices"][2] = dict.fromkeys((name for name in tape["devices"][2] if name.startswith("nvml")), 999)
    binding(monkeypatch, Driver(tape))
    found = collected()
    assert by_gpu(found, metrics.GPU_LOST) == {**{str(index): 0 for index in range(8)}, "2": 1}


def test_a_lost_board_goes_by_the_name_it_had(driver: CompiledDriver) -> None:
    node, tagged = Node(), {"FLEETGAUGE_HOST_GPU_UUID": "true"}
    before = values(collected(context(environ=tagged), node), metrics.GPU_LOST)
    driver.refuse("nvmlDeviceGetHandleByIndex_v2", 15)
    found = collected(context(environ=tagged), node)
    assert values(found, metrics.GPU_COUNT) == {(): 0}
    assert values(found, metrics.GPU_LOST) == dict.fromkeys(before, 1)
    assert ("gpu:4", f"gpu_type:{H100}", "gpu_uuid:GPU-00000004-45b0-95c0") in before


def test_a_board_that_supports_nothing_is_there_and_has_no_figures(driver: CompiledDriver) -> None:
    found = collected()
    old = {sample.metric for sample in found if "gpu:6" in sample.tags}
    assert old == {metrics.GPU_LOST}
    assert values(found, metrics.GPU_LOST)["gpu:6", "gpu_type:Tesla K20m"] == 0


def test_a_divided_board_has_the_memory_of_its_instances_and_no_utilization(driver: CompiledDriver) -> None:
    driver.fake_zero()
    found = collected(context(FLEETGAUGE_HOST_GPU_VIDEO="true"))
    instances = ("5:3g.40gb:1", "5:3g.40gb:3")
    assert by_gpu(found, metrics.GPU_MEMORY) == {
        **dict.fromkeys(WHOLE, round(TOTAL, 3)),
        **dict.fromkeys(instances, round(PART, 3)),
    }
    assert by_gpu(found, metrics.GPU_MEMORY_USED) == dict.fromkeys((*WHOLE, *instances), 0.75)
    for metric in (metrics.GPU_UTILIZATION, metrics.GPU_MEMORY_UTILIZATION, metrics.GPU_ENCODER):
        assert set(by_gpu(found, metric)) == set(WHOLE)
    assert set(by_gpu(found, metrics.GPU_TEMPERATURE)) == set(ANSWERING)


def test_a_board_of_which_nobody_says_whether_it_is_divided_has_no_utilization(
    driver: CompiledDriver,
) -> None:
    driver.fake_zero()
    driver.refuse("nvmlDeviceGetMigMode", 999)
    found = collected()
    assert by_gpu(found, metrics.GPU_UTILIZATION) == {}
    assert by_gpu(found, metrics.GPU_MEMORY) == dict.fromkeys(ANSWERING, round(TOTAL, 3))


def test_parts_of_one_instance_share_its_memory_which_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("a100-mig")
    for number, part in enumerate(tape["devices"][0]["instances"].values()):
        part["nvmlDeviceGetName"] = [f"NVIDIA A100-SXM4-40GB MIG {number + 1}c.3g.20gb"]
        part["nvmlDeviceGetGpuInstanceId"] = [2]
    binding(monkeypatch, Driver(tape))
    told = [sample.tags[0] for sample in collected() if sample.metric == metrics.GPU_MEMORY]
    assert told == ["gpu:0:3g.20gb:2"]


def test_a_link_that_cannot_be_asked_makes_their_number_unknown(driver: CompiledDriver) -> None:
    driver.refuse("nvmlDeviceGetNvLinkState", 999, after=3)
    assert by_gpu(collected(), metrics.GPU_NVLINKS_ACTIVE) == {}
    driver.refuse("nvmlDeviceGetNvLinkState", 3, after=3)
    assert by_gpu(collected(), metrics.GPU_NVLINKS_ACTIVE) == {"0": 3}


def test_a_temperature_that_has_an_error_of_its_own_is_absent(driver: CompiledDriver) -> None:
    driver.fake_field(3)
    assert by_gpu(collected(), metrics.GPU_MEMORY_TEMPERATURE) == {}


def test_boards_whose_handles_are_unknown_are_lost(driver: CompiledDriver) -> None:
    driver.refuse("nvmlDeviceGetHandleByIndex_v2", 999)
    found = collected()
    assert by_gpu(found, metrics.GPU_LOST) == {str(index): 1 for index in range(8)}
    assert values(found, metrics.GPU_COUNT) == {(): 0}


def test_the_uuid_is_a_tag_only_when_asked_for(driver: CompiledDriver) -> None:
    assert not any("gpu_uuid" in tag for sample in collected() for tag in sample.tags)
    memory = values(collected(context(FLEETGAUGE_HOST_GPU_UUID="true")), metrics.GPU_MEMORY)
    assert ("gpu:0", f"gpu_type:{H100}", "gpu_uuid:GPU-00000000-45b0-95c0") in memory
    assert ("gpu:5:3g.40gb:1", f"gpu_type:{H100}", "gpu_uuid:MIG-00000000-5afc-978f") in memory


@pytest.mark.parametrize(
    ("bits", "reasons", "slowed"),
    [
        (0x0, set(), 0),
        (0x1, set(), 0),  # idle
        (0x4, {"power_cap"}, 0),
        (0x10, {"sync_boost"}, 0),
        (0x20, {"thermal"}, 1),
        (0x40 | 0x8, {"hw_thermal", "hw_slowdown"}, 1),
        (0x80, {"power_brake"}, 1),
        (0x8, {"hw_slowdown"}, 1),
        (0x200 | 0x400, {"board_limit", "reliability"}, 0),
    ],
)
def test_a_board_at_its_power_cap_is_not_slowed(
    driver: CompiledDriver, bits: int, reasons: set[str], slowed: int
) -> None:
    driver.reasons(bits)
    found = collected()
    throttled = {
        reason: by_gpu(found, metrics.GPU_THROTTLED, reason=reason)["0"] for reason in boards.REASONS
    }
    assert throttled == {reason: int(reason in reasons) for reason in boards.REASONS}
    assert by_gpu(found, metrics.GPU_SLOWED)["0"] == slowed


def test_the_reasons_are_those_of_the_binding() -> None:
    prefix, harmless = (
        "nvmlClocksThrottleReason",
        {"GpuIdle", "ApplicationsClocksSetting", "UserDefinedClocks"},
    )
    known = {name.removeprefix(prefix): bit for name, bit in vars(pynvml).items() if name.startswith(prefix)}
    others = {"None", "All", "DisplayClockSetting"}
    assert {known[name] for name in known.keys() - harmless - others} == set(boards.REASONS.values())


def test_an_older_driver_does_not_tell_used_memory_from_reserved(driver: CompiledDriver) -> None:
    driver.refuse("nvmlDeviceGetMemoryInfo_v2", 13)
    found = collected()
    assert by_gpu(found, metrics.GPU_MEMORY)["0"] == round(TOTAL, 3)
    assert by_gpu(found, metrics.GPU_MEMORY_FREE)["0"] == round(TOTAL - 1, 3)
    assert by_gpu(found, metrics.GPU_MEMORY_USED) == by_gpu(found, metrics.GPU_MEMORY_RESERVED) == {}


def test_all_bits_set_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("mixed")))
    found = collected()
    assert set(by_gpu(found, metrics.GPU_POWER)) == {"0", "1"}


def test_a_driver_that_knows_older_functions_only_is_asked_by_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape = recording("mixed")
    tape["functions_not_found"].append("nvmlDeviceGetMigMode")
    tape["devices"] = [{**tape["devices"][0], "nvmlDeviceGetCurrentClocksThrottleReasons": [0x8]}]
    binding(monkeypatch, Driver(tape))
    found = collected()
    assert by_gpu(found, metrics.GPU_SLOWED) == {"0": 1}
    assert by_gpu(found, metrics.GPU_UTILIZATION) == {"0": 50}


def test_a_board_is_divided_once_it_is_and_not_when_it_is_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("h100x8")
    for index, mode in enumerate([[0, 1], [1, 0]]):
        tape["devices"][index]["nvmlDeviceGetMigMode"] = mode
    binding(monkeypatch, Driver(tape))
    assert set(by_gpu(collected(), metrics.GPU_UTILIZATION)) == {"0", *"234567"}


def test_a_temperature_of_a_type_nobody_knows_is_absent_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape = recording("h100x8")
    tape["devices"] = tape["devices"][:2]
    tape["nvmlDeviceGetCount_v2"] = [2]
    for index, kind in enumerate((6, 7)):
        field = {"nvmlReturn": 0, "valueType": kind}
        tape["devices"][index]["nvmlDeviceGetFieldValues"] = [[field]]
    binding(monkeypatch, Driver(tape))
    found = collected()
    assert by_gpu(found, metrics.GPU_MEMORY_TEMPERATURE) == {"0": 0}
    assert by_gpu(found, metrics.GPU_TEMPERATURE) == {"0": 64, "1": 61}


MEMORY = {metrics.GPU_MEMORY, metrics.GPU_MEMORY_FREE, metrics.GPU_MEMORY_USED, metrics.GPU_MEMORY_RESERVED}
BUSY = {
    metrics.GPU_UTILIZATION,
    metrics.GPU_MEMORY_UTILIZATION,
    metrics.GPU_ENCODER,
    metrics.GPU_DECODER,
}
LINKS = {metrics.GPU_NVLINKS_ACTIVE, metrics.GPU_NVLINK_ERRORS}
PER_GPU = {metric for metric in metrics.METRICS if "gpu" in metric.tags}
# What each call costs where it is refused; the tags that it fills in are not compared.
COST: dict[str, set[Metric]] = {
    "nvmlInitWithFlags": {*PER_GPU, metrics.GPU_COUNT, metrics.GPU_COUNT_LISTED},
    "nvmlDeviceGetCount_v2": {*PER_GPU, metrics.GPU_COUNT, metrics.GPU_COUNT_LISTED},
    "nvmlShutdown": set(),
    "nvmlDeviceGetHandleByIndex_v2": {*PER_GPU, metrics.GPU_COUNT},
    "nvmlDeviceGetName": MEMORY,  # of instances, whose profile it is
    "nvmlDeviceGetUUID": set(),
    "nvmlDeviceGetMigMode": MEMORY | BUSY,
    "nvmlDeviceGetMaxMigDeviceCount": MEMORY,
    "nvmlDeviceGetMigDeviceHandleByIndex": MEMORY,
    "nvmlDeviceGetGpuInstanceId": MEMORY,
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
    "nvmlDeviceGetNvLinkState": LINKS,
    "nvmlDeviceGetNvLinkErrorCounter": {metrics.GPU_NVLINK_ERRORS},
}
# Where the parts of a board cannot be told, its memory is that of the whole board.
UNDIVIDED = {name for name, cost in COST.items() if cost >= MEMORY and "GetHandle" not in name}
VIDEO = {"FLEETGAUGE_HOST_GPU_VIDEO": "true"}
NOT_OF_GPUS = {metric.name for metric in metrics.METRICS if not metric.name.startswith("host.gpu")}


def test_every_call_of_the_driver_is_refused_below(driver: CompiledDriver) -> None:
    collected(context(environ=VIDEO))
    asked = {
        name for name in driver.asked() if "Event" not in name or "Clocks" in name
    }  # test_xids.py has them
    assert asked == COST.keys()


@pytest.mark.parametrize("function", COST)
def test_a_call_that_is_refused_with_any_code_costs_its_own_figure_and_never_a_wrong_one(
    driver: CompiledDriver, function: str
) -> None:
    whole = table(collected(context(environ=VIDEO)), without="gpu_type")
    for code in CODES:
        driver.refuse(function, code)
        given = context(environ=VIDEO)
        found = collected(given)
        left = {
            key: value for key, value in table(found, without="gpu_type").items() if key[0] not in NOT_OF_GPUS
        }
        says_lost = code in LOST or (code == 999 and function == "nvmlDeviceGetHandleByIndex_v2")
        told_lost = {metrics.GPU_LOST.name, metrics.GPU_COUNT.name} if says_lost else set()
        cost = {metric.name for metric in COST[function]} | told_lost
        kept = {key: value for key, value in whole.items() if key[0] not in {*cost, *NOT_OF_GPUS}}
        assert {key: left.get(key) for key in kept} == kept, code
        board = {(metric.name, ("gpu:5",)) for metric in MEMORY} if function in UNDIVIDED else set()
        more = {key for key, value in left.items() if whole.get(key) != value}
        assert {key for key in more if key[0] not in told_lost} <= board, code
        if code in LOST and told_lost & {name for name, _ in more}:
            assert given.report.lost, code
