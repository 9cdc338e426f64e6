"""The grammar of the variables that hide GPUs, and what remains visible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.gpu import Gpu, VisibleGpus, parse_visible_devices
from fleetgauge.compute.metadata import Host, detect_gpus

GIB = 2**30
A100, T4 = "NVIDIA A100-SXM4-40GB", "Tesla T4"
CUDA = "CUDA_VISIBLE_DEVICES"
CASES = yaml.safe_load((Path(__file__).parents[2] / "data" / "gpus.yaml").read_text())


def physical(index: int, name: str = A100) -> Gpu:
    return Gpu(index, name, 40 * GIB, 8, 0, 108, f"GPU-{index}{index}-uuid")


def instance(index: int, letter: str) -> Gpu:
    return Gpu(index, f"{A100} MIG 1g.5gb", 5 * GIB, 8, 0, 14, f"MIG-{letter}{letter}-uuid")


EIGHT = tuple(physical(index) for index in range(8))
MIXED = (physical(0), physical(1), physical(2, T4), physical(3, T4))
DIVIDED = (physical(0), instance(0, "a"), instance(0, "b"), physical(1), instance(1, "c"), physical(2))
INVENTORIES = {"eight": EIGHT, "mixed": MIXED, "divided": DIVIDED, "one": EIGHT[:1], "empty": (), None: None}


def on(gpus: tuple[Gpu, ...] | None) -> Host:
    return Host(os_cpus=8, affinity=8, memory_bytes=64 * GIB, gpus=gpus)


def describe(env: dict[str, str], host: Host) -> dict[str, Any]:
    metadata = collect_compute_metadata(env=env, root="/nowhere", host=host)
    return {key.removeprefix("compute."): value for key, value in metadata.items() if "gpu" in key}


@pytest.mark.parametrize("case", CASES["entries"], ids=str)
def test_visible_devices(case: dict[str, Any]) -> None:
    assert parse_visible_devices(case["value"]) == tuple(case["expected"])
    # Without a driver the variable is trusted.
    expected = {"gpu_count": len(case["expected"]), "gpu_source": CUDA}
    assert describe({CUDA: case["value"]}, on(None)) == expected


@pytest.mark.parametrize("case", CASES["visible"], ids=str)
def test_gpus_are_those_that_a_variable_or_slurm_leaves(case: dict[str, Any]) -> None:
    inventory, (count, source, at) = INVENTORIES[case["of"]], case["expected"]
    gpus = None if at is None or at == "alike" else tuple((inventory or ())[index] for index in at)
    if at == "alike":
        gpus = (replace(EIGHT[0], index=None, uuid=None),) * count
    assert detect_gpus(case["env"], on(inventory)) == VisibleGpus(count, source, gpus)


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
