"""Do the tests notice? Random mutants of our code, one at a time, each judged by the tests that execute it.

Started by `scripts/mutants`. Everything happens in a copy of the tree. What each test executes is recorded
once, and again for a file of tests that has changed. Left out are decorators, annotations and `strict=`,
which no test could notice, and the value of a module's limit: another one is another choice and no defect.
(mutmut and cosmic-ray neither sample nor see the processes that most tests start.)
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import importlib
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from scripts import record_lines  # noqa: E402

PACKAGES = ("common", "collectors", "fleetgauge")
CACHE = ROOT / ".mutants_cache"  # by the digest of a file of tests: what each of its tests executes
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.txt"  # path | the changed line | reason
HEAVY = ["hypothesis", "moto.server", "boto3", "datadog_api_client.v2", "pydantic_settings", "rich"]
MAX_CONSTANT = 100  # larger ones are sizes and waits, of which one more is the same
MAX_RECORDING = 150  # seconds for a file of tests
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


class Test(NamedTuple):
    name: str
    seconds: float
    notes: set[str]


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


def is_number(value: ast.expr) -> bool:
    """Whether this is arithmetic only, as a limit at the top of a module is."""
    parts = (ast.Constant, ast.BinOp, ast.Name, ast.operator, ast.expr_context)
    return all(isinstance(node, parts) for node in ast.walk(value))


def sites(node: ast.AST, first: int = 0) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    """Every replacement below a node, with the first line of its statement (0 outside of functions)."""
    inside = first or isinstance(node, ast.FunctionDef)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            unseen = name in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr)
            unseen |= isinstance(child, ast.keyword) and child.arg == "strict"
            unseen |= isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            unseen |= isinstance(child, ast.Assign) and child.col_offset == 0 and is_number(child.value)
            if unseen or not isinstance(child, ast.AST):
                continue
            below = child.lineno if inside and isinstance(child, ast.stmt) else first
            if found := replacement(child):
                yield *found, below
            yield from sites(child, below)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of one module."""
    source = path.read_bytes()
    rows = source.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, rows))]
    for old, new, first in sites(ast.parse(source)):
        begin, end = starts[old.lineno - 1] + old.col_offset, starts[(old.end_lineno or 0) - 1]
        text = source[:begin] + f"({ast.unparse(new)})".encode() + source[end + (old.end_col_offset or 0) :]
        changed = text.decode().splitlines()[old.lineno - 1].strip()
        lines = tuple(rows[number - 1].decode().strip() for number in (old.lineno, first) if first)
        yield Mutant(str(path.relative_to(ROOT)), changed, text.decode(), lines)


class Trial:
    """A copy of the tree, and pytest in it: in a fork of this process, which has imported what takes long."""

    def __init__(self, folder: str) -> None:
        self.root, self._seconds = Path(folder, "tree"), itertools.count(int(time.time()))
        left_out = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__")
        shutil.copytree(ROOT, self.root, ignore=left_out)
        for environment in ROOT.glob(".venv*"):
            (self.root / environment.name).symlink_to(environment.resolve())
        for name in HEAVY:
            importlib.import_module(name)

    def write(self, name: str, text: str) -> None:
        """Change a file of the copy. Its time is always another, so that no stale bytecode is used."""
        (self.root / name).write_text(text)
        os.utime(self.root / name, (next(self._seconds),) * 2)

    def pytest(self, seconds: float, *arguments: str) -> int | None:
        """The exit code, or nothing where it took longer."""
        run = multiprocessing.get_context("fork").Process(target=self._pytest, args=arguments)
        run.start()
        run.join(seconds)
        code = run.exitcode
        with suppress(ProcessLookupError):
            os.killpg(run.pid or 0, signal.SIGKILL)  # also what a mutant left running
        run.join()
        return code

    def _pytest(self, *arguments: str) -> None:
        os.setsid()
        os.chdir(self.root)
        sys.path[0] = str(self.root / "scripts")
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        quiet = ("-q", "-Wignore::pytest.PytestAssertRewriteWarning", "-pno:cacheprovider")
        sys.exit(pytest.main([*quiet, f"--basetemp={self.root.parent}/temporary", *arguments]))


