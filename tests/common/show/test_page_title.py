"""The title of a page: whose runs it shows."""

from __future__ import annotations

import pytest

from common.show.page_title import page_title
from common.show.points import SeriesKey
from common.window import Window


@pytest.mark.parametrize(
    ("projects", "whose"),
    [("", ""), ("b", " of a/b"), ("dcb", " of a/b, a/c, a/d"), ("bcde", " of 4 projects")],
)
def test_a_few_projects_are_named_and_more_are_counted(projects: str, whose: str) -> None:
    series = [SeriesKey("runs", ("entity:a", f"project:{name}"), None) for name in projects]
    assert page_title(["wandb"], series, Window(0, 3600, 900)).startswith(
        f"Dry run of wandb{whose}, 1970-01-01"
    )
