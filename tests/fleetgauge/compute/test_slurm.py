"""The grammar of Slurm's variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetgauge.compute import collect_compute_metadata, slurm
from fleetgauge.compute.cgroup import Limits
from fleetgauge.compute.gpu import Gpu
from fleetgauge.compute.metadata import Host, count_cpus, measure_memory
from fleetgauge.compute.slurm import Detected

GIB = 2**30
FREE = Limits(None, None)
NODE = Host(os_cpus=128, affinity=128, memory_bytes=512 * GIB, gpus=tuple(Gpu(index) for index in range(8)))

TASK, PER_NODE, PER_GPU = "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_GPU"
CASES = yaml.safe_load((Path(__file__).parents[2] / "data" / "slurm.yaml").read_text())


def cases(kind: str) -> list[tuple[dict[str, str], Any]]:
    """The variables of each case with their whole names, and what is expected."""
    found = []
    for case in CASES[kind]:
        env, expected = {f"SLURM_{name}": value for name, value in case["env"].items()}, case["expected"]
        if isinstance(expected, list):
            number, source = expected
            expected = Detected(number, source if source == "system" else f"SLURM_{source}")
        found.append((env, expected))
    return found


@pytest.mark.parametrize(("env", "expected"), cases("cpus"))
def test_cpus_of_a_task(env: dict[str, str], expected: Detected) -> None:
    assert count_cpus(env, FREE, NODE) == expected


def test_slurm_cpus_precede_affinity_and_quota_up_to_the_total() -> None:
    host = Host(os_cpus=16, affinity=2, memory_bytes=GIB, gpus=None)
    assert count_cpus({TASK: "8"}, Limits(1.0, None), host) == Detected(8, TASK)
    assert count_cpus({TASK: "16"}, FREE, host) == Detected(16, TASK)
    assert count_cpus({TASK: "17"}, FREE, host) == Detected(16, TASK)


@pytest.mark.parametrize(("env", "expected"), cases("cpus_of_job"))
def test_cpus_of_all_nodes_of_a_job(env: dict[str, str], expected: int | None) -> None:
    assert slurm.cpus_of_job(env) == expected
    assert collect_compute_metadata(env=env, host=NODE).get("compute.cpu_count_job") == expected


@pytest.mark.parametrize(("env", "expected"), cases("memory"))
def test_memory_of_a_job(env: dict[str, str], expected: Detected) -> None:
    assert measure_memory(env, FREE, NODE, gpus=3) == (expected.value * GIB, expected.source)


def test_memory_per_gpu_needs_a_known_number_of_gpus(tmp_path: Path) -> None:
    host = Host(os_cpus=1, affinity=None, memory_bytes=64 * GIB, gpus=None)
    env = {PER_GPU: "4G"}
    unknown = collect_compute_metadata(env=env, host=host, root=tmp_path)
    assert (unknown["compute.memory_gb"], unknown["compute.memory_source"]) == (64.0, "system")
    assert (unknown["compute.gpu_source"], "compute.gpu_count" in unknown) == ("unknown", False)
    seen = collect_compute_metadata(env=env | {"CUDA_VISIBLE_DEVICES": "0,1"}, host=host, root=tmp_path)
    assert (seen["compute.memory_gb"], seen["compute.memory_source"]) == (8.0, PER_GPU)
    assert seen["compute.gpu_count"] == 2


def test_without_a_memory_total_only_a_limit_of_slurm_is_known() -> None:
    nowhere = Host(os_cpus=1, affinity=None, memory_bytes=0, gpus=None)
    assert measure_memory({PER_NODE: "64G"}, FREE, nowhere, gpus=0) == Detected(64 * GIB, PER_NODE)
    assert measure_memory({PER_NODE: "3T"}, FREE, nowhere, gpus=0) == Detected(3072 * GIB, PER_NODE)
    assert measure_memory({PER_NODE: "0"}, FREE, nowhere, gpus=0) is None
    assert measure_memory({}, FREE, nowhere, gpus=0) is None
    assert measure_memory({}, Limits(None, GIB), nowhere, gpus=0) == Detected(GIB, "cgroup")
    assert measure_memory({}, FREE, replace(nowhere, memory_bytes=1), gpus=0) == Detected(1, "system")
    assert "compute.memory_gb" not in collect_compute_metadata(env={}, root="/nowhere", host=nowhere)


@pytest.mark.parametrize(("env", "expected"), cases("gpus"))
def test_gpus_of_a_job_on_this_node(env: dict[str, str], expected: Detected | None) -> None:
    assert slurm.gpus_on_node(env) == expected


def test_only_allowlisted_variables_of_a_job_are_logged() -> None:
    logged = ["JOB_ID", "JOB_NAME", "CPUS_PER_TASK", "CPUS_ON_NODE", "MEM_PER_NODE", "GPUS_PER_NODE"]
    logged += ["TASKS_PER_NODE", "SUBMIT_DIR", "JOB_NUM_NODES"]
    values = {name: f"value of {name}" for name in logged}
    env = {f"SLURM_{name}": value for name, value in values.items()} | {
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "SLURM_MEM_PER_CPU": "",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_PARTITION": "login",
        "SUBMITIT_JOB_ID": "4710",
        "SLURM_JWT": "eyJhbGciOi",
        "SLURM_CONF": "/etc/slurm.conf",
    }
    assert collect_compute_metadata(env=env, host=NODE)["slurm"] == {
        **{f"slurm_{name.lower()}": value for name, value in values.items()},
        "slurm_nodelist": "gpu[01-02]",
        "slurm_nnodes": values["JOB_NUM_NODES"],
        "slurm_partition": "gpu",
        "submitit_job_id": "4710",
    }


def test_older_names_are_read_and_there_is_no_section_outside_a_job() -> None:
    env = {"SLURM_JOBID": "4711", "SLURM_NODELIST": "gpu01", "SLURM_NNODES": "1", "SLURM_MEM_PER_CPU": "2048"}
    names = ("slurm_job_id", "slurm_nodelist", "slurm_nnodes", "slurm_mem_per_cpu")
    assert slurm.job_section(env) == dict(zip(names, env.values(), strict=True))
    for outside in ({}, {"SLURM_CPUS_PER_TASK": "8"}, {"SLURM_JOB_ID": " "}):
        assert slurm.job_section(outside) == {}
    assert "slurm" not in collect_compute_metadata(env={}, host=NODE)
