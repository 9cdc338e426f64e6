"""Who owns a series: the writers heard of, when each began, was last heard of, and ended.

Saved from tick to tick. Of writers with the same tags, the one that began last owns them while it is alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from common.records.saved import SavedState, Time, Whole

PREFIX = "run:"

Group = tuple[str, ...]  # what tells series apart: tags, and perhaps a host


@dataclass
class Life:
    """What is remembered of a writer; every field is JSON, and `more` is the collector's own."""

    group: Group
    started: Time
    last: Time
    ended: Time | None = None
    more: dict[str, bool | Whole] = field(default_factory=dict)


LIFE = TypeAdapter(Life)


class Owners:
    """All writers heard of since they would be forgotten; each is alive for `silence` after its last word."""

    def __init__(self, saved: SavedState, silence: int, forget_before: int) -> None:
        self._saved = saved
        self._silence = silence
        self._before = forget_before
        self.lives: dict[str, Life] = {}
        self._sharing: dict[Group, dict[str, None]] = {}  # names in order, by what they share
        self._touched: set[str] = set()
        self.heard: set[str] = set()  # in this tick
        for name, life in saved.parts(PREFIX, LIFE):
            self._know(name, life)

    def _know(self, name: str, life: Life) -> None:
        self.lives[name] = life
        self._sharing.setdefault(life.group, {})[name] = None

    def hear(self, name: str, group: Group, timestamp: float, *, ends: bool = False) -> Life:
        """Take note that a writer spoke. Its latest word tells its tags: earlier ones may not have known."""
        life = self.lives.get(name)
        if life is None:
            life = Life(group, timestamp, timestamp)
            self._know(name, life)
            self._saved.claim(PREFIX + name)
        elif timestamp >= life.last and group != life.group:
            del self._sharing[life.group][name]
            life.group = group
            self._know(name, life)
        if timestamp > life.last:
            life.last = timestamp
        elif timestamp < life.started:
            life.started = timestamp
        if ends:
            life.ended = timestamp
        elif life.ended is not None and timestamp > life.ended:
            life.ended = None  # it has gone on
        self._touched.add(name)
        self.heard.add(name)
        return life

    def alone(self, name: str, group: Group) -> bool:
        """Whether no other writer was ever heard of with the same tags."""
        rivals = self._sharing.get(group, {})
        return len(rivals) == 1 and name in rivals

    def contested(self, name: str, group: Group, timestamp: float) -> bool:
        """Whether a writer that began later may own the series: it depends on what it has written since."""
        return any(life.ended is None and int(life.started) <= timestamp for life in self._later(name, group))

    def superseded(self, name: str, group: Group, timestamp: float) -> bool:
        """Whether a writer that began later was alive with the same tags then, and so owns the series.

        A job that starts again takes the series over at once; of two at the same time, one is shown.
        """
        return any(
            int(life.started)
            <= timestamp
            <= (life.last + self._silence if life.ended is None else life.ended)
            for life in self._later(name, group)
        )

    def _later(self, name: str, group: Group) -> list[Life]:
        """The writers of the group that began later."""
        began = (self.lives[name].started, name)
        rivals = self._sharing.get(group, {})
        return [self.lives[rival] for rival in rivals if (self.lives[rival].started, rival) > began]

    def newest(self) -> Iterator[tuple[str, Life]]:
        """Of those with the same tags, the one that began last, with its name."""
        for names in self._sharing.values():
            if names:
                name = max(names, key=lambda name: (self.lives[name].started, name))
                yield name, self.lives[name]

    def changes(self) -> dict[str, object]:
        """What to save of the writers heard of since this was last asked."""
        touched, self._touched = self._touched, set()
        lives = {name: self.lives[name] for name in sorted(touched)}
        return {PREFIX + name: {**vars(life), "more": {**life.more}} for name, life in lives.items()}

    def expired(self) -> dict[str, None]:
        """The keys of writers not heard of for long, as changes that forget them."""
        return {PREFIX + name: None for name, life in self.lives.items() if life.last < self._before}
