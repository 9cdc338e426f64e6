"""What `scripts/lint` refuses and what `scripts/format` puts right, each planted in a small copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.checkout import Checkout

pytestmark = pytest.mark.slow

CLEAN = '"""A module."""\n\nNUMBER: int = 1\n'


@pytest.fixture
def small(tmp_path: Path) -> Checkout:
    """As much of the repository as the quick tools look at; what they pass over is not there."""
    scripts = ("scripts/lint", "scripts/format", "scripts/environment", ".ci")
    copy = Checkout(tmp_path, "pyproject.toml", ".yamllint.yaml", "Dockerfile", "locks/dev.txt", *scripts)
    (tmp_path / "module.py").write_text(CLEAN)
    return copy


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("module.py", '"""A module."""\n\nimport os\n', "F401"),
        ("module.py", CLEAN.replace(": int = 1", ":int=1"), "would be reformatted"),
        ("scripts/odd", '#!/usr/bin/env bash\necho "$1" | grep $1\n', "SC2086"),
        ("Dockerfile", "FROM python\nRUN cd /tmp\n", "DL3003"),
        ("file.yaml", "key:   value\n", "too many spaces after colon"),
        ("module.py", CLEAN.replace("1", '"one"'), "Incompatible types in assignment"),
    ],
    ids=["ruff", "format", "shellcheck", "hadolint", "yamllint", "mypy"],
)
def test_a_planted_error_fails_the_lint_and_is_named(
    small: Checkout, name: str, text: str, complaint: str
) -> None:
    (small.root / name).write_text(text)
    ran = small.run("scripts/lint")
    assert ran.returncode != 0
    assert complaint in ran.stdout + ran.stderr


def test_formatting_puts_layout_and_imports_right(small: Checkout) -> None:
    untidy = '"""A module."""\nimport sys\nimport os\nprint( os.sep,sys.path )\n'
    (small.root / "module.py").write_text(untidy)
    assert small.run("scripts/format").returncode == 0
    assert (small.root / "module.py").read_text() == (
        '"""A module."""\n\nimport os\nimport sys\n\nprint(os.sep, sys.path)\n'
    )
