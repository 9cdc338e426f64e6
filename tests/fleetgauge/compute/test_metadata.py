"""The complete compute metadata: its shape, its guarantees, and hostile input."""

from __future__ import annotations

import dataclasses
import enum
import getpass
import json
import logging
import math
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import MISSING, OmegaConf

from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.gpu import Gpu
from fleetgauge.compute.metadata import Host, read_host
from support.data_plane_fakes import in_a_process_of_its_own
from support.nvml.recorded import Driver, recording
from support.nvml.recorded import probe_binding as binding

GIB = 2**30
NODE = Host(os_cpus=16, affinity=8, memory_bytes=64 * GIB, gpus=())


pytestmark = pytest.mark.usefixtures("nothing_said_yet")


def collect(cfg: object = None, **env: str) -> dict[str, Any]:
    return collect_compute_metadata(cfg, env=env, root="/nowhere", host=NODE)


def test_complete_metadata_of_a_machine_without_slurm() -> None:
    system = os.uname()
    assert collect(USER="ada") == {
        "system": {
            "platform": platform.platform(),
            "python_version": platform.python_version(),
            "hostname": system.nodename,
            "user": "ada",
        },
        "compute.cpu_count": 8,
        "compute.cpu_source": "affinity",
        "compute.cpu_architecture": system.machine,
        "compute.gpu_count": 0,
        "compute.gpu_source": "nvml",
        "compute.memory_gb": 64.0,
        "compute.memory_source": "system",
    }


def test_this_machine_has_the_totals_of_its_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    host = read_host()
    assert host.os_cpus == os.cpu_count()
    assert host.affinity == len(os.sched_getaffinity(0))
    assert host.memory_bytes == psutil.virtual_memory().total
    assert read_host(root="/" + "x" * 300).has_driver  # unknown, where it cannot be looked for

    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    assert read_host().memory_bytes == 0


@pytest.mark.parametrize(
    ("affinity", "count", "expected"),
    [({3, 4}, 64, (64, 2)), ({3, 4}, None, (2, 2)), (None, None, (1, None))],
)
def test_cpus_are_those_of_the_machine_else_of_the_process_else_one(
    monkeypatch: pytest.MonkeyPatch, affinity: set[int] | None, count: int | None, expected: object
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", {0: affinity}.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert (read_host().os_cpus, read_host().affinity) == expected


def test_user_is_named_by_the_environment_or_else_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in (("LOGNAME", "USER"), ("USER", "LNAME"), ("LNAME", "USERNAME"), ("USERNAME",)):
        env = {"LOGNAME": "", **dict.fromkeys(names, "other"), names[0]: "ada"}
        assert collect(**env)["system"]["user"] == "ada"

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1001")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert set(collect()["system"]) == {"platform", "python_version", "hostname"}


def test_a_part_that_fails_is_left_out_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise OSError("no kernel today")

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(os, "uname", broken)
    first, second = collect(USER="ada"), collect(USER="ada")
    assert first == second
    assert first["system"] == {"python_version": platform.python_version(), "user": "ada"}
    assert "compute.cpu_architecture" not in first
    assert first["compute.memory_gb"] == 64.0
    assert first["compute.gpu_count"] == 0
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert messages == [
        ("DEBUG", "platform left out: OSError: no kernel today"),
        ("DEBUG", "hostname left out: OSError: no kernel today"),
        ("DEBUG", "cpu architecture left out: OSError: no kernel today"),
    ]


def test_unknown_memory_is_absent_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    host = dataclasses.replace(NODE, memory_bytes=0)
    metadata = collect_compute_metadata(env={}, root="/nowhere", host=host)
    assert not [key for key in metadata if "memory" in key]
    assert not [record for record in caplog.records if "memory" in record.getMessage()]


def test_a_broken_torch_leaves_the_gpus_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("driver-not-loaded")))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    metadata = collect_compute_metadata(env={})
    assert ("compute.gpu_count" in metadata, metadata["compute.gpu_source"]) == (False, "unknown")


