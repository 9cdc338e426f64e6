"""Where people look at what a collector sends: the screens of the site whose API takes it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from common.collector import load_collector
from common.show.boards import boards


@pytest.mark.parametrize(
    ("address", "screen"),
    [
        ("https://api.datadoghq.com", "https://app.datadoghq.com"),
        ("https://api.us5.datadoghq.com", "https://us5.datadoghq.com"),
        ("http://127.0.0.1:8126", "http://127.0.0.1:8126"),
    ],
)
def test_a_dashboard_is_looked_for_where_its_points_are(address: str, screen: str) -> None:
    [board] = boards("host", load_collector("host").metrics, address)
    assert board.url == f"{screen}/dashboard/lists?q={quote(board.title)}"
