"""What is locked is what pyproject.toml asks for, alike everywhere; pip requires the hashes."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from support.project import ROOT

GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]


def locked(group: str) -> dict[NormalizedName, dict[Requirement, list[str]]]:
    """The requirements of a lock with their hashes, by name: several where markers exclude each other."""
    found: dict[NormalizedName, dict[Requirement, list[str]]] = defaultdict(dict)
    text = (ROOT / "locks" / f"{group}.txt").read_text()
    for entry in re.split(r"\n(?=\w)", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)):
        written, *hashes = entry.replace("\\\n", "").split("--hash=")
        requirement = Requirement(written.strip())
        found[canonicalize_name(requirement.name)][requirement] = [each.strip() for each in hashes]
    return found


def asked_for(group: str) -> Iterator[Requirement]:
    for one in GROUPS[group]:
        if isinstance(one, dict):
            yield from asked_for(one["include-group"])
        else:
            yield Requirement(one)


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_locked_satisfies_what_pyproject_asks_for(group: str) -> None:
    assert "://" not in (ROOT / "locks" / f"{group}.txt").read_text(), "the index is the reader's own"
    found = locked(group)
    for wanted in asked_for(group):
        requirements = found[canonicalize_name(wanted.name)]
        assert requirements, wanted
        for requirement in requirements:
            [pin] = requirement.specifier
            assert wanted.specifier.contains(pin.version, prereleases=True), (wanted, pin)


def test_development_and_demo_hold_the_very_packages_of_the_image() -> None:
    service = locked("service")
    for group in ("demo", "dev"):
        found = locked(group)
        assert {name: found[name] for name in service} == service
