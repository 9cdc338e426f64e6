"""A shard's documents: by slot, each written only where it changes, found by whoever owns the slot next."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from common.config.file import ConfigurationFile
from common.config.settings import CoreSettings, load
from common.errors import BusyError
from common.shards import SLOTS, Shard, slot
from common.state import slots
from common.state.checkpoint import Checkpoint, Saved, Store
from common.state.directory import DirectoryStore
from common.state.slots import SENT_UNTIL, SlotCheckpoint, confirm, layout
from common.state.stores import store
from support.servers.aws import Aws

ALONE = Shard()


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Either kind of store, empty."""
    if request.param == "directory":
        return DirectoryStore(tmp_path)
    aws: Aws = request.getfixturevalue("aws")
    aws.make_bucket("checkpoints")
    environ = {**aws.environment, "FLEETGAUGE_CHECKPOINTS": "s3://checkpoints/fleet"}
    made = store(load(CoreSettings, None, environ=environ, file=ConfigurationFile()))
    assert made is not None
    return made


def test_every_unit_has_one_owner_and_a_slot_that_never_changes() -> None:
    assert [slot(unit) for unit in ("acme/ants", "a", "", "\udcff")] == ["18", "47", "52", "34"]
    for count in range(1, SLOTS + 1):
        for unit in map(str, range(20)):
            assert [Shard(index, count).owns(unit) for index in range(count)].count(True) == 1


def test_the_documents_of_slots_go_to_whoever_owns_them(place: Store) -> None:
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        checkpoint.change({"own": 1, "05/a": 5, "07/a": 7, "08/a": {"b": [8]}})
        checkpoint.change({"05/b": 6, "07/a": None}, None)
    assert sorted(place.names("key")) == ["key", "key-slot-05", "key-slot-07", "key-slot-08"]
    assert slots.peek(place, "key", ALONE).state == {"own": 1, "05/a": 5, "05/b": 6, "08/a": {"b": [8]}}
    held = [SlotCheckpoint(place, "key", Shard(index, 4)) for index in range(4)]
    states = [{"own": 1, "08/a": {"b": [8]}}, {"05/a": 5, "05/b": 6}, {}, {}]
    assert [one.saved.state for one in held] == states
    held[1].change({"05/a": 9, "own": 2})
    for one in held:
        one.__exit__()
    assert place.peek("key-shard-1").state == {"own": 2}
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        assert checkpoint.saved.state == {"own": 1, "05/a": 9, "05/b": 6, "08/a": {"b": [8]}}


def test_only_what_changes_is_written(tmp_path: Path) -> None:
    place = DirectoryStore(tmp_path)
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        checkpoint.change({"own": 1, "05/a": 5, "07/a": 7})
        before = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
        checkpoint.change({"07/a": 8})
        checkpoint.change({}, 1_794_786_458)
        after = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
        assert checkpoint.saved.last_success == 1_794_786_458
    assert {name for name in after if after[name] != before[name]} == {"key.json", "key-slot-07.json"}
    assert place.peek("key") == Saved({"own": 1}, 1_794_786_458)


def test_two_runs_cannot_both_have_a_slot(place: Store) -> None:
    with SlotCheckpoint(place, "key", ALONE) as alone, SlotCheckpoint(place, "key", Shard(1, 4)) as other:
        other.change({"05/a": 1})
        with pytest.raises(BusyError, match="key-slot-05"):
            alone.change({"05/a": 2})
    assert place.peek("key-slot-05").state == {"a": 1}


def test_a_damaged_slot_is_set_aside_and_costs_itself(tmp_path: Path) -> None:
    place = DirectoryStore(tmp_path)
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        checkpoint.change({"05/a": 5, "07/a": 7})
    (tmp_path / "key-slot-05.json").write_text("{")
    (tmp_path / "key-slot-5x.json").write_text("somebody else's")
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        assert (checkpoint.saved.state, checkpoint.set_aside) == ({"07/a": 7}, 1)


