"""XID errors and energy, which are counted between ticks."""

from __future__ import annotations

import pytest

from collectors.host import metrics
from collectors.host import xids as listening
from support.host_node import CODES, NOW, Ticks, by_gpu, collected, listeners
from support.nvml.compiled import CompiledDriver
from support.points import Point

H100 = "gpu_type:NVIDIA H100 80GB HBM3"


def xids(found: list[Point]) -> list[tuple[tuple[str, ...], float, float]]:
    return [
        (point.tags, point.timestamp - NOW, point.value)
        for point in found
        if point.metric == metrics.GPU_XID_ERRORS
    ]


def test_an_xid_error_is_counted_at_the_second_it_was_reported(driver: CompiledDriver) -> None:
    ticks = Ticks()
    assert xids(ticks.tick()) == []
    driver.fake_until_heard()
    ticks.now += 10
    driver.report(4, 79)
    driver.report(4, 79)
    driver.report(0, 31)
    driver.report(1, 5, kind=4)  # a change of the clocks' state, which is not registered
    found = ticks.tick()
    assert sorted(xids(found)) == [(("gpu:0", H100, "xid:31"), 70, 1), (("gpu:4", H100, "xid:79"), 70, 2)]
    assert xids(ticks.tick()) == xids(found)


def test_counts_of_a_gpu_whose_name_is_read_later_keep_their_tags(driver: CompiledDriver) -> None:
    driver.refuse("nvmlDeviceGetName", 999)
    driver.energy(1_000_000)
    ticks = Ticks()
    ticks.tick()
    driver.report(0, 31)
    driver.energy(1_500_000)
    found = ticks.tick()
    driver.refuse("", 0)
    again = ticks.tick()
    assert xids(again) == xids(found) == [(("gpu:0", "xid:31"), 60, 1)]
    joules = [point for point in found if point.metric == metrics.GPU_ENERGY]
    assert joules
    assert all(point in again for point in joules)


def test_an_incomplete_second_is_sent_at_the_next_tick(driver: CompiledDriver) -> None:
    ticks = Ticks()
    ticks.tick()
    ticks.now += 60
    driver.report(0, 31)
    ticks.now -= 60
    assert xids(ticks.tick()) == []
    driver.report(0, 31)
    assert xids(ticks.tick()) == [(("gpu:0", H100, "xid:31"), 120, 2)]


def test_counts_too_old_for_the_intake_are_dropped(driver: CompiledDriver) -> None:
    ticks = Ticks()
    ticks.tick()
    driver.report(0, 31)
    ticks.earliest = NOW + 60
    assert len(xids(ticks.tick())) == 1
    ticks.earliest = NOW + 61
    assert xids(ticks.tick()) == []


def test_energy_is_the_difference_between_two_readings_in_joules(driver: CompiledDriver) -> None:
    ticks = Ticks()

    def energy(reading: int) -> dict[str, float]:
        driver.energy(reading)
        return by_gpu(ticks.tick(), metrics.GPU_ENERGY)

    assert energy(7_000) == {}
    # The second GPU uses twice as much, and so on; the old and the lost GPU report none.
    used = {"0": 1.5, "1": 3, "2": 4.5, "4": 7.5, "5": 9, "7": 12}
    assert energy(8_500) == used
    assert set(energy(8_500).values()) == {0}
    ticks.earliest = ticks.now + 1
    assert energy(1_000) == {}, "the counter restarted with the driver"
    assert energy(2_000)["0"] == 1
    ticks.earliest = ticks.now + 1
    driver.refuse("nvmlDeviceGetTotalEnergyConsumption", 999)
    assert energy(3_000) == {}
    driver.refuse("", 0)
    assert energy(4_000)["0"] == 2, "a failed query is made up for"


def test_a_single_run_counts_nothing_and_queries_no_processes(driver: CompiledDriver) -> None:
    found = collected()
    assert by_gpu(found, metrics.GPU_ENERGY) == by_gpu(found, metrics.GPU_XID_ERRORS) == {}
    assert not {"nvmlEventSetCreate", "nvmlDeviceGetComputeRunningProcesses_v3"} & driver.called()


@pytest.mark.parametrize(
    "function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"]
)
def test_a_driver_without_events_loses_only_the_xid_errors(
    driver: CompiledDriver, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "WAIT_MILLISECONDS", 1)  # also the wait after an error
    for code in CODES:
        driver.refuse(function, code)
        ticks = Ticks()
        ticks.tick()
        found = ticks.tick()
        assert xids(found) == []
        assert len(by_gpu(found, metrics.GPU_TEMPERATURE)) == 6, code


def test_the_listener_starts_once_the_driver_supports_events(driver: CompiledDriver) -> None:
    driver.refuse("nvmlEventSetCreate", 9)
    ticks = Ticks()
    ticks.tick()
    for listener in listeners():
        listener.join()
    driver.refuse("", 0)
    ticks.tick()
    driver.report(0, 31)
    assert xids(ticks.tick()) == [(("gpu:0", H100, "xid:31"), 120, 1)]


def test_a_single_listener_runs_until_the_driver_shuts_down(driver: CompiledDriver) -> None:
    ticks = Ticks()
    for _ in range(3):
        ticks.tick()
        driver.fake_until_heard()
    [listener] = listeners()
    assert listener.daemon
    driver.fake_reset()
    listener.join(20)
    assert not listener.is_alive()


def test_the_listener_continues_after_a_failed_wait(
    driver: CompiledDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "WAIT_MILLISECONDS", 1)
    driver.refuse("nvmlEventSetWait_v2", 999, after=1)
    ticks = Ticks()
    ticks.tick()
    driver.refuse("", 0)
    driver.report(0, 31)
    assert xids(ticks.tick()) == [(("gpu:0", H100, "xid:31"), 60, 1)]


def test_the_number_of_stored_xid_errors_is_bounded(
    driver: CompiledDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_COUNTERS", 2)
    ticks = Ticks()
    ticks.tick()
    for index in (0, 1, 2):
        driver.report(index, 31)
    assert [tags[0] for tags, _, _ in xids(ticks.tick())] == ["gpu:0", "gpu:1"]
