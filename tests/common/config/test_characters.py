"""A credential is printable ASCII without spaces, and what is wrong with one is said without repeating it."""

from __future__ import annotations

import pytest

from common.config.characters import flaw


def test_every_printable_character_but_the_space_may_be_part_of_a_credential() -> None:
    assert flaw("".join(map(chr, range(ord("!"), ord("~") + 1)))) is None
    assert flaw("") is None


@pytest.mark.parametrize(
    ("character", "said"),
    [
        (" ", "a space"),
        ("\u00a0", "a space"),
        ("\t", "a tab"),
        *((one, "a line break") for one in "\r\n\x85\u2028\u2029"),
        ("\x7f", "a control character"),
        ("\u200b", "an invisible character, such as a zero-width space"),
        ("\udcff", "bytes that are not UTF-8"),
        ("ä", "a letter that is not ASCII"),
        ("€", "a character that is not ASCII"),
    ],
)
def test_any_other_character_is_named_by_its_kind(character: str, said: str) -> None:
    assert flaw(f"key{character}") == f"it holds {said}; a credential is printable ASCII without spaces"
