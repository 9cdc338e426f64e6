"""How Datadog spells tags, and what it takes for a host."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.names import is_host, is_stored_as_it_is, normalise_tag
from support.servers.series import normalised


@pytest.mark.parametrize(
    ("tag", "stored"),
    [
        ("project:Ants", "project:ants"),
        ("project:a b+c", "project:a_b_c"),
        ("project:", "project"),
        ("_1:a", "a"),
        ("p:" + "x" * 300, "p:" + "x" * 198),
        ("9", ""),
        ("", ""),
        ("team:Ämter", "team:ämter"),
        ("team:A\u0308mter", "team:ämter"),  # the same letters, written in two parts
        ("команда:Альфа", "команда:альфа"),
        ("٣:a", "a"),
        ("p:٣", "p:٣"),
        ("p:½²Ⅷ", "p:___"),  # numbers, and no digits
        ("p:q\u0308", "p:q_"),  # no letter of its own
        ("p:\ud800", "p:_"),
        ("p:a\x1b[31m\nb", "p:a__31m_b"),
    ],
)
def test_a_tag_is_spelled_as_datadog_stores_it(tag: str, stored: str) -> None:
    assert normalise_tag(tag) == stored


@given(st.text() | st.text("aZ9:_-./ é\u0301İΣßK", max_size=250))
def test_spelling_it_is_idempotent_composed_and_what_the_intake_does(tag: str) -> None:
    spelled = normalise_tag(tag)
    assert spelled == normalised(tag) == normalise_tag(spelled)
    assert spelled == unicodedata.normalize("NFC", spelled)
    assert len(spelled) <= 200


@given(st.text("aZ9:,_./- é", max_size=8) | st.text("az:", min_size=195, max_size=205))
def test_what_is_seen_to_be_stored_as_it_is_is(tag: str) -> None:
    assert is_stored_as_it_is("project:a_b-c.d/9")
    assert not is_stored_as_it_is(tag) or normalised(tag) == tag


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        *((name, True) for name in ("n", "A1", "gpu_07", "node-1.lan", "10.0.0.1", "a" * 255, "localhost7")),
        *((name, False) for name in ("", "-a", "a-", "a b", "a/b", "ä", "a" * 256, "LocalHost6")),
    ],
)
def test_a_host_is_a_name_of_one_machine(name: str, taken: bool) -> None:
    assert is_host(name) is taken
