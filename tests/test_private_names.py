"""Tests know our packages by their public names only, so that what is private can change."""

from __future__ import annotations

import functools
import re

import pytest

from support.project import ROOT

DEFINED = re.compile(r"(?:^|\b(?:def|class) |\bself\.)(_[A-Za-z]\w*)", re.MULTILINE)
# An attribute (not of the test's own class, nor stormlog's), an import, a text that names what to patch.
USED = re.compile(
    r"(?<!\bself)(?<!\bcls)(?<!\bsuper\(\))(?<!\bstormlog)\.(_[A-Za-z]\w*)"
    r"|^\s*from (?:collectors|common|fleetgauge)\b.*?\b(_[A-Za-z]\w*)"
    r"|attr(?:getter)?\(.*?[\"'.](_[A-Za-z]\w*)[\"']",
    re.MULTILINE,
)


@functools.cache
def private_names() -> set[str]:
    files = [
        path for folder in ("collectors", "common", "fleetgauge") for path in (ROOT / folder).rglob("*.py")
    ]
    return {name for path in files for name in DEFINED.findall(path.read_text())}


def private_uses(code: str) -> set[str]:
    return private_names().intersection(name for names in USED.findall(code) for name in names)


def test_no_test_imports_reads_or_patches_a_private_name_of_ours() -> None:
    files = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    found = {(str(path.relative_to(ROOT)), name) for path in files for name in private_uses(path.read_text())}
    assert {use for use in found if use[0] != "tests/test_private_names.py"} == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from fleetgauge.xenna.patch import _lock", True),
        ("from fleetgauge.xenna import patch\npatch._lock.acquire()", True),
        ("def test(client):\n    assert client._accounts._outstanding", True),
        ("monkeypatch.setattr(patch, '_lock', None)", True),
        ("monkeypatch.setattr('fleetgauge.xenna.patch._lock', None)", True),
        ("class Store:\n    def get(self):\n        return self._lock", False),
        ("os._exit(1)\nMonitor._make_stats()", False),
    ],
)
def test_private_name_is_found_however_it_is_reached(code: str, found: bool) -> None:
    assert bool(private_uses(code)) is found
