"""The driver's own library, compiled here, called by a process without a binding for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.nvml.compiled import compile_driver
from support.project import ROOT

H100, INSTANCE, AMD = "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "AMD Instinct MI300X"

# One process forks a child for each machine: what a driver answers is in its environment.
PROBE = """
import json, os, sys
from types import SimpleNamespace
from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.nvml import read_inventory
def torch(state):
    def started(*_):  # CUDA would be initialised, and an exception would only be logged
        os._exit(9)
    device = SimpleNamespace(name="AMD Instinct MI300X", total_memory=192 * 2**30, major=9, minor=4)
    ready = state == "initialised"
    return SimpleNamespace(cuda=SimpleNamespace(
        is_initialized=lambda: ready, device_count=(lambda: 2) if ready else started,
        get_device_properties=(lambda index: device) if ready else started))
def describe(given):
    os.environ.update(given["driver"])
    if given["torch"]:
        sys.modules["torch"] = torch(given["torch"])
    metadata = collect_compute_metadata(env=given["env"], root=given["root"])
    return {
        "described": {key.removeprefix("compute."): value for key, value in metadata.items() if "gpu" in key},
        "uuids": [gpu.uuid for gpu in read_inventory()[0] or ()],
        "loaded": [name for name in ("pynvml", "torch") if name in sys.modules],
    }
for given in json.load(sys.stdin):
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, json.dumps(describe(given)).encode())
        os._exit(0)
    os.close(writer)
    print(os.fdopen(reader).read(), flush=True)
"""


def run_probe(machines: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """What each machine is described as; all are in one environment."""
    blank = {"env": {}, "driver": {}, "torch": "", "root": "/nowhere"}
    ran = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps([blank | machine for machine in machines]),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_driver(tmp_path_factory.mktemp("driver")).parent)


def test_gpus_are_described_without_any_package(library: str, tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()  # another module of that name
    [result] = run_probe([{}], LD_LIBRARY_PATH=library, PYTHONPATH=str(tmp_path))
    described = result["described"]
    # Eight GPUs; one has two MIG instances.
    assert (result["loaded"], described["gpu_count"], described["gpu_source"]) == ([], 9, "nvml")
    assert (described["gpu_type"], described["gpu_types"]) == (H100, [H100, INSTANCE])
    h100 = {"name": H100, "total_memory_gb": 79.65, "major": 9, "minor": 0, "multi_processor_count": 132}
    instance = {**h100, "name": INSTANCE, "total_memory_gb": 39.5, "multi_processor_count": 60}
    assert [described["gpus"][at] for at in (0, 3, 5, 6, 8)] == [
        {"index": 0, **h100},
        {"index": 3},
        {"index": 5, **instance},
        {"index": 5, **instance},
        {"index": 7, **h100},
    ]
    uuids: list[str | None] = [f"GPU-{index:08}-45b0-95c0" for index in range(8)]
    uuids[3] = None
    uuids[6:6] = ["MIG-00000000-5afc-978f", "MIG-00000002-5afc-978f"]
    assert result["uuids"] == uuids


NO_GPU, NOT_LOADED = {"DRIVER_COUNT": "0"}, {"DRIVER_INIT": "9"}
CUDA, SLURM = "CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE"
UNKNOWN = (None, "unknown", None)
WITH_LIBRARY: list[tuple[dict[str, Any], tuple[int | None, str, str | None]]] = [
    ({"torch": "initialised"}, (9, "nvml", H100)),
    ({"env": {CUDA: "0,1,2,3"}}, (4, CUDA, H100)),
    ({"env": {CUDA: "GPU-00000007"}}, (1, CUDA, H100)),
    ({"env": {CUDA: "MIG-00000002"}}, (1, CUDA, INSTANCE)),
    ({"env": {CUDA: ""}}, (0, CUDA, None)),
    ({"env": {SLURM: "9"}}, (9, SLURM, H100)),
    ({"driver": NO_GPU}, (0, "nvml", None)),
    ({"driver": NO_GPU, "env": {CUDA: "0,1"}}, (0, CUDA, None)),
    ({"driver": NOT_LOADED, "torch": "imported"}, UNKNOWN),
    ({"driver": NOT_LOADED, "torch": "initialised"}, (2, "torch", AMD)),
    # It has applied the variable already, and numbers what is left from zero.
    ({"driver": NOT_LOADED, "torch": "initialised", "env": {CUDA: "6", SLURM: "4"}}, (2, "torch", AMD)),
    ({"driver": NOT_LOADED, "env": {CUDA: "0,1"}}, (2, CUDA, None)),
]
WITHOUT: list[tuple[dict[str, Any], tuple[int | None, str, str | None]]] = [
    ({"torch": "imported"}, (0, "nvml", None)),
    ({"torch": "imported", "root": "kfd"}, UNKNOWN),
    ({"torch": "initialised", "root": "kfd"}, (2, "torch", AMD)),
    ({"env": {CUDA: "0,1"}}, (2, CUDA, None)),
    ({"env": {SLURM: "4"}}, (4, SLURM, None)),
]


def test_gpu_count_source_and_type_by_machine(library: str, tmp_path: Path) -> None:
    (tmp_path / "kfd/dev/kfd").mkdir(parents=True)
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    for table, environment in (
        (WITH_LIBRARY, {"LD_LIBRARY_PATH": library}),
        (WITHOUT, {}),
        (WITHOUT, {"LD_LIBRARY_PATH": str(tmp_path)}),
    ):
        machines = [machine | {"root": str(tmp_path / machine.get("root", ""))} for machine, _ in table]
        for (machine, expected), result in zip(table, run_probe(machines, **environment), strict=True):
            described = result["described"]
            found = tuple(described.get(f"gpu_{key}") for key in ("count", "source", "type"))
            assert found == expected, machine
