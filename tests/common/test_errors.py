"""What several errors say together."""

from __future__ import annotations

from common.errors import RefusedError, SourceError, combine_errors


def test_single_error_stays_as_it_is_and_of_several_each_text_counts_once() -> None:
    alone, gone = RefusedError("no", status=400), SourceError("a is gone")
    assert combine_errors([alone]) is alone
    assert str(combine_errors([gone, SourceError("c is gone"), gone])) == "a is gone; c is gone"
