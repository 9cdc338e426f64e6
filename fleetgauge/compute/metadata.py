"""Compute metadata of a process: its CPUs, GPUs and memory, its Slurm job, its model and runtime settings.

This module has the precedence of the sources; the modules beside it parse each source. Nothing is imported
beyond the standard library: NVML is called by ctypes, `torch` only where the process has initialised CUDA
with it.
"""

from __future__ import annotations

import getpass
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fleetgauge.compute import slurm
from fleetgauge.compute.cgroup import Limits, read_limits
from fleetgauge.compute.gpu import Gpu, VisibleGpus, allocated, devices, text, visible_by_environment
from fleetgauge.compute.nvml import DEADLINE_SECONDS, read_inventory
from fleetgauge.compute.slurm import Detected
from fleetgauge.compute.user_config import debug_once, model_section, runtime_section, wandb_ready

_GIB = 2**30
_USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Host:
    """The totals of the machine as operating system and driver report them, before any limit.

    `gpus` is None where there is no driver, empty where the driver lists none. `torch_gpus` are those visible
    to a process that has initialised CUDA, by their visible indices. `has_driver` is False only where there
    is neither NVIDIA's library nor AMD's device.
    """

    os_cpus: int
    affinity: int | None
    memory_bytes: int
    gpus: tuple[Gpu, ...] | None
    torch_gpus: tuple[Gpu, ...] | None = None
    has_driver: bool = True


def collect_compute_metadata(
    cfg: object = None,
    *,
    env: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] = "/",
    host: Host | None = None,
) -> dict[str, Any]:
    """Return the compute metadata of this process, ready for JSON.

    `cfg` is the configuration of the job, a mapping or object. `env`, `root` and `host` replace the
    environment, the root of `proc` and `sys`, and what the machine reports.

    Keys are `compute.<name>`, and the sections `system`, `slurm`, `model` and `runtime`. Never raises: what
    cannot be read is left out, and logged once at debug level. `compute.gpu_source` is always there; where it
    is `unknown` there is no `compute.gpu_count`.
    """
    # What several parts need is read once, so that all of them agree.
    environment = os.environ if env is None else env
    machine = read_host(root=root) if host is None else host
    limits = _attempt("cgroup", lambda: read_limits(Path(root)), Limits(None, None))
    visible = _attempt("gpu", lambda: detect_gpus(environment, machine), _UNKNOWN_GPUS)
    metadata: dict[str, Any] = {}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "system": lambda: _section("system", _system(environment)),
        "cpu": lambda: _cpu_values(environment, limits, machine),
        "gpu count": lambda: _gpu_values(visible),
        "gpu details": lambda: _gpu_details(visible),
        "memory": lambda: _memory_values(environment, limits, machine, visible),
        "slurm": lambda: _section("slurm", slurm.job_section(environment)),
        "model": lambda: _section("model", model_section(cfg)),
        "runtime": lambda: _section("runtime", runtime_section(cfg)),
    }
    # Each part by itself: one that fails costs only its own keys.
    for name, collect in parts.items():
        metadata |= _attempt(name, collect, dict[str, Any]())
    ready: dict[str, Any] = wandb_ready(metadata)
    return ready


def count_cpus(env: Mapping[str, str], limits: Limits, host: Host) -> Detected:
    """Return the CPUs this process may use: Slurm's number, else the least of affinity, quota and total.

    At least 1: a quota of half a CPU is rounded up.
    """
    if slurm_value := slurm.cpus_for_task(env):
        # A variable may be inherited from another machine's shell: no process has more CPUs than its machine.
        return Detected(min(slurm_value.value, host.os_cpus), slurm_value.source)
    candidates = [Detected(host.os_cpus, "system")]
    if host.affinity is not None:
        candidates.append(Detected(host.affinity, "affinity"))
    if limits.cpus is not None:
        candidates.append(Detected(math.ceil(limits.cpus), "cgroup"))
    least = min(candidates, key=lambda candidate: candidate.value)
    return Detected(max(least.value, 1), least.source)


def measure_memory(env: Mapping[str, str], limits: Limits, host: Host, gpus: int) -> Detected | None:
    """Return the bytes this process may use: the cgroup's limit, else Slurm's, else the total.

    None where none is known. Slurm's 0 is all memory of the node.
    """
    total = host.memory_bytes if host.memory_bytes > 0 else None
    # Ignore a limit above the memory of the machine.
    if limits.memory_bytes is not None and (total is None or limits.memory_bytes <= total):
        return Detected(limits.memory_bytes, "cgroup")
    slurm_value = slurm.memory_bytes(env, gpus)
    if slurm_value is not None and slurm_value.value:
        return Detected(min(slurm_value.value, total or slurm_value.value), slurm_value.source)
    if total is None:
        return None
    return Detected(total, slurm_value.source if slurm_value else "system")


def detect_gpus(env: Mapping[str, str], host: Host) -> VisibleGpus:
    """Return the GPUs this process sees: by CUDA's or ROCm's variables, else by Slurm, else all of them.

    Without a driver that lists them, those of torch come first, which has applied the variables itself.

    The count is 0 where the driver lists none, or where there is no driver.
    """
    if host.gpus is None and host.torch_gpus is not None:
        return VisibleGpus(len(host.torch_gpus), "torch", host.torch_gpus)
    if visible := visible_by_environment(env, host.gpus):
        return visible
    if slurm_value := slurm.gpus_on_node(env):
        return allocated(slurm_value.value, slurm_value.source, slurm.gpu_indices(env), host.gpus)
    if host.gpus is None:
        return _UNKNOWN_GPUS if host.has_driver else VisibleGpus(0, "nvml", ())
    usable = devices(host.gpus)
    return VisibleGpus(len(usable), "nvml", usable)


