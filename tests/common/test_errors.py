"""What several errors say together, and which of them a person must correct."""

from __future__ import annotations

import pytest

from common.errors import ConfigurationError, RefusedError, SourceError, combine_errors


def test_single_error_is_returned_as_it_is() -> None:
    alone = RefusedError("no", status=400)
    assert combine_errors([alone]) is alone


def test_several_errors_are_of_configuration_where_any_is() -> None:
    gone, odd = SourceError("a is gone"), ConfigurationError("b is odd")
    both = combine_errors([gone, odd])
    assert (type(both), str(both), both.configuration) == (ConfigurationError, "a is gone; b is odd", True)
    twice = combine_errors([gone, SourceError("c is gone"), gone])
    assert (type(twice), str(twice), twice.configuration) == (SourceError, "a is gone; c is gone", False)


@pytest.mark.parametrize(
    ("status", "configuration"),
    [(400, False), (401, True), (403, True), (404, True), (413, False), (None, False)],
)
def test_refusal_of_key_or_address_is_a_configuration_error(status: int | None, configuration: bool) -> None:
    assert RefusedError("no", status=status).configuration is configuration
