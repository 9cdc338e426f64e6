"""Whatever a saved state holds, a tick never fails over it: what cannot be used is forgotten and counted."""

from __future__ import annotations

import copy
import json
import math
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter

from common.records.buckets import Sum
from common.records.saved import Number, SavedState
from common.shards import slotted
from common.state.checkpoint import Saved
from support.record_fuzzer import KINDS, ODD, Kind, ticks_of
from support.xenna_ticks import NOW, named, record

STATES = 60  # of each kind, with and without the tag that tells writers apart
TAG = {"xenna": "stage_run_hash", "gpu_memory": "tag_job_id", "data_plane": "tag_rank"}

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)


def write(kind: Kind, folder: Path, numbers: range, ago: int) -> None:
    """Records of three writers, one of which takes turns with another."""
    folder.mkdir(exist_ok=True)
    for writer in ("bad-1", "bad-2", "good-1"):
        path = folder / writer / kind.name
        path.parent.mkdir(exist_ok=True)
        lines = (kind.make(writer, number, NOW - ago + 20 * number) for number in numbers)
        with path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        os.utime(path, (NOW, NOW))


def mutate(state: dict[str, Any], chance: Random) -> None:
    """Change, exchange or take away something, in the state or in what is inside, also of saved text."""
    place: Any = state
    parents: list[tuple[Any, Any]] = []
    while isinstance(place, dict | list) and place:
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        parents.append((place, key))
        place = place[key]
        if chance.random() < 0.25:
            break
    if not parents:
        return
    inside, key = chance.choice(parents)
    if isinstance(inside[key], str) and inside[key].startswith("[") and chance.random() < 0.8:
        below = json.loads(inside[key])
        mutate({"": below}, chance)
        inside[key] = json.dumps(below)
        return
    how = chance.randrange(4)
    if how == 0:
        del inside[key]
    elif how == 1:
        other, there = chance.choice(parents)
        inside[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(inside[key])
    elif how == 2 and isinstance(inside, dict):
        inside[chance.choice(("", "x", f"{key}x", "cell:", "bucket:9", "open:", "run:", "seen:"))] = inside[
            key
        ]
    else:
        inside[key] = chance.choice(
            (*ODD, 10**400, -(10**400), 2**62, NOW + 10**6, "[[[]]]", "{}", [[["x"], 1]])
        )


def as_read_back(state: dict[str, Any]) -> dict[str, Any]:
    """A state as a run finds it that somebody has written: nothing of one that is damaged."""
    document = Saved(state).document().decode()
    try:
        return dict(Saved.parse(document).state)
    except ValueError:
        return {}


@each_kind
@pytest.mark.parametrize("tagged", ["true", "false"])
def test_no_tick_fails_over_a_state_that_somebody_changed(kind: Kind, tagged: str, tmp_path: Path) -> None:
    chance = Random(f"{kind.collector.name} {tagged}")
    name = kind.collector.name
    ticks = ticks_of(kind, tmp_path, **{TAG[name]: tagged})
    write(kind, tmp_path, range(20), 1500)
    ticks.now = NOW - 1000
    ticks.tick()
    state = ticks.state
    write(kind, tmp_path, range(20, 50), 1500)
    counted = 0
    for _ in range(STATES):
        changed = json.loads(json.dumps(state))
        for _ in range(chance.choice((1, 1, 3, 30))):
            mutate(changed, chance)
        ticks.state = as_read_back(changed)
        for ticks.now in (NOW, NOW + 900):
            ticks.tick()
            assert ticks.tally.lost == []
            assert ticks.tally.dropped["unusable_record"] == 0
            counted += ticks.tally.dropped["bad_checkpoint"]
            as_read_back(ticks.state)
    assert counted > STATES / 4


@pytest.mark.parametrize("value", [True, "1", [], math.nan, math.inf, -math.inf, 1e301, 10**400])
def test_what_does_not_come_through_arithmetic_is_no_number_that_was_saved(value: object) -> None:
    saved = SavedState({"it": value})
    assert saved.part("it", TypeAdapter(Number)) is None
    assert saved.bad == 1


@pytest.mark.parametrize(("count", "kept", "bad"), [(1, (2.5, 1, 0), 0), (0, None, 1)])
def test_a_sum_that_was_saved_is_of_one_value_at_least(count: int, kept: object, bad: int) -> None:
    saved = SavedState({"it": [2.5, count, 0]})
    assert (saved.part("it", TypeAdapter(Sum)), saved.bad) == (kept, bad)


def test_a_writer_said_to_be_in_a_bucket_of_the_future_is_still_heard(tmp_path: Path) -> None:
    ticks = ticks_of(KINDS[0], tmp_path, stage_run_hash="false")
    ticks.state = {"open:r1": [NOW + 10**6, []], "forgotten:bucket:": NOW + 10**6}
    ticks.write(record(0, 300, {"stage/a/queue_in": 7}))
    points = named(ticks.tick(), "xenna.stage.queue_in")
    assert list(points.values()) == [7]
    assert ticks.tally.dropped == {"bad_checkpoint": 1}


def test_a_part_is_known_by_its_slot_and_a_new_one_is_given_that_of_the_file_under_way() -> None:
    state = {
        "mark:a": 5,
        slotted("07", "mark:a"): 6,
        slotted("08", "mark:a"): "nonsense",
        "mark:b": 9,
        slotted("07", "own:x"): 1,
    }
    saved, whole = SavedState(state), TypeAdapter(int)
    assert list(saved.everywhere("mark:a", whole)) == [("", 5), ("07", 6)]
    assert (saved.bad, saved.part("mark:c", whole), saved.bad) == (1, None, 1)
    assert list(saved.parts("own:", whole)) == [("x", 1)]
    saved.slot = "09"
    assert [saved.claim("own:x"), saved.claim("own:y"), saved.claim("own:z", "11")] == ["07", "09", "11"]
    assert saved.claim("own:y", "12") == "09"
    assert saved.placed({"own:x": 1, "own:y": 2, "own:z": 3, "other": 4}) == {
        "07/own:x": 1,
        "09/own:y": 2,
        "11/own:z": 3,
        "other": 4,
    }