def test_collecting_starts_no_process_and_imports_no_torch() -> None:
    code = """
starts = []
watched = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}
sys.addaudithook(lambda event, arguments: starts.append(event) if event in watched else None)
from fleetgauge.compute import collect_compute_metadata
collect_compute_metadata({})
print(starts, "torch" in sys.modules)
"""
    assert in_a_process_of_its_own(code) == "[] False\n"


ENGINE_FIELDS = """max_model_len max_num_seqs max_num_batched_tokens tensor_parallel_size
    gpu_memory_utilization enable_chunked_prefill enable_prefix_caching dtype kv_cache_dtype"""
RUNTIME_FIELDS = """debug sample_n job_memory_gb rows_per_block streaming_io use_llm_classify
    use_llm_decompose prefilter_mode keyword_buffering"""
# Zero and false are values.
ENGINE = dict.fromkeys(ENGINE_FIELDS.split(), 0)
MODEL = {"model_source": "/zoo/Qwen3", "batch_size": 0, "concurrency": 1}
RUNTIME = dict.fromkeys(RUNTIME_FIELDS.split(), False)
UNWANTED = {"api_key": "sk-secret", "path": "/data"}
CONFIGURATION = {
    "model": {**MODEL, **UNWANTED, "engine_kwargs": {**ENGINE, **UNWANTED}},
    "runtime": {**RUNTIME, **UNWANTED},
    "wandb": UNWANTED,
}


def as_object(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})


@pytest.mark.parametrize("made_of", [dict, as_object, OmegaConf.create], ids=["dict", "object", "omegaconf"])
def test_only_allowlisted_fields_of_a_configuration_are_logged(made_of: Callable[[Any], object]) -> None:
    metadata = collect(made_of(CONFIGURATION))
    assert metadata["model"] == MODEL | {"engine_kwargs": ENGINE}
    assert metadata["runtime"] == RUNTIME


def test_an_unreadable_value_of_omegaconf_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    cfg = OmegaConf.create(
        {
            "model": {
                "model_source": "${oc.env:FLEETGAUGE_NO_SUCH_VARIABLE}",
                "batch_size": MISSING,
                "concurrency": "${model.engine_kwargs.max_num_seqs}",
                "engine_kwargs": {"max_model_len": "${nothing.there}", "max_num_seqs": 4, "dtype": None},
            },
            "runtime": {"debug": "${runtime.debug_level}", "sample_n": 10, "use_llm_classify": MISSING},
        }
    )
    metadata = collect(cfg)
    assert metadata["model"] == {"concurrency": 4, "engine_kwargs": {"max_num_seqs": 4}}
    assert metadata["runtime"] == {"sample_n": 10}
    assert any(
        message.startswith("configuration field batch_size left out: MissingMandatoryValue")
        for message in caplog.messages
    )


class Dtype(enum.Enum):
    BF16 = "bfloat16"


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (False, False),
        (0, 0),
        ("", ""),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (Path("/zoo/model"), "/zoo/model"),
        (b"model", "model"),
        (b"caf\xe9", "caf\N{REPLACEMENT CHARACTER}"),
        (Dtype.BF16, "bfloat16"),
        ((1, 2), [1, 2]),
        ({"b"}, ["b"]),
        (OmegaConf.create([1, "${.0}"]), [1, 1]),
        ({1: "one", "bad": math.nan, "worse": Unprintable()}, {"1": "one"}),
        (2**63 - 1, 2**63 - 1),
        ([1.5, math.nan], [1.5, None]),
    ],
)
def test_values_come_out_in_the_types_of_json(value: object, plain: object) -> None:
    written = collect({"model": {"model_source": value}})["model"]["model_source"]
    assert written == plain
    assert type(written) is type(plain)


def test_value_without_a_json_representation_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    for value in (None, math.nan, math.inf, 2**63, 10**5000, Unprintable()):
        assert collect({"model": {"model_source": value, "batch_size": 4}})["model"] == {"batch_size": 4}
    assert caplog.messages == ["configuration field model_source left out: it has no JSON representation"]


