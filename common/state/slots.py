"""A shard's checkpoint, made of several documents: one of its own, and one for each slot in use that it owns.

Which shards there are may change from run to run. A slot's document then goes to another owner as it is. What
several slots add up to cannot: up to when it was sent stays with the layout that sent it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from common.errors import BusyError, FleetgaugeError
from common.intake import MAX_AHEAD
from common.shards import SLOTS, Shard, slotted, split
from common.state.checkpoint import Checkpoint, Saved, Store

SENT_UNTIL = "sent_until"  # of a shard's own document: up to when it has sent, or was about to
ATTEMPTS, PAUSE = 50, 0.1  # to be the one that changes the layout, and seconds between

_COUNT, _BEFORE, _AFTER = "count", "before", "after"  # of the layout's document
_NUMBERS = frozenset(f"{number:02}" for number in range(SLOTS))


def own_key(key: str, index: int) -> str:
    """What a shard's own document is called."""
    return f"{key}-shard-{index}" if index else key


def _slots(place: Store, key: str, shard: Shard) -> dict[str, str]:
    """The documents of the slots in use that a shard owns, by slot."""
    names = {name.removeprefix(f"{key}-slot-"): name for name in place.names(f"{key}-slot-")}
    return {
        number: name
        for number, name in sorted(names.items())
        if number in _NUMBERS and shard.owns_slot(number)
    }


def _joined(own: Saved, slots: Mapping[str, Saved]) -> Saved:
    state = {slotted(number, key): value for number, one in slots.items() for key, value in one.state.items()}
    return Saved({**own.state, **state}, own.last_success)


def peek(place: Store, key: str, shard: Shard) -> Saved:
    """What a shard remembers, without holding it; nothing where that is out of reach."""
    try:
        slots = {number: place.look(name) for number, name in _slots(place, key, shard).items()}
        return _joined(place.look(own_key(key, shard.index)), slots)
    except FleetgaugeError:
        return Saved()


class SlotCheckpoint(Checkpoint):
    """The documents of one shard, held by this run; `saved` is what they held at first."""

    def __init__(self, place: Store, key: str, shard: Shard) -> None:
        self._place = place
        self._key = key
        with ExitStack() as closing:
            self._own = closing.enter_context(place.open(own_key(key, shard.index)))
            self._slots = {
                number: closing.enter_context(place.open(name))
                for number, name in _slots(place, key, shard).items()
            }
            self._closing = closing.pop_all()
        super().__init__(_joined(self._own.saved, {number: one.saved for number, one in self._slots.items()}))
        self.set_aside = sum(one.set_aside for one in (self._own, *self._slots.values()))

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def change(self, changes: Mapping[str, object], last_success: int | None = None) -> None:
        """Save the documents that change. Each is whole by itself, so that a crash between two is none."""
        parts: defaultdict[str, dict[str, object]] = defaultdict(dict)
        for key, value in changes.items():
            number, rest = split(key)
            parts[number][rest] = value
        own = parts.pop("", {})
        for number, some in parts.items():
            self._document(number).change(some)
        if own or not parts:
            self._own.change(own, last_success)
            self.saved = replace(self.saved, last_success=self._own.saved.last_success)

    def _document(self, number: str) -> Checkpoint:
        if number not in self._slots:
            name = f"{self._key}-slot-{number}"
            made = self._closing.enter_context(self._place.open(name))
            if made.saved.state:
                raise BusyError(
                    f"the checkpoint {name} has come meanwhile; this run leaves the work to others"
                )
            self._slots[number] = made
        return self._slots[number]


def layout(place: Store, key: str, shard: Shard, *, hold: bool) -> tuple[int, int | None]:
    """Up to when others have sent, before there were as many shards as now, and their last success.

    The first run of a new layout finds it out and saves it; `hold` is off for one that only looks. It says
    first that there is a new layout, and looks then: of the last one, whoever has not seen that before it
    sends (`confirm`) has saved by now up to when.
    """
    name = f"{key}-layout"
    saved = place.look(name)
    for _ in range(ATTEMPTS):
        if _count(saved) == shard.count and _AFTER not in saved.state:
            break
        if not hold:
            saved = _following(place, key, _announced(saved, shard))
            break
        try:
            with place.open(name) as held:
                if _count(held.saved) != shard.count:
                    held.save(_announced(held.saved, shard))
                if _AFTER in held.saved.state:
                    held.save(_following(place, key, held.saved))
                saved = held.saved
        except BusyError:  # another shard is about to
            time.sleep(PAUSE)
            saved = place.look(name)
    else:
        raise BusyError(f"the checkpoint {name} is changed by others again and again")
    return _whole(saved, _BEFORE, 0), saved.last_success


def confirm(place: Store, key: str, shard: Shard) -> None:
    """Raise where there is another layout by now. To be called once it is saved up to when this run sends."""
    count = _count(place.look(f"{key}-layout"))
    if count != shard.count:
        raise BusyError(f"there are {count} shards since a moment ago; this run leaves the work to them")


def _announced(last: Saved, shard: Shard) -> Saved:
    """A new layout of which is not known yet up to when the last one has sent."""
    after = _whole(last, _AFTER, _count(last))
    return replace(last, state={_COUNT: shard.count, _BEFORE: _whole(last, _BEFORE, 0), _AFTER: after})


def _following(place: Store, key: str, announced: Saved) -> Saved:
    """The same once that is known."""
    after = min(_whole(announced, _AFTER, 1), SLOTS)
    owns = [place.look(own_key(key, index)) for index in range(after)]
    sent = [_whole(announced, _BEFORE, 0), *(_whole(own, SENT_UNTIL, 0) for own in owns)]
    now = int(time.time())  # what a clock told that was far ahead, the intake has not taken
    before = max(until if until <= now + MAX_AHEAD else now for until in sent)
    successes = [own.last_success for own in owns]
    last_success = None if None in successes else min(one for one in successes if one is not None)
    return Saved({_COUNT: _count(announced), _BEFORE: before}, last_success)


def _count(saved: Saved) -> int:
    count = _whole(saved, _COUNT, 1)
    return count if 1 <= count <= SLOTS else 1


def _whole(saved: Saved, key: str, default: int) -> int:
    value = saved.state.get(key)
    return value if type(value) is int and value >= 0 else default
