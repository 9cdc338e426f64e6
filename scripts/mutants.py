"""Change random expressions of our code, and run the tests that execute the line, in copies of the tree.

What each test executes is recorded first, in the processes that it starts too.
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
from pathlib import Path
from typing import NamedTuple

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parent.parent
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
    coverage.Coverage("NOTES/lines", config_file="{ROOT}/pyproject.toml", auto_data=True,
                      context=open("NOTES/now").read()).start()
"""


class Mutant(NamedTuple):  # a module with one expression changed
    path: str
    line: int
    changed: str
    text: str


def change(node: ast.AST) -> tuple[str, object] | None:
    """Return a field and its new value: another operator, the opposite, no branch, one more (up to 100)."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return "test", ast.BoolOp(ast.And(), [ast.Constant(value=False), node.test])
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value <= 100:
        return "value", not node.value if isinstance(node.value, bool) else node.value + 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return "operand", ast.UnaryOp(node.op, node.operand)
    operators = getattr(node, "ops", [getattr(node, "op", None)])
    if swapped := SWAPS.get(type(operators[0])):
        return ("ops", [swapped(), *operators[1:]]) if isinstance(node, ast.Compare) else ("op", swapped())
    return None


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of the functions of one module; texts and `strict=` are not for tests to notice."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    below = dict.fromkeys(node for function in functions for node in ast.walk(function))
    texts = [
        node for node in below if isinstance(node, ast.JoinedStr) or getattr(node, "arg", "") == "strict"
    ]
    ignored = {node for text in texts for node in ast.walk(text)}
    for node in below:
        if isinstance(node, ast.expr | ast.stmt) and node not in ignored and (changed := change(node)):
            before = getattr(node, changed[0])
            setattr(node, *changed)
            yield Mutant(path, node.lineno, ast.unparse(node).splitlines()[0], ast.unparse(tree))
            setattr(node, changed[0], before)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that from now on everything is executed by this test; pytest calls it."""
    Path(os.environ["MUTANTS_NOTES"], "now").write_text(nodeid.partition("[")[0])
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
        command = ["timeout", "--signal=KILL", "600", sys.executable, "-m", "pytest", *arguments]
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
    combined = Coverage(notes / "lines", config_file=ROOT / "pyproject.toml")
    combined.combine([str(notes)])
    return combined.get_data()


def choose(mutant: Mutant, recorded: list[CoverageData]) -> list[str]:
    """Return the tests that execute the statement of a mutant's line, the nearest first."""
    tests: list[str] = []
    for data in recorded:
        executed = data.contexts_by_lineno(str(ROOT / mutant.path))
        tests += executed.get(max((line for line in executed if line <= mutant.line), default=0), ())
    tests.sort(key=lambda test: f"/test_{Path(mutant.path).stem}.py" not in test)
    return [*filter(None, tests)] or ["tests/conftest.py"]  # which has none, so that pytest ends with 5


def main() -> int:
    """Print what became of each mutant; return 1 if one survived."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--number", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, required=True, help="the same seed makes the same mutants")
    options = parser.parse_args()
    found = {file.resolve() for path in options.paths for file in [path, *path.rglob("*.py")]}
    modules = sorted(str(file.relative_to(ROOT)) for file in found if file.is_file())
    possible = [mutant for module in modules for mutant in mutants(module, (ROOT / module).read_text())]
    sample = random.Random(options.seed).sample(possible, min(options.number, len(possible)))  # noqa: S311
    folders = {(ROOT / "tests" / module).parent for module in modules}
    tests = sorted(file for folder in folders for file in folder.glob("test_*.py"))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as notes, ThreadPoolExecutor(os.cpu_count()) as pool:
        recorded = [*pool.map(record, tests, (Path(notes, str(number)) for number in range(len(tests))))]
        runs = [pool.submit(run_pytest, {m.path: m.text}, "-x", *choose(m, recorded)) for m in sample]
        for mutant, run in zip(sample, runs, strict=True):
            verdict = {-9: "timed out", 0: "survived", 5: "not executed"}.get(run.result(), "killed")
            counts[verdict] += 1
            print(f"{verdict:12} {mutant.path}:{mutant.line} | {mutant.changed}", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return bool(counts["survived"])


if __name__ == "__main__":
    sys.exit(main())
