"""What an error says, and whether a person has to mend it."""

from __future__ import annotations

import signal

import pytest

from common.errors import ConfigurationError, DeadlinePassed, Interrupted, RefusedError, SourceError, together


def test_one_error_stays_as_it_is() -> None:
    alone = RefusedError("no", status=400)
    assert together([alone]) is alone


def test_several_are_one_that_a_person_has_to_mend_where_any_of_them_is() -> None:
    gone, odd = SourceError("a is gone"), ConfigurationError("b is odd")
    both = together([gone, odd])
    assert (type(both), str(both), both.configuration) == (ConfigurationError, "a is gone; b is odd", True)
    twice = together([gone, SourceError("c is gone"), gone])
    assert (type(twice), str(twice), twice.configuration) == (SourceError, "a is gone; c is gone", False)


@pytest.mark.parametrize(
    ("status", "mended"), [(400, False), (401, True), (403, True), (404, True), (413, False), (None, False)]
)
def test_a_refusal_is_mended_by_whoever_has_the_key_or_the_address(status: int | None, mended: bool) -> None:
    assert RefusedError("no", status=status).configuration is mended


def test_an_interruption_says_what_came() -> None:
    assert str(Interrupted(signal.SIGTERM)) == "interrupted by SIGTERM"
    assert str(DeadlinePassed(1.5, "while waiting")) == "its deadline of 1.5 s passed while waiting"
    assert str(DeadlinePassed(2.0, "")) == "its deadline of 2 s passed"
