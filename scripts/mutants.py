"""Do the tests notice? Change random expressions of our code, and run the tests that execute the line.

First each file of tests runs once in a copy of the tree, which records what every test executes, in the
processes that it starts too. Then each mutant is judged in a copy of its own.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = str(ROOT / "pyproject.toml")
NOTES = Path(os.environ.get("MUTANTS_NOTES", os.devnull))  # where the hook of pytest, below, writes
SECONDS = 600  # for the tests of one file or one mutant
MAX_CONSTANT = 100  # larger ones are sizes and waits, of which one more is the same
PAIRS: list[tuple[type, type]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.FloorDiv, ast.Mult), (ast.Div, ast.Mult)),
]
SWAPS = {**dict(PAIRS), **{second: first for first, second in PAIRS}}
# Added to what every process of ours imports; children are given no variable that could name the test.
START = f"""
import sys
sys.path.append("{Path(pytest.__file__).parent.parent}")
import coverage
if coverage.Coverage.current() is None:
    _options = {{"context": open("NOTES/now").read(), "config_file": "{SETTINGS}", "auto_data": True}}
    coverage.Coverage("NOTES/lines", **_options).start()
"""


class Mutant(NamedTuple):
    """A module with one expression changed."""

    path: str
    line: int
    changed: str
    text: str


def replacement(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return an expression and its change: another operator, its opposite, one more, no branch."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test, ast.BoolOp(ast.And(), [ast.Constant(value=False), node.test])
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value <= MAX_CONSTANT:
        return node, ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node, node.operand
    if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp):
        changed: Any = copy(node)  # Any: a comparison has `ops`, the others have `op`
        first, *others = getattr(node, "ops", None) or [changed.op]
        if swapped := SWAPS.get(type(first)):
            changed.ops, changed.op = [swapped(), *others], swapped()
            return changed, changed
    return None


def replacements(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield every change below a node, but texts, annotations and `strict=`, which no test could notice."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            ignored = name in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr)
            ignored |= isinstance(child, ast.keyword) and child.arg == "strict"
            if isinstance(child, ast.AST) and not ignored:
                if found := replacement(child):
                    yield found
                yield from replacements(child)


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of the functions of one module."""
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    made: set[str] = set()  # of nested functions there would be two
    for old, new in (pair for function in functions for pair in replacements(function)):
        begin = starts[old.lineno - 1] + old.col_offset
        end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
        text = (source[:begin] + f"({ast.unparse(new)})".encode() + source[end:]).decode()
        if text not in made:
            made.add(text)
            yield Mutant(path, old.lineno, text.splitlines()[old.lineno - 1].strip(), text)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that from now on everything is executed by this test; pytest calls it."""
    (NOTES / "now").write_text(nodeid.partition("[")[0])
    if recording := Coverage.current():
        recording.switch_context(nodeid.partition("[")[0])


def run_pytest(changes: dict[str, str], *arguments: str, notes: str = "") -> int:
    """Run pytest in a copy of the tree with files changed; return its exit code, -9 if it took too long."""
    ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(shutil.copytree(ROOT, Path(folder, "tree"), ignore=ignored))
        for environment in ROOT.glob(".venv*"):
            (root / environment.name).symlink_to(environment.resolve())
        for name, text in changes.items():
            (root / name).write_text(text)
        command = ["timeout", "--signal=KILL", str(SECONDS), sys.executable, "-m", "pytest", *arguments]
        command += ["-pno:cacheprovider", f"--basetemp={folder}/temporary"]
        given = {**os.environ, "CI": "true", "MUTANTS_NOTES": notes}  # the same examples each time
        return subprocess.run(command, cwd=root, env=given, capture_output=True, check=False).returncode


def record(file: Path, notes: Path) -> CoverageData:
    """Return which lines each test of a file executes."""
    notes.mkdir()
    (notes / "now").touch()
    first = ("common/__init__.py", "fleetgauge/__init__.py")
    changes = {name: (ROOT / name).read_text() + START.replace("NOTES", str(notes)) for name in first}
    run_pytest(changes, "-pscripts.mutants", str(file.relative_to(ROOT)), notes=str(notes))
    combined = Coverage(notes / "lines", config_file=SETTINGS)
    combined.combine([str(notes)])
    return combined.get_data()


def choose(mutant: Mutant, recorded: list[CoverageData]) -> list[str]:
    """Return the tests that execute the statement of a mutant's line, the nearest first."""
    tests: list[str] = []
    for data in recorded:
        executed = data.contexts_by_lineno(str(ROOT / mutant.path))
        tests += executed.get(max((line for line in executed if line <= mutant.line), default=0), ())
    near = (f"test_{Path(mutant.path).stem}.py", f"tests/{Path(mutant.path).parent}/")
    return sorted(filter(None, tests), key=lambda test: [part not in test for part in near])


def judge(mutant: Mutant, tests: list[str]) -> str:
    """Return what became of a mutant."""
    code = run_pytest({mutant.path: mutant.text}, "-x", *tests) if tests else 5
    return {-9: "timed out", 0: "survived", 5: "not executed"}.get(code, "killed")


def main() -> int:
    """Print what became of each mutant; return 1 if one survived."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--number", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, required=True, help="the same seed makes the same mutants")
    options = parser.parse_args()
    found = {file.resolve() for path in options.paths for file in [path, *path.rglob("*.py")]}
    modules = sorted(str(file.relative_to(ROOT)) for file in found if file.is_file())
    possible = [mutant for module in modules for mutant in mutants(module, (ROOT / module).read_bytes())]
    sample = random.Random(options.seed).sample(possible, min(options.number, len(possible)))  # noqa: S311
    folders = {ROOT / "tests" / Path(module).parent for module in modules}
    tests = [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if file.parent in folders]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        notes = [Path(folder, str(number)) for number in range(len(tests))]
        recorded = list(pool.map(record, tests, notes))
        chosen = [choose(mutant, recorded) for mutant in sample]
        for mutant, verdict in zip(sample, pool.map(judge, sample, chosen), strict=True):
            counts[verdict] += 1
            print(f"{verdict:12} {mutant.path}:{mutant.line} | {mutant.changed}", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return bool(counts["survived"])


if __name__ == "__main__":
    sys.exit(main())
