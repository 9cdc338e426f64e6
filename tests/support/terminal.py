"""A run of the service as a person at a terminal has it."""

from __future__ import annotations

import os
import pty
import subprocess
from contextlib import suppress

from support.project import Project


def at_terminal(
    project: Project, *arguments: str, answer: str = "", without: str = "", **extra: str
) -> tuple[int, str]:
    """Run with a terminal; return the exit code, and what the terminal showed.

    A prompt is answered with a line. `without` is a stream that is not the terminal's.
    """
    master, slave = pty.openpty()
    streams = {
        name: subprocess.DEVNULL if name == without else slave for name in ("stdin", "stdout", "stderr")
    }
    environ = {**project.environment, "TERM": "xterm", "COLUMNS": "120", **extra}
    with subprocess.Popen(
        project.command(*arguments),
        env=environ,
        stdin=streams["stdin"],
        stdout=streams["stdout"],
        stderr=streams["stderr"],
        start_new_session=True,
    ) as run:
        os.close(slave)
        shown, is_answered = b"", False
        with suppress(OSError):  # the other end is closed
            while chunk := os.read(master, 65536):
                shown += chunk
                if b"[y/N]" in shown and not is_answered:
                    is_answered = True
                    os.write(master, answer.encode())
        os.close(master)
    return run.returncode, shown.decode(errors="replace")
