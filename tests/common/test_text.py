"""Text of strangers, made safe to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ä 一", "plain text, ä 一"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("ä\n一", r"ä\n一"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202egnp.exe\u2028\u200b", r"\u202egnp.exe\u2028\u200b"),
        ("\udcff.jsonl", r"\udcff.jsonl"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_would_not_show_itself_is_written_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters()))
def test_whatever_it_was_can_be_printed_on_one_line(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(text).encode().decode() == visible(text)
    assert visible(visible(text)) == visible(text)
