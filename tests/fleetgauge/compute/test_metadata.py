"""The complete compute metadata: its shape, its guarantees, and hostile input."""

from __future__ import annotations

import enum
import getpass
import json
import logging
import math
import os
import platform
import subprocess
import sys
import tempfile
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


def test_memory_is_in_gibibytes_with_two_decimals() -> None:
    host = Host(os_cpus=1, affinity=1, memory_bytes=25273425920, gpus=())
    assert collect_compute_metadata(env={}, root="/nowhere", host=host)["compute.memory_gb"] == 23.54


def test_this_machine_has_the_totals_of_its_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    monkeypatch.setitem(sys.modules, "psutil", None)
    host = read_host()
    assert host.os_cpus == os.cpu_count()
    assert host.affinity == len(os.sched_getaffinity(0))
    assert host.memory_bytes == total


def test_psutil_reads_memory_where_sysconf_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=3 * GIB))
    assert read_host().memory_bytes == 3 * GIB
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert read_host().memory_bytes == 0


def test_cpus_that_this_process_may_not_use_are_still_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", {0: {3, 4}}.get)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert (read_host().os_cpus, read_host().affinity) == (64, 2)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert (read_host().os_cpus, read_host().affinity) == (2, 2)


def test_without_affinity_and_cpu_count_there_is_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    host = read_host()
    assert (host.os_cpus, host.affinity) == (1, None)


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 1001"), OSError("No username set")])
def test_a_uid_without_a_name_costs_the_user_only(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    process, elsewhere = collect_compute_metadata(host=NODE), collect()
    for metadata in (process, elsewhere):
        assert set(metadata["system"]) == {"platform", "python_version", "hostname"}


@pytest.mark.parametrize(
    ("env", "user"),
    [
        ({"LOGNAME": "ada", "USER": "b", "LNAME": "c", "USERNAME": "d"}, "ada"),
        ({"USER": "ada", "LNAME": "c", "USERNAME": "d"}, "ada"),
        ({"LOGNAME": "", "LNAME": "ada", "USERNAME": "d"}, "ada"),
        ({"USERNAME": "ada"}, "ada"),
    ],
)
def test_the_user_of_a_described_machine_is_named_by_its_environment(env: dict[str, str], user: str) -> None:
    assert collect(**env)["system"]["user"] == user


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


def test_bytes_that_are_no_text_come_out_as_text() -> None:
    section = collect(SLURM_JOB_ID="1", SLURM_JOB_NAME="caf\udce9")["slurm"]
    assert section["slurm_job_name"] == "caf?"


@pytest.mark.parametrize(
    ("name", "env", "count", "types"),
    [
        ("h100x8", {}, 8, ["NVIDIA H100 80GB HBM3"]),
        ("h100x8", {"CUDA_VISIBLE_DEVICES": "4,5"}, 2, ["NVIDIA H100 80GB HBM3"]),
        ("mixed", {}, 4, ["NVIDIA A100-SXM4-40GB", "Tesla T4"]),
        ("mixed", {"CUDA_VISIBLE_DEVICES": "2"}, 1, ["Tesla T4"]),
        ("a100-mig", {"CUDA_VISIBLE_DEVICES": "MIG-a28ad590"}, 1, ["NVIDIA A100-SXM4-40GB MIG 2g.10gb"]),
        # The driver counts the lost GPU, without any details.
        ("h100-lost", {}, 4, ["NVIDIA H100 80GB HBM3"]),
        ("driver-not-loaded", {}, None, []),
        ("driver-not-loaded", {"CUDA_VISIBLE_DEVICES": "0,1"}, 2, []),
    ],
)
def test_recorded_drivers(
    monkeypatch: pytest.MonkeyPatch, name: str, env: dict[str, str], count: int | None, types: list[str]
) -> None:
    binding(monkeypatch, Driver(recording(name)))
    metadata = collect_compute_metadata(env=env)
    assert metadata.get("compute.gpu_count") == count
    assert len(metadata.get("compute.gpus", [])) == (count if types else 0)
    assert metadata.get("compute.gpu_type") == (types[0] if types else None)
    assert metadata.get("compute.gpu_types") == (types if len(types) > 1 else None)


def test_a_broken_torch_leaves_the_gpus_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("driver-not-loaded")))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    metadata = collect_compute_metadata(env={})
    assert ("compute.gpu_count" in metadata, metadata["compute.gpu_source"]) == (False, "unknown")


