"""The driver's own library, compiled here, called by processes without a binding for it."""

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

H100, INSTANCE = "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"

PROBE = """
import json, sys
from types import SimpleNamespace
given = json.loads(sys.argv[1])
if "torch" in given:
    def started(what):
        raise AssertionError("CUDA would be initialised")
    device = SimpleNamespace(name="AMD Instinct MI300X", total_memory=192 * 2**30, major=9, minor=4)
    ready = given["torch"] == "initialised"
    cuda = SimpleNamespace(is_initialized=lambda: ready, device_count=(lambda: 2) if ready else started,
                           get_device_properties=(lambda index: device) if ready else started)
    sys.modules["torch"] = SimpleNamespace(cuda=cuda)
from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.nvml import read_inventory
metadata = collect_compute_metadata(env=given.get("env", {}), root=given.get("root", "/nowhere"))
print(json.dumps({
    "described": {key: value for key, value in metadata.items() if "gpu" in key},
    "uuids": [gpu.uuid for gpu in read_inventory()[0] or ()],
    "loaded": sorted({"pynvml", "torch"} & {name for name in sys.modules if sys.modules[name]}),
}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver")).parent


def run_probe(folder: Path | None, driver: dict[str, str] | None = None, **given: Any) -> dict[str, Any]:
    environment = {**os.environ, **(driver or {})}
    if folder is not None:
        environment["LD_LIBRARY_PATH"] = str(folder)
    command = [sys.executable, "-c", PROBE, json.dumps(given)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


@pytest.mark.slow
def test_gpus_are_described_without_any_package(library: Path) -> None:
    result = run_probe(library)
    assert result["loaded"] == []
    described = result["described"]
    # Eight GPUs; one has two MIG instances.
    assert (described["compute.gpu_count"], described["compute.gpu_source"]) == (9, "nvml")
    assert described["compute.gpu_type"] == H100
    assert described["compute.gpu_types"] == [H100, INSTANCE]
    h100 = {"name": H100, "total_memory_gb": 79.65, "major": 9, "minor": 0, "multi_processor_count": 132}
    instance = {**h100, "name": INSTANCE, "total_memory_gb": 39.5, "multi_processor_count": 60}
    gpus = described["compute.gpus"]
    assert gpus[0] == {"index": 0, **h100}
    assert gpus[3] == {"index": 3}
    assert gpus[5:7] == [{"index": 5, **instance}] * 2
    assert gpus[8] == {"index": 7, **h100}
    uuids: list[str | None] = [f"GPU-{index:08}-45b0-95c0" for index in range(8)]
    uuids[3] = None
    uuids[6:6] = ["MIG-00000000-5afc-978f", "MIG-00000002-5afc-978f"]
    assert result["uuids"] == uuids


EIGHT, NO_GPU, NOT_LOADED, NO_LIBRARY = (
    {"DRIVER_COUNT": "8"},
    {"DRIVER_COUNT": "0"},
    {"DRIVER_INIT": "9"},
    None,
)
CUDA, SLURM, AMD = "CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", "AMD Instinct MI300X"
UNKNOWN = (None, "unknown", None)


@pytest.mark.parametrize(
    ("driver", "kfd", "torch", "env", "expected"),
    [
        (EIGHT, False, "initialised", {}, (9, "nvml", H100)),
        (EIGHT, False, "", {CUDA: "0,1,2,3"}, (4, CUDA, H100)),
        (EIGHT, False, "", {CUDA: "GPU-00000007"}, (1, CUDA, H100)),
        (EIGHT, False, "", {CUDA: "MIG-00000002"}, (1, CUDA, INSTANCE)),
        (EIGHT, False, "", {CUDA: ""}, (0, CUDA, None)),
        (EIGHT, False, "", {SLURM: "9"}, (9, SLURM, H100)),
        (NO_GPU, False, "", {}, (0, "nvml", None)),
        (NO_GPU, False, "", {CUDA: "0,1"}, (0, CUDA, None)),
        (NOT_LOADED, False, "imported", {}, UNKNOWN),
        (NOT_LOADED, False, "initialised", {}, (2, "torch", AMD)),
        (NOT_LOADED, False, "", {CUDA: "0,1"}, (2, CUDA, None)),
        (NO_LIBRARY, False, "imported", {}, (0, "nvml", None)),
        (NO_LIBRARY, True, "imported", {}, UNKNOWN),
        (NO_LIBRARY, True, "initialised", {}, (2, "torch", AMD)),
        (NO_LIBRARY, False, "", {CUDA: "0,1"}, (2, CUDA, None)),
        (NO_LIBRARY, False, "", {SLURM: "4"}, (4, SLURM, None)),
    ],
)
def test_gpu_count_source_and_type_by_machine(
    library: Path,
    tmp_path: Path,
    driver: dict[str, str] | None,
    kfd: bool,
    torch: str,
    env: dict[str, str],
    expected: tuple[int | None, str, str | None],
) -> None:
    given: dict[str, Any] = {"env": env, "root": str(tmp_path)} | ({"torch": torch} if torch else {})
    (tmp_path / "dev" / ("kfd" if kfd else "none")).mkdir(parents=True)
    described = run_probe(None if driver is None else library, driver, **given)["described"]
    result = tuple(described.get(f"compute.gpu_{key}") for key in ("count", "source", "type"))
    assert result == expected


def test_an_invalid_library_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    described = run_probe(tmp_path, root=str(tmp_path))["described"]
    assert described == {"compute.gpu_count": 0, "compute.gpu_source": "nvml"}


def test_another_module_called_pynvml_is_not_imported(library: Path, tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()
    environment = {"PYTHONPATH": str(tmp_path)}
    result = run_probe(library, environment, binding=True)
    assert result["described"]["compute.gpu_count"] == 9
