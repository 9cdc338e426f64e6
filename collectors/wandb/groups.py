"""The group that the GPUs of a run are counted in, the type of these GPUs, and their price.

A group is formed by tag values as Datadog stores them, so that `Ann` and `ann` are one group.

The type of a GPU is the name that its driver reports, in lower case; without the vendor and series, the form
factor and the kind of memory; with the memory size only for models that are sold with several. The result
must be a model (`h100`, `mi300x`) or a family and a model (`rtx-a6000`); any other name stays as it is.

`runs` calls this for every run; `ledger` sums by group.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from common.names import normalise_tag

UNKNOWN = "unknown"
OTHER = "_other"  # the value of every tag of the group that sums the groups beyond the limit
FIXED = ("user", "gpu_type", "group", "job_type", "kind")
DEFAULT = "default"  # the price of all types that have none
DOLLAR = 1_000_000  # prices are integers, in millionths of a dollar, so that their sums are exact
MAX_PRICE = 1_000_000  # dollars

_TAG_PREFIX = "tag:"
_RESERVED = frozenset({*FIXED, "entity", "project", "run", "run_id", "env", "service", "host"})

_IGNORED = re.compile(
    r"nvidia|amd|instinct|tesla|geforce|quadro|radeon|"
    r"sxm\d*|pcie|oam|mcm|ac|mba|nvl\d*|hbm\d*e?|gpu|generation|server|workstation|edition"
)
_MEMORY = re.compile(r"\d+gi?b")
_SOLD_IN_SIZES = frozenset({"a100", "a800", "p100", "v100"})
_MODEL = re.compile(r"[a-z]{1,2}\d{1,4}[a-z]{0,2}|(?:gtx|rtx|rx|titan)(?:-[a-z0-9]+){1,4}")

Json = Any  # a value of a JSON document; every use checks its type


class Owner(NamedTuple):
    """The group of a run: its tag values in the order of the settings; user, GPU type and price per hour.

    The price is in millionths of a dollar, and None where the type has no price.
    """

    group: tuple[str, ...] = ()
    user: str = UNKNOWN
    gpu_type: str = UNKNOWN
    price: int | None = None


NO_OWNER = Owner()


class Owners:
    """Reads the owners of runs: the same object for all runs of an owner.

    `group_by` is as in the settings; with a `hash_key`, users are sent as keyed hashes. The cache is what a
    backfill of hundreds of thousands of runs needs: normalising tags is slow. Raises ValueError as
    `tag_keys`.
    """

    def __init__(
        self,
        group_by: Sequence[str] = (),
        prices: Mapping[str, int] | None = None,
        hash_key: str | None = None,
    ) -> None:
        self._tags = tag_keys(group_by)
        # An idle run has a user, and a price by its type, whatever the grouping.
        self._parts = tuple(dict.fromkeys(("user", "gpu_type", *group_by)))
        self._keys = tag_keys(self._parts)
        self._prices = prices or {}
        self._hash_key = hash_key
        self._cache: dict[tuple[str | None, ...], Owner] = {}

    def read(self, node: Mapping[str, Json], gpu: str | None, kind: str) -> Owner:
        """Return the owner of a run, whose GPU name and kind are read elsewhere."""
        given = {"gpu_type": gpu, "kind": kind}
        raw = tuple([given[by] if by in given else _part(node, by) for by in self._parts])
        owner = self._cache.get(raw)
        if owner is None:
            values = {key: self._value(key, text) for key, text in zip(self._keys, raw, strict=True)}
            group = tuple(values[tag] for tag in self._tags)
            price = price_of(values["gpu_type"], self._prices)
            owner = self._cache[raw] = Owner(group, values["user"], values["gpu_type"], price)
        return owner

    def _value(self, tag: str, raw: str | None) -> str:
        """Return the value of a tag as Datadog stores it, with the user hashed where there is a key."""
        value = wire_value(tag, gpu_type(raw or "") if tag == "gpu_type" else raw or "")
        if tag != "user" or value == UNKNOWN or self._hash_key is None:
            return value
        # Keyed, because a plain hash of a username can be found by trying all names. Hashed after
        # normalising, so that `Ann` and `ann` stay one user.
        return hmac.new(self._hash_key.encode(), value.encode(), hashlib.sha256).hexdigest()[:12]


def wire_value(tag: str, value: str) -> str:
    """Return a tag's value as Datadog stores it; `unknown` where it stores none."""
    return normalise_tag(f"{tag}:{value.strip()}").partition(":")[2] or UNKNOWN


