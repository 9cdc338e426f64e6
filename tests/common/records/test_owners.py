"""Writers as they were heard of: what the latest word of each says of it."""

from __future__ import annotations

import pytest

from common.records.owners import Owners
from common.records.saved import SavedState


@pytest.mark.parametrize(("at", "group", "times"), [(4, "a", (4, 5)), (5, "b", (5, 5)), (6, "b", (5, 6))])
def test_the_latest_word_tells_the_tags_and_the_last_of_one_moment_counts(
    at: float, group: str, times: tuple[float, float]
) -> None:
    owners = Owners(SavedState({}), 0, 0)
    owners.hear("writer", ("a",), 5)
    life = owners.hear("writer", ("b",), at)
    assert (life.group, (life.started, life.last), life.ended) == ((group,), times, None)
