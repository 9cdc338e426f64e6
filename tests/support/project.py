"""A copy of the service in a directory of its own, to which a test adds collectors that misbehave.

Collectors are folders, so a copy with one more folder is the real thing: nothing is patched.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEY = "0123456789abcdef-datadog-key"  # of the intake that a project pushes to
BEING_WRITTEN = shutil.ignore_patterns("*.pyc.*")  # by another process, which is about to rename it

_TEMPLATE = """\
from __future__ import annotations
import json, logging, os, signal, subprocess, sys, threading, time
from pathlib import Path
from common.collector import Collector, Context
from common.errors import ConfigurationError, SourceError
from common.metric import count, gauge
from common.config.settings import CollectorSettings, Duration, Secret, Text, Texts, named

VALUE = gauge("{name}.value", "item", "A value.", "kind")
TOTAL = count("{name}.total", "item", "A total.", "kind")
METRICS = (VALUE, TOTAL)
log = logging.getLogger(__name__)

class ToySettings(CollectorSettings):
    model_config = named("FLEETGAUGE_{upper}_")
{settings}

def check(context):
    yield "nothing to check"

def collect(context):
{body}

COLLECTOR = Collector("{name}", ToySettings, METRICS, collect, check{options})
"""


@cache
def _compile() -> None:
    """Once, so that no copy has to do it again."""
    for folder in ("common", "collectors", "fleetgauge"):
        compileall.compile_dir(ROOT / folder, quiet=1)


class Project:
    """The copied service: add collectors, then run its command line."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self.root = self.directory = root
        self.environment = {"PATH": os.environ["PATH"], **environment}
        _compile()
        shutil.copytree(ROOT / "common", root / "common", ignore=BEING_WRITTEN)
        (root / "fleetgauge").symlink_to(ROOT / "fleetgauge")  # which no test changes
        (root / "collectors").mkdir()
        (root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "run_collector.py", root / "scripts")

    def keep(self, name: str) -> None:
        """Take over one of the real collectors."""
        shutil.copytree(ROOT / "collectors" / name, self.root / "collectors" / name, ignore=BEING_WRITTEN)

    def add(self, name: str, body: str, settings: str = "pass", init: str = "", options: str = "") -> None:
        """Add a collector with this body of `collect`.

        `init` goes into its package, as `PER_NODE = True`; `options` to `Collector`, as `, has_history=True`.
        """
        folder = self.root / "collectors" / name
        folder.mkdir()
        (folder / "__init__.py").write_text(f'"""A toy called {name}."""\n{init}\n')
        code = _TEMPLATE.format(
            name=name,
            upper=name.upper(),
            options=options,
            settings=textwrap.indent(textwrap.dedent(settings), "    "),
            body=textwrap.indent(textwrap.dedent(body), "    "),
        )
        (folder / "collector.py").write_text(code)

    def set_constant(self, module: str, name: str, value: str) -> None:
        """Change a constant of the copy: a shorter wait, a smaller batch."""
        path = self.root / "common" / module
        text, count = re.subn(rf"^{name} = \S+", f"{name} = {value}", path.read_text(), flags=re.MULTILINE)
        assert count == 1, f"{module} has no constant {name}"
        path.write_text(text)

    def command(self, *arguments: str) -> list[str]:
        """The command line of a run."""
        return [sys.executable, str(self.root / "scripts" / "run_collector.py"), *arguments]

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run to the end, with more variables where given."""
        return self.run_command(self.command(*arguments), **extra)

    def run_command(self, command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the environment of the service."""
        return subprocess.run(
            command,
            env={**self.environment, **extra},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.directory,
        )

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """Start a run and return at once."""
        return subprocess.Popen(
            self.command(*arguments),
            env={**self.environment, **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def document(self, *arguments: str, **extra: str) -> Any:
        """The JSON document of a run."""
        return json.loads(self.run(*arguments, "--json", **extra).stdout)
