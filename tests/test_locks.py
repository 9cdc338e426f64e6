"""What is locked is what pyproject.toml asks for, by hash, alike everywhere, and there for both platforms."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from email.message import Message

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from scripts import licences
from support.project import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]


def locked(group: str) -> dict[NormalizedName, list[tuple[Requirement, list[str]]]]:
    """What a lock holds, by name: a requirement with its hashes, or several that exclude each other."""
    found: dict[NormalizedName, list[tuple[Requirement, list[str]]]] = {}
    text = (ROOT / "locks" / f"{group}.txt").read_text()
    for entry in re.split(r"\n(?=\w)", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)):
        written, *hashes = entry.replace("\\\n", "").split("--hash=")
        requirement = Requirement(written.strip())
        found.setdefault(canonicalize_name(requirement.name), []).append(
            (requirement, [one.strip() for one in hashes])
        )
    return found


def asked_for(group: str) -> Iterator[Requirement]:
    for one in GROUPS[group]:
        if isinstance(one, dict):
            yield from asked_for(one["include-group"])
        else:
            yield Requirement(one)


@pytest.mark.parametrize("group", GROUPS)
def test_every_package_is_locked_to_one_version_by_hash_and_no_host(group: str) -> None:
    assert "://" not in (ROOT / "locks" / f"{group}.txt").read_text()
    for entries in locked(group).values():
        for requirement, hashes in entries:
            assert re.fullmatch(r"==[\w.!+]+", str(requirement.specifier)), requirement
            assert hashes, requirement
            assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), requirement
        versions = {
            str(requirement.specifier) for requirement, _ in entries
        }  # one may be named with extras too
        assert len(versions) == 1 or all(requirement.marker for requirement, _ in entries)


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_locked_satisfies_what_pyproject_asks_for(group: str) -> None:
    found = locked(group)
    for wanted in asked_for(group):
        for requirement, _ in found[canonicalize_name(wanted.name)]:
            [pin] = requirement.specifier
            assert wanted.specifier.contains(pin.version, prereleases=True), (wanted, pin)


def test_development_and_demo_hold_the_very_packages_of_the_image() -> None:
    service = locked("service")
    for group in ("demo", "dev"):
        found = locked(group)
        assert {name: found[name] for name in service} == service


@pytest.mark.parametrize(
    ("said", "licence"),
    [
        ({"License-Expression": "MPL-2.0 AND (Apache-2.0 OR MIT)"}, "MPL-2.0 AND (Apache-2.0 OR MIT)"),
        ({"License": "BSD-3-Clause"}, "BSD-3-Clause"),
        (
            {"License": "Apache-2.0", "Classifier": "License :: OSI Approved :: Apache Software License"},
            "Apache-2.0",
        ),
        ({"License": "Dual License", "Classifier": "License :: OSI Approved :: BSD License"}, "BSD License"),
        ({"License": "The words\nof a whole licence"}, "The words"),
    ],
)
def test_a_licence_is_named_as_exactly_as_the_package_does(said: dict[str, str], licence: str) -> None:
    about = Message()
    for key, text in said.items():
        about[key] = text
    assert licences.licence(about) == licence  # type: ignore[arg-type]


def test_a_package_without_a_licence_does_not_pass_unseen() -> None:
    about = Message()
    about["Name"] = "odd"
    with pytest.raises(SystemExit, match="odd names no licence"):
        licences.licence(about)  # type: ignore[arg-type]


def test_the_page_lists_every_package_of_the_image() -> None:
    rows = re.findall(
        r"^\| ([\w.-]+) \| (\S+) \| \S", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE
    )
    pins = [(name, str(entries[0][0].specifier)[2:]) for name, entries in locked("service").items()]
    assert rows[2:] == pins
