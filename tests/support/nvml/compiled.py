"""The driver's library of `driver.c`, compiled, and what a test can have it do."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

from support.requirements import skip_without

DATA = Path(__file__).parents[2] / "data" / "nvml"


def compile_driver(folder: Path) -> Path:
    """Build `libnvidia-ml.so.1` in a folder; skips the test where nothing can."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        skip_without("cc", "a driver's library is compiled here")
    target = folder / "libnvidia-ml.so.1"
    source = DATA / "driver.c"
    command = [compiler, "-shared", "-fPIC", "-pthread", "-Wall", "-Werror", "-o", str(target), str(source)]
    subprocess.run(command, check=True)
    return target


class CompiledDriver(ctypes.CDLL):
    """The library, loaded into this process, for `recorded.binding` to call."""

    def refuse(self, function: str, code: int, after: int = 0) -> None:
        """Have a function succeed `after` times, and then fail with a code."""
        self.fake_refuse(function.encode(), code, after)

    def old(self, index: int) -> None:
        """Have a GPU support nothing but its name."""
        self.fake_old(index)

    def energy(self, millijoules: int) -> None:
        """Set the energy counter of the first GPU; the second has used twice as much, and so on."""
        self.fake_energy(ctypes.c_ulonglong(millijoules))

    def reasons(self, bits: int) -> None:
        self.fake_reasons(ctypes.c_ulonglong(bits))

    def process(self, pid: int, memory: int) -> None:
        """Add a process on the first GPU, and on the first MIG instance."""
        self.fake_process(pid, ctypes.c_ulonglong(memory))

    def report(self, index: int, xid: int, kind: int = 8) -> None:
        """Report an event of a GPU; the listener has received it when this returns."""
        self.fake_event(index, ctypes.c_ulonglong(kind), ctypes.c_ulonglong(xid))
        self.fake_until_heard()

    def called(self) -> set[str]:
        """The functions that were called since the last reset."""
        self.fake_asked.restype = ctypes.c_char_p
        return set(self.fake_asked().decode().split())
