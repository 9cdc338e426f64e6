"""The allocation of a Slurm job, parsed from its environment variables.

No function raises: an empty or invalid variable counts as not set. `metadata` gives the result precedence
over the machine's totals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

# Digits are limited in number: a variable may be anything, and a number of a thousand digits is none.
_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
_OPTION = re.compile(r"(?:gpu:)?(?:[\w.+-]+:)?([0-9]{1,6})", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_MEMORY = re.compile(r"([0-9]{1,15})(?:([KMGT])B?)?", re.IGNORECASE)
_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

# The logged fields of a job, and their variables in order of precedence. An allowlist: SLURM_JWT and other
# secrets with the prefix must never leave the machine.
_LOGGED_VARIABLES = {
    "slurm_job_id": ("SLURM_JOB_ID", "SLURM_JOBID"),
    "slurm_job_name": ("SLURM_JOB_NAME",),
    "slurm_nodelist": ("SLURM_NODELIST", "SLURM_JOB_NODELIST"),
    "slurm_nnodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "slurm_job_num_nodes": ("SLURM_JOB_NUM_NODES",),
    "slurm_cpus_per_task": ("SLURM_CPUS_PER_TASK",),
    "slurm_cpus_on_node": ("SLURM_CPUS_ON_NODE",),
    "slurm_mem_per_node": ("SLURM_MEM_PER_NODE",),
    "slurm_mem_per_cpu": ("SLURM_MEM_PER_CPU",),
    "slurm_gpus_per_node": ("SLURM_GPUS_PER_NODE",),
    "slurm_tasks_per_node": ("SLURM_TASKS_PER_NODE",),
    "slurm_partition": ("SLURM_JOB_PARTITION",),
    "slurm_submit_dir": ("SLURM_SUBMIT_DIR",),
    "submitit_job_id": ("SUBMITIT_JOB_ID",),
}


class Detected(NamedTuple):
    """A number, and its source: the name of a variable, `cgroup`, `affinity` or `system`."""

    value: int
    source: str


def job_section(env: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed variables unchanged, or nothing outside a job.

    Only a job's id shows that this is one: `srun` also takes its options from `SLURM_*` variables, so that
    the others may be exported on a login node.
    """
    section: dict[str, str] = {}
    for key, variables in _LOGGED_VARIABLES.items():
        if value := next((env[name].strip() for name in variables if env.get(name, "").strip()), ""):
            section[key] = value
    return section if "slurm_job_id" in section else {}


def cpus_for_task(env: Mapping[str, str]) -> Detected | None:
    """Return the CPUs of this task, else those of the job on this node; None where no variable has them."""
    if per_task := _integer(env.get("SLURM_CPUS_PER_TASK", "")):
        return Detected(per_task, "SLURM_CPUS_PER_TASK")
    return _allocated_cpus(env)


def cpus_on_node(env: Mapping[str, str]) -> int | None:
    """Return the CPUs of all tasks of the job on this node, by which memory per CPU is multiplied."""
    if allocated := _allocated_cpus(env):
        return allocated.value
    if per_task := _integer(env.get("SLURM_CPUS_PER_TASK", "")):
        return per_task * (_entry_of_node(env, "SLURM_TASKS_PER_NODE") or 1)
    return None


def cpus_of_job(env: Mapping[str, str]) -> int | None:
    """Return the CPUs of the job on all its nodes, where a variable lists the nodes; None otherwise."""
    on_node = env.get("SLURM_CPUS_ON_NODE", "")
    # A single integer is the count of this node only.
    entries = _per_node(env.get("SLURM_JOB_CPUS_PER_NODE", "")) or (
        () if _integer(on_node) else _per_node(on_node)
    )
    return sum(count * nodes for count, nodes in entries) if entries else None


