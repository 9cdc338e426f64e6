"""Whatever a collector raises, and wherever, leaves as an outcome and through the log, redacted."""

from __future__ import annotations

import json

import pytest

from support.project import Project
from support.servers.datadog import Intake

CANARY = "canary-7b1e5a90-never-to-be-seen"
TOKEN = "token = context.settings.token.get_secret_value()\n"

THREAD = """
def broken():
    raise RuntimeError(token)
thread = threading.Thread(target=broken, name='helper')
thread.start()
thread.join()
yield VALUE(1, context.window.until)
"""
FINALISER = """
class Broken:
    def __del__(self):
        raise RuntimeError(token)
Broken()
yield VALUE(1, context.window.until)
"""
WARNING = """
import warnings
warnings.warn(token)
yield VALUE(1, context.window.until)
"""
SELF_METRICS = """
from common.execution import health
def broken(*arguments, **options):
    raise RuntimeError(token)
health.self_metrics = broken
yield VALUE(1, context.window.until)
"""


def run(project: Project, body: str) -> tuple[dict[str, object], list[dict[str, str]]]:
    """The entry of a pushed run, and the lines of its log; neither holds the secret."""
    project.add("spy", TOKEN + body, settings="token: Secret")
    ran = project.run("spy", "--push", "--json", FLEETGAUGE_SPY_TOKEN=CANARY)
    assert CANARY not in ran.stdout + ran.stderr
    [entry] = json.loads(ran.stdout)["collectors"]
    return entry, [json.loads(line) for line in ran.stderr.splitlines()]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (THREAD, "unexpected error in thread helper"),
        (FINALISER, "unexpected error while an object was finalised"),
    ],
)
def test_what_nobody_catches_goes_through_the_log(
    project: Project, intake: Intake, body: str, said: str
) -> None:
    entry, lines = run(project, body)
    assert entry["status"] == "ok"
    [line] = [line for line in lines if line["message"] == said]
    assert line["error.stack"].endswith("RuntimeError: [redacted]")


def test_a_warning_goes_through_the_log(project: Project, intake: Intake) -> None:
    entry, lines = run(project, WARNING)
    assert entry["status"] == "ok"
    assert any("UserWarning: [redacted]" in line["message"] for line in lines)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise SystemExit(token)\nyield", "SystemExit"),
        ("raise KeyboardInterrupt(token)\nyield", "KeyboardInterrupt"),
        (SELF_METRICS, "RuntimeError"),
    ],
)
def test_what_ends_a_process_or_breaks_its_report_is_an_outcome(
    project: Project, intake: Intake, body: str, kind: str
) -> None:
    entry, lines = run(project, body)
    assert entry["error"] == {"type": kind, "message": "[redacted]"}
    assert any(line.get("error.stack", "").endswith(f"{kind}: [redacted]") for line in lines)
