"""From its first import on a process ends by a signal, whatever it inherited."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from project import ROOT

START = """
import signal, sys
sys.path[0] = {root!r}
{inherited}
from common.start import catch_signals
catch_signals()
{then}
"""


def started(inherited: str, then: str) -> subprocess.CompletedProcess[str]:
    code = START.format(root=str(ROOT), inherited=inherited, then=then)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_from_the_beginning_a_signal_ends_the_process_without_a_word(number: str, code: int) -> None:
    ran = started("", f"signal.raise_signal(signal.{number})\nprint('still there')")
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", "")


@pytest.mark.parametrize(
    "inherited",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
    ],
)
def test_a_signal_that_was_ignored_or_blocked_by_whoever_started_us_counts(inherited: str) -> None:
    assert started(inherited, "signal.raise_signal(signal.SIGTERM)").returncode == 143


def test_how_children_end_is_known_whatever_was_inherited() -> None:
    then = "import subprocess; print(subprocess.run(['sh', '-c', 'exit 7']).returncode)"
    assert started("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", then).stdout == "7\n"


@pytest.mark.parametrize(
    "command", [["scripts/run_collector.py", "--version"], ["-P", "common/process/child.py", "host"]]
)
def test_nothing_is_imported_before_signals_are_caught_but_what_catches_them(command: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    imported = re.findall(r"\| +(\S+)$", ran.stderr, re.MULTILINE)
    assert imported[imported.index("site") + 1 :][:2] == ["common", "common.start"]
