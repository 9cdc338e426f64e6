"""The runbook: every symptom has its place, and every message that it quotes is what a test sees happen.

`data/runbook.toml` names for each message a test that has it produced and asserts it. The text of that test
(its own, of its parameters, and of what it refers to in its module) holds the message word for word, so that
neither the runbook nor the code can change it alone.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from support.project import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
PRODUCED: dict[str, str] = tomllib.loads((ROOT / "tests" / "data" / "runbook.toml").read_text())


def quoted() -> Iterator[str]:
    """What the page quotes in front of a row; `...` stands for what differs."""
    tables = re.findall(r"^\| message \|.*\n\| --- \| --- \|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    for row in "".join(tables).splitlines():
        yield from re.findall(r"`([^`]+)`", row.split(" | ")[0])


def texts(node: ast.AST, known: Mapping[str, ast.AST]) -> Iterator[str]:
    """The texts of a piece of code and of what it names; what is filled in is NUL, and nothing is escaped."""
    for each in ast.walk(node):
        if isinstance(each, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in each.values)
            yield "".join(map(str, parts)).replace("\\", "")
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value.replace("\\", "")
        elif isinstance(each, ast.Name) and each.id in known:
            yield from texts(known[each.id], {})


@cache
def asserted(test: str) -> tuple[str, ...]:
    """The texts of a test, which is named as pytest names it."""
    path, *names = test.split("::")
    body = ast.parse((ROOT / "tests" / path).read_text()).body
    known: dict[str, ast.AST] = {}
    for each in body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            known[each.targets[0].id] = each.value
        elif isinstance(each, ast.FunctionDef):
            known[each.name] = each
    for name in names:
        [found] = [
            one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name
        ]
        body = found.body
    assert names[-1].startswith("test_")
    return tuple(texts(found, known))


def has(test: str, message: str) -> bool:
    """Whether one text of a test holds all pieces of a message in their order."""
    pieces = [piece.strip() for piece in message.split("...")]
    pattern = re.compile(".*".join(re.escape(piece) for piece in pieces if piece), re.DOTALL)
    return any(pattern.search(text) for text in asserted(test))


def test_the_runbook_has_every_symptom() -> None:
    headings = re.findall(r"^## (.*)", PAGE, re.MULTILINE)
    assert headings[:7] == ["Silent", "Zero", "Doubled", "Late", "Too many series", "403", "OOM"]


def test_every_message_has_a_test_that_produces_it() -> None:
    assert [*PRODUCED] == [*dict.fromkeys(quoted())]


@pytest.mark.parametrize("message", PRODUCED)
def test_the_test_asserts_the_message_of_the_runbook(message: str) -> None:
    assert has(PRODUCED[message], message)


def test_a_message_that_differs_by_a_word_would_be_noticed() -> None:
    message = "the points from ... were not sent and are too old; to send them: ..."
    assert has(PRODUCED[message], message)
    assert not has(PRODUCED[message], message.replace("not sent", "sent"))
    assert not has(PRODUCED["interrupted by ..."], message)
