"""Before the past is sent, a person at a terminal is asked, and nobody else."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from support.project import Project
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow


@pytest.fixture
def past(project: Project) -> Project:
    """A service with a collector that knows the past."""
    project.add("toy", "yield VALUE(7, context.window.since)", options=", has_history=True")
    return project


def run_at_terminal(
    project: Project, folder: Path, redirected: str, answer: str = "", *options: str
) -> tuple[int, str, str]:
    """Send the past at a terminal; the exit code, what the terminal showed, and what went elsewhere."""
    master, slave = pty.openpty()
    logged = folder / "logged"
    with logged.open("w") as messages:
        run = subprocess.Popen(
            project.command("toy", "--since", "20m", "--push", *options),
            env=project.environment,
            stdin=subprocess.DEVNULL if redirected == "stdin" else slave,
            stdout=subprocess.DEVNULL,
            stderr=messages if redirected == "stderr" else slave,
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
            os.write(master, answer.encode())
    os.close(master)
    return run.wait(60), shown.decode(), logged.read_text()


@pytest.mark.parametrize(("answer", "sent"), [(" YES \n", 1), ("\n", 0), ("\x04", 0), ("yeah\n", 0)])
def test_only_yes_sends(past: Project, intake: Intake, tmp_path: Path, answer: str, sent: int) -> None:
    code, shown, _ = run_at_terminal(past, tmp_path, "", answer)
    assert "toy: about 1 points" in shown
    assert (code, len(intake.points)) == (0, sent)


@pytest.mark.parametrize("redirected", ["stdin", "stderr"])
def test_without_a_terminal_yes_is_needed(
    past: Project, intake: Intake, tmp_path: Path, redirected: str
) -> None:
    code, shown, logged = run_at_terminal(past, tmp_path, redirected)
    assert (code, intake.requests) == (2, [])
    assert "add --yes" in shown + logged
    code, _, _ = run_at_terminal(past, tmp_path, redirected, "", "--yes")
    assert (code, len(intake.points)) == (0, 1)
