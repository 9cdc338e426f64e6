"""What a person at a terminal sees and is asked, and nobody else."""

from __future__ import annotations

import re

import pytest

from common.signals import SHOW_CURSOR
from support.project import Project
from support.servers.datadog import Intake
from support.terminal import at_terminal

pytestmark = pytest.mark.slow

PUSH = ("toy", "--since", "20m", "--push")


@pytest.fixture
def past(project: Project) -> Project:
    """A service with a collector that knows the past."""
    project.add("toy", "yield VALUE(7, context.window.since)", options=", has_history=True")
    return project


@pytest.mark.parametrize(("answer", "sent"), [(" YES \n", 1), ("\n", 0), ("\x04", 0), ("yeah\n", 0)])
def test_only_yes_sends_the_past(past: Project, intake: Intake, answer: str, sent: int) -> None:
    code, shown = at_terminal(past, *PUSH, answer=answer)
    assert "toy: about 1 points" in shown
    assert (code, len(intake.points)) == (0, sent)


@pytest.mark.parametrize("without", ["stdin", "stderr"])
def test_without_a_terminal_yes_is_needed(past: Project, intake: Intake, without: str) -> None:
    code, _ = at_terminal(past, *PUSH, without=without)
    assert (code, intake.requests) == (2, [])
    code, _ = at_terminal(past, *PUSH, "--yes", without=without)
    assert (code, len(intake.points)) == (0, 1)


def test_terminal_shows_progress_below_the_log_and_what_to_do_next(project: Project) -> None:
    body = "context.progress('counting \\x1b[2Jsheep', 1234, None)\nlog.warning('hello')\n"
    project.add("toy", f"{body}yield VALUE(1, context.window.until)")
    code, shown = at_terminal(project, "toy")
    assert (code, "toy: counting \\x1b[2Jsheep, 1,234 so far" in shown) == (0, True), shown
    lines = shown.splitlines()
    [logged] = [line for line in lines if line.endswith("WARNING toy: hello")]
    assert "counting" not in re.split(r"\x1b\[2K", logged)[-1], "the log does not continue that line"
    assert (lines[-1], SHOW_CURSOR.decode() in shown) == ("--push sends it", True)
    code, shown = at_terminal(project, "toy", FLEETGAUGE_TOY_ODD="1", NO_COLOR="1")
    assert (code, shown.splitlines()[-1]) == (2, "--check shows all that is wrong")
    assert at_terminal(project, "toy", "--check")[1].count("--push") == 0