def memory_bytes(env: Mapping[str, str], gpus: int) -> Detected | None:
    """Return the memory allocated on this node, 0 for all of it. `gpus` is used where Slurm has no count.

    None where no variable has it. Slurm sets at most one of per node, per CPU and per GPU.
    """
    per_node = _bytes(env.get("SLURM_MEM_PER_NODE", ""))
    if per_node is not None:
        return Detected(per_node, "SLURM_MEM_PER_NODE")
    allocated_gpus = gpus_on_node(env)
    units_by_variable = {
        "SLURM_MEM_PER_CPU": cpus_on_node(env) or 0,
        "SLURM_MEM_PER_GPU": allocated_gpus.value if allocated_gpus else gpus,
    }
    for name, units in units_by_variable.items():
        unit_bytes = _bytes(env.get(name, ""))
        if unit_bytes == 0 or (unit_bytes and units):
            return Detected(unit_bytes * units, name)
    return None


def gpus_on_node(env: Mapping[str, str]) -> Detected | None:
    """Return the number of GPUs of the job on this node, which may be 0; None where no variable has it.

    `SLURM_GPUS` is not used: it counts those of all nodes.
    """
    # The allocation has precedence over the request.
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        count = _gpus_in_option(env.get(name, ""))
        if count is not None:
            return Detected(count, name)
    # The step has precedence over its job.
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if indices := _indices(env.get(name, "")):
            return Detected(len(indices), name)
    return None


def gpu_indices(env: Mapping[str, str]) -> tuple[int, ...]:
    """Return the indices of the job's GPUs on this node, empty where Slurm does not list them."""
    return _indices(env.get("SLURM_STEP_GPUS", "")) or _indices(env.get("SLURM_JOB_GPUS", ""))


def _allocated_cpus(env: Mapping[str, str]) -> Detected | None:
    """Return the CPUs of the job on this node, by the allocation; None where no variable has them."""
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"):
        if cpus := _entry_of_node(env, name):
            return Detected(cpus, name)
    return None


def _entry_of_node(env: Mapping[str, str], name: str) -> int | None:
    """Return this node's entry of a per-node list, the first where `SLURM_NODEID` is not set."""
    entries = _per_node(env.get(name, ""))
    if len(entries) == 1:
        return entries[0][0]
    position = _integer(env.get("SLURM_NODEID", ""))
    for count, nodes in entries:
        if position < nodes:
            return count
        position -= nodes
    return None


def _per_node(value: str) -> tuple[tuple[int, int], ...]:
    """Parse `72(x2),36` as ((72, 2), (36, 1)); empty where an entry is zero or invalid."""
    entries = []
    for entry in value.split(","):
        match = _REPEATED.fullmatch(entry.strip())
        if match is None:
            return ()
        entries.append((int(match[1]), int(match[2] or 1)))
    return tuple(entries) if all(count and nodes for count, nodes in entries) else ()


def _integer(value: str) -> int:
    """Parse a decimal integer; 0 where it is invalid."""
    match = re.fullmatch("[0-9]{1,9}", value.strip())
    return int(match[0]) if match else 0


def _bytes(value: str) -> int | None:
    """Parse a size of Slurm, in MiB without a suffix."""
    match = _MEMORY.fullmatch(value.strip())
    return int(match[1]) * _BYTES[(match[2] or "M").upper()] if match else None


def _gpus_in_option(value: str) -> int | None:
    """Parse the total of an option such as `gpu:a100:4(S:0-1)` or `volta:3,kepler:1`; None for other text."""
    total = 0
    # The parentheses have the sockets, whose list may contain a comma.
    for entry in re.sub(r"\([^)]*\)", "", value).split(","):
        match = _OPTION.fullmatch(entry.strip())
        if match is None:
            return None
        total += int(match[1])
    return total


def _indices(value: str) -> tuple[int, ...]:
    """Parse `0-1,4` as (0, 1, 4) without duplicates; empty where it is invalid."""
    indices: dict[int, None] = {}
    for entry in value.split(","):
        match = _RANGE.fullmatch(entry.strip())
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            return ()
        indices.update(dict.fromkeys(range(first, last + 1)))
    return tuple(indices)
