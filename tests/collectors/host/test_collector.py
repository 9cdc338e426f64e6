"""The host collector: what it says of machines that are recorded, and of this one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psutil
import pytest
from data.nvml.recorded import Driver, binding, recording

from collectors.host import collector, metrics
from collectors.host.collector import COLLECTOR, HostSettings, describe, share_samples
from common.collector import Context
from common.config.settings import ConfigurationFile, load
from common.metric import Metric, Sample
from common.net.retry import Deadline

NOW = 1_794_786_458


@pytest.fixture(autouse=True)
def _a_driver_never_asked(nothing_said_yet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "CPU_SECONDS", 0.001)


def context(seconds: float = 60, **environ: str) -> Context[HostSettings]:
    settings = load(HostSettings, "host", environ=environ, file=ConfigurationFile())
    log = logging.getLogger("collectors.host")
    return Context(settings, NOW, NOW, "node-7", {}, Deadline(seconds), log)


def collected(given: Context[HostSettings] | None = None) -> list[Sample]:
    return list(COLLECTOR.collect(given or context()))  # type: ignore[arg-type]  # no marks here


def values(samples: list[Sample], metric: Metric) -> dict[tuple[str, ...], float]:
    return {sample.tags: sample.value for sample in samples if sample.metric == metric}


def test_everything_belongs_to_the_node_and_to_the_second_of_the_measurement() -> None:
    samples = collected()
    assert {(sample.host, sample.timestamp) for sample in samples} == {("node-7", NOW)}


def test_the_machines_own_figures_are_those_of_the_operating_system() -> None:
    samples = collected()
    assert values(samples, metrics.CPU_COUNT) == {(): psutil.cpu_count()}
    assert values(samples, metrics.MEMORY) == {(): round(psutil.virtual_memory().total / 2**30, 2)}
    [free] = values(samples, metrics.DISK_FREE).items()
    assert free[0] == ("path:/",)
    for metric in (metrics.CPU_UTILIZATION, metrics.MEMORY_USED, metrics.DISK_USED):
        assert all(0 <= value <= 100 for value in values(samples, metric).values())
    available = values(samples, metrics.MEMORY_AVAILABLE)[()]
    assert 0 < available < values(samples, metrics.MEMORY)[()]


def test_eight_boards_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("h100x8")))
    given = context()
    samples = collected(given)
    assert given.tally.lost == []
    assert values(samples, metrics.GPU_COUNT) == {(): 8}
    temperature = values(samples, metrics.GPU_TEMPERATURE)
    assert len(temperature) == 8
    assert ("gpu:0", "gpu_type:NVIDIA H100 80GB HBM3") in temperature
    for metric in (metrics.GPU_UTILIZATION, metrics.GPU_MEMORY, metrics.GPU_POWER, metrics.GPU_THROTTLED):
        assert len(values(samples, metric)) == 8
    assert set(values(samples, metrics.GPU_MEMORY).values()) == {79.65}
    kinds = {tag for tags in values(samples, metrics.GPU_ECC_ERRORS) for tag in tags if "kind" in tag}
    assert kinds == {"kind:corrected", "kind:uncorrected"}
    [info] = values(samples, metrics.INFO)
    assert "gpu_type:NVIDIA H100 80GB HBM3" in info


def test_the_uuid_is_a_tag_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("h100x8")))
    plain = collected(context())
    assert not any("gpu_uuid" in tag for sample in plain for tag in sample.tags)
    tagged = values(collected(context(FLEETGAUGE_HOST_GPU_UUID="true")), metrics.GPU_POWER)
    assert all(any(tag.startswith("gpu_uuid:GPU-") for tag in tags) for tags in tagged)


def test_a_gpu_that_fell_off_the_bus_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("h100-lost")))
    given = context()
    samples = collected(given)
    assert values(samples, metrics.GPU_COUNT) == {(): 4}
    assert [unit.partition(":")[0] for unit in given.tally.lost] == ["GPU 1", "GPU 2"]
    whole = {tags[0] for tags in values(samples, metrics.GPU_UTILIZATION)}
    assert whole == {"gpu:0", "gpu:3"}
    assert {tags[0] for tags in values(samples, metrics.GPU_MEMORY)} == {"gpu:0", "gpu:2", "gpu:3"}


def test_without_a_driver_the_number_of_gpus_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("driver-not-loaded")))
    given = context()
    samples = collected(given)
    assert values(samples, metrics.GPU_COUNT) == {}
    assert given.tally.lost == []


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver(recording("h100x8"), hang_in="nvmlDeviceGetHandleByIndex_v2", hang_on=2)
    binding(monkeypatch, driver)
    yield driver
    driver.release.set()


def test_a_driver_that_hangs_costs_the_gpus_it_did_not_answer_for(hanging: Driver) -> None:
    given = context(seconds=0.5)
    samples = collected(given)
    assert {tags[0] for tags in values(samples, metrics.GPU_POWER)} == {"gpu:0", "gpu:1"}
    assert given.tally.lost[0] == "GPU 2: no answer before the deadline"
    assert len(given.tally.lost) == 6


def test_a_divided_board_is_one_board(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("a100-mig")))
    assert values(collected(), metrics.GPU_COUNT) == {(): 1}


def test_the_share_of_this_process_follows_slurm() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_PARTITION": "gpu-long"}
    samples = list(share_samples(describe(environ, None), NOW, "node-7"))
    assert values(samples, metrics.ALLOTTED_CPUS) == {(): 1}
    [info] = values(samples, metrics.INFO)
    assert "slurm_partition:gpu-long" in info
    assert any(tag.startswith("arch:") for tag in info)


def test_what_is_not_known_of_the_share_is_absent() -> None:
    samples = list(share_samples({}, NOW, "node-7"))
    assert [(sample.metric, sample.value, sample.tags) for sample in samples] == [(metrics.INFO, 1, ())]


def test_a_path_that_is_not_there_costs_only_itself() -> None:
    given = context(FLEETGAUGE_HOST_PATHS="/nonexistent,/")
    samples = collected(given)
    assert list(values(samples, metrics.DISK_USED)) == [("path:/",)]
    assert given.tally.lost == ["the file system of /nonexistent: No such file or directory"]


def test_what_is_declared_is_what_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("h100x8")))
    assert {sample.metric for sample in collected()} == set(COLLECTOR.metrics)


def test_check_says_what_the_driver_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("h100x8")))
    assert list(COLLECTOR.check(context())) == [
        "metrics will carry the host node-7",
        "the driver lists 8 GPUs",
    ]
    binding(monkeypatch, Driver(recording("driver-not-loaded")))
    assert list(COLLECTOR.check(context()))[1] == "no GPU driver can be asked"
