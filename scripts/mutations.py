"""Mutants: a module with one expression changed. Knows nothing of tests.

Left out are decorators, annotations and `strict=`, which no test could notice, and the value of a module's
limit: another one is another choice and no defect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from itertools import accumulate
from typing import Any, NamedTuple

MAX_CONSTANT = 100  # larger ones are sizes and waits, of which one more is the same
PAIRS: list[tuple[type, type]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.FloorDiv, ast.Mult), (ast.Div, ast.Mult)),
]
SWAPS = {**dict(PAIRS), **{other: one for one, other in PAIRS}}


class Mutant(NamedTuple):
    """A module with one expression changed, and the line of it that a function executes (or 0)."""

    path: str
    changed: str
    text: str
    line: int


def replacement(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """An expression and what stands in its place: another operator, the opposite, one more, no branch."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test, ast.BoolOp(ast.And(), [ast.Constant(value=False), node.test])
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value <= MAX_CONSTANT:
        return node, ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node, node.operand
    if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp):
        new: Any = copy(node)  # Any: one has `ops`, the others have `op`
        first, *rest = getattr(node, "ops", None) or [new.op]
        if swapped := SWAPS.get(type(first)):
            new.ops, new.op = [swapped(), *rest], swapped()
            return new, new
    return None


def sites(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """Every replacement below a node, and whether a function executes it."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            unseen = name in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr)
            unseen |= isinstance(child, ast.keyword) and child.arg == "strict"
            unseen |= isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            limit = isinstance(child, ast.Assign) and isinstance(child.value, ast.Constant | ast.BinOp)
            if isinstance(child, ast.AST) and not unseen and not (limit and isinstance(node, ast.Module)):
                within = inside or (isinstance(node, ast.FunctionDef) and isinstance(child, ast.stmt))
                if found := replacement(child):
                    yield *found, within
                yield from sites(child, within)


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Every mutant of one module."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for old, new, inside in sites(ast.parse(source)):
        begin = starts[old.lineno - 1] + old.col_offset
        end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
        text = (source[:begin] + f"({ast.unparse(new)})".encode() + source[end:]).decode()
        yield Mutant(path, text.splitlines()[old.lineno - 1].strip(), text, old.lineno if inside else 0)
