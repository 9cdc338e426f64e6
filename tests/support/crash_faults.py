"""Kills the process around the system calls of a save, as a plan says.

The crash harness copies this file beside the service as `sitecustomize`, so that every child of the copy
loads it at its start; without a plan it changes nothing.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def install(plan: dict[str, Any]) -> None:
    """Wrap the one system call that the plan is about."""
    seen = 0

    def die() -> None:
        os.kill(os.getppid() if plan["whom"] == "parent" else os.getpid(), signal.SIGKILL)

    def wrap(call: Callable[..., Any], before: bool, relevant: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += relevant(*arguments)
            due = seen == plan["nth"] and relevant(*arguments)
            if due and before:
                die()
            result = call(*arguments, **named)
            if due:
                die()
            return result

        return wrapped

    when, _, what = plan["point"].partition(" ")
    if when == "half":
        whole_write = os.write

        def half(descriptor: int, content: bytes) -> int:
            nonlocal seen
            if content.startswith(b'{"version"'):
                seen += 1
                if seen == plan["nth"]:
                    whole_write(descriptor, content[: len(content) // 2])
                    die()
            return whole_write(descriptor, content)

        os.write = half  # type: ignore[assignment]  # only ever given bytes
    elif what == "fsync":
        os.fsync = wrap(os.fsync, when == "before", lambda *_: True)
    else:
        os.rename = wrap(os.rename, when == "before", lambda *_: True)


_plan = Path(__file__).parent / "crash_plan.json"
if __name__ == "sitecustomize" and _plan.exists():
    _told = json.loads(_plan.read_text())
    if _told:
        install(_told)
