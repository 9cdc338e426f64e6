"""What the chart is told: names of collectors that can be mistaken for no other, and the version."""

from __future__ import annotations

import pytest

from common import registry
from fleetgauge import __version__
from scripts.chart_documents import MAX_NAME_LENGTH, chart, refuse_bad_name


@pytest.mark.parametrize("name", [*registry.names(), "queue", "host_queue", "s3", "q" * MAX_NAME_LENGTH])
def test_a_name_of_its_own_is_taken(name: str) -> None:
    refuse_bad_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "at most 15 small letters") for name in ("Queue", "_queue", "queue_", "a__b", "3s", "a-b")),
        ("q" * (MAX_NAME_LENGTH + 1), "at most 15 small letters"),
        ("all", "all means something else"),
        ("datadog", "datadog means something else"),
        ("tmp", "tmp means something else"),
        ("state", "state means something else"),
        ("node", "FLEETGAUGE_NODE_NAME means something else"),
        ("dd", "DD_ENV means something else"),
        ("aws", "AWS_REGION means something else"),
    ],
)
def test_a_name_that_cannot_be_used_or_is_taken_is_refused(name: str, reason: str) -> None:
    with pytest.raises(SystemExit, match=f"^collectors/{name}: .*{reason}"):
        refuse_bad_name(name)


def test_the_chart_learns_both_of_its_versions_from_the_project() -> None:
    source = "apiVersion: v2\nversion: 9\nappVersion: 8\nkubeVersion: 7\n"
    made = f"apiVersion: v2\nversion: {__version__}\nappVersion: {__version__}\nkubeVersion: 7\n"
    assert chart(source) == made
    with pytest.raises(SystemExit):
        chart("version: 9\n")
