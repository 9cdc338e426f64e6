"""Which statements of ours a test executes, in its own process and in every process that it starts.

Used by `scripts/mutants` inside a copy of the tree, where `marked` has put a call before every statement.
pytest loads it as a plugin, and the copy's packages import it, so that children need no variable for it.
"""

from __future__ import annotations

import ast
import builtins
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

NOW = Path(__file__).resolve().parent / "now"  # holds where to note, in every process that begins

_open, _write, _close = os.open, os.write, os.close  # which a test may replace, to fail
_noted: set[str] = set()
_notes = NOW.read_text() if NOW.exists() else os.devnull


def marked(root: Path, name: str) -> str:
    """A module with a call before each statement of its functions, which notes its first line."""
    source = (root / name).read_text()
    tree, lines = ast.parse(source), source.splitlines()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bodies = [body for one in functions for node in ast.walk(one) for _, body in ast.iter_fields(node)]
    for body in {id(body): body for body in bodies if isinstance(body, list)}.values():
        for statement in [one for one in body if isinstance(one, ast.stmt) and not is_text(one)]:
            note = f"{name}\t{lines[statement.lineno - 1].strip()}"
            body.insert(body.index(statement), ast.parse(f"__note__({note!r})").body[0])
    if name in ("common/__init__.py", "fleetgauge/__init__.py"):  # every process of ours imports one first
        tree.body += ast.parse(f"import sys; sys.path.append('{root}/scripts'); import record_lines").body
    return ast.unparse(tree)


def is_text(statement: ast.stmt) -> bool:
    """Whether it is what a function says of itself, which has to come first."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _note(text: str) -> None:
    if text not in _noted:
        _noted.add(text)
        with suppress(OSError):  # opened each time: a process may be killed, or close what it did not open
            notes = _open(_notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            _write(notes, f"{text}\n".encode())
            _close(notes)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note under this test function from now on."""
    global _notes
    _notes = str(NOW.parent / "notes" / nodeid.partition("[")[0].replace("/", "|"))
    NOW.write_text(_notes)
    _noted.clear()


def pytest_runtest_logreport(report: Any) -> None:
    """What a test costs, and whether it can tell anything."""
    _note(f"seconds\t{report.duration}" if report.passed else "failed")


setattr(builtins, "__note__", _note)  # noqa: B010
