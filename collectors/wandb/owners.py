"""Whose run it is: the group that its GPUs are counted in, and what an hour of one of them costs.

A group is formed by tags as they will stand on the wire, so that `Ann` and `ann` are one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from collectors.wandb.gpu_types import gpu_type
from common.names import normalise_tag

UNKNOWN = "unknown"
FIXED = ("user", "gpu_type", "group", "job_type", "kind")
DEFAULT = "default"  # the price of GPUs of any other type
DOLLAR = 1_000_000  # prices are whole millionths, so that sums of them are exact
MAX_PRICE = 1_000_000  # dollars

_GIVEN = ("gpu_type", "kind")  # which the reader of runs knows
_BY_TAG = "tag:"
_TAKEN = frozenset({*FIXED, "entity", "project", "run", "run_id", "env", "service", "host"})

Json = Any  # what a JSON document may hold; every use checks what it got


class Owner(NamedTuple):
    """The values of a run's group, in the order of the settings, and the price of its GPU hour, if known."""

    group: tuple[str, ...] = ()
    price: int | None = None


NOBODY = Owner()


class Owners:
    """How the owner of a run is read."""

    def __init__(
        self,
        group_by: Sequence[str] = (),
        prices: Mapping[str, int] | None = None,
        hash_key: str | None = None,
    ) -> None:
        self.tags = tag_keys(group_by)
        others = [(tag, by) for tag, by in zip(self.tags, group_by, strict=True) if by not in _GIVEN]
        self._sources = [_source(by) for _, by in others]
        self._said_by = (*_GIVEN, *(tag for tag, _ in others))
        self._prices = prices or {}
        self._hash_key = hash_key
        self._known: dict[tuple[str | None, ...], Owner] = {}  # by what was read

    def read(self, node: Mapping[str, Json], gpu: str | None, kind: str) -> Owner:
        """The owner of a run; the same object for all runs of one owner."""
        raw = (gpu, kind, *[source(node) for source in self._sources])
        owner = self._known.get(raw)
        if owner is None:
            said = dict(zip(self._said_by, raw, strict=True))
            price = self._prices.get(self._value("gpu_type", gpu), self._prices.get(DEFAULT))
            owner = Owner(tuple(self._value(tag, said[tag]) for tag in self.tags), price)
            self._known[raw] = owner
        return owner

    def user(self, node: Mapping[str, Json]) -> str:
        """Who runs it, as the tag says it."""
        return self._value("user", _username(node))

    def _value(self, tag: str, raw: str | None) -> str:
        value = wire_value(tag, gpu_type(raw or "") if tag == "gpu_type" else raw or "")
        if tag != "user" or value == UNKNOWN or self._hash_key is None:
            return value
        return hmac.new(self._hash_key.encode(), value.encode(), hashlib.sha256).hexdigest()[:12]


def wire_value(tag: str, value: str) -> str:
    """The value of a tag as Datadog stores it; `unknown` where nothing of it is left."""
    return normalise_tag(f"{tag}:{value.strip()}").partition(":")[2] or UNKNOWN


def tag_keys(group_by: Sequence[str]) -> tuple[str, ...]:
    """The tags that groups have; raises ValueError for what cannot be grouped by."""
    keys: list[str] = []
    for by in group_by:
        key = by
        if by not in FIXED:
            key = re.sub(r"[^a-z0-9]+$", "", by.removeprefix(_BY_TAG).lower())
            if not by.startswith(_BY_TAG) or not re.fullmatch(r"[a-z][a-z0-9_]{0,99}", key):
                raise ValueError(
                    f"{by!r}: write any of {', '.join(FIXED)}, or tag:<prefix>, such as tag:team="
                )
            if key in _TAKEN:
                raise ValueError(f"{by!r} would make the tag {key!r}, which means something else already")
        if key in keys:
            raise ValueError(f"two of them make the tag {key!r}")
        keys.append(key)
    return tuple(keys)


def parse_prices(texts: Sequence[str]) -> dict[str, int]:
    """Prices by GPU type, in millionths of a dollar, from `h100=2.49`; or raises ValueError."""
    prices: dict[str, int] = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        try:
            price = Decimal(amount.strip())
        except InvalidOperation:
            price = Decimal("NaN")
        if not name.strip() or not price.is_finite() or not 0 <= price <= MAX_PRICE:
            raise ValueError(f"{text!r} is not a price: write a type and dollars an hour, such as h100=2.49")
        gpu = wire_value("gpu_type", gpu_type(name))
        if gpu in prices:
            raise ValueError(f"{gpu!r} has two prices")
        prices[gpu] = round(price * DOLLAR)
    return prices


def _source(by: str) -> Callable[[Mapping[str, Json]], str | None]:
    """Where a run says what it is grouped by."""
    if by == "user":
        return _username
    if by in FIXED:
        field = "jobType" if by == "job_type" else by
        return lambda node: _name(node.get(field))
    prefix = by.removeprefix(_BY_TAG)

    def rest_of_tag(node: Mapping[str, Json]) -> str | None:
        tags = node.get("tags")
        named = map(_name, tags if isinstance(tags, list) else ())
        return next((tag.removeprefix(prefix) for tag in named if tag and tag.startswith(prefix)), None)

    return rest_of_tag


def _username(node: Mapping[str, Json]) -> str | None:
    user = node.get("user")
    return _name(user.get("username")) if isinstance(user, dict) else None


def _name(value: Json) -> str | None:
    return value if isinstance(value, str) else None
