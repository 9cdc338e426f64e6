"""Before the past is sent, whoever sits at a terminal is asked, whatever was redirected, and nobody else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import Project
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow

# Becomes the leader of a session on the terminal, and runs the command in its foreground or background.
LAUNCHER = """
import fcntl, os, sys, termios
terminal, place, *command = sys.argv[1:]
os.setsid()
if place != "without":
    fcntl.ioctl(int(terminal), termios.TIOCSCTTY, 0)
if place == "background" and (child := os.fork()):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if place == "background":
    os.setpgid(0, 0)
os.execv(command[0], command)
"""


@pytest.fixture
def past(project: Project) -> Project:
    """A service with a collector that knows the past."""
    project.add("toy", "yield VALUE(7, context.window.since)", options=", has_history=True")
    return project


def run_at(
    project: Project,
    folder: Path,
    place: str,
    redirected: tuple[str, ...],
    answer: bytes = b"y\n",
    options: tuple[str, ...] = (),
) -> tuple[int, str, str]:
    """Send the past at a terminal; the exit code, what the terminal showed, and what went elsewhere."""
    master, slave = pty.openpty()
    said = folder / "said"
    with said.open("w") as messages:
        run = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCHER, str(slave), place),
                *project.command("toy", "--since", "20m", "--push", *options),
            ],
            env=project.environment,
            stdin=subprocess.DEVNULL if "stdin" in redirected else slave,
            stdout=subprocess.DEVNULL,
            stderr=messages if "stderr" in redirected else slave,
            pass_fds=[slave],
        )
    os.close(slave)
    shown, answered = b"", False
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if b"[y/N]" in shown and not answered:
            answered = True
            os.write(master, answer)
    os.close(master)
    return run.wait(60), shown.decode(), said.read_text()


BOTH = ("stdin", "stderr")


@pytest.mark.parametrize(
    ("place", "redirected"),
    [
        ("foreground", ()),
        ("foreground", ("stdin",)),
        ("foreground", ("stderr",)),
        ("foreground", BOTH),
        ("without", ("stdin",)),
        ("without", ("stderr",)),
    ],
)
def test_person_at_a_terminal_is_asked_before_sending(
    past: Project, intake: Intake, tmp_path: Path, place: str, redirected: tuple[str, ...]
) -> None:
    for answer, sent in ((b"n\n", 0), (b"y\n", 1)):
        code, shown, _ = run_at(past, tmp_path, place, redirected, answer)
        assert "toy: about 1 points" in shown
        assert (code, len(intake.points)) == (0, sent)


@pytest.mark.parametrize("place", ["without", "background"])
def test_without_a_terminal_yes_is_needed(past: Project, intake: Intake, tmp_path: Path, place: str) -> None:
    code, shown, logged = run_at(past, tmp_path, place, BOTH)
    assert (code, shown, intake.requests) == (2, "", [])
    assert "add --yes" in logged
    code, shown, _ = run_at(past, tmp_path, place, BOTH, options=("--yes",))
    assert (code, shown, len(intake.points)) == (0, "", 1)
