"""Which times a reading takes, to the second at each of its edges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from common.intake import MAX_AGE, MAX_AHEAD
from common.records.tail import TailedFile
from common.records.window import Tick, Window

NOW = 1_000_000


def test_a_window_is_what_the_intake_takes_but_for_what_may_still_settle() -> None:
    assert Window.of(NOW + 0.5) == (NOW, NOW + 0.5 - MAX_AGE, NOW + 0.5 + MAX_AHEAD)
    assert Window.of(NOW, settle=7) == (NOW - 7, NOW - MAX_AGE, NOW + MAX_AHEAD)


@pytest.mark.parametrize(
    ("second", "width", "grows"),
    [
        (99, 1, False),
        (100, 1, True),
        (300, 1, True),
        (301, 1, False),
        (90, 10, False),
        (99, 10, False),
        (100, 10, True),
        (95, 20, False),
    ],
)
def test_a_bucket_may_grow_until_it_is_over_unless_it_is_of_the_future(
    second: int, width: int, grows: bool
) -> None:
    assert Window(100, 0, 300).may_grow(second, width) is grows


@pytest.mark.parametrize(
    ("second", "width", "why"),
    [
        (50, 1, None),
        (49, 1, "too_old"),
        (59, 20, "too_old"),
        (60, 20, None),
        (300, 1, None),
        (301, 1, "in_future"),
    ],
)
def test_a_point_is_refused_by_the_beginning_of_its_bucket_or_as_of_the_future(
    second: int, width: int, why: str | None
) -> None:
    assert Window(100, 50, 300).refuses(second, width) == why


@pytest.mark.parametrize(("written", "furthest"), [(NOW - MAX_AHEAD - 1, NOW - 1), (NOW, NOW)])
def test_in_a_replay_a_file_tells_of_no_time_far_behind_its_last_write(written: int, furthest: int) -> None:
    window, file = Window(100, 50, NOW), cast("TailedFile", SimpleNamespace(written=written))
    assert Tick(window, NOW, 0).window_of(file) == window
    assert Tick(window, NOW, 0, live=False).window_of(file) == (100, 50, furthest)
