"""The grammar of Slurm's variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleetgauge.compute import collect_compute_metadata, slurm
from fleetgauge.compute.cgroup import Limits
from fleetgauge.compute.gpu import Gpu
from fleetgauge.compute.metadata import Host, count_cpus, measure_memory
from fleetgauge.compute.slurm import Detected

GIB = 2**30
FREE = Limits(None, None)
NODE = Host(os_cpus=128, affinity=128, memory_bytes=512 * GIB, gpus=tuple(Gpu(index) for index in range(8)))

ON_NODE, JOB, TASK = "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({TASK: "8"}, Detected(8, TASK)),
        ({TASK: "8", ON_NODE: "64", JOB: "64(x2)"}, Detected(8, TASK)),
        ({ON_NODE: "64", JOB: "32"}, Detected(64, ON_NODE)),
        ({JOB: "32"}, Detected(32, JOB)),
        # The list form: by node, the first where the node is not known.
        ({ON_NODE: "16(x2)", "SLURM_NODEID": "1"}, Detected(16, ON_NODE)),
        ({JOB: "72(x2),36"}, Detected(72, JOB)),
        ({JOB: "72(x2),36", "SLURM_NODEID": "1"}, Detected(72, JOB)),
        ({JOB: "72(x2),36", "SLURM_NODEID": "2"}, Detected(36, JOB)),
        ({ON_NODE: "2,3", "SLURM_NODEID": "1"}, Detected(3, ON_NODE)),
        ({ON_NODE: "2,3", "SLURM_NODEID": "one"}, Detected(2, ON_NODE)),
        # One number is every node's.
        ({ON_NODE: "64", "SLURM_NODEID": "3"}, Detected(64, ON_NODE)),
        # A list without this node is ignored.
        ({ON_NODE: "2,3", "SLURM_NODEID": "2", JOB: "5"}, Detected(5, JOB)),
        # Empty, zero and garbage fall through.
        ({TASK: "0", ON_NODE: "4"}, Detected(4, ON_NODE)),
        ({TASK: "-4", ON_NODE: "4"}, Detected(4, ON_NODE)),
        ({TASK: "4.5", ON_NODE: "4"}, Detected(4, ON_NODE)),
        ({TASK: "٤", ON_NODE: "4"}, Detected(4, ON_NODE)),
        ({TASK: "9" * 5000, ON_NODE: "4"}, Detected(4, ON_NODE)),
        ({ON_NODE: "0(x2)", JOB: "5"}, Detected(5, JOB)),
        ({ON_NODE: "16(x0)", JOB: "5"}, Detected(5, JOB)),
        ({ON_NODE: "16(x2", JOB: "5"}, Detected(5, JOB)),
        ({ON_NODE: "16,", JOB: "5"}, Detected(5, JOB)),
        ({ON_NODE: "all", JOB: "0,8", TASK: ""}, Detected(128, "system")),
        ({}, Detected(128, "system")),
    ],
)
def test_cpus_of_a_task(env: dict[str, str], expected: Detected) -> None:
    assert count_cpus(env, FREE, NODE) == expected


def test_slurm_cpus_precede_affinity_and_quota_up_to_the_total() -> None:
    host = Host(os_cpus=16, affinity=2, memory_bytes=GIB, gpus=None)
    assert count_cpus({TASK: "8"}, Limits(1.0, None), host) == Detected(8, TASK)
    assert count_cpus({TASK: "16"}, FREE, host) == Detected(16, TASK)
    assert count_cpus({TASK: "17"}, FREE, host) == Detected(16, TASK)


@pytest.mark.parametrize(
    ("env", "total"),
    [
        ({ON_NODE: "16(x2)"}, 32),
        ({JOB: "72(x2),36"}, 180),
        ({JOB: "64"}, 64),
        ({JOB: "8(x4)", ON_NODE: "16(x2)"}, 32),
        ({JOB: "", ON_NODE: "16(x2)"}, 32),
        # The number of a single node is not that of the job.
        ({ON_NODE: "64"}, None),
        ({JOB: "0,8"}, None),
        ({}, None),
    ],
)
def test_cpus_of_all_nodes_of_a_job(env: dict[str, str], total: int | None) -> None:
    assert slurm.cpus_of_job(env) == total
    assert collect_compute_metadata(env=env, host=NODE).get("compute.cpu_count_job") == total


PER_NODE, PER_CPU, PER_GPU = "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({PER_NODE: "1024"}, Detected(GIB, PER_NODE)),
        ({PER_NODE: "1048576K"}, Detected(GIB, PER_NODE)),
        ({PER_NODE: " 64g "}, Detected(64 * GIB, PER_NODE)),
        ({PER_NODE: "2048mb"}, Detected(2 * GIB, PER_NODE)),
        # Zero is all there is, and no more than that can be had.
        ({PER_NODE: "0"}, Detected(512 * GIB, PER_NODE)),
        ({PER_NODE: "1T"}, Detected(512 * GIB, PER_NODE)),
        ({PER_CPU: "0"}, Detected(512 * GIB, PER_CPU)),
        ({PER_GPU: "0"}, Detected(512 * GIB, PER_GPU)),
        # Per CPU, by the CPUs of this node.
        ({PER_CPU: "2G", ON_NODE: "16(x2)"}, Detected(32 * GIB, PER_CPU)),
        ({PER_CPU: "1G", JOB: "72(x2),36", "SLURM_NODEID": "2"}, Detected(36 * GIB, PER_CPU)),
        ({PER_CPU: "1G", ON_NODE: "16", TASK: "4"}, Detected(16 * GIB, PER_CPU)),
        ({PER_CPU: "1G", TASK: "4"}, Detected(4 * GIB, PER_CPU)),
        ({PER_CPU: "1G", TASK: "4", "SLURM_TASKS_PER_NODE": "2(x3)"}, Detected(8 * GIB, PER_CPU)),
        ({PER_CPU: "1G"}, Detected(512 * GIB, "system")),
        # Per GPU, by Slurm's count, else by ours.
        ({PER_GPU: "64G", "SLURM_GPUS_ON_NODE": "2"}, Detected(128 * GIB, PER_GPU)),
        ({PER_GPU: "32G"}, Detected(96 * GIB, PER_GPU)),
        ({PER_GPU: "64G", "SLURM_GPUS_ON_NODE": "0"}, Detected(512 * GIB, "system")),
        # In order, and garbage falls through.
        ({PER_NODE: "1G", PER_CPU: "2G", ON_NODE: "4"}, Detected(GIB, PER_NODE)),
        ({PER_CPU: "1G", ON_NODE: "4", PER_GPU: "1G"}, Detected(4 * GIB, PER_CPU)),
        ({PER_NODE: "", PER_CPU: "2G", ON_NODE: "4"}, Detected(8 * GIB, PER_CPU)),
        ({PER_NODE: "lots"}, Detected(512 * GIB, "system")),
        ({PER_NODE: "64B"}, Detected(512 * GIB, "system")),
        ({PER_NODE: "64GiB"}, Detected(512 * GIB, "system")),
        ({PER_NODE: "1.5G"}, Detected(512 * GIB, "system")),
    ],
)
def test_memory_of_a_job(env: dict[str, str], expected: Detected) -> None:
    assert measure_memory(env, FREE, NODE, gpus=3) == expected


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


ALLOCATED, REQUESTED = "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"
STEP_LIST, JOB_LIST = "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({ALLOCATED: "2", REQUESTED: "4"}, Detected(2, ALLOCATED)),
        ({ALLOCATED: "0", REQUESTED: "4"}, Detected(0, ALLOCATED)),
        ({ALLOCATED: "some", REQUESTED: "4"}, Detected(4, REQUESTED)),
        ({REQUESTED: "a100:4"}, Detected(4, REQUESTED)),
        ({REQUESTED: "gpu:a100:4(S:0,1),gpu:t4:1(S:1)"}, Detected(5, REQUESTED)),
        ({REQUESTED: "volta:3, kepler:1"}, Detected(4, REQUESTED)),
        ({REQUESTED: "1g.5gb:2"}, Detected(2, REQUESTED)),
        ({REQUESTED: "gpu:a100", JOB_LIST: "0"}, Detected(1, JOB_LIST)),
        ({REQUESTED: "volta:3,kepler", JOB_LIST: "0"}, Detected(1, JOB_LIST)),
        ({REQUESTED: "volta:-3", JOB_LIST: "0"}, Detected(1, JOB_LIST)),
        ({JOB_LIST: "0-1,4"}, Detected(3, JOB_LIST)),
        ({JOB_LIST: "2,2"}, Detected(1, JOB_LIST)),
        ({JOB_LIST: "3-3"}, Detected(1, JOB_LIST)),
        ({STEP_LIST: "1", JOB_LIST: "0-3"}, Detected(1, STEP_LIST)),
        ({JOB_LIST: "3-0"}, None),
        ({JOB_LIST: "0,3-1"}, None),
        ({JOB_LIST: "0-"}, None),
        # The total of a job is not this node's.
        ({"SLURM_GPUS": "16"}, None),
        ({}, None),
    ],
)
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
