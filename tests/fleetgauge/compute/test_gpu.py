"""The grammar of the variables that hide GPUs, and what remains visible."""

from __future__ import annotations

from dataclasses import replace
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


def on(gpus: tuple[Gpu, ...] | None) -> Host:
    return Host(os_cpus=8, affinity=8, memory_bytes=64 * GIB, gpus=gpus)


def describe(env: dict[str, str], host: Host) -> dict[str, Any]:
    metadata = collect_compute_metadata(env=env, root="/nowhere", host=host)
    return {key.removeprefix("compute."): value for key, value in metadata.items() if "gpu" in key}


@pytest.mark.parametrize(
    ("value", "entries"),
    [
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,1", (0, 1)),
        ("3,1", (3, 1)),
        (" 0 , 1 ", (0, 1)),
        # Parsing stops at the first invalid entry.
        ("0,1,-1,2", (0, 1)),
        ("0,,2", (0,)),
        ("-1,0", ()),
        # As strtoul reads numbers.
        ("1gpu2,2ampere", (1, 2)),
        ("+1", (1,)),
        ("0x1", (0,)),
        ("²", ()),
        ("9" * 5000, ()),
        # A repetition leaves nothing, unless parsing stopped before it.
        ("0,1,0", ()),
        ("1,01", ()),
        ("0,-1,0", (0,)),
        ("GPU-a,GPU-a", ()),
        ("GPU-a,GPU-b", ("GPU-a", "GPU-b")),
        ("MIG-GPU-a/1/0,MIG-GPU-a/2/0", ("MIG-GPU-a/1/0", "MIG-GPU-a/2/0")),
        # Mixing kinds stops there.
        ("0,GPU-a", (0,)),
        ("GPU-a,0", ("GPU-a",)),
        ("GPU-a,MIG-b,GPU-c", ("GPU-a",)),
        ("GPU-a,,GPU-b", ("GPU-a",)),
    ],
)
def test_visible_devices(value: str, entries: tuple[int | str, ...]) -> None:
    assert parse_visible_devices(value) == entries
    # Without a driver the variable is trusted.
    assert describe({CUDA: value}, on(None)) == {"gpu_count": len(entries), "gpu_source": CUDA}


ON_NODE, JOB_LIST = "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"


@pytest.mark.parametrize(
    ("env", "gpus", "expected"),
    [
        *(
            ({CUDA: value}, EIGHT, VisibleGpus(len(indices), CUDA, tuple(EIGHT[index] for index in indices)))
            for value, indices in (
                ("7,3", (7, 3)),
                # Indices beyond the inventory do not count, and end the list.
                ("8", ()),
                ("6,7,8", (6, 7)),
                ("0,8,1", (0,)),
                # A prefix of a UUID must match a single GPU.
                ("GPU-3,GPU-1", (3, 1)),
                ("GPU-", ()),
                ("GPU-1,GPU-11", ()),
                ("GPU-1,GPU-99,GPU-2", (1,)),
            )
        ),
        ({CUDA: "0"}, (), VisibleGpus(0, CUDA, ())),
        *(
            ({CUDA: value}, DIVIDED, VisibleGpus(len(visible), CUDA, visible))
            for value, visible in (
                ("MIG-b,MIG-a", (DIVIDED[2], DIVIDED[1])),
                ("MIG-a,MIG-nobody,MIG-b", (DIVIDED[1],)),
                # With MIG enabled CUDA opens the first instance only.
                ("0", (DIVIDED[1],)),
                ("1,2", (DIVIDED[4], DIVIDED[5])),
                ("GPU-11", (DIVIDED[4],)),
                ("3", ()),
            )
        ),
        # A driver that lists no instances.
        ({CUDA: "MIG-a,MIG-b"}, EIGHT, VisibleGpus(2, CUDA, None)),
        # AMD's variables, where CUDA's is not set.
        ({HIP: "0,1"}, EIGHT, VisibleGpus(2, HIP, EIGHT[:2])),
        ({ROCR: "0,1,2"}, EIGHT, VisibleGpus(3, ROCR, EIGHT[:3])),
        ({ROCR: "-1"}, EIGHT, VisibleGpus(0, ROCR, ())),
        ({ROCR: "4,5", HIP: "0"}, EIGHT, VisibleGpus(1, HIP, EIGHT[:1])),
        ({CUDA: "0", HIP: "0,1", ROCR: "0,1,2"}, EIGHT, VisibleGpus(1, CUDA, EIGHT[:1])),
        # Slurm, where no variable is set.
        ({ON_NODE: "8"}, EIGHT, VisibleGpus(8, ON_NODE, EIGHT)),
        ({ON_NODE: "2", CUDA: "1"}, EIGHT, VisibleGpus(1, CUDA, EIGHT[1:2])),
        ({ON_NODE: "2"}, None, VisibleGpus(2, ON_NODE, None)),
        # Of identical GPUs only index and UUID are unknown.
        ({ON_NODE: "2"}, EIGHT, VisibleGpus(2, ON_NODE, (replace(EIGHT[0], index=None, uuid=None),) * 2)),
        # No more than there are.
        ({ON_NODE: "8"}, MIXED, VisibleGpus(4, ON_NODE, MIXED)),
        ({ON_NODE: "1"}, (), VisibleGpus(0, ON_NODE, ())),
        # Those that Slurm lists.
        ({ON_NODE: "2", JOB_LIST: "1-2"}, MIXED, VisibleGpus(2, ON_NODE, MIXED[1:3])),
        ({"SLURM_STEP_GPUS": "3", JOB_LIST: "0-3"}, MIXED, VisibleGpus(1, "SLURM_STEP_GPUS", MIXED[3:])),
        # Which ones of a mixed node cannot be known without a list that fits.
        *(
            ({ON_NODE: "2", JOB_LIST: listed}, MIXED, VisibleGpus(2, ON_NODE, None))
            for listed in ("", "0,4", "0", "0-2", "3-0")
        ),
    ],
)
def test_gpus_are_those_that_a_variable_or_slurm_leaves(
    env: dict[str, str], gpus: tuple[Gpu, ...] | None, expected: VisibleGpus
) -> None:
    assert detect_gpus(env, on(gpus)) == expected


def test_unknown_fields_of_a_gpu_are_left_out_and_zeros_are_not() -> None:
    gpus = (Gpu(0, b"Tesla T4", 16106127360, 7, 5), Gpu(1), Gpu(None, "Tesla T4", 0, 0, 0, 0))
    described = describe({}, on(gpus))
    zeros = dict.fromkeys(("total_memory_gb", "major", "minor", "multi_processor_count"), 0)
    assert described["gpus"] == [
        {"index": 0, "name": "Tesla T4", "total_memory_gb": 15.0, "major": 7, "minor": 5},
        {"index": 1},
        {"name": "Tesla T4"} | zeros,
    ]
    assert (described["gpu_type"], "gpu_types" in described) == ("Tesla T4", False)
    assert "gpu_type" not in describe({}, on((Gpu(0), Gpu(1, major=9))))
    assert describe({}, on((Gpu(0, b"caf\xe9"),)))["gpu_type"] == "caf\N{REPLACEMENT CHARACTER}"
