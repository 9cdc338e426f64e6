"""Do the tests notice? Random mutants of our code, each judged by the tests that execute the changed line.

Everything happens in copies of the tree, as many at once as there are processors. What a test executes, also
in processes that it starts, is recorded once; of a process that is killed nothing is known. (mutmut and
cosmic-ray neither sample nor see these processes.)
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

from scripts.mutations import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "common", ROOT / "collectors", ROOT / "fleetgauge"]
TESTS = ROOT / "tests"
DOCUMENTS = TESTS / "test_documents.py"  # made from what modules declare
ELSEWHERE = (DOCUMENTS, TESTS / "scripts" / "test_provision.py")  # what is tested outside of its room
CACHE = ROOT / ".mutants_cache"  # what tests execute, by the digest of our code and of a file of tests
SETTINGS = str(ROOT / "pyproject.toml")
NOTES = Path(os.environ.get("MUTANTS_NOTES", os.devnull))  # for the plugin of pytest that records
FIRST = ("common/__init__.py", "fleetgauge/__init__.py")  # every process of ours imports one of them
START = f"""
import sys
sys.path.append("{Path(pytest.__file__).parent.parent}")  # which a process may have left out
import coverage
if coverage.Coverage.current() is None:  # children are given no variable that could name the test
    _options = {{"context": open("NOTES/now").read(), "config_file": "{SETTINGS}", "auto_data": True}}
    coverage.Coverage("NOTES/lines", **_options).start()
"""


def pytest_runtest_logstart(nodeid: str) -> None:
    """From now on everything is executed by this test function."""
    (NOTES / "now").write_text(nodeid.partition("[")[0])
    if recording := Coverage.current():
        recording.switch_context(nodeid.partition("[")[0])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What the test costs. One that does not pass could tell nothing."""
    with (NOTES / "seconds").open("a") as seconds:
        print((NOTES / "now").read_text(), report.duration if report.passed else "inf", file=seconds)


def trial(seconds: float, changes: dict[str, str], *arguments: str, notes: str = "") -> int:
    """The exit code of pytest in a copy of the tree with these files changed; -9 where it took longer."""
    left_out = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(shutil.copytree(ROOT, Path(folder, "tree"), ignore=left_out))
        for environment in ROOT.glob(".venv*"):
            (root / environment.name).symlink_to(environment.resolve())
        for name, text in changes.items():
            (root / name).write_text(text)
        command = ["timeout", "--signal=KILL", str(seconds), sys.executable, "-m", "pytest", *arguments]
        command += ["-pno:cacheprovider", f"--basetemp={folder}/temporary"]
        given = {**os.environ, "CI": "true", "MUTANTS_NOTES": notes}  # the same examples each time
        return subprocess.run(command, cwd=root, env=given, capture_output=True, check=False).returncode


def record(file: Path, kept: Path) -> None:
    """Keep what each test of a file executes and costs, unless it is known."""
    if not (kept / "lines").exists():
        shutil.rmtree(kept, ignore_errors=True)  # of a run that was ended
        kept.mkdir(parents=True)
        for note in ("now", "seconds"):
            (kept / note).touch()
        changes = {first: (ROOT / first).read_text() + START.replace("NOTES", str(kept)) for first in FIRST}
        name = str(file.relative_to(ROOT))
        print("recorded", name, trial(900, changes, "-pscripts.mutants", name, notes=str(kept)), flush=True)
        whole = Coverage(kept / "lines", config_file=SETTINGS)
        whole.combine([str(kept)])
        whole.save()


def recorded(rooms: set[Path], pool: ThreadPoolExecutor) -> tuple[CoverageData, dict[str, float]]:
    """What the tests of these rooms execute and cost."""
    code = b"".join(file.read_bytes() for package in PACKAGES for file in sorted(package.rglob("*.py")))
    files = [file for file in sorted(TESTS.rglob("test_*.py")) if file.parent in rooms or file in ELSEWHERE]
    kept = [CACHE / hashlib.sha256(code + file.read_bytes()).hexdigest() for file in files]
    [*pool.map(record, files, kept)]
    costs: defaultdict[str, float] = defaultdict(float)
    for line in "".join((folder / "seconds").read_text() for folder in kept).splitlines():
        costs[line.split()[0]] += float(line.split()[1])
    whole = Coverage(None, config_file=SETTINGS)
    whole.combine([str(folder / "lines") for folder in kept if (folder / "lines").exists()], keep=True)
    return whole.get_data(), costs


def chosen(mutant: Mutant, lines: CoverageData, costs: dict[str, float], seconds: float) -> list[str]:
    """Tests that execute the line, the nearest first; of a declaration, those of documents and module."""
    executed = lines.contexts_by_lineno(str(ROOT / mutant.path))
    begin = max((number for number in executed if number <= mutant.line), default=0)  # of its statement
    found = {*executed.get(begin, ())} if mutant.line else {*chain(*executed.values())}
    near = (DOCUMENTS.name, f"test_{Path(mutant.path).stem}.py", f"tests/{Path(mutant.path).parent}/")
    found |= {test for test in costs if near[0] in test and not mutant.line}
    tests = [test for test in costs if test in found and costs[test] <= seconds]
    tests.sort(key=lambda test: (*(part not in test for part in near), costs[test]))
    total = accumulate(costs[test] for test in tests)
    return [test for test, spent in zip(tests, total, strict=True) if spent <= seconds]


def judge(mutant: Mutant, tests: list[str], seconds: float) -> str:
    """What became of a mutant."""
    code = trial(30 + 3 * seconds, {mutant.path: mutant.text}, "-x", *tests) if tests else 5
    return {-9: "timed out", 0: "survived", 5: "not judged"}.get(code, "killed")


def main() -> int:
    """Print how each mutant fared. The exit code is 1 where one survived."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=PACKAGES)
    parser.add_argument("--number", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, required=True, help="the same seed makes the same mutants")
    parser.add_argument("--seconds", type=float, default=300, help="how long its tests took when recorded")
    options = parser.parse_args()
    files = [file.resolve() for path in options.paths for file in [path, *path.rglob("*.py")]]
    modules = [file.relative_to(ROOT) for file in sorted(files) if file.is_file()]
    possible = [one for module in modules for one in mutants(str(module), (ROOT / module).read_bytes())]
    sample = random.Random(options.seed).sample(possible, min(options.number, len(possible)))  # noqa: S311
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines, costs = recorded({TESTS / module.parent for module in modules}, pool)
        near = [chosen(mutant, lines, costs, options.seconds) for mutant in sample]
        verdicts = pool.map(judge, sample, near, [sum(costs[test] for test in tests) for tests in near])
        for mutant, tests, verdict in zip(sample, near, verdicts, strict=True):
            counts[verdict] += 1
            print(f"{verdict:10} {mutant.path} | {mutant.changed} | after {len(tests)} tests", flush=True)
            if verdict == "survived":
                old, new = (ROOT / mutant.path).read_text().splitlines(), mutant.text.splitlines()
                print(*difflib.unified_diff(old, new, n=1, lineterm=""), sep="\n", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return bool(counts["survived"])


if __name__ == "__main__":
    sys.exit(main())
