"""Check settings, secrets and access, and show the settings in force. Nothing is collected or sent.

These are the modes `--check` and `--print-config`; the others are in `live.py`, `backfill.py` and
`explain.py`. Findings and tables are left in the report of the session, and `common/show/` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator

from common.config.settings import in_force
from common.errors import FleetgaugeError, NotConfiguredError, combine_errors
from common.options import DATADOG
from common.run import health, state
from common.run.backfill import check_history
from common.run.session import Session

WITHOUT_STATE = (
    "FLEETGAUGE_STATE is not set, so that these are not known: what was missed before a run "
    "(collector.gap_seconds, and the points themselves), when one last succeeded "
    "(collector.last_success_age_seconds), and for how long W&B runs have been idle"
)


def print_settings(session: Session) -> None:
    """Add a table of settings to the report: those of a collector, or for DATADOG those that all share.

    Works without an API key, which is reported as a finding. Raises ConfigurationError for a bad value.
    """
    if session.name != DATADOG:
        session.open_collector()
        session.report.tables["settings"] = in_force(session.settings)
        return
    session.report.tables["core"] = in_force(session.core)
    try:
        session.report.tables["datadog"] = in_force(session.configuration.datadog_alone())
    except NotConfiguredError as error:
        session.report.findings.append(f"nothing can be pushed: {error}")


def _check_datadog(session: Session) -> None:
    """Check the API key, and the application key where a backfill needs it; raises where one is refused."""
    findings = session.report.findings
    findings.append(session.client(session.deadline).validate())
    if session.options.backfill:
        from common.datadog.historical import READING

        history = session.historical_ingestion()
        # Validating a key does not show its permissions; reading the configuration of any metric does.
        # Whether ingestion is on for that metric does not matter.
        history.enabled([health.UP.name])
        findings.append(f"the application key has the permission {READING} at {history.client.address}")


def check(session: Session) -> None:
    """Check everything that a push needs of one collector, or of DATADOG.

    What is good becomes a finding of the report. Raises one error with all that is wrong, so that a person
    corrects it in one round; NotConfiguredError at once for a collector that was not named, which is skipped.
    """
    if session.name == DATADOG:
        _check_datadog(session)
        return
    findings, wrong = session.report.findings, []
    try:
        session.open_collector()
        if session.options.backfill:
            check_history(session.collector)
        if session.host:
            findings.append(f"metrics will carry the host {session.host}")
        for found in _findings(session):
            if isinstance(found, str):
                findings.append(found)
            else:
                wrong.append(found)
            session.report.progress("checking", len(findings) + len(wrong), None)
    except NotConfiguredError as error:
        # Under `all` a collector without its settings is skipped, whatever else is wrong.
        if not session.options.named:
            raise
        wrong.append(error)
    except FleetgaugeError as error:
        wrong.append(error)
    try:
        store = state.open_store(session.core)
        if store is None:
            findings.append(WITHOUT_STATE)
        else:
            state.check(store, session.state_key)
            findings.append(f"state can be stored in {session.core.state}")
    except FleetgaugeError as error:
        wrong.append(error)
    if wrong:
        raise combine_errors(wrong)


def _findings(session: Session) -> Iterator[str | FleetgaugeError]:
    """Yield what the collector's own check finds: a line for what is good, an error for what is not.

    Without a check of its own it is collected once, and the line has the number of points.
    """
    window = session.due(None)
    if session.collector.check is not None:
        yield from session.collector.check(session.context(window, {}))
        return
    names = {series.metric.name for series in session.series(window, {})}
    yield f"collected {session.report.samples:,} points of {len(names):,} metrics, and sent nothing"
