"""The grammar of the variables that hide GPUs, and what remains visible."""

from __future__ import annotations

from typing import Any

import pytest

from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.gpu import Gpu, VisibleGpus, parse_visible_devices
from fleetgauge.compute.metadata import Host, detect_gpus

GIB = 2**30
A100, T4 = "NVIDIA A100-SXM4-40GB", "Tesla T4"
CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def physical(index: int, name: str = A100) -> Gpu:
    return Gpu(index, name, 40 * GIB, 8, 0, 108, f"GPU-{index}{index}-uuid")


def instance(index: int, letter: str) -> Gpu:
    return Gpu(index, f"{A100} MIG 1g.5gb", 5 * GIB, 8, 0, 14, f"MIG-{letter}{letter}-uuid")


EIGHT = tuple(physical(index) for index in range(8))
MIXED = (physical(0), physical(1), physical(2, T4), physical(3, T4))
DIVIDED = (physical(0), instance(0, "a"), instance(0, "b"), physical(1), instance(1, "c"), physical(2))


def on(gpus: tuple[Gpu, ...] | None, torch_gpus: tuple[Gpu, ...] | None = None) -> Host:
    return Host(os_cpus=8, affinity=8, memory_bytes=64 * GIB, gpus=gpus, torch_gpus=torch_gpus)


def describe(env: dict[str, str], host: Host) -> dict[str, Any]:
    metadata = collect_compute_metadata(env=env, root="/nowhere", host=host)
    return {key.removeprefix("compute."): value for key, value in metadata.items() if "gpu" in key}


@pytest.mark.parametrize(
    ("value", "entries"),
    [
        ("", ()),
        (" ", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("none", ()),
        ("0", (0,)),
        ("0,1", (0, 1)),
        ("3,1", (3, 1)),
        (" 0 , 1 ", (0, 1)),
        ("0,1,", (0, 1)),
        # Parsing stops at the first invalid entry.
        ("0,1,-1,2", (0, 1)),
        ("0,,2", (0,)),
        ("0,x,2", (0,)),
        ("0,-,2", (0,)),
        ("-1,0", ()),
        # As strtoul reads numbers.
        ("1gpu2,2ampere", (1, 2)),
        ("+1", (1,)),
        ("0x1", (0,)),
        ("²", ()),
        ("9" * 5000, ()),
        # A repetition leaves nothing, unless parsing stopped before it.
        ("0,0", ()),
        ("0,1,0", ()),
        ("1,01", ()),
        ("0,-1,0", (0,)),
        ("GPU-a,GPU-a", ()),
        ("MIG-a,MIG-b,MIG-a", ()),
        ("GPU-a,GPU-b", ("GPU-a", "GPU-b")),
        ("MIG-a,MIG-b", ("MIG-a", "MIG-b")),
        ("MIG-GPU-a/1/0,MIG-GPU-a/2/0", ("MIG-GPU-a/1/0", "MIG-GPU-a/2/0")),
        # Mixing kinds stops there.
        ("0,GPU-a", (0,)),
        ("GPU-a,0", ("GPU-a",)),
        ("GPU-a,MIG-b,GPU-c", ("GPU-a",)),
        ("MIG-b,GPU-a", ("MIG-b",)),
        ("GPU-a,,GPU-b", ("GPU-a",)),
    ],
)
def test_visible_devices(value: str, entries: tuple[int | str, ...]) -> None:
    assert parse_visible_devices(value) == entries
    # Without a driver the variable is trusted.
    assert describe({CUDA: value}, on(None)) == {"gpu_count": len(entries), "gpu_source": CUDA}


@pytest.mark.parametrize(
    ("value", "gpus", "indices"),
    [
        ("0,1", EIGHT, [0, 1]),
        ("7,3", EIGHT, [7, 3]),
        ("0,1,-1,2", EIGHT, [0, 1]),
        # Indices beyond the inventory do not count, and end the list.
        ("8", EIGHT, []),
        ("6,7,8", EIGHT, [6, 7]),
        ("0,8,1", EIGHT, [0]),
        ("0", (), []),
        ("GPU-33-uuid,GPU-11-uuid", EIGHT, [3, 1]),
        # A prefix of a UUID must match a single GPU.
        ("GPU-3,GPU-1", EIGHT, [3, 1]),
        ("GPU-", EIGHT, []),
        ("GPU-1,GPU-11", EIGHT, []),
        ("GPU-1,GPU-99,GPU-2", EIGHT, [1]),
    ],
)
def test_visible_gpus(value: str, gpus: tuple[Gpu, ...], indices: list[int]) -> None:
    described = describe({CUDA: value}, on(gpus))
    assert described["gpu_count"] == len(indices)
    assert [gpu["index"] for gpu in described.get("gpus", [])] == indices


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles"])
def test_a_variable_that_hides_all_gpus_is_respected(hidden: str) -> None:
    env = {CUDA: hidden, HIP: "0", "SLURM_GPUS_ON_NODE": "4"}
    assert describe(env, on(EIGHT)) == {"gpu_count": 0, "gpu_source": CUDA}


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        ("MIG-aa-uuid,MIG-cc-uuid", (DIVIDED[1], DIVIDED[4])),
        ("MIG-b,MIG-a", (DIVIDED[2], DIVIDED[1])),
        ("MIG-a,MIG-nobody,MIG-b", (DIVIDED[1],)),
        # With MIG enabled CUDA opens the first instance only.
        ("0", (DIVIDED[1],)),
        ("1,2", (DIVIDED[4], DIVIDED[5])),
        ("GPU-11", (DIVIDED[4],)),
        ("3", ()),
    ],
)
def test_instances_count(value: str, visible: tuple[Gpu, ...]) -> None:
    assert detect_gpus({CUDA: value}, on(DIVIDED)) == VisibleGpus(len(visible), CUDA, visible)


