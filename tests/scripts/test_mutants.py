"""Mutants: which changes are made to a module, and which tests judge them."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path

import pytest
from coverage import CoverageData

from common.cli import completion
from scripts.mutants import chosen, record
from scripts.mutations import Mutant, mutants
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
            "TABLE = ((2), 65_536)",
            "one: int = (1)",
            "one: int = -(2)",
            f"if (False and ({condition})):",
            f"if ({condition.replace(' and ', ' or ')}):",
            f"if (pair.one <= LIMIT) and {condition.partition(' and ')[2]}:",
            f"if not (pair.one < LIMIT) and {condition.partition(' and ')[2]}:",
            f"if not pair.one <= LIMIT and ({condition.partition(' and ')[2].replace(' in ', ' not in ')}):",
            "return (False)",
            "return (pair.other is not None)",
        ]
    )
    [swapped] = [mutant for mutant in made if mutant.changed == "return (False)"]
    assert swapped.line == 21
    [outside] = [mutant for mutant in made if mutant.changed == "TABLE = ((2), 65_536)"]
    assert outside.line == 0


@pytest.mark.parametrize("name", ["common/net/retry.py", "fleetgauge/compute/slurm.py"])
def test_every_mutant_is_python_and_differs_from_the_module(name: str) -> None:
    before = ast.dump(ast.parse((ROOT / name).read_text()))
    made = [*mutants(name, (ROOT / name).read_bytes())]
    assert len(made) > 20
    assert before not in {ast.dump(ast.parse(mutant.text)) for mutant in made}


PATH = "common/net/retry.py"
NEAR, BESIDE = "tests/common/net/test_retry.py::test_near", "tests/common/net/test_http.py::test_beside"
FAR, DOCUMENTS = "tests/collectors/test_far.py::test_far", "tests/test_documents.py::test_documents"
COSTS = {FAR: 1.0, BESIDE: 5.0, NEAR: 20.0, DOCUMENTS: 4.0}


def chosen_for(line: int, costs: dict[str, float] = COSTS, seconds: float = 300) -> list[str]:
    """The first statement is executed by all tests but those of documents, the one of lines 5 to 8 by one."""
    lines = CoverageData(no_disk=True)
    for test, executed in ((NEAR, [3]), (BESIDE, [3, 5]), (FAR, [3])):
        lines.set_context(test)
        lines.add_lines({str(ROOT / PATH): executed})
    return chosen(Mutant(PATH, "", "", line), lines, costs, seconds)


def test_tests_that_execute_the_line_are_chosen_and_the_nearest_come_first() -> None:
    assert chosen_for(3) == [NEAR, BESIDE, FAR]
    assert chosen_for(5) == chosen_for(8) == [BESIDE], "a line within a statement that begins before it"
    assert chosen_for(2) == [], "which nobody executes"


def test_a_declaration_is_judged_by_what_is_generated_from_it_and_by_who_uses_its_module() -> None:
    assert chosen_for(0) == [DOCUMENTS, NEAR, BESIDE, FAR]


def test_of_many_tests_as_many_are_chosen_as_there_is_time_for_and_none_that_fails_anyway() -> None:
    assert chosen_for(3, seconds=25) == [NEAR, BESIDE]
    assert chosen_for(3, {**COSTS, NEAR: math.inf}) == [BESIDE, FAR]


@pytest.mark.slow
def test_what_a_test_executes_is_recorded_in_the_processes_that_it_starts_too(tmp_path: Path) -> None:
    name = "tests/common/cli/test_completion.py"
    record(ROOT / name, tmp_path / "kept")
    lines = CoverageData(str(tmp_path / "kept" / "lines"))
    lines.read()
    executed = lines.contexts_by_lineno(str(ROOT / "common" / "cli" / "completion.py"))
    begin = inspect.getsourcelines(completion.script)[1]
    assert {
        f"{name}::test_script_of_each_shell_has_every_option",  # in a process of its own
        f"{name}::test_script_knows_which_options_take_a_file_a_value_or_nothing",  # in that of pytest
    } <= {test for line, tests in executed.items() if line > begin for test in tests}
    spent = [line.split() for line in (tmp_path / "kept" / "seconds").read_text().splitlines()]
    passed = {test for test, seconds in spent if 0 < float(seconds) < 60}
    assert f"{name}::test_script_of_each_shell_has_every_option" in passed
