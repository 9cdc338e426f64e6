"""The demo, as the README shows it."""

from __future__ import annotations

import re
import subprocess
import sys

from project import ROOT


def shape(text: str) -> list[str]:
    """The lines of an output without what differs from machine to machine: numbers, the kernel, GPUs."""
    lines = [line for line in text.strip().splitlines() if "host.gpu" not in line]
    named = [re.sub(r"(kernel|arch|gpu_type):\S+", r"\1", re.sub(r" +", " ", line)) for line in lines]
    return [re.sub(r"\d[\d.,:e-]*", "N", line).strip() for line in named]


def test_the_demo_prints_what_the_readme_shows() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    [shown] = re.findall(r"```text\n(Embedded:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shape(ran.stdout) == shape(shown)