def recorded(trial: Trial, rooms: set[Path]) -> Iterator[Test]:
    """Every test whose file is recorded, or is of one of these rooms and therefore recorded now."""
    notes = trial.root / "scripts" / "notes"
    (trial.root / "scripts" / "now").write_text(os.devnull)
    for module in (module for package in PACKAGES for module in (ROOT / package).rglob("*.py")):
        name = str(module.relative_to(ROOT))
        trial.write(name, record_lines.marked(name, module.read_text()))
    begin = f'\nimport sys\nsys.path.append("{trial.root}/scripts")\nimport record_lines\n'
    for name in ("common/__init__.py", "fleetgauge/__init__.py"):  # every process of ours imports one first
        trial.write(name, (trial.root / name).read_text() + begin)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        kept = CACHE / hashlib.sha256(file.read_bytes()).hexdigest()
        if not kept.exists() and file.parent.relative_to(ROOT / "tests") in rooms:
            notes.mkdir()
            code = trial.pytest(MAX_RECORDING, "-precord_lines", str(file.relative_to(ROOT)))
            print(f"recorded {file.relative_to(ROOT)}, which ended with {code}", flush=True)
            shutil.move(notes, kept)
        for test in kept.iterdir() if kept.exists() else ():
            lines = set(test.read_text().splitlines())
            seconds = sum(float(line[8:]) for line in lines if line.startswith("seconds\t"))
            if seconds and "failed" not in lines:
                yield Test(test.name.replace("|", "/"), seconds, lines)


def chosen(mutant: Mutant, tests: list[Test], seconds: float) -> list[Test]:
    """Tests that execute the line; of what stands outside of functions, the module's or else its room's."""
    room, stem = f"tests/{Path(mutant.path).parent}/", f"test_{Path(mutant.path).stem}"
    found: list[Test] = []
    for line in mutant.lines:
        found = found or [test for test in tests if f"{mutant.path}\t{line}" in test.notes]
    if not mutant.lines:
        found = [test for test in tests if any(note.startswith(mutant.path) for note in test.notes)]
        found = found or [test for test in tests if test.name.startswith(room)]
    found.sort(key=lambda test: (stem not in test.name, room not in test.name, test.seconds))
    total = itertools.accumulate(test.seconds for test in found)
    return [test for test, spent in zip(found, total, strict=True) if spent <= seconds] or found[:1]


def judge(mutant: Mutant, trial: Trial, tests: list[Test]) -> str:
    """What became of a mutant. Where no recorded test executes it, nothing is known of it."""
    if not tests:
        return "not judged"
    before = (trial.root / mutant.path).read_text()
    trial.write(mutant.path, mutant.text)
    code = trial.pytest(20 + 2 * sum(test.seconds for test in tests), "-x", *(test.name for test in tests))
    trial.write(mutant.path, before)
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "not judged"
    return "timed out" if code is None else "killed" if code else "survived"


def main() -> int:
    """Print how each mutant fared. The exit code is 1 where one survived."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / package for package in PACKAGES])
    parser.add_argument("--number", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, required=True, help="the same seed makes the same mutants")
    parser.add_argument("--seconds", type=float, default=60, help="how long the tests of one mutant may take")
    options = parser.parse_args()
    found = ([path] if path.is_file() else path.rglob("*.py") for path in options.paths)
    modules = sorted(module.resolve() for module in itertools.chain(*found))
    possible = [mutant for module in modules for mutant in mutants(module)]
    sample = random.Random(options.seed).sample(possible, min(options.number, len(possible)))  # noqa: S311
    listed = {line.rpartition(" | ")[0] for line in EQUIVALENT.read_text().splitlines()}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as recording, tempfile.TemporaryDirectory() as folder:
        tests = [*recorded(Trial(recording), {module.parent.relative_to(ROOT) for module in modules})]
        trial = Trial(folder)
        for mutant in sample:
            near, is_listed = (
                chosen(mutant, tests, options.seconds),
                f"{mutant.path} | {mutant.changed}" in listed,
            )
            verdict = "equivalent" if is_listed else judge(mutant, trial, near)
            counts[verdict] += 1
            print(f"{verdict:10} {mutant.path} | {mutant.changed} | after {len(near)} tests", flush=True)
            if verdict == "survived":
                old, new = (ROOT / mutant.path).read_text().splitlines(), mutant.text.splitlines()
                print(*difflib.unified_diff(old, new, n=1, lineterm=""), sep="\n", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return bool(counts["survived"])


if __name__ == "__main__":
    sys.exit(main())