def test_each_layout_knows_up_to_when_earlier_ones_have_sent(place: Store) -> None:
    def send(until: int, shard: Shard, *, well: bool = True) -> tuple[int, int | None]:
        with SlotCheckpoint(place, "key", shard) as checkpoint:
            before = layout(place, "key", shard, hold=True)
            checkpoint.change({SENT_UNTIL: until})
            if well:
                checkpoint.change({}, until)
        return before

    assert send(100, ALONE) == (0, None)
    assert send(200, ALONE) == (0, None)
    assert layout(place, "key", Shard(3, 4), hold=False) == (200, 200)
    assert [send(300 + index, Shard(index, 4)) for index in (3, 0, 1, 2)] == [(200, 200)] * 4
    assert [send(400 + index, Shard(index, 4), well=index != 2) for index in range(4)] == [(200, 200)] * 4
    assert layout(place, "key", ALONE, hold=False) == (403, 302)
    assert [send(500 + index, Shard(index, 3)) for index in range(3)] == [(403, 302)] * 3
    assert send(600, Shard(1, 4)) == (502, 500)
    assert send(700, ALONE) == (600, 403)  # when shard 3 last was well


def test_shards_that_begin_at_once_agree_on_the_layout(place: Store) -> None:
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        checkpoint.change({SENT_UNTIL: 100})
    assert [layout(place, "key", Shard(index, 64), hold=True)[0] for index in range(64)] == [100] * 64


class Interrupted(DirectoryStore):
    """A store before whose operations, at one place, others get their turn."""

    def __init__(self, directory: Path, place: int, others: Callable[[], None]) -> None:
        super().__init__(directory)
        self._left = place
        self._others = others

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._others()

    def look(self, key: str) -> Saved:
        self._pass()
        return super().look(key)

    def open(self, key: str) -> Checkpoint:
        self._pass()
        made = super().open(key)
        save = made.save

        def after_others(saved: Saved) -> None:
            self._pass()
            save(saved)

        made.save = after_others  # type: ignore[method-assign]
        return made


def begin(place: Store, shard: Shard, until: int) -> int | None:
    """Begin a run that sends up to a time: what it believes others to have sent; None where it gives up."""
    with SlotCheckpoint(place, "key", shard) as checkpoint:
        try:
            before, _ = layout(place, "key", shard, hold=True)
            checkpoint.change({SENT_UNTIL: until})
            confirm(place, "key", shard)
        except BusyError:
            return None
    return before


@pytest.mark.parametrize("turn", range(1, 16))
@pytest.mark.parametrize(
    ("first", "second"), [(ALONE, Shard(1, 4)), (Shard(1, 4), ALONE), (Shard(2, 3), Shard(1, 2))]
)
def test_of_two_layouts_at_once_one_gives_up_or_knows_what_the_other_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Shard, second: Shard, turn: int
) -> None:
    monkeypatch.setattr(slots, "PAUSE", 0.0)
    found: list[int | None] = []

    def others() -> None:
        found.append(begin(DirectoryStore(tmp_path), second, 200))

    mine = begin(Interrupted(tmp_path, turn, others), first, 100)
    theirs = found[0] if found else begin(DirectoryStore(tmp_path), second, 200)
    assert mine is None or theirs is None or mine >= 200 or theirs >= 100
    assert (mine, theirs) != (None, None)


def test_a_layout_of_which_only_the_announcement_was_saved_is_made_whole(place: Store) -> None:
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        checkpoint.change({SENT_UNTIL: 100}, 100)
    with place.open("key-layout") as held:  # and killed then
        held.save(Saved({"count": 4, "before": 0, "after": 1}))
    with pytest.raises(BusyError, match="there are 4 shards since a moment ago"):
        confirm(place, "key", ALONE)
    assert layout(place, "key", Shard(2, 3), hold=False) == (100, 100)
    assert layout(place, "key", Shard(1, 4), hold=False) == (100, 100)
    assert layout(place, "key", Shard(1, 4), hold=True) == (100, 100)
    assert place.peek("key-layout") == Saved({"count": 4, "before": 100}, 100)


@pytest.mark.parametrize("count", [0, 65, 10**9, "4"])
def test_a_layout_that_nobody_has_written_counts_as_none(place: Store, count: object) -> None:
    with place.open("key-layout") as held:
        held.save(Saved({"count": count, "before": 100}))
    assert layout(place, "key", Shard(1, 4), hold=True) == (100, None)
    assert place.peek("key-layout").state == {"count": 4, "before": 100}


def test_a_clock_that_was_far_ahead_does_not_silence_the_next_layout(place: Store) -> None:
    now = int(time.time())
    with SlotCheckpoint(place, "key", ALONE) as checkpoint:
        checkpoint.change({SENT_UNTIL: now + 86_400})
    before, _ = layout(place, "key", Shard(0, 4), hold=True)
    assert now <= before <= now + 60
