"""Mutants: which changes are made to a module, and which tests judge them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants import choose, mutants
from support.project import ROOT

MODULE = '''\
"""A module with 1 + 1 in its text."""
from dataclasses import dataclass

if TYPE_CHECKING:
    from elsewhere import Something

LIMIT = 10 * 2**20
TABLE = (1, 65_536)


@dataclass(frozen=True)
class Pair:
    one: int = -1
    other: int | None = None


def within(pair: Pair, names: list[str]) -> bool:
    for _ in zip(names, names, strict=True):
        continue
    if not pair.one <= LIMIT and f"{pair.one + 1}" in names:
        return True
    return pair.other is None
'''


def test_conditions_operators_and_flags_of_functions_are_changed() -> None:
    condition = "not pair.one <= LIMIT and f'{pair.one + 1}' in names"
    made = [*mutants(MODULE)]
    assert sorted((line, changed) for line, changed, _ in made) == sorted(
        [
            (20, f"if False and ({condition}):"),
            (20, condition.replace(" and ", " or ")),
            (20, "not not pair.one <= LIMIT"),
            (20, "pair.one < LIMIT"),
            (20, "f'{pair.one + 1}' not in names"),
            (21, "False"),
            (22, "pair.other is not None"),
        ]
    )
    texts = [MODULE, *(text for *_, text in made)]
    assert len({ast.dump(ast.parse(text)) for text in texts}) == len(texts)


def test_passing_tests_are_chosen_near_first_then_fastest_in_budget() -> None:
    near, slow, quick, slower, broken = (
        f"tests/test_{name}.py::test" for name in ("retry", "slow", "quick", "slower", "broken")
    )
    seconds = {near: 9.0, slow: 8.0, quick: 0.1, slower: 8.5, broken: float("inf")}
    assert choose(seconds, "retry", seconds, 20) == [near, quick, slow]
    assert choose([slower], "retry", seconds, 1) == [slower]


TREE = {
    "pyproject.toml": '[tool.coverage.paths]\ncommon = ["common", "*/common"]\n',
    "scripts/setup": "",
    "fleetgauge/__init__.py": "",
    "common/__init__.py": "",
    "common/signs.py": """
def is_positive(number): return number > 5
def is_negative(number): return number < 5
def is_zero(number): return number == 5
""",
    "tests/conftest.py": "from hypothesis import settings\nsettings.register_profile('quick')\n",
    "tests/test_signs.py": """
import subprocess, sys
from common.signs import is_negative, is_positive
def test_boundary(): assert not is_positive(5)
def test_nothing(): is_negative(4)
def test_child():
    subprocess.run([sys.executable, "-c", "from common.signs import is_zero; assert is_zero(5)"], check=True)
""",
}


@pytest.mark.slow
def test_each_mutant_is_judged_by_the_tests_that_execute_it(tmp_path: Path) -> None:
    for name, content in TREE.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    results = tmp_path / "found" / "results.txt"
    command = [sys.executable, str(ROOT / "scripts" / "mutants.py"), "common/signs.py", "--seed=7"]
    command += [f"--tree={tmp_path}/tree", f"--folder={results.parent}"]
    subprocess.run(command, check=True, timeout=120)
    judged = {tuple(line.split(maxsplit=2)[1:]) for line in results.read_text().splitlines()}
    assert judged >= {
        ("killed", "common/signs.py:2 number >= 5"),
        ("survived", "common/signs.py:3 number <= 5"),
        ("killed", "common/signs.py:4 number != 5"),
    }
    before = results.read_text().splitlines(keepends=True)
    results.write_text("".join(before[1:]))
    subprocess.run(command, check=True, timeout=120)
    assert sorted(results.read_text().splitlines(keepends=True)) == sorted(before)
