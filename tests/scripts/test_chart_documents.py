"""Names of collectors that the chart can use for objects, volumes and variables."""

from __future__ import annotations

import pytest

from common import registry
from scripts.chart_documents import MAX_NAME_LENGTH, refuse_bad_name


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