def test_without_a_variable_mig_instances_replace_their_gpu() -> None:
    assert detect_gpus({}, on(DIVIDED)) == VisibleGpus(4, "nvml", (*DIVIDED[1:3], DIVIDED[4], DIVIDED[5]))


@pytest.mark.parametrize(
    ("env", "count", "source"),
    [
        ({HIP: "0,1"}, 2, HIP),
        ({ROCR: "0,1,2"}, 3, ROCR),
        ({HIP: ""}, 0, HIP),
        ({ROCR: "-1"}, 0, ROCR),
        ({ROCR: "4,5", HIP: "0"}, 1, HIP),
        ({CUDA: "0", HIP: "0,1", ROCR: "0,1,2"}, 1, CUDA),
    ],
)
def test_the_variables_of_amd(env: dict[str, str], count: int, source: str) -> None:
    for gpus in (None, EIGHT):
        visible = detect_gpus(env, on(gpus))
        assert (visible.count, visible.source) == (count, source)


def test_slurm_counts_gpus_where_no_variable_is_set() -> None:
    assert describe({"SLURM_GPUS_ON_NODE": "8"}, on(EIGHT))["gpu_source"] == "SLURM_GPUS_ON_NODE"
    assert describe({"SLURM_GPUS_ON_NODE": "2", CUDA: "1"}, on(EIGHT))["gpu_source"] == CUDA
    assert describe({"SLURM_GPUS_ON_NODE": "2"}, on(None)) == {
        "gpu_count": 2,
        "gpu_source": "SLURM_GPUS_ON_NODE",
    }


def test_slurm_cannot_allocate_more_gpus_than_there_are() -> None:
    assert detect_gpus({"SLURM_GPUS_ON_NODE": "8"}, on(MIXED)) == VisibleGpus(4, "SLURM_GPUS_ON_NODE", MIXED)
    assert detect_gpus({"SLURM_GPUS_ON_NODE": "4"}, on(MIXED)) == VisibleGpus(4, "SLURM_GPUS_ON_NODE", MIXED)
    assert detect_gpus({"SLURM_GPUS_ON_NODE": "1"}, on(())) == VisibleGpus(0, "SLURM_GPUS_ON_NODE", ())


