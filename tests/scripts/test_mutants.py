"""Mutants: which changes are made to a module, and which tests judge them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from coverage import CoverageData

from common import signals
from scripts.mutants import Mutant, choose, mutants, record
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


def test_a_line_is_changed_in_every_way_that_could_matter_and_in_no_other() -> None:
    condition = "not pair.one <= LIMIT and f'{pair.one + 1}' in names"
    made = [*mutants("module.py", MODULE)]
    assert {mutant.path for mutant in made} == {"module.py"}
    assert sorted(mutant.changed for mutant in made) == sorted(
        [
            f"if False and ({condition}):",
            condition.replace(" and ", " or "),
            "not not pair.one <= LIMIT",
            "pair.one < LIMIT",
            "f'{pair.one + 1}' not in names",
            "False",
            "pair.other is not None",
        ]
    )
    assert [mutant.line for mutant in made if mutant.changed == "False"] == [21]
    for name in ("common/net/retry.py", "fleetgauge/compute/slurm.py"):
        source = (ROOT / name).read_text()
        texts = [mutant.text for mutant in mutants(name, source)]
        assert len({ast.dump(ast.parse(text)) for text in [source, *texts]}) == 1 + len(texts) > 20


def test_tests_that_execute_the_statement_are_chosen_nearest_first() -> None:
    path = "common/net/retry.py"
    near, beside = "tests/common/net/test_retry.py::test_near", "tests/common/net/test_http.py::test_beside"
    lines = CoverageData(no_disk=True)
    for test, executed in ((beside, [3, 5]), (near, [3])):
        lines.set_context(test)
        lines.add_lines({str(ROOT / path): executed})
    chosen = {line: choose(Mutant(path, line, "", ""), [lines]) for line in (2, 3, 5, 8)}
    assert chosen == {2: ["tests/conftest.py"], 3: [near, beside], 5: [beside], 8: [beside]}


@pytest.mark.slow
def test_lines_that_child_processes_execute_are_recorded_too(tmp_path: Path) -> None:
    lines = record(ROOT / "tests/common/test_signals.py", tmp_path / "notes")
    executed = lines.contexts_by_lineno(str(ROOT / "common" / "signals.py"))
    definition = inspect.getsourcelines(signals.install)[1]
    # pytest imports the module before the first test; within a test, only a process that it starts does.
    assert [test for test in executed[definition] if test.startswith("tests/common/test_signals.py::test_")]
