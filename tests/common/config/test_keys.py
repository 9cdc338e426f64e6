"""A key that is wrong, given to the whole program: exit code 2, a sentence, and nothing of the key."""

from __future__ import annotations

import json

import pytest

from support.project import Project
from support.servers.datadog import Intake
from support.servers.faults import Fault

HALVES = ("0123456789abcdef", "fedcba9876543210")
TOY = "api_key: Secret"


def show_nothing(said: str) -> None:
    assert [half for half in HALVES if half in said] == []


@pytest.mark.parametrize(
    ("odd", "options"),
    [
        ("\n", ("--push",)),
        ("é", ("--push",)),
        ("\n", ("--check",)),
        ("\n", ("--push", "--json", "--verbose")),
    ],
)
def test_a_datadog_key_with_a_character_that_no_header_carries(
    project: Project, intake: Intake, odd: str, options: tuple[str, ...]
) -> None:
    project.add("toy", "yield VALUE(1, context.window.until)")
    ran = project.run("toy", *options, DD_API_KEY=odd.join(HALVES))
    assert ran.returncode == 2
    assert "DD_API_KEY: it holds a space, a line break or" in ran.stdout
    assert "Traceback" not in ran.stderr
    show_nothing(ran.stdout + ran.stderr)
    assert intake.requests == []


def test_whatever_a_collector_raises_or_prints_shows_no_key(project: Project) -> None:
    project.add(
        "toy",
        """
        import warnings
        key = context.settings.api_key.get_secret_value()
        print("printed", key)
        warnings.warn("warned " + key)
        threading.Thread(target=lambda: int(key)).start()
        raise RuntimeError(f"{key.encode()!r} {json.dumps(key)}")
        yield
        """,
        settings=TOY,
    )
    ran = project.run("toy", "--push", FLEETGAUGE_TOY_API_KEY='"'.join(HALVES))
    assert ran.returncode == 1
    for said in ("printed [redacted]", "warned [redacted]", "RuntimeError: b'[redacted]' "):
        assert said in ran.stderr
    assert "ValueError: invalid literal for int() with base 10: " in ran.stderr
    show_nothing(ran.stdout + ran.stderr)


@pytest.mark.slow
def test_an_unexpected_error_while_reporting_shows_no_key(project: Project, intake: Intake) -> None:
    """The data is accepted, and then the self-metrics meet a defect of ours."""
    project.add("toy", "yield VALUE(1, context.window.until)")
    health = project.root / "common" / "run" / "health.py"
    before, begin, behind = health.read_text().partition("    tags = {")
    assert begin
    body = "    import os\n    raise RuntimeError(os.environ['DD_API_KEY'])\n"
    health.write_text(before + body + begin + behind)
    intake.key = "".join(HALVES)
    document = project.document("toy", "--push", DD_API_KEY="".join(HALVES))
    [entry] = document["collectors"]
    assert entry["status"] == "failed"
    assert entry["error"] == {"type": "RuntimeError", "message": "[redacted]"}
    assert entry["points_sent"] == 1
    ran = project.run("toy", "--push", DD_API_KEY="".join(HALVES))
    assert "the self-metrics were not delivered: [redacted]" in ran.stderr
    assert "Traceback" in ran.stderr
    show_nothing(ran.stdout + ran.stderr)


def test_a_key_that_a_server_repeats_is_not_shown(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(1, context.window.until)")
    key = '"'.join(HALVES)
    said = f"unknown key: {key}, {'%22'.join(HALVES)}"
    body = json.dumps({"errors": [said]})
    intake.faults.add(Fault(status=400, body=body), times=None)
    ran = project.run("toy", "--push", DD_API_KEY=key)
    assert "unknown key: [redacted], [redacted]" in ran.stdout
    show_nothing(ran.stdout + ran.stderr)