def read_host(*, deadline: float = DEADLINE_SECONDS, root: str | os.PathLike[str] = "/") -> Host:
    """Read the totals of this machine, with a timeout of `deadline` seconds for the driver."""
    affinity = _attempt("affinity", lambda: len(os.sched_getaffinity(0)), None)
    unread: tuple[tuple[Gpu, ...] | None, bool] = (None, True)
    # A driver that hangs or a library that cannot be called is unknown, which is not the same as no GPU.
    gpus, library_loads = _attempt("NVML", lambda: read_inventory(deadline), unread)
    return Host(
        os_cpus=os.cpu_count() or affinity or 1,
        affinity=affinity,
        memory_bytes=_attempt(
            "memory total", lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0
        ),
        gpus=gpus,
        torch_gpus=_attempt("torch", _torch_gpus, None) if gpus is None else None,
        # AMD's kernel driver, whose GPUs NVML does not list.
        has_driver=library_loads or _attempt("AMD", lambda: Path(root, "dev/kfd").exists(), True),
    )


_UNKNOWN_GPUS = VisibleGpus(None, "unknown", None)


def _cpu_values(env: Mapping[str, str], limits: Limits, host: Host) -> dict[str, Any]:
    """Return the number of CPUs, its source, and for a job of several nodes their sum."""
    cpus = count_cpus(env, limits, host)
    values: dict[str, Any] = {"compute.cpu_count": cpus.value, "compute.cpu_source": cpus.source}
    if architecture := _attempt("cpu architecture", lambda: os.uname().machine, ""):
        values["compute.cpu_architecture"] = architecture
    if job := slurm.cpus_of_job(env):
        values["compute.cpu_count_job"] = job
    return values


def _memory_values(
    env: Mapping[str, str], limits: Limits, host: Host, visible: VisibleGpus
) -> dict[str, Any]:
    memory = measure_memory(env, limits, host, visible.count or 0)
    if memory is None:
        return {}
    return {"compute.memory_gb": gib(memory.value), "compute.memory_source": memory.source}


def _gpu_values(visible: VisibleGpus) -> dict[str, Any]:
    values: dict[str, Any] = {"compute.gpu_source": visible.source}
    return values if visible.count is None else {"compute.gpu_count": visible.count, **values}


def _gpu_details(visible: VisibleGpus) -> dict[str, Any]:
    """Return the visible devices and the type of the first; all types where there are several."""
    if not visible.gpus:
        return {}
    values: dict[str, Any] = {"compute.gpus": [_detail(gpu) for gpu in visible.gpus]}
    types = list(dict.fromkeys(text(gpu.name) for gpu in visible.gpus if gpu.name))
    if types:
        values["compute.gpu_type"] = types[0]
    if len(types) > 1:
        values["compute.gpu_types"] = types
    return values


def _detail(gpu: Gpu) -> dict[str, Any]:
    """Return what is known of one GPU, by the names of `torch.cuda.get_device_properties`."""
    detail = {
        "index": gpu.index,
        "name": text(gpu.name) or None,
        "total_memory_gb": None if gpu.memory_bytes is None else gib(gpu.memory_bytes),
        "major": gpu.major,
        "minor": gpu.minor,
        "multi_processor_count": gpu.multi_processor_count,
    }
    return {field: value for field, value in detail.items() if value is not None}


def _system(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the known fields. `platform` is not used: it runs `uname -p`, and a job must not be forked."""
    readers: dict[str, Callable[[], str]] = {
        "platform": _platform,
        "python_version": lambda: sys.version.split()[0],
        "hostname": lambda: os.uname().nodename,
        "user": lambda: _user(env),
    }
    found = {name: _attempt(name, read, "") for name, read in readers.items()}
    return {name: value for name, value in found.items() if value}


def _platform() -> str:
    """Return what `platform.platform()` returns."""
    system = os.uname()
    libc = _attempt("libc", lambda: os.confstr("CS_GNU_LIBC_VERSION"), None)
    names = [system.sysname, system.release, system.machine]
    return "-".join(names + (["with", libc.replace(" ", "")] if libc else []))


def _user(env: Mapping[str, str]) -> str:
    """Return the user by the environment, else by the password database. Raises where neither has one."""
    named = next((env[name] for name in _USER_VARIABLES if env.get(name)), None)
    # Raises where a container's uid has no name: KeyError, from Python 3.13 OSError.
    return named or getpass.getuser()


def _torch_gpus() -> tuple[Gpu, ...] | None:
    """Return the devices of torch if CUDA is initialised: initialising it here would break a later fork."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    gpus = []
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        fields = ("name", "total_memory", "major", "minor", "multi_processor_count")
        gpus.append(Gpu(index, *(getattr(device, field, None) for field in fields)))
    return tuple(gpus)


def _section(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields} if fields else {}


def gib(size: int) -> float:
    """Return bytes in GiB, with two decimals."""
    return round(size / _GIB, 2)


def _attempt(part: str, collect: Callable[[], T], default: T) -> T:
    """Return what `collect` returns, or `default` if it raises, which is logged once."""
    try:
        return collect()
    except Exception as error:
        debug_once(part, error)
        return default