def test_the_gpus_that_slurm_lists_are_described() -> None:
    env = {"SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "1-2"}
    assert detect_gpus(env, on(MIXED)).gpus == (MIXED[1], MIXED[2])
    assert detect_gpus({"SLURM_STEP_GPUS": "3", "SLURM_JOB_GPUS": "0-3"}, on(MIXED)).gpus == (MIXED[3],)


@pytest.mark.parametrize("listed", ["", "0,4", "0", "0-2", "3-0"])
def test_ambiguous_gpus_of_a_mixed_node_are_not_described(listed: str) -> None:
    env = {"SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": listed}
    assert describe(env, on(MIXED)) == {"gpu_count": 2, "gpu_source": "SLURM_GPUS_ON_NODE"}


def test_of_identical_gpus_only_the_index_is_unknown() -> None:
    described = describe({"SLURM_GPUS_ON_NODE": "2"}, on(EIGHT))
    detail = {"name": A100, "total_memory_gb": 40.0, "major": 8, "minor": 0, "multi_processor_count": 108}
    assert described["gpus"] == [detail, detail]
    assert described["gpu_type"] == A100


def test_without_variable_and_slurm_all_gpus_are_visible() -> None:
    described = describe({}, on(EIGHT))
    assert (described["gpu_count"], described["gpu_source"], len(described["gpus"])) == (8, "nvml", 8)
    assert describe({}, on(())) == {"gpu_count": 0, "gpu_source": "nvml"}


def test_without_any_source_the_gpu_count_is_absent() -> None:
    assert describe({}, on(None)) == {"gpu_source": "unknown"}
    assert detect_gpus({}, on(None)) == VisibleGpus(None, "unknown", None)


def test_details_are_of_the_visible_gpus_only() -> None:
    a100 = {"name": A100, "total_memory_gb": 40.0, "major": 8, "minor": 0, "multi_processor_count": 108}
    assert describe({CUDA: "3,0"}, on(MIXED)) == {
        "gpu_count": 2,
        "gpu_source": CUDA,
        "gpu_type": T4,
        "gpu_types": [T4, A100],
        "gpus": [a100 | {"index": 3, "name": T4}, a100 | {"index": 0}],
    }


def test_unknown_fields_of_a_gpu_are_left_out_and_zeros_are_not() -> None:
    gpus = (Gpu(0, b"Tesla T4", 16106127360, 7, 5), Gpu(1), Gpu(2, "Tesla T4", 0, 0, 0, 0))
    described = describe({}, on(gpus))
    zeros = dict.fromkeys(("total_memory_gb", "major", "minor", "multi_processor_count"), 0)
    assert described["gpus"] == [
        {"index": 0, "name": "Tesla T4", "total_memory_gb": 15.0, "major": 7, "minor": 5},
        {"index": 1},
        {"index": 2, "name": "Tesla T4"} | zeros,
    ]
    assert (described["gpu_type"], "gpu_types" in described) == ("Tesla T4", False)


def test_gpus_without_a_name_have_no_type() -> None:
    assert describe({}, on((Gpu(0), Gpu(1, major=9)))) == {
        "gpu_count": 2,
        "gpu_source": "nvml",
        "gpus": [{"index": 0}, {"index": 1, "major": 9}],
    }


def test_a_name_in_bytes_that_are_no_text_is_still_a_name() -> None:
    assert describe({}, on((Gpu(0, b"caf\xe9"),)))["gpu_type"] == "caf\N{REPLACEMENT CHARACTER}"


def test_torch_lists_gpus_without_a_driver() -> None:
    seen = (physical(0), physical(1))
    assert detect_gpus({}, on(None, seen)) == VisibleGpus(2, "torch", seen)
    # It has applied the variable already, and numbers what is left from zero.
    assert detect_gpus({CUDA: "6,7", "SLURM_GPUS_ON_NODE": "4"}, on(None, seen)) == VisibleGpus(
        2, "torch", seen
    )
    assert detect_gpus({CUDA: "MIG-a,MIG-b"}, on(EIGHT)) == VisibleGpus(2, CUDA, None)
