"""From its first line on a process ends by a signal, whatever it inherited."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.project import ROOT

PARENT = ("scripts/run_collector.py", "host", "--every", "1h")
CHILD = ("common/process/child.py", "host")
WATCHED = """
import _signal, sys
entry, *sys.argv[1:] = sys.argv[1:]
early = []
told = []
def watch(event, arguments):
    if event != "import" or told:
        return
    if _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL:
        early.append(arguments[0])
    else:
        told.append(print(f"imported before: {early}", file=sys.stderr, end="", flush=True))
code = compile(open(entry).read(), entry, "exec")
sys.addaudithook(watch)
exec(code, {"__name__": "__main__", "__file__": entry})
"""
INHERITED = "import os, signal, sys\n{}\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


def start(code: str, command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *command],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_child_whose_parent_is_gone_before_it_says_what_to_do_ends_without_a_word() -> None:
    run = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    child = start(run, CHILD)
    assert child.communicate(timeout=60) == ("", "")
    assert child.returncode in {1, 143}  # of whoever notices first, the work or who listens


@pytest.mark.parametrize("entry", [("scripts/run_collector.py", "--version"), CHILD])
def test_nothing_is_imported_before_signals_are_caught(entry: Sequence[str]) -> None:
    _, said = start(WATCHED, entry).communicate(timeout=60)
    assert said == "imported before: []"


def until_caught(process: subprocess.Popen[str]) -> None:
    """Wait until it catches SIGTERM, as the kernel has it."""
    mask = 0
    while process.poll() is None and not mask & 1 << signal.SIGTERM - 1:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("entry", [PARENT, CHILD])
def test_a_signal_that_was_ignored_by_whoever_started_us_ends_it_without_a_word(
    entry: Sequence[str], number: signal.Signals, code: int
) -> None:
    ignoring = f"[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, {number:d})]"
    process = start(INHERITED.format(ignoring), entry)
    until_caught(process)
    process.send_signal(number)
    assert (process.communicate(timeout=60), process.returncode) == (("", ""), code)


def test_a_signal_that_was_blocked_by_whoever_started_us_counts() -> None:
    blocked = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); os.kill(os.getpid(), signal.SIGTERM)"
    )
    process = start(INHERITED.format(blocked), PARENT)
    assert (process.communicate(timeout=60), process.returncode) == (("", ""), 143)
