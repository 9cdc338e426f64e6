"""A key in an answer or in an error of ours, given to the whole program: nothing of it is shown."""

from __future__ import annotations

import json

import pytest

from support.project import Project
from support.servers.datadog import Intake
from support.servers.faults import Fault

HALVES = ("0123456789abcdef", "fedcba9876543210")


@pytest.fixture
def toy(project: Project) -> Project:
    project.add("toy", "yield VALUE(1, context.window.until)")
    return project


def show_nothing(output: str) -> None:
    assert [half for half in HALVES if half in output] == []


@pytest.mark.slow
def test_unexpected_error_while_reporting_shows_no_key(toy: Project, intake: Intake) -> None:
    """The data is accepted, and then the self-metrics meet a defect of ours."""
    health = toy.root / "common" / "run" / "health.py"
    before, begin, after = health.read_text().partition("    tags = {")
    assert begin
    body = "    import os\n    raise RuntimeError(os.environ['DD_API_KEY'])\n"
    health.write_text(before + body + begin + after)
    intake.key = "".join(HALVES)
    ran = toy.run("toy", "--push", "--json", DD_API_KEY=intake.key)
    [entry] = json.loads(ran.stdout)["collectors"]
    assert (entry["status"], entry["points_sent"]) == ("failed", 1)
    assert entry["error"] == {"type": "RuntimeError", "message": "[redacted]"}
    assert "the self-metrics were not delivered: [redacted]" in ran.stderr
    assert "Traceback" in ran.stderr
    show_nothing(ran.stdout + ran.stderr)


def test_key_that_a_server_repeats_is_not_shown(toy: Project, intake: Intake) -> None:
    key = '"'.join(HALVES)
    body = json.dumps({"errors": [f"unknown key: {key}, {'%22'.join(HALVES)}"]})
    intake.faults.add(Fault(status=400, body=body), times=None)
    ran = toy.run("toy", "--push", DD_API_KEY=key)
    assert "unknown key: [redacted], [redacted]" in ran.stdout
    show_nothing(ran.stdout + ran.stderr)
