"""What a run reports besides its series: lost units, and what was dropped."""

from __future__ import annotations

import pytest

from common.errors import SourceError
from common.outcome import Report


@pytest.mark.parametrize("why", [SourceError("gone"), OSError("gone"), "gone"])
def test_a_reason_that_is_understood_is_one_line(
    caplog: pytest.LogCaptureFixture, why: Exception | str
) -> None:
    report = Report()
    report.lose("a file", why)
    [record] = caplog.records
    assert (record.levelname, record.getMessage(), record.exc_info) == ("WARNING", "lost a file: gone", None)
    assert report.lost == ["a file: gone"]


def test_a_defect_is_that_units_loss_and_leaves_its_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = Report()
    try:
        {"there": 1}["missing"]
    except KeyError as error:
        report.lose("a file", error)
    assert "lost a file: unexpected error" in caplog.text
    assert "Traceback" in caplog.text
    assert report.lost == ["a file: unexpected error: KeyError: 'missing'"]


def test_drops_are_counted_by_reason_with_the_first_example() -> None:
    report = Report()
    report.drop("odd")
    report.drop("odd", 2, example="line 7")
    report.drop("odd", example="line 9")
    report.drop("old", 5)
    assert report.dropped == {"odd": 4, "old": 5}
    assert report.examples == {"odd": "line 7"}
