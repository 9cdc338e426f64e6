"""Do the tests notice? Random mutants of our code, one at a time, each judged by the tests that execute it.

Everything happens in a copy of the tree. What each test executes is recorded once, and again for a file of
tests that has changed. (mutmut and cosmic-ray neither sample nor see the processes that most tests start.)
"""

from __future__ import annotations

import argparse
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
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts import record_lines
from scripts.mutations import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "common", ROOT / "collectors", ROOT / "fleetgauge"]
CACHE = ROOT / ".mutants_cache"  # by the digest of a file of tests: what each of its tests executes
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.txt"  # path | the changed line | reason
DOCUMENTS = "tests/test_documents.py"  # made from what modules declare


class Test(NamedTuple):
    name: str
    seconds: float
    notes: set[str]


class Trial:
    """A copy of the tree, and pytest in it: in a fork of this process, which has imported what takes long."""

    def __init__(self, folder: str) -> None:
        self.root, self._seconds = Path(folder, "tree"), itertools.count()
        left_out = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__")
        shutil.copytree(ROOT, self.root, ignore=left_out)
        for environment in ROOT.glob(".venv*"):
            (self.root / environment.name).symlink_to(environment.resolve())
        [*map(importlib.import_module, ("hypothesis", "moto.server", "boto3", "datadog_api_client.v2"))]

    def write(self, name: str, text: str) -> None:
        """Change a file of the copy. Its time is always another, so that no stale bytecode is used."""
        (self.root / name).write_text(text)
        os.utime(self.root / name, (next(self._seconds),) * 2)

    def pytest(self, seconds: float, *arguments: str) -> int | None:
        """The exit code, or nothing where it took longer."""

        def run() -> None:
            os.setsid()
            os.chdir(self.root)
            sys.path[0] = str(self.root / "scripts")
            os.dup2(os.dup2(os.open(os.devnull, os.O_WRONLY), 1), 2)
            quiet = ("-Wignore::pytest.PytestAssertRewriteWarning", "-pno:cacheprovider")
            sys.exit(pytest.main([*quiet, f"--basetemp={self.root.parent}/temporary", *arguments]))

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join(seconds)
        code = process.exitcode
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # also what a mutant left running
        process.join()
        return code


def recorded(trial: Trial, rooms: set[Path]) -> Iterator[Test]:
    """Every test whose file is recorded, or is of one of these rooms and therefore recorded now."""
    notes = trial.root / "scripts" / "notes"
    for module in (str(file.relative_to(ROOT)) for package in PACKAGES for file in package.rglob("*.py")):
        trial.write(module, record_lines.marked(trial.root, module))
    for name in sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")):
        kept = CACHE / hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        if not kept.exists() and (DOCUMENTS in name or Path(name).parent.relative_to("tests") in rooms):
            notes.mkdir()
            print("recorded", name, trial.pytest(150, "-precord_lines", name), flush=True)
            shutil.move(notes, kept)
        for test in kept.iterdir() if kept.exists() else ():
            lines = set(test.read_text().splitlines())
            seconds = sum(float(line[8:]) for line in lines if line.startswith("seconds\t"))
            if seconds and "failed" not in lines:
                yield Test(test.name.replace("|", "/"), seconds, lines)


def chosen(mutant: Mutant, tests: list[Test], seconds: float) -> list[Test]:
    """Tests that execute the line, the nearest first; of a declaration, those of documents and module."""
    near = (f"test_{Path(mutant.path).stem}", f"tests/{Path(mutant.path).parent}/")
    notes = tuple(f"{mutant.path}\t{line}" for line in mutant.lines) or mutant.path
    found = [test for test in tests if any(note.startswith(notes) for note in test.notes)]
    found += [test for test in tests if not mutant.lines and test not in found and DOCUMENTS in test.name]
    found.sort(key=lambda test: (*(part not in test.name for part in (DOCUMENTS, *near)), test.seconds))
    total = itertools.accumulate(test.seconds for test in found)
    return [test for test, spent in zip(found, total, strict=True) if spent <= seconds] or found[:1]


def judge(mutant: Mutant, trial: Trial, tests: list[Test]) -> str:
    """What became of a mutant."""
    trial.write(mutant.path, mutant.text)
    code = trial.pytest(20 + 2 * sum(test.seconds for test in tests), "-x", *(test.name for test in tests))
    trial.write(mutant.path, (ROOT / mutant.path).read_text())
    return {None: "timed out", 0: "survived", 4: "not judged", 5: "not judged"}.get(code, "killed")


def main() -> int:
    """Print how each mutant fared. The exit code is 1 where one survived."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=PACKAGES)
    parser.add_argument("--number", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, required=True, help="the same seed makes the same mutants")
    parser.add_argument("--seconds", type=float, default=300, help="how long its tests took when recorded")
    options = parser.parse_args()
    files = [file.resolve() for path in options.paths for file in [path, *path.rglob("*.py")]]
    modules = sorted(file for file in files if file.is_file())
    possible = [mutant for module in modules for mutant in mutants(module, ROOT)]
    sample = random.Random(options.seed).sample(possible, min(options.number, len(possible)))  # noqa: S311
    listed = {line.rpartition(" | ")[0] for line in EQUIVALENT.read_text().splitlines()}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as recording, tempfile.TemporaryDirectory() as folder:
        tests = [*recorded(Trial(recording), {module.parent.relative_to(ROOT) for module in modules})]
        trial = Trial(folder)
        for mutant in sample:
            name, near = f"{mutant.path} | {mutant.changed}", chosen(mutant, tests, options.seconds)
            verdict = "equivalent" if name in listed else judge(mutant, trial, near) if near else "not judged"
            counts[verdict] += 1
            print(f"{verdict:10} {name} | after {len(near)} tests", flush=True)
            if verdict == "survived":
                old, new = (ROOT / mutant.path).read_text().splitlines(), mutant.text.splitlines()
                print(*difflib.unified_diff(old, new, n=1, lineterm=""), sep="\n", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return bool(counts["survived"])


if __name__ == "__main__":
    sys.exit(main())
