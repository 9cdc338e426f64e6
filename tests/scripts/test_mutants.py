"""Mutants: which changes are made to a module, and that every one of them is still Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from project import ROOT
from scripts.mutants import EQUIVALENT
from scripts.mutations import mutants

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


def test_a_line_is_changed_in_every_way_that_could_matter_and_in_no_other(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    condition = 'not pair.one <= LIMIT and f"{pair.one + 1}" in names'
    made = [*mutants(tmp_path / "module.py", tmp_path)]
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
    assert swapped.lines == ("return True", "return True")
    [outside] = [mutant for mutant in made if mutant.changed == "TABLE = ((2), 65_536)"]
    assert outside.lines == ()


@pytest.mark.parametrize("name", ["common/net/retry.py", "fleetgauge/compute/slurm.py"])
def test_every_mutant_is_python_and_differs_from_the_module(name: str) -> None:
    before = ast.dump(ast.parse((ROOT / name).read_text()))
    made = [*mutants(ROOT / name, ROOT)]
    assert len(made) > 20
    assert before not in {ast.dump(ast.parse(mutant.text)) for mutant in made}


def test_every_equivalent_mutant_can_be_made_and_has_a_reason() -> None:
    first, *lines = EQUIVALENT.read_text().splitlines()
    assert first.startswith("#")
    paths = {line.partition(" | ")[0] for line in lines}
    made = {(path, mutant.changed) for path in paths for mutant in mutants(ROOT / path, ROOT)}
    for line in lines:
        path, _, rest = line.partition(" | ")
        changed, _, reason = rest.rpartition(" | ")
        assert (path, changed) in made, line
        assert len(reason) > 10
