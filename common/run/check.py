"""Look without sending: `--check`, `--print-config` and `--explain METRIC [tag=value …]`.

The other modes are in `run.py` and `backfill.py`. Findings and tables are left in the report of the session,
and `common/show/` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator

from common.config.settings import in_force
from common.errors import ConfigurationError, FleetgaugeError, NotConfiguredError, combine_errors
from common.options import DATADOG
from common.registry import nearest
from common.run import health
from common.run.backfill import check_history
from common.run.session import NO_ENV, Session
from common.times import iso

WITHOUT_STATE = (
    "FLEETGAUGE_STATE is not set, so that these are not known: what was missed (collector.gap_seconds), the "
    "last success (collector.last_success_age_seconds), and for how long W&B runs have been idle"
)


def print_settings(session: Session) -> None:
    """Add a table of settings to the report: those of a collector, or for DATADOG those that all share.

    Works without an API key, which is reported as a finding. Raises ConfigurationError for a bad value.
    """
    tables = session.report.tables
    if session.name != DATADOG:
        tables["settings"] = in_force(session.settings)
        return
    tables["core"] = in_force(session.core)
    datadog = session.configuration.datadog
    tables["datadog"] = in_force(datadog)
    if datadog.api_key is None:
        session.report.findings.append(f"nothing can be pushed: {datadog.not_set('DD_API_KEY')}")


def check(session: Session) -> None:
    """Check everything that a push needs of one collector, or of DATADOG.

    What is good becomes a finding of the report. Raises one error with all that is wrong, so that a person
    corrects it in one round; NotConfiguredError at once for a collector that was not named, which is skipped.
    """
    findings, wrong = session.report.findings, []
    checks = (_check_datadog,) if session.name == DATADOG else (_check_collector, _check_state)
    for each in checks:
        try:
            for found in each(session):
                if isinstance(found, str):
                    findings.append(found)
                else:
                    wrong.append(found)
                session.progress("checking", len(findings) + len(wrong), None)
        except FleetgaugeError as error:
            # Under `all` a collector without its settings is skipped, whatever else is wrong.
            if isinstance(error, NotConfiguredError) and not session.options.named:
                raise
            wrong.append(error)
    if wrong:
        raise combine_errors(wrong)


def _check_datadog(session: Session) -> Iterator[str | FleetgaugeError]:
    """Check the API key, and the application key where a backfill needs it; raises where one is refused."""
    if session.core.env is None:
        yield ConfigurationError(NO_ENV)
    yield session.client().validate()
    if session.options.backfill:
        from common.datadog.historical import BACKFILL_PERMISSIONS, READING, enabled

        client = session.new_client(BACKFILL_PERMISSIONS)
        # Validating a key does not show its permissions; reading the configuration of any metric does.
        # Whether ingestion is on for that metric does not matter.
        enabled(client, [health.UP.name])
        yield f"the application key has the permission {READING} at {client.address}"


def _check_collector(session: Session) -> Iterator[str | FleetgaugeError]:
    """Yield what the collector's own check finds: a line for what is good, an error for what is not.

    Without a check of its own it is collected once, and the line has the number of points.
    """
    window = session.due(None)
    if session.options.backfill:
        check_history(session.collector)
    if session.host:
        yield f"metrics will carry the host {session.host}"
    if session.collector.check is not None:
        yield from session.collector.check(session.context(window, {}))
        return
    names = {series.metric.name for series in session.series(window, {})}
    yield f"collected {session.report.samples:,} points of {len(names):,} metrics, and sent nothing"


def _check_state(session: Session) -> Iterator[str]:
    """Yield whether there is a store; raises where a run could not read its document, or write one."""
    store, key = session.open_store(), session.state_key
    if store is None:
        yield WITHOUT_STATE
        return
    store.read(key)
    store.write(f"{key}.check", b"{}")  # beside the document, so that a check changes no state
    yield f"state can be stored in {session.core.state}"


def explain(session: Session) -> None:
    """Add a table to the report: what the value that a push would send at this tick is made of.

    The rows are those of `Collector.explain`. Raises ConfigurationError where the collector has none, for an
    unknown metric, and for a tag that the metric does not declare.
    """
    name, *pairs = session.options.explain
    tags = dict(pair.split("=", 1) for pair in pairs)
    declared = {metric.name: metric for metric in session.collector.metrics}
    if session.collector.explain is None:
        raise ConfigurationError(f"--explain: {session.name} cannot list what its values are of")
    if name not in declared:
        hint = nearest(name, [*declared])
        raise ConfigurationError(f"--explain: {session.name} has no metric {name!r}{hint}")
    metric = declared[name]
    unknown = sorted(tags.keys() - {*metric.tags})
    if unknown and not metric.open_tags:
        known = ", ".join(metric.tags)
        raise ConfigurationError(f"--explain: {name} has no tag {unknown[0]!r}; it has: {known}")
    window = session.due(None)
    # The memory of earlier runs changes values (idle W&B runs), so a push at this tick would use it as well.
    # The copy is discarded.
    rows = session.collector.explain(session.context(window, session.copy_memory()), metric, tags)
    session.report.tables["runs"] = rows
    session.report.findings.append(f"{' '.join([name, *pairs])} at {iso(window.until)}: {len(rows):,} rows")
