"""Tests know our packages by their public names only, so that what is private can change."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.project import ROOT

PACKAGES = ("collectors", "common", "fleetgauge")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _trees(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text())


def _defined(tree: ast.Module) -> Iterator[str]:
    """The private names that a module, a class or an object of ours has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _used(tree: ast.Module) -> Iterator[str]:
    """The names of something else that a test imports, reads, or names in a text to patch it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            yield from (alias.name for alias in node.names)
            yield from (node.module or "").split(".")
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.Attribute) and not _is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("attr", "attrgetter")):
            texts = [text.value for text in node.args if isinstance(text, ast.Constant)]
            yield from (part for text in texts if isinstance(text, str) for part in text.split("."))


def _is_own(value: ast.expr) -> bool:
    """Whether an attribute is of the test's own class."""
    if isinstance(value, ast.Call):
        value = value.func
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "super")


@functools.cache
def _private_names() -> set[str]:
    trees = [tree for folder in PACKAGES for _, tree in _trees(folder)]
    return {name for tree in trees for name in _defined(tree) if _is_private(name)}


def _private_uses(tree: ast.Module) -> set[str]:
    return _private_names().intersection(_used(tree))


def test_no_test_imports_reads_or_patches_a_private_name_of_ours() -> None:
    found = {
        (str(path), name)
        for folder in ("tests", "benchmarks")
        for path, tree in _trees(folder)
        for name in _private_uses(tree)
    }
    assert found == set()


@pytest.mark.parametrize(
    "code",
    [
        "from fleetgauge.xenna.patch import _lock",
        "from fleetgauge.xenna import patch\npatch._lock.acquire()",
        "def test(client):\n    assert client._accounts._outstanding",
        "monkeypatch.setattr(patch, '_lock', None)",
        "monkeypatch.setattr('fleetgauge.xenna.patch._lock', None)",
    ],
)
def test_a_private_name_is_found_however_it_is_reached(code: str) -> None:
    assert _private_uses(ast.parse(code))


def test_private_names_of_others_and_of_the_test_itself_are_not_ours() -> None:
    code = "class Store:\n    def get(self):\n        return self._lock\nos._exit(1)\nMonitor._make_stats()"
    assert _private_uses(ast.parse(code)) == set()
