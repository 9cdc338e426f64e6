"""The allotment of a Slurm job, from its environment.

Knows the grammar of Slurm's variables and nothing of the machine. Every function is total: what is empty
or garbage answers None, and the caller goes on to its next source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
_OPTION = re.compile(r"(?:gpu:)?(?:[\w.+-]+:)?([0-9]{1,6})", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_MEMORY = re.compile(r"([0-9]{1,15})(?:([KMGT])B?)?", re.IGNORECASE)
_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

# What is logged of a job, and where it is read, the first variable that is set answering. A white-list:
# SLURM_JWT and whatever else a site exports under the prefix must never leave the machine.
_SECTION = {
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
    """A number, and its source: the name of a variable, or of another rule."""

    value: int
    source: str


def job_section(env: Mapping[str, str]) -> dict[str, str]:
    """Return the white-listed variables unchanged, or nothing outside a job.

    Only a job's id says that this is one: `srun` also takes its options from `SLURM_*` variables, so the
    rest may be exported on a login node.
    """
    section: dict[str, str] = {}
    for key, variables in _SECTION.items():
        if value := next((env[name].strip() for name in variables if env.get(name, "").strip()), ""):
            section[key] = value
    return section if "slurm_job_id" in section else {}


def cpus_for_task(env: Mapping[str, str]) -> Detected | None:
    """The CPUs of this task, else those of the job on this node."""
    if per_task := _integer(env.get("SLURM_CPUS_PER_TASK", "")):
        return Detected(per_task, "SLURM_CPUS_PER_TASK")
    return _cpus_allocated_here(env)


def cpus_on_node(env: Mapping[str, str]) -> int | None:
    """The CPUs of all this job's tasks on this node: what memory per CPU is multiplied by."""
    if allocated := _cpus_allocated_here(env):
        return allocated.value
    if per_task := _integer(env.get("SLURM_CPUS_PER_TASK", "")):
        return per_task * (_here(env, "SLURM_TASKS_PER_NODE") or 1)
    return None


def cpus_of_job(env: Mapping[str, str]) -> int | None:
    """The CPUs of the job over all its nodes, where a variable lists the nodes."""
    on_node = env.get("SLURM_CPUS_ON_NODE", "")
    # A bare integer there is this node's, not that of the others.
    listed = _per_node(env.get("SLURM_JOB_CPUS_PER_NODE", "")) or (
        () if _integer(on_node) else _per_node(on_node)
    )
    return sum(count * nodes for count, nodes in listed) if listed else None


def memory_bytes(env: Mapping[str, str], gpus: int) -> Detected | None:
    """The memory allotted on this node, 0 meaning all of it. `gpus` serves where Slurm gives no count."""
    per_node = _bytes(env.get("SLURM_MEM_PER_NODE", ""))
    if per_node is not None:
        return Detected(per_node, "SLURM_MEM_PER_NODE")
    allocated_gpus = gpus_on_node(env)
    shares = {
        "SLURM_MEM_PER_CPU": cpus_on_node(env) or 0,
        "SLURM_MEM_PER_GPU": allocated_gpus.value if allocated_gpus else gpus,
    }
    for name, units in shares.items():
        each = _bytes(env.get(name, ""))
        if each == 0 or (each and units):
            return Detected(each * units, name)
    return None


def gpus_on_node(env: Mapping[str, str]) -> Detected | None:
    """The GPUs of the job on this node; none at all is an answer.

    `SLURM_GPUS` is not asked: it counts the whole job.
    """
    # What was allocated before what was requested.
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        count = _gpus_in_option(env.get(name, ""))
        if count is not None:
            return Detected(count, name)
    # The step before the job it is a part of.
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if indices := _indices(env.get(name, "")):
            return Detected(len(indices), name)
    return None


def gpu_indices(env: Mapping[str, str]) -> tuple[int, ...]:
    """Which of the node's GPUs are the job's, where Slurm lists them."""
    return _indices(env.get("SLURM_STEP_GPUS", "")) or _indices(env.get("SLURM_JOB_GPUS", ""))


def _cpus_allocated_here(env: Mapping[str, str]) -> Detected | None:
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"):
        if here := _here(env, name):
            return Detected(here, name)
    return None


def _here(env: Mapping[str, str], name: str) -> int | None:
    """This node's entry of a per-node list, the first where `SLURM_NODEID` is not set."""
    listed = _per_node(env.get(name, ""))
    if len(listed) == 1:
        return listed[0][0]
    position = _integer(env.get("SLURM_NODEID", ""))
    for count, nodes in listed:
        if position < nodes:
            return count
        position -= nodes
    return None


def _per_node(value: str) -> tuple[tuple[int, int], ...]:
    """`72(x2),36` as ((72, 2), (36, 1)). One entry that is zero or garbage spoils the list."""
    listed = []
    for entry in value.split(","):
        match = _REPEATED.fullmatch(entry.strip())
        if match is None:
            return ()
        listed.append((int(match[1]), int(match[2] or 1)))
    return tuple(listed) if all(count and nodes for count, nodes in listed) else ()


def _integer(value: str) -> int:
    """A plain number, 0 where it is none: both fall through."""
    match = re.fullmatch("[0-9]{1,9}", value.strip())
    return int(match[0]) if match else 0


def _bytes(value: str) -> int | None:
    """A size as Slurm writes it: plain numbers are mebibytes."""
    match = _MEMORY.fullmatch(value.strip())
    return int(match[1]) * _BYTES[(match[2] or "M").upper()] if match else None


def _gpus_in_option(value: str) -> int | None:
    """The sum of an option such as `gpu:a100:4(S:0-1)` or `volta:3,kepler:1`."""
    total = 0
    for entry in re.sub(r"\([^)]*\)", "", value).split(","):
        match = _OPTION.fullmatch(entry.strip())
        if match is None:
            return None
        total += int(match[1])
    return total


def _indices(value: str) -> tuple[int, ...]:
    """`0-1,4` as (0, 1, 4), each once, in order."""
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
