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


GROUP = ("a",)


def two(silence: int = 10, forget_before: int = 0) -> Owners:
    """A writer that was heard of from 100 to 150, and one that began at 200.7 and spoke last at 230."""
    owners = Owners(SavedState({}), silence, forget_before)
    for name, at in (("old", 100), ("old", 150), ("new", 200.7), ("new", 230)):
        owners.hear(name, GROUP, at)
    return owners


@pytest.mark.parametrize(
    ("at", "contested", "superseded"),
    [(199, False, False), (200, True, True), (240, True, True), (241, True, False)],
)
def test_who_began_later_owns_the_series_until_it_was_silent_for_long(
    at: int, contested: bool, superseded: bool
) -> None:
    owners = two()
    assert owners.contested("old", GROUP, at) is contested
    assert owners.superseded("old", GROUP, at) is superseded
    assert not owners.contested("new", GROUP, at)
    assert not owners.superseded("new", GROUP, at)
    assert not owners.superseded("old", ("b",), at)


@pytest.mark.parametrize(("at", "superseded"), [(199, False), (200, True), (235, True), (236, False)])
def test_a_writer_that_ended_owns_nothing_behind_its_end(at: int, superseded: bool) -> None:
    owners = two()
    owners.hear("new", GROUP, 235, ends=True)
    assert not owners.contested("old", GROUP, at)
    assert owners.superseded("old", GROUP, at) is superseded


def test_of_two_that_began_at_once_the_name_decides() -> None:
    owners = Owners(SavedState({}), 0, 0)
    for name in ("b", "a"):
        owners.hear(name, GROUP, 100)
    assert (owners.superseded("a", GROUP, 100), owners.superseded("b", GROUP, 100)) == (True, False)
    assert list(owners.newest()) == [("b", owners.lives["b"])]


def test_a_writer_is_alone_until_another_has_the_same_tags() -> None:
    owners = Owners(SavedState({}), 0, 0)
    owners.hear("old", GROUP, 100)
    assert (owners.alone("old", GROUP), owners.alone("new", GROUP)) == (True, False)
    assert not owners.alone("old", ("b",))
    owners.hear("new", GROUP, 100)
    assert not owners.alone("old", GROUP)
    owners.hear("new", ("b",), 101)
    owners.hear("new", ("c",), 102)
    assert owners.alone("old", GROUP)
    assert [name for name, _ in owners.newest()] == ["old", "new"]


@pytest.mark.parametrize(
    ("before", "expired"), [(150, set()), (151, {"run:old"}), (231, {"run:old", "run:new"})]
)
def test_what_was_heard_is_saved_once_and_forgotten_when_it_is_old(before: int, expired: set[str]) -> None:
    owners = two(forget_before=before)
    owners.lives["old"].more["step"] = 7
    changes = owners.changes()
    assert changes == {
        "run:new": {"group": GROUP, "started": 200.7, "last": 230, "ended": None, "more": {}},
        "run:old": {"group": GROUP, "started": 100, "last": 150, "ended": None, "more": {"step": 7}},
    }
    assert (owners.changes(), {*owners.expired()}) == ({}, expired)
    again = Owners(SavedState(changes), 10, before)
    assert again.lives == owners.lives
    assert again.superseded("old", GROUP, 240)
