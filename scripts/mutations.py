"""Mutants: a module with one expression changed. Knows nothing of tests.

Left out are decorators, annotations and `strict=`, which no test could notice, and the value of a module's
limit: another one is another choice and no defect.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import NamedTuple

MAX_CONSTANT = 100  # larger ones are sizes and waits, of which one more is the same
PAIRS: list[tuple[type, type]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.FloorDiv, ast.Mult), (ast.Div, ast.Mult)),
]
SWAPS = {**dict(PAIRS), **{other: one for one, other in PAIRS}}


class Mutant(NamedTuple):
    """A module with one line changed, and the lines of the old one that a test executes if it can notice."""

    path: str
    changed: str
    text: str
    lines: tuple[str, ...]


def replacement(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """An expression and what stands in its place: another operator, the opposite, one more, no branch."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test, ast.BoolOp(ast.And(), [ast.Constant(value=False), node.test])
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value <= MAX_CONSTANT:
        return node, ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node, node.operand
    new = copy(node)
    if isinstance(new, ast.Compare) and (swapped := SWAPS.get(type(new.ops[0]))):
        new.ops = [swapped(), *new.ops[1:]]
        return new, new
    if isinstance(new, ast.BoolOp | ast.BinOp) and (swapped := SWAPS.get(type(new.op))):
        new.op = swapped()
        return new, new
    return None


def sites(node: ast.AST, first: int = 0) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    """Every replacement below a node, with the first line of its statement (0 outside of functions)."""
    inside = first or isinstance(node, ast.FunctionDef)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            unseen = name in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr)
            unseen |= isinstance(child, ast.keyword) and child.arg == "strict"
            unseen |= isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            limit = isinstance(child, ast.Assign) and isinstance(child.value, ast.Constant | ast.BinOp)
            if isinstance(child, ast.AST) and not unseen and not (limit and isinstance(node, ast.Module)):
                below = child.lineno if inside and isinstance(child, ast.stmt) else first
                if found := replacement(child):
                    yield *found, below
                yield from sites(child, below)


def mutants(path: Path, root: Path) -> Iterator[Mutant]:
    """Every mutant of one module."""
    source = path.read_bytes()
    rows = source.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, rows))]
    for old, new, first in sites(ast.parse(source)):
        begin, end = starts[old.lineno - 1] + old.col_offset, starts[(old.end_lineno or 0) - 1]
        text = source[:begin] + f"({ast.unparse(new)})".encode() + source[end + (old.end_col_offset or 0) :]
        changed = text.decode().splitlines()[old.lineno - 1].strip()
        lines = tuple(rows[number - 1].decode().strip() for number in (old.lineno, first) if first)
        yield Mutant(str(path.relative_to(root)), changed, text.decode(), lines)
