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
    "name", ["Queue", "_queue", "queue_", "a__b", "3s", "a-b", "q" * (MAX_NAME_LENGTH + 1)]
)
def test_a_name_that_kubernetes_or_a_variable_cannot_bear_is_refused(name: str) -> None:
    with pytest.raises(SystemExit) as error:
        refuse_bad_name(name)
    assert str(error.value) == f"collectors/{name}: name it in at most 15 small letters, digits and single _"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("all", "all"),
        ("datadog", "datadog"),
        ("tmp", "tmp"),
        ("state", "state"),
        ("node", "FLEETGAUGE_NODE_NAME"),
        ("dd", "DD_ENV"),
        ("aws", "AWS_REGION"),
    ],
)
def test_a_name_that_means_something_else_is_refused(name: str, taken: str) -> None:
    with pytest.raises(SystemExit) as error:
        refuse_bad_name(name)
    assert str(error.value) == f"collectors/{name}: {taken} means something else already; choose another name"


def test_the_chart_learns_both_of_its_versions_from_the_project() -> None:
    source = "apiVersion: v2\nversion: 9\nappVersion: 8\nkubeVersion: 7\n"
    made = f"apiVersion: v2\nversion: {__version__}\nappVersion: {__version__}\nkubeVersion: 7\n"
    assert chart(source) == made
    with pytest.raises(SystemExit):
        chart("version: 9\n")