def tag_keys(group_by: Sequence[str]) -> tuple[str, ...]:
    """Return the tag keys of groups: the names in `FIXED`, or `team` for `tag:team=`.

    Raises ValueError for a value that cannot be grouped by, a reserved key, and two parts with the same key.
    """
    keys: list[str] = []
    for by in group_by:
        key = by
        if by not in FIXED:
            key = re.sub(r"[^a-z0-9]+$", "", by.removeprefix(_TAG_PREFIX).lower())
            if not by.startswith(_TAG_PREFIX) or not re.fullmatch(r"[a-z][a-z0-9_]{0,99}", key):
                raise ValueError(
                    f"{by!r}: write any of {', '.join(FIXED)}, or tag:<prefix>, such as tag:team="
                )
            if key in _RESERVED:
                raise ValueError(f"{by!r} would make the tag {key!r}, which has another meaning already")
        if key in keys:
            raise ValueError(f"two of them make the tag {key!r}")
        keys.append(key)
    return tuple(keys)


def gpu_type(name: str) -> str:
    """Return `a100-80gb` for `NVIDIA A100-SXM4-80GB`; the name itself where the rule does not apply."""
    parts = re.findall(r"[^\s\-_()]+", name.lower().partition("/")[0])
    parts = [part for part in parts if not _IGNORED.fullmatch(part)]
    model = "-".join(part for part in parts if not _MEMORY.fullmatch(part))
    if not _MODEL.fullmatch(model):
        return name.strip()
    sizes = [part for part in parts if _MEMORY.fullmatch(part)] if model in _SOLD_IN_SIZES else []
    return "-".join([model, *sizes])


def parse_prices(texts: Sequence[str]) -> dict[str, int]:
    """Return prices by GPU type, in millionths of a dollar, from `h100=2.49`; ValueError for other text.

    The type may be written as the driver writes it: it is normalised like that of a run.
    """
    prices: dict[str, int] = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        try:
            # Decimal and not float: a price of 1.79 is exact.
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


def price_of(gpu: str, prices: Mapping[str, int]) -> int | None:
    """Return the price of a GPU type: its own, else that of its model in any size, else the default.

    None without any of these.
    """
    for name in (gpu, _without_size(gpu), DEFAULT):
        if name in prices:
            return prices[name]
    return None


def unmatched_prices(prices: Mapping[str, int], types: Iterable[str]) -> list[str]:
    """Return the types that have a price and are not among the types of any run, nor their models."""
    matched = {name for gpu in types for name in (gpu, _without_size(gpu))}
    return [name for name in prices if name != DEFAULT and name not in matched]


def _without_size(gpu: str) -> str:
    """Return the model of a type with a memory size: `a100` for `a100-80gb`; any other type as it is."""
    model, _, size = gpu.rpartition("-")
    return model if model in _SOLD_IN_SIZES and _MEMORY.fullmatch(size) else gpu


def _part(node: Mapping[str, Json], by: str) -> str | None:
    """Return one part of a group as a run has it: a field, or its first tag with a prefix, without that."""
    if by in FIXED:
        value = node.get("jobType" if by == "job_type" else by)
        return _text(value.get("username") if isinstance(value, dict) else value)
    prefix, tags = by.removeprefix(_TAG_PREFIX), node.get("tags")
    texts = map(_text, tags if isinstance(tags, list) else ())
    return next((tag.removeprefix(prefix) for tag in texts if tag and tag.startswith(prefix)), None)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
