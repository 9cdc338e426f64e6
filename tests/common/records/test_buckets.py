"""What writers that share a series add up to: by bucket and slot, and again after it was saved."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping

import pytest

from common.records import buckets
from common.records.buckets import MAX_SPAN, Cells, Shared, Sum
from common.records.saved import Number, SavedState
from common.shards import slot, slotted

A, B = ("a",), ("b",)
WIDTH = 60


def cells(saved: SavedState, oldest: float = 0) -> Cells[int]:
    return Cells(saved, "cell:", oldest, Number, operator.add)


def again(changes: Mapping[str, object]) -> SavedState:
    """The state that a later tick finds."""
    kept: dict[str, object] = json.loads(json.dumps(changes))
    return SavedState({key: value for key, value in kept.items() if value is not None})


class TestCells:
    def test_what_has_grown_is_told_whole_and_saved_and_grows_on(self) -> None:
        first = cells(SavedState({}))
        assert first.growth == 0
        assert all([first.add(120, A, 2), first.add(120, A, 3), first.add(1, A, 9), first.add(60, B, 1)])
        assert first.growth == 3
        assert list(first.grown()) == [(1, A, 9), (120, A, 5), (60, B, 1)]
        changes = first.changes(forget=True)
        assert changes == {"cell:120": '[[["a"],5]]', "cell:1": '[[["a"],9]]', "cell:60": '[[["b"],1]]'}
        assert (first.growth, list(first.grown())) == (0, [])
        later = cells(again(changes))
        assert (later.at(120), later.at(121)) == ({A: 5}, {})
        later.add(120, B, 2**64)
        later.add(120, A, 1)
        assert list(later.grown()) == [(120, A, 6), (120, B, 2**64)]
        assert json.loads(str(later.changes(forget=True)["cell:120"])) == [[["a"], 6], [["b"], 2**64]]

    @pytest.mark.parametrize(("oldest", "forgotten"), [(60, {}), (60.5, {"cell:60": None})])
    def test_a_bucket_too_old_to_be_sent_is_forgotten(
        self, oldest: float, forgotten: dict[str, None]
    ) -> None:
        saved = SavedState({"cell:60": '[[["a"],1]]'})
        assert cells(saved, oldest).at(60) == ({} if forgotten else {A: 1})
        assert saved.forgotten == forgotten

    @pytest.mark.parametrize("name", ["x", "", "-60", "6O", "٦٠", "1" * 12])
    def test_what_is_no_bucket_of_ours_is_forgotten(self, name: str) -> None:
        saved = SavedState({f"cell:{name}": "[]", f"cell:{'1' * 11}": '[[["a"],1]]'})
        assert cells(saved).at(int("1" * 11)) == {A: 1}
        assert saved.forgotten == {f"cell:{name}": None}

    @pytest.mark.parametrize(
        ("most", "left"), [(33, [60, 120, 180]), (32, [120, 180]), (22, [120, 180]), (21, [180])]
    )
    def test_the_oldest_of_more_than_may_be_kept_are_forgotten_where_all_was_read(
        self, most: int, left: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(buckets, "MAX_KEPT", most)  # characters, eleven of each bucket
        for forget in (False, True):
            found = cells(SavedState({}))
            for start in (180, 60, 120):
                found.add(start, A, 1)
            changes = found.changes(forget=forget)
            kept = [start for start in (60, 120, 180) if changes[f"cell:{start}"]]
            gone = max({60, 120, 180} - {*kept}, default=0)
            assert kept == (left if forget else [60, 120, 180])
            assert changes.get("forgotten:cell:", 0) == gone
            for one in (found, cells(again(changes))):
                assert not one.add(gone, A, 1)
                assert one.add(gone + 1, A, 1)
                assert one.growth == 1

    def test_a_part_of_a_bucket_that_another_slot_has_forgotten_is_forgotten_too(self) -> None:
        mine, others = slot("mine"), slot("others")
        state = {slotted(mine, "cell:60"): '[[["a"],1]]', slotted(others, "forgotten:cell:"): 60}
        assert cells(SavedState(state)).changes(forget=True) == {
            slotted(mine, "cell:60"): None,
            slotted(mine, "forgotten:cell:"): 60,
        }

    @pytest.mark.parametrize(
        ("mark", "taken"), [(99, True), (100, False), (MAX_SPAN + 9, False), (MAX_SPAN + 10, True)]
    )
    def test_a_mark_of_what_was_forgotten_is_believed_unless_it_is_of_the_far_future(
        self, mark: int, taken: bool
    ) -> None:
        assert cells(SavedState({"forgotten:cell:": mark}), oldest=10).add(100, A, 1) is taken
        assert cells(SavedState({"forgotten:cell:": MAX_SPAN})).add(1, A, 1) is True

    def test_every_slot_has_its_own_part_and_all_are_told_as_one(self) -> None:
        mine, others = slot("mine"), slot("others")
        saved = SavedState({slotted(others, "cell:60"): '[[["a"],4],[["b"],1]]'})
        saved.slot = mine
        found = cells(saved)
        found.add(60, A, 1)
        found.add(60, A, 2, others)
        found.add(120, B, 7, others)
        assert found.at(60) == {A: 7, B: 1}
        assert list(found.grown()) == [(60, A, 7), (120, B, 7)]
        assert found.changes(forget=True) == {
            slotted(mine, "cell:60"): '[[["a"],1]]',
            slotted(others, "cell:60"): '[[["a"],6],[["b"],1]]',
            slotted(others, "cell:120"): '[[["b"],7]]',
        }


def told(shared: Shared) -> dict[int, dict[tuple[str, ...], Sum]]:
    return dict(shared.sums())


class TestShared:
    def test_a_writer_counts_once_in_each_bucket_with_its_last_values_there(self) -> None:
        shared = Shared(SavedState({}), WIDTH, 0)
        assert not shared
        assert shared.add("one", 65.5, {A: 1, B: 8})
        assert shared
        assert shared.add("one", 119.9, {A: 2})
        assert shared.add("two", 60, {A: 5})
        assert not shared.add("one", 59, {A: 9})
        assert told(shared) == {60: {A: (7, 2, 5), B: (8, 1, 8)}}
        assert shared.add("one", 120, {A: 3})
        assert told(shared) == {60: {A: (7, 2, 5), B: (8, 1, 8)}, 120: {A: (3, 1, 3)}}
        changes = shared.changes(forget=True)
        assert not shared
        assert json.loads(json.dumps(changes)) == {
            "bucket:60": '[[["a"],[2,1,2]],[["b"],[8,1,8]]]',
            "open:one": [120, [[["a"], 3]]],
            "open:two": [60, [[["a"], 5]]],
        }
        later = Shared(again(changes), WIDTH, 0)
        assert (told(later), later.changes(forget=True)) == ({}, {})
        assert not later.add("one", 119, {A: 9})
        assert later.add("two", 61, {A: 6})
        assert told(later) == {60: {A: (8, 2, 6), B: (8, 1, 8)}}
        assert later.changes(forget=True) == {"open:two": [60, [(A, 6)]]}

    @pytest.mark.parametrize("forget", [False, True])
    def test_what_is_too_much_may_be_forgotten_and_takes_nothing_more(
        self, monkeypatch: pytest.MonkeyPatch, forget: bool
    ) -> None:
        monkeypatch.setattr(buckets, "MAX_KEPT", 0)
        shared = Shared(SavedState({}), WIDTH, 0)
        assert shared.add("one", 60, {A: 1})
        assert shared.add("one", 120, {A: 2})
        changes = shared.changes(forget=forget)
        assert changes["bucket:60"] == (None if forget else '[[["a"],[1,1,1]]]')
        assert changes.get("forgotten:bucket:") == (60 if forget else None)
        assert shared.add("two", 119, {A: 3}) is not forget
        assert shared.add("two", 120, {A: 3})

    @pytest.mark.parametrize(("oldest", "forgotten"), [(120, False), (120.5, True)])
    def test_what_is_too_old_to_be_sent_again_is_forgotten(self, oldest: float, forgotten: bool) -> None:
        saved = again({"bucket:60": '[[["a"],[2,1,2]]]', "open:one": [60, [[["a"], 5]]]})
        shared = Shared(saved, WIDTH, oldest)
        assert shared.changes(forget=True) == ({"open:one": None} if forgotten else {})
        assert saved.forgotten == ({"bucket:60": None} if forgotten else {})
        assert saved.bad == 0

    @pytest.mark.parametrize(("start", "bad"), [(MAX_SPAN + 9, 0), (MAX_SPAN + 10, 1)])
    def test_a_writer_of_the_far_future_is_forgotten_and_counted(self, start: int, bad: int) -> None:
        saved = again({"open:one": [start, [[["a"], 5]]]})
        shared = Shared(saved, WIDTH, 10)
        assert saved.bad == bad
        assert shared.add("one", 60, {A: 1}) is bool(bad)
