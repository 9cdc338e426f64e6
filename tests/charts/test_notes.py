"""The notes that Helm prints after an install name commands and objects of that release."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.rendering import CHART, ROOT, needs_helm, render, scenario

pytestmark = needs_helm
KUBECTL = "kubectl --namespace monitoring"


def notes(tmp_path: Path, *values: dict[str, Any]) -> str:
    """What Helm prints. `helm template` leaves it out, so that a copy of the chart renders it as data."""
    chart = tmp_path / "fleetgauge"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "files" / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(
        'kind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get "files/notes.txt") . | toJson }}\n'
    )
    [found] = [each["text"] for each in render(*values, chart=chart) if each["kind"] == "Notes"]
    return str(found)


def commands(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("     ")]


def test_notes_give_the_commands_of_the_page_about_deploying(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    found = commands(notes(tmp_path, scenario("default")))
    assert len(found) == 3
    for command in found:
        assert f"$ {command.replace('monitoring', 'fleetgauge')}\n" in page


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("daemonset", {}, f"{KUBECTL} logs --follow daemonset/fleetgauge-host"),
        ("shards", {}, "8 pods share each run of W&B"),
        ("shards", {"seriesCap": 50_000}, "50000 x 8 = 400000 series"),
        ("daemonset", {"daemonSet": {"hostRoot": True}}, "beyond Pod Security `baseline`"),
        ("node-records", {}, "readable by user 10001 or group 10001"),
        ("production", {}, "networkPolicy.extraPorts"),
        ("dashboards", {}, "one release per organisation"),
        ("backfill", {}, "get jobs --selector app.kubernetes.io/instance=fleetgauge,app.kubernetes.io/comp"),
        ("backfill", {}, "--max-log-requests=32"),
        (
            "default",
            {"collectors": {"wandb": {"schedule": "7 * * * *"}}},
            "create job --from=cronjob/fleetgauge-wandb $job",
        ),
    ],
)
def test_notes_fit_the_release(tmp_path: Path, name: str, changes: dict[str, Any], expected: str) -> None:
    assert expected in notes(tmp_path, scenario(name), changes)


def test_notes_of_a_plain_release_mention_nothing_else(tmp_path: Path) -> None:
    text = notes(tmp_path, scenario("default"))
    for absent in ("backfill", "dashboards", "Pod Security", "share each run", "network policy", "daemonset"):
        assert absent not in text


def test_documentation_types_no_key_on_a_command_line() -> None:
    for page in ("deploying", "secrets"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert re.search(r"--secret-string (?!file://)|--from-literal", text) is None
        assert re.search(r"aws secretsmanager [a-z-]+ (?!--region )", text) is None
