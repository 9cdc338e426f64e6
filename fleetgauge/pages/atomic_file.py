"""Files that exist complete or not at all.

`fleetgauge.gpu_memory` and the command line write pages with it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def atomic_file(path: Path) -> Iterator[TextIO]:
    """Yield a text file to write, renamed once it is complete: until then readers see the old one.

    What is no file, such as a pipe or a terminal, is written to as it is. On an error the old file stays, and
    the error is raised. Raises OSError where the directory cannot be written to.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    # A symbolic link stays one: its target is replaced.
    target = path.resolve()
    # In the same directory, because a rename is atomic only within a file system.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
        # `mkstemp` creates a file for its owner only; a page is for others to read.
        Path(name).chmod(0o644)
        Path(name).replace(target)
    # An interrupt must not leave a temporary file behind either.
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
