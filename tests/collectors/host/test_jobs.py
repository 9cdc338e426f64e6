"""Which job uses a GPU, by the cgroups of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.host import metrics
from collectors.host.jobs import is_host_proc, parse_job
from support.host_node import HostRoot, collected, context, values
from support.nvml.compiled import CompiledDriver

UID = "0f3c5a2e-6d1b-4c8e-9f5a-1b2c3d4e5f60"
SLURM = "0::/system.slice/slurmstepd.scope/job_31/step_0/user/task_0\n"
POD = f"0::/kubepods/burstable/pod{UID}/4f1e\n"
BY_JOB = "FLEETGAUGE_HOST_GPU_PROCESSES"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        (SLURM, ("slurm_job", "31")),
        ("9:memory:/slurm/uid_1000/job_4242/step_batch/task_0\n", ("slurm_job", "4242")),
        (POD, ("pod_uid", UID)),
        (
            f"0::/kubepods.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-4f1e.scope\n",
            ("pod_uid", UID),
        ),
        (f"0::/../../pod{UID}/4f1e\n", ("pod_uid", UID)),
        (f"0::/pods/pod{UID}x/4f1e\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/home/job_31/work\n", None),
    ],
)
def test_the_job_is_parsed_from_the_cgroup(cgroup: str, job: tuple[str, str] | None) -> None:
    assert parse_job(cgroup) == job


def test_memory_of_a_job_is_that_of_all_its_processes(driver: CompiledDriver, tmp_path: Path) -> None:
    root = HostRoot(tmp_path)
    for pid, cgroup in ((11, SLURM), (12, SLURM), (13, POD), (14, "0::/user.slice\n")):
        root.process(pid, cgroup)
        driver.process(pid, pid << 30)
    driver.process(15, 2**30)  # the process has ended
    for pid, memory in ((16, 2**30), (17, 2**64 - 1)):  # one of a job has used what nobody knows
        root.process(pid, SLURM.replace("31", "32"))
        driver.process(pid, memory)
    environ = {BY_JOB: "true", "FLEETGAUGE_HOST_ROOT": str(tmp_path)}
    kind = "gpu_type:NVIDIA H100 80GB HBM3"
    assert values(collected(context(environ=environ)), metrics.GPU_JOB_MEMORY) == {
        ("gpu:0", kind, "slurm_job:31"): 23,
        ("gpu:0", kind, f"pod_uid:{UID}"): 13,
        ("gpu:5:3g.40gb:1", kind, "slurm_job:31"): 23,
        ("gpu:5:3g.40gb:1", kind, f"pod_uid:{UID}"): 13,
    }


def test_pids_of_another_namespace_are_ignored_and_reported(driver: CompiledDriver, tmp_path: Path) -> None:
    root = HostRoot(tmp_path)
    (tmp_path / "proc/2/comm").write_text("python\n")
    root.process(11, POD)  # a process of the collector's own pod, not the one that the driver reports
    driver.process(11, 2**30)
    assert not is_host_proc(tmp_path / "nowhere")
    given = context(environ={"FLEETGAUGE_HOST_ROOT": str(tmp_path), BY_JOB: "true"})
    assert values(collected(given), metrics.GPU_JOB_MEMORY) == {}
    [lost] = [unit for unit in given.report.lost if unit.startswith("GPU memory by job: ")]
    assert "hostPID" in lost
