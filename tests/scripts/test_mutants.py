"""Mutants: which changes are made to a module, and which tests judge them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from coverage import CoverageData

from common.cli import completion
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
    condition = 'not pair.one <= LIMIT and f"{pair.one + 1}" in names'
    made = [*mutants("module.py", MODULE.encode())]
    assert {mutant.path for mutant in made} == {"module.py"}
    assert sorted(mutant.changed.replace("'", '"') for mutant in made) == sorted(
        [
            f"if (False and ({condition})):",
            f"if ({condition.replace(' and ', ' or ')}):",
            f"if (pair.one <= LIMIT) and {condition.partition(' and ')[2]}:",
            f"if not (pair.one < LIMIT) and {condition.partition(' and ')[2]}:",
            f"if not pair.one <= LIMIT and ({condition.partition(' and ')[2].replace(' in ', ' not in ')}):",
            "return (False)",
            "return (pair.other is not None)",
        ]
    )
    assert [mutant.line for mutant in made if mutant.changed == "return (False)"] == [21]


@pytest.mark.parametrize("name", ["common/net/retry.py", "fleetgauge/compute/slurm.py"])
def test_every_mutant_is_python_and_differs_from_the_module(name: str) -> None:
    before = ast.dump(ast.parse((ROOT / name).read_text()))
    made = [*mutants(name, (ROOT / name).read_bytes())]
    assert len(made) > 20
    assert before not in {ast.dump(ast.parse(mutant.text)) for mutant in made}


def test_tests_that_execute_the_statement_are_chosen_nearest_first() -> None:
    path = "common/net/retry.py"
    near, beside = "tests/common/net/test_retry.py::test_near", "tests/common/net/test_http.py::test_beside"
    far = "tests/collectors/test_far.py::test_far"
    lines = CoverageData(no_disk=True)
    for test, executed in ((far, [3]), (beside, [3, 5]), (near, [3])):
        lines.set_context(test)
        lines.add_lines({str(ROOT / path): executed})
    chosen = {line: choose(Mutant(path, line, "", ""), [lines]) for line in (2, 3, 5, 8)}
    assert chosen == {2: [], 3: [near, beside, far], 5: [beside], 8: [beside]}


@pytest.mark.slow
def test_lines_that_child_processes_execute_are_recorded_too(tmp_path: Path) -> None:
    name = "tests/common/cli/test_completion.py"
    lines = record(ROOT / name, tmp_path / "notes")
    executed = lines.contexts_by_lineno(str(ROOT / "common" / "cli" / "completion.py"))
    begin = inspect.getsourcelines(completion.script)[1]
    assert {
        f"{name}::test_bash_completes_names_options_and_files",  # in a process of its own
        f"{name}::test_script_knows_which_options_take_a_file_a_value_or_nothing",  # in that of pytest
    } <= {test for line, tests in executed.items() if line > begin for test in tests}