def test_configuration_that_contains_itself_is_cut_off() -> None:
    loop: dict[str, Any] = {"name": "loop"}
    loop["again"] = loop
    listed: list[Any] = ["name"]
    listed.append(listed)
    for endless in (loop, listed):
        written = json.dumps(collect({"model": {"model_source": endless}}))
        assert written.count('"name"') == 14  # sixteen levels, of which two are around it


class Listless:
    """A configuration whose fields cannot be listed."""

    debug = True
    use_llm_classify = True

    def __dir__(self) -> list[str]:
        raise RuntimeError("no list")


def test_flags_that_cannot_be_listed_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    assert collect({"runtime": Listless()})["runtime"] == {"debug": True}
    assert caplog.messages == ["configuration flags left out: RuntimeError: no list"]


class Hostile(Exception):  # noqa: N818
    """A configuration that objects to everything, with an error that cannot be printed."""

    def __getattr__(self, name: str) -> object:
        raise self

    def __dir__(self) -> list[str]:
        raise self

    def __str__(self) -> str:
        raise self


def test_configuration_without_the_fields_has_no_sections() -> None:
    empty: list[object] = [None, {}, [], "model", 7, {"model": None}, {"model": "qwen"}, Hostile()]
    empty += [
        {"model": Hostile(), "runtime": Hostile()},
        OmegaConf.create({"model": None, "runtime": MISSING}),
    ]
    for cfg in empty:
        assert set(collect(cfg)) == set(collect())


# How long an example takes is no claim of these tests.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = """0 1 2 16 -1 +1 0-3 4096 99999999999999999999 16(x2) 72(x2) 36 GPU-0 GPU- MIG-a MIG-b max 64G 1T
    NoDevFiles gpu:a100:4(S:0-1) \udcff ² ٤ \0"""
VALUES = st.lists(st.sampled_from([*WORDS.split(), " ", ""]), max_size=4).map(",".join) | st.text(max_size=9)
VARIABLES = """CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES USER SLURM_JOB_ID SLURM_JOB_NAME
    SLURM_NODEID SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_JOB_CPUS_PER_NODE SLURM_TASKS_PER_NODE
    SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_GPUS
    SLURM_JOB_GPUS SLURM_STEP_GPUS"""
ENVIRONMENTS = st.dictionaries(st.sampled_from(VARIABLES.split()), VALUES, max_size=8)
GPUS = st.builds(
    Gpu,
    index=st.integers(0, 8),
    name=st.sampled_from([None, "", "Tesla \udcff", b"\xff"]),
    memory_bytes=st.sampled_from([None, 0, 2**40]),
    uuid=st.sampled_from([None, "GPU-00", "GPU-01", "MIG-aa", "MIG-bb", b"GPU-02"]),
)
INVENTORIES = st.none() | st.lists(GPUS, max_size=8).map(tuple)
HOSTS = st.builds(
    Host,
    os_cpus=st.integers(1, 512),
    affinity=st.none() | st.integers(0, 600),
    memory_bytes=st.integers(1, 2**45),
    gpus=INVENTORIES,
    torch_gpus=INVENTORIES,
)


def assert_within(metadata: dict[str, Any], host: Host) -> None:
    json.dumps(metadata, allow_nan=False).encode()
    json.dumps(metadata, ensure_ascii=False).encode()
    assert 1 <= metadata["compute.cpu_count"] <= host.os_cpus
    assert 0 <= metadata["compute.memory_gb"] <= round(host.memory_bytes / GIB, 2)
    assert metadata.get("compute.gpu_count", 0) >= 0
    if "compute.gpus" in metadata:
        assert len(metadata["compute.gpus"]) == metadata["compute.gpu_count"]
    if host.gpus is not None:
        # A GPU has at most seven MIG instances.
        assert metadata["compute.gpu_count"] <= 7 * len(host.gpus)


@untimed
@given(env=ENVIRONMENTS, host=HOSTS)
def test_no_environment_makes_it_raise_or_exceed_the_machine(env: dict[str, str], host: Host) -> None:
    assert_within(collect_compute_metadata(env=env, root="/nowhere", host=host), host)
