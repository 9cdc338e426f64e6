"""Change random expressions of our code, and run the tests that execute them, in a copy of a tree.

What each test executes is recorded first, in processes that it starts too. The same command continues an
interrupted one, and judges anew what was deleted from the results.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

PAIRS: list[tuple[type, type]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.FloorDiv, ast.Mult), (ast.Div, ast.Mult)),
]
SWAPS = {**dict(PAIRS), **{second: first for first, second in PAIRS}}
VERDICTS = {0: "survived", 4: "not-started", 5: "not-executed"}
# Added to what every process of ours imports; children are given no variable that could name the test.
START = f"""
import os, sys
if os.path.exists("FOLDER/now"):
    sys.path.append("{Path(pytest.__file__).parent.parent}")
    import coverage
    if coverage.Coverage.current() is None:
        coverage.Coverage("FOLDER/lines", data_suffix=True, config_file="FOLDER/tree/pyproject.toml",
                          auto_data=True, context=open("FOLDER/now").read()).start()
"""


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


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield a line, an expression of a function as it becomes there, and the text of the module with it."""
    tree = ast.parse(source)
    below = dict.fromkeys(n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f))
    texts = [n for n in below if isinstance(n, ast.JoinedStr) or getattr(n, "arg", "") == "strict"]
    ignored = {node for text in texts for node in ast.walk(text)}
    for node in below:
        if isinstance(node, ast.expr | ast.stmt) and node not in ignored and (changed := change(node)):
            before = getattr(node, changed[0])
            setattr(node, *changed)
            yield node.lineno, ast.unparse(node).splitlines()[0], ast.unparse(tree)
            setattr(node, changed[0], before)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that from now on everything is executed by this test; pytest calls it."""
    Path(os.environ["MUTANTS"], "now").write_text(nodeid.partition("[")[0])
    if recording := Coverage.current():
        recording.switch_context(nodeid.partition("[")[0])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test took, forever if it fails without any mutant; pytest calls it."""
    with Path(os.environ["MUTANTS"], "seconds").open("a") as file:
        print(report.nodeid.partition("[")[0], "inf" if report.failed else report.duration, file=file)


def run_pytest(folder: Path, limit: int, *arguments: str) -> int:
    """Run pytest in the copy; return its exit code, -9 beyond a limit in seconds (0: none)."""
    command = ["timeout", "--signal=KILL", str(limit), sys.executable, "-m", "pytest", "-n0", *arguments]
    command += ["-pno:cacheprovider", "--hypothesis-profile=quick", f"--basetemp={folder}/temporary"]
    env = {**os.environ, "CI": "true", "MUTANTS": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(command, cwd=folder / "tree", env=env, capture_output=True, check=False).returncode


def record(folder: Path, tier: str) -> None:
    """Note which lines each test executes, and how long it takes."""
    for module in ("common/__init__.py", "fleetgauge/__init__.py"):
        with (folder / "tree" / module).open("a") as file:
            file.write(START.replace("FOLDER", str(folder)))
    (folder / "now").touch()
    run_pytest(folder, 0, "-pscripts.mutants", "-m", tier)
    (folder / "now").unlink()
    command = [sys.executable, "-m", "coverage", "combine", "-q", f"--data-file={folder}/lines"]
    subprocess.run(command, check=True)


def choose(found: Iterable[str], stem: str, seconds: dict[str, float], budget: float) -> list[str]:
    """Return tests that pass, those of the module first, then the fastest, as many as the budget allows."""
    order = sorted((f"/test_{stem}.py" not in t, seconds[t], t) for t in found if 0 < seconds[t] < 1e9)
    spent = [*accumulate(took for _, took, _ in order)]
    return [test for at, (*_, test) in enumerate(order) if not at or spent[at] <= budget]


def main() -> None:
    """Append a line for each mutant that the results lack: a number, the verdict, and what was changed."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="modules and folders of the tree")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="whose code and tests")
    parser.add_argument("--folder", type=Path, required=True, help="of the results, and what is recorded")
    parser.add_argument("--seed", type=int, required=True, help="the same seed makes the same mutants")
    parser.add_argument("--count", type=int, default=50, help="how many mutants")
    parser.add_argument("-m", default="not slow", help="which tests, as pytest has it")
    options = parser.parse_args()
    folder = options.folder.resolve()
    os.chdir(options.tree)  # coverage finds the modules from here
    ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis")
    copy = Path(shutil.copytree(".", folder / "tree", ignore=ignored, dirs_exist_ok=True))
    shutil.copy(__file__, copy / "scripts" / "mutants.py")  # an older tree may have another
    if not (folder / "lines").exists():
        record(folder, options.m)
    lines = CoverageData(str(folder / "lines"))
    lines.read()
    seconds: dict[str, float] = defaultdict(float)
    for test, took in map(str.split, (folder / "seconds").read_text().splitlines()):
        seconds[test] += float(took)
    files = sorted({f for path in options.paths for f in [path, *path.rglob("*.py")] if f.is_file()})
    possible = [(file, *mutant) for file in files for mutant in mutants(file.read_text())]
    random.Random(options.seed).shuffle(possible)  # noqa: S311
    with (folder / "results.txt").open("a+") as file:
        file.seek(0)
        judged = {line.split()[0] for line in file}
        for number, (path, line, changed, text) in enumerate(possible[: options.count], 1):
            if (name := f"{options.seed}/{number}") not in judged:
                contexts = lines.contexts_by_lineno(str(path.resolve()))
                statement = max((start for start in contexts if start <= line), default=0)
                tests = choose(contexts.get(statement, ()), path.stem, seconds, 20)
                (copy / path).write_text(text)
                code = run_pytest(folder, 160, "-x", *tests) if tests else 5
                shutil.copy2(path, copy / path)
                print(name, VERDICTS.get(code, "killed"), f"{path}:{line}", changed, file=file, flush=True)


if __name__ == "__main__":
    main()
