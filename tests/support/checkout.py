"""A copy of everything in the repository, to change files in and run the scripts of: nothing is patched.

Its `.venv` is this interpreter's, so that no script has anything to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.project import ROOT


class Checkout:
    """The copied repository, or only some folders and files of it."""

    def __init__(self, root: Path, *parts: str) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *parts],  # noqa: S607
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        home = self.root / ".venv"
        home.mkdir()
        for path in Path(sys.prefix).iterdir():
            if not path.name.startswith("locked-"):
                (home / path.name).symlink_to(path)
        if (self.root / "locks" / "dev.txt").exists():
            self.run("cksum <locks/dev.txt >.venv/locked-dev")

    def run(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command line as a person would type it."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],  # noqa: S607
            cwd=self.root,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def replace(self, name: str, old: str, new: str) -> None:
        """Change a file at the one place that reads like this."""
        text = (self.root / name).read_text()
        assert text.count(old) == 1, f"{name} does not hold {old!r} once"
        (self.root / name).write_text(text.replace(old, new))
