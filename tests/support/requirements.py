"""What some tests need beyond Python, and the list of what a run skipped for want of it.

A requirement has the name of the package or environment that `.ci/run` installs. A test that lacks one
skips with the reason `needs NAME: why`. The hooks here, which `tests/conftest.py` gives to pytest, list these
reasons at the end of a run, and fail the run if `--required` names one of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from typing import NoReturn

import pytest

REASON = re.compile(r"needs ([^:\s]+(?:, [^:\s]+)*): .")


def needs(name: str, available: object, why: str = "it is not installed") -> pytest.MarkDecorator:
    """Return a mark that skips a test where a requirement is not available."""
    return pytest.mark.skipif(not available, reason=f"needs {name}: {why}")


def skip_without(name: str, why: str) -> NoReturn:
    """Skip the running test for want of a requirement; several names are separated by commas."""
    pytest.skip(f"needs {name}: {why}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--required",
        default="",
        metavar="NAMES",
        help="fail if a test is skipped for want of one of these requirements, separated by spaces",
    )


def _skipped(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Return how many tests were skipped, by reason."""
    reports = reporter.stats.get("skipped", [])
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)


def _missing(config: pytest.Config) -> list[str]:
    """Return the required names that a test was skipped for; workers leave it to the controller."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reasons = _skipped(reporter) if isinstance(reporter, pytest.TerminalReporter) else ()
    matches = filter(None, map(REASON.match, reasons))
    names = {name for match in matches for name in match[1].split(", ")}
    return sorted(names.intersection(config.getoption("--required").split()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _missing(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
    result = yield  # after every other section, so that the run ends with it
    if skipped := _skipped(terminalreporter):
        terminalreporter.section("skipped for want of a requirement")
        for reason, number in sorted(skipped.items()):
            terminalreporter.line(f"{number:5} {reason}")
    if missing := _missing(terminalreporter.config):
        terminalreporter.line(f"FAILED: required, and yet missing: {', '.join(missing)}", red=True)
    return result
