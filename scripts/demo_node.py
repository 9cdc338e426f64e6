"""Push two ticks of a simulated node with two GPUs, as the DaemonSet of the host collector would.

`scripts/demo.py` starts it in a process of its own, with the environment of the service. NVIDIA's binding is
the real one; only the driver's library is simulated.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

import pynvml  # type: ignore[import-untyped]  # noqa: E402

from common.options import Mode, Options  # noqa: E402
from common.outcome import Status  # noqa: E402
from common.run.run import run  # noqa: E402
from scripts.demo_records import Clock  # noqa: E402
from support.host_node import HostRoot  # noqa: E402
from support.nvml.recorded import Driver  # noqa: E402

NODE = "gpu-node-3"  # where the jobs of the demo run
GIB = 2**30
PIDS = (4711, 4712)  # of the ranks of a job, each on a GPU of its own
SECONDS = 15  # between the ticks
AHEAD = 5  # seconds: the second tick comes after XID errors, which have the time of the real clock
XID = 94  # an error of the memory, contained
LINKS = 18
_SUCCESS, _UNINITIALIZED, _INVALID_ARGUMENT, _INSUFFICIENT_SIZE = 0, 1, 2, 7


def gpu(index: int) -> dict[str, Any]:
    """Return what NVML reports of a busy H100."""
    used = (61 + 4 * index) * GIB
    return {
        "nvmlDeviceGetName": ["NVIDIA H100 80GB HBM3"],
        "nvmlDeviceGetUUID": [f"GPU-00000000-0000-0000-0000-00000000000{index}"],
        "nvmlDeviceGetMemoryInfo_v2": [
            {"total": 80 * GIB, "reserved": GIB // 2, "used": used, "free": 80 * GIB - GIB // 2 - used}
        ],
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetUtilizationRates": [{"gpu": 97 - index, "memory": 61}],
        "nvmlDeviceGetEncoderUtilization": [0, 167_000],
        "nvmlDeviceGetDecoderUtilization": [12, 167_000],
        "nvmlDeviceGetTemperature(0)": [64 + index],
        "nvmlDeviceGetFieldValues": [[{"valueType": 1, "value": pynvml.c_nvmlValue_t(uiVal=81)}]],
        "nvmlDeviceGetPowerUsage": [689_200 + 1000 * index],
        "nvmlDeviceGetEnforcedPowerLimit": [700_000],
        "nvmlDeviceGetTotalEnergyConsumption": [10**9],
        "nvmlDeviceGetClockInfo(1)": [1740],
        "nvmlDeviceGetClockInfo(2)": [2619],
        "nvmlDeviceGetCurrentClocksEventReasons": [4],  # throttled by its power cap
        "nvmlDeviceGetPcieReplayCounter": [0],
        "nvmlDeviceGetTotalEccErrors(0, 0)": [3],
        "nvmlDeviceGetTotalEccErrors(1, 0)": [0],
        "nvmlDeviceGetTotalEccErrors(0, 1)": [17],
        "nvmlDeviceGetTotalEccErrors(1, 1)": [1],
        "nvmlDeviceGetRemappedRows": [0, 1, 1, 0],
        "processes": [{"pid": PIDS[index], "usedGpuMemory": used}],
    }


class Gpus(Driver):
    """A driver's library of two GPUs; the second reports one XID error to the first listener."""

    def __init__(self) -> None:
        self.gpus = [gpu(0), gpu(1)]
        every = {"nvmlInitWithFlags": [], "nvmlShutdown": [], "nvmlDeviceGetCount_v2": [2]}
        super().__init__({**every, "devices": self.gpus})
        self.reported = threading.Event()
        self._sent = False
        self._registered: Any = None

    # The arguments are what the binding hands to a C function: pointers, structures and numbers.
    def nvmlDeviceGetNvLinkState(self, _device: Any, link: int, active: Any) -> int:  # noqa: N802
        active._obj.value = 1
        return _SUCCESS if link < LINKS else _INVALID_ARGUMENT

    def nvmlDeviceGetNvLinkErrorCounter(self, *arguments: Any) -> int:  # noqa: N802
        arguments[-1]._obj.value = 0
        return _SUCCESS

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, room: Any) -> int:  # noqa: N802
        processes = self.device(device)["processes"]
        count._obj.value = len(processes)
        for index, process in enumerate(processes if room else ()):
            for field, value in process.items():
                setattr(room[index], field, value)
        return _SUCCESS if room else _INSUFFICIENT_SIZE

    def nvmlEventSetCreate(self, _events: Any) -> int:  # noqa: N802
        return _SUCCESS

    def nvmlDeviceRegisterEvents(self, device: Any, *_: Any) -> int:  # noqa: N802
        self._registered = device
        return _SUCCESS

    def nvmlEventSetWait_v2(self, _events: Any, event: Any, _milliseconds: Any) -> int:  # noqa: N802
        if self._sent:
            self.reported.set()  # and counted: the listener asks for the next one
            return _UNINITIALIZED
        self._sent = True
        event._obj.device, event._obj.eventType, event._obj.eventData = self._registered, 8, XID
        return _SUCCESS


def main(folder: Path) -> int:
    """Push both ticks; return 1 where one of them was not ok."""
    pynvml.nvmlLib = gpus = Gpus()
    root = HostRoot(folder)
    for pid in PIDS:
        root.process(pid, "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n")
    node = {"NODE_NAME": NODE, "HOST_ROOT": str(folder), "HOST_PATHS": ","}
    node |= {"HOST_GPU_VIDEO": "true", "HOST_GPU_PROCESSES": "true"}
    environment = {**os.environ, **{f"FLEETGAUGE_{name}": value for name, value in node.items()}}
    clock = Clock(time.time() - SECONDS + AHEAD)
    good = True
    for _ in range(2):
        outcome = run("host", Options(Mode.PUSH, timeout=60, step=60, every=60), environment, clock=clock)
        good &= outcome.status is Status.OK and gpus.reported.wait(60)
        clock.now += SECONDS
        root.cpu(user=100 + SECONDS * 70, idle=900 + SECONDS * 30)
        for index, each in enumerate(gpus.gpus):
            each["nvmlDeviceGetTotalEnergyConsumption"] = [10**9 + SECONDS * (689_200 + 1000 * index)]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
