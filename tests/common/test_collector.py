"""A unit that is lost: what the outcome says, and what the log says."""

from __future__ import annotations

import logging

import pytest

from common.collector import Context
from common.config.settings import CollectorSettings
from common.errors import SourceError
from common.net.retry import Deadline
from support.standins import NOW


@pytest.fixture
def context() -> Context[CollectorSettings]:
    log = logging.getLogger("collectors.toy")
    return Context(CollectorSettings(), NOW, NOW, "node", {}, Deadline(60), log)


@pytest.mark.parametrize("why", [SourceError("gone"), OSError("gone"), "gone"])
def test_a_reason_that_is_understood_is_one_line(
    context: Context[CollectorSettings], caplog: pytest.LogCaptureFixture, why: Exception | str
) -> None:
    context.lose("a file", why)
    [record] = caplog.records
    assert (record.levelname, record.getMessage(), record.exc_info) == ("WARNING", "lost a file: gone", None)
    assert context.tally.lost == ["a file: gone"]


def test_a_defect_is_that_units_loss_and_leaves_its_traceback_in_the_log(
    context: Context[CollectorSettings], caplog: pytest.LogCaptureFixture
) -> None:
    try:
        {"there": 1}["missing"]
    except KeyError as error:
        context.lose("a file", error)
    assert "lost a file: unexpected error" in caplog.text
    assert "Traceback" in caplog.text
    assert context.tally.lost == ["a file: unexpected error: KeyError: 'missing'"]