def run_python(code: str) -> str:
    # The environment of this process, so that what is under test is what is imported.
    command = [sys.executable, "-c", code]
    root = str(Path(__file__).parents[3])
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return finished.stdout.strip()


def test_collecting_starts_no_process_and_imports_no_torch() -> None:
    code = """
import os, sys
starts = []
watched = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}
sys.addaudithook(lambda event, arguments: starts.append(event) if event in watched else None)
from fleetgauge.compute import collect_compute_metadata
collect_compute_metadata({})
print(starts, "torch" in sys.modules)
"""
    assert run_python(code) == "[] False"


MODEL = {
    "model_source": "/zoo/Qwen3-30B-A3B",
    "engine_kwargs": {
        "max_model_len": 4096,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": 0.7,
        "tensor_parallel_size": 4,
        "enable_chunked_prefill": False,
        "enable_prefix_caching": True,
        "dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
    },
    "batch_size": 0,
    "concurrency": 1,
}
RUNTIME = {
    "debug": False,
    "sample_n": 0,
    "job_memory_gb": 64,
    "rows_per_block": 1000,
    "streaming_io": True,
    "use_llm_classify": True,
    "use_llm_decompose": False,
    "prefilter_mode": "pre_gating",
    "keyword_buffering": False,
}
UNWANTED = {"api_key": "sk-secret", "path": "/data"}


def as_object(value: Any) -> Any:
    return (
        SimpleNamespace(**{k: as_object(v) for k, v in value.items()}) if isinstance(value, dict) else value
    )


CONFIGURATION = {
    "model": {**MODEL, **UNWANTED, "engine_kwargs": {**MODEL["engine_kwargs"], **UNWANTED}},  # type: ignore[dict-item]
    "runtime": {**RUNTIME, **UNWANTED},
    "wandb": UNWANTED,
}


@pytest.mark.parametrize("made_of", [dict, as_object, OmegaConf.create], ids=["dict", "object", "omegaconf"])
def test_only_allowlisted_fields_of_a_configuration_are_logged(made_of: Callable[[Any], object]) -> None:
    metadata = collect(made_of(CONFIGURATION))
    assert metadata["model"] == MODEL
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


@pytest.mark.parametrize(
    "value",
    [None, math.nan, math.inf, 2**63, 10**5000, Unprintable()],
    ids=["None", "nan", "inf", "64 bits", "5000 digits", "unprintable"],
)
def test_values_without_a_json_representation_are_left_out(value: object) -> None:
    assert collect({"model": {"model_source": value, "batch_size": 4}})["model"] == {"batch_size": 4}


def test_a_configuration_that_contains_itself_is_cut_off() -> None:
    loop: dict[str, Any] = {"name": "loop"}
    loop["again"] = loop
    listed: list[Any] = ["name"]
    listed.append(listed)
    for endless in (loop, listed):
        written = json.dumps(collect({"model": {"model_source": endless}}))
        assert written.count('"name"') == 14  # sixteen levels, of which two are around it


def test_fields_left_out_of_a_configuration_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    collect({"model": {"batch_size": math.nan, "model_source": {"depth": 2**64}}})
    assert caplog.messages == [
        "configuration field depth left out: it has no JSON representation",
        "configuration field batch_size left out: it has no JSON representation",
    ]


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


