"""From its first line on a process ends by a signal at once, whatever it inherited."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.project import ROOT

PARENT = ("scripts/run_collector.py", "host", "--push", "--every", "1h")
CODES = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
WATCHED = """
import _signal, os, sys
entry, *sys.argv[1:] = sys.argv[1:]
early, reported = [], []
def watch(event, arguments):
    if event != "import" or reported:
        return
    if _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL:
        early.append(arguments[0])
    else:
        reported.append(os.write(2, f"imported before: {early}".encode()))
code = compile(open(entry).read(), entry, "exec")
sys.addaudithook(watch)
exec(code, {"__name__": "__main__", "__file__": os.path.abspath(entry)})
"""
INHERITED = "import os, signal, sys\n{}\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
# Prints its pid once its handler is in place, then waits; `{}` is run before.
WAITING = """
import os, signal, sys
from common import signals
signals.install()
{}
print(os.getpid(), flush=True)
signal.pause()
"""


def start(code: str, *command: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *command],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def until_caught(process: subprocess.Popen[str]) -> None:
    """Wait until it catches SIGTERM, as the kernel has it."""
    mask = 0
    while process.poll() is None and not mask & 1 << signal.SIGTERM - 1:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)


def test_only_signals_is_imported_before_they_are_caught() -> None:
    _, logged = start(WATCHED, "scripts/run_collector.py", "--version").communicate(timeout=60)
    assert logged == "imported before: ['common', 'common.signals', '__future__']"


@pytest.mark.parametrize(("number", "code"), CODES)
def test_signal_ends_the_process_with_one_line(number: signal.Signals, code: int) -> None:
    ended = "signals.children.add(999_999_999)"  # which no signal can be sent to
    process = start(WAITING.format(f"{ended}; signals.advice = 'to continue: run it again'"))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, logged = process.communicate(timeout=60)
    assert process.returncode == code
    assert logged == f"-c: interrupted by {number.name}; to continue: run it again\n"


@pytest.mark.slow
@pytest.mark.parametrize("inherited", ["SIG_IGN", "SIG_BLOCK"])
@pytest.mark.parametrize(("number", "code"), CODES)
def test_signal_counts_where_it_was_ignored_or_blocked(
    inherited: str, number: signal.Signals, code: int
) -> None:
    change = {
        "SIG_IGN": f"signal.signal({number:d}, signal.SIG_IGN)",
        "SIG_BLOCK": f"signal.pthread_sigmask(signal.SIG_BLOCK, [{number:d}])",
    }
    process = start(INHERITED.format(change[inherited]), *PARENT)
    until_caught(process)
    process.send_signal(number)
    _, logged = process.communicate(timeout=60)
    assert process.returncode == code
    assert logged.endswith(f"run_collector.py: interrupted by {number.name}\n")


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "os.close(2)"])
def test_line_goes_to_a_terminal_that_shows_its_cursor_again(before: str) -> None:
    master, slave = pty.openpty()
    process = start(WAITING.format(before), stderr=slave)
    os.close(slave)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    shown = b""
    with suppress(OSError):  # the other end is closed
        while chunk := os.read(master, 1000):
            shown += chunk
    assert shown == (b"" if before else b"\x1b[?25h-c: interrupted by SIGINT\r\n")
    process.communicate()
    os.close(master)


@pytest.mark.slow
def test_exit_codes_of_children_are_known_where_sigchld_was_ignored() -> None:
    ignoring = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    code = "from common import signals; signals.install()\nimport subprocess, sys\n"
    code += "sys.exit(subprocess.run(['sh', '-c', 'exit 7']).returncode)"
    process = start(INHERITED.format(ignoring), "-c", code)
    process.communicate(timeout=60)
    assert process.returncode == 7