class Hostile:
    """A configuration that objects to everything."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __dir__(self) -> list[str]:
        raise RuntimeError("dir")


@pytest.mark.parametrize(
    "cfg",
    [
        None,
        {},
        [],
        "model",
        7,
        {"model": None},
        {"model": "qwen"},
        Hostile(),
        {"model": Hostile(), "runtime": Hostile()},
        OmegaConf.create({"model": None, "runtime": MISSING}),
    ],
    ids=map(str, range(10)),  # of the hostile one pytest could not make one
)
def test_a_configuration_without_the_fields_has_no_sections(cfg: object) -> None:
    assert set(collect(cfg)) == set(collect())


# How long an example takes is no claim of these tests.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(alphabet="".join(map(chr, range(1, 127))) + "²٤é✓\x85", max_size=20)
NUMBERS = st.sampled_from(
    ["0", "1", "2", "4", "16", "-1", "+1", "0-3", "4096", "9999999999999999999999999", "16(x2)", "72(x2),36"]
)
NAMES = st.sampled_from(
    [" ", "GPU-0", "GPU-", "MIG-a", "MIG-b", "NoDevFiles", "gpu:a100:4(S:0-1)", "64G", "1T", "0", "max"]
)
VALUES = st.one_of(
    st.lists(st.one_of(NUMBERS, NAMES), max_size=4).map(",".join),
    TEXT,
    st.just("\udcff"),
)
VARIABLES = [
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "USER",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_NODEID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
]
ENVIRONMENTS = st.dictionaries(st.sampled_from(VARIABLES), VALUES, max_size=8)
GPUS = st.builds(
    Gpu,
    index=st.integers(0, 8),
    name=st.one_of(st.none(), TEXT, st.binary(max_size=4)),
    memory_bytes=st.one_of(st.none(), st.integers(0, 2**40)),
    uuid=st.one_of(st.none(), st.sampled_from(["GPU-00", "GPU-01", "MIG-aa", "MIG-bb", b"GPU-02"])),
)
HOSTS = st.builds(
    Host,
    os_cpus=st.integers(1, 512),
    affinity=st.one_of(st.none(), st.integers(0, 600)),
    memory_bytes=st.integers(1, 2**45),
    gpus=st.one_of(st.none(), st.lists(GPUS, max_size=8).map(tuple)),
    torch_gpus=st.one_of(st.none(), st.lists(GPUS, max_size=8).map(tuple)),
)
PATHS = st.sampled_from(
    ["/", "/a", "/a/b", "/../a", "/.. /", "//", "", "/a b", "/sys/fs/cgroup", "\\040", "/\0"]
)
MOUNT_LINES = st.one_of(
    st.builds(
        "29 23 0:26 {} {} rw shared:4 - {} cgroup {}".format,
        PATHS,
        PATHS,
        st.sampled_from(["cgroup", "cgroup2", "tmpfs"]),
        st.sampled_from(["rw,memory", "rw,cpu,cpuacct", "rw"]),
    ),
    TEXT,
)
MEMBERSHIP_LINES = st.one_of(
    st.builds("{}:{}:{}".format, st.integers(0, 12), st.sampled_from(["", "memory", "cpu,cpuacct"]), PATHS),
    TEXT,
)
LIMIT_TEXTS = st.one_of(
    st.sampled_from([b"max", b"-1", b"0", b"max 100000", b"50000 100000", b"9223372036854771712", b"\xff\n"]),
    st.integers(0, 2**70).map(lambda limit: str(limit).encode()),
    st.binary(max_size=20),
)
LIMITS = ["memory.max", "cpu.max", "memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us"]
FOLDERS = ("", "a/", "a/b/", "sys/fs/cgroup/", "sys/fs/cgroup/a/")
LIMIT_FILES = st.dictionaries(
    st.sampled_from([f"{folder}{name}" for folder in FOLDERS for name in LIMITS]), LIMIT_TEXTS, max_size=6
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


@untimed
@given(
    mounts=st.lists(MOUNT_LINES, max_size=5),
    memberships=st.lists(MEMBERSHIP_LINES, max_size=4),
    files=LIMIT_FILES,
    host=HOSTS,
)
def test_no_cgroup_files_make_it_raise_or_exceed_the_machine(
    mounts: list[str], memberships: list[str], files: dict[str, bytes], host: Host
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        described = {
            "proc/self/mountinfo": "\n".join(mounts).encode("utf-8", "surrogateescape"),
            "proc/self/cgroup": "\n".join(memberships).encode("utf-8", "surrogateescape"),
        }
        for name, content in {**described, **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        assert_within(collect_compute_metadata(env={}, root=root, host=host), host)


@untimed
@given(
    cfg=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.binary()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["model", "runtime", "engine_kwargs", "dtype", "debug", "use_llm_x"]), inner
            ),
        ),
        max_leaves=12,
    )
)
def test_no_configuration_makes_it_raise(cfg: object) -> None:
    assert_within(collect(cfg), NODE)


def test_a_root_that_is_no_path_costs_only_the_limits() -> None:
    metadata = collect_compute_metadata(env={}, root="/nowhere\0", host=NODE)
    assert metadata["compute.memory_source"] == "system"
