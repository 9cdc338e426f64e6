"""A run that shows no points: are settings, secrets and access good, or which settings are in force."""

from __future__ import annotations

from common import state
from common.collector import load_collector
from common.config.settings import in_force
from common.errors import FleetgaugeError, NotConfiguredError, together
from common.execution import health
from common.execution.backfill import check_history
from common.execution.run import Run
from common.job import DATADOG, Mode
from common.window import due

WITHOUT_STATE = (
    "FLEETGAUGE_STATE is not set, so that these are not known: what was missed before a run "
    "(collector.gap_seconds, and the points themselves), when one last succeeded "
    "(collector.last_success_age_seconds), and for how long W&B runs have been idle"
)


class InspectionRun(Run):
    """A run for `--check` or `--print-config`; in place of a collector it may be about what all share."""

    def _do(self) -> None:
        self._configure()
        settings = self._job.mode is Mode.SETTINGS
        if self._job.collector == DATADOG:
            self._show_shared_settings() if settings else self._check_datadog()
            return
        self._collector = load_collector(self._job.collector)
        self._work() if settings else self._check()

    def _work(self) -> None:
        """Show the settings of the collector."""
        self._read_settings()
        self._report.tables["settings"] = in_force(self._settings)

    def _show_shared_settings(self) -> None:
        """Show what every collector shares, and how Datadog is reached, also without a key."""
        self._report.tables["core"] = in_force(self._core)
        try:
            self._report.tables["datadog"] = in_force(self._configuration.datadog_alone())
        except NotConfiguredError as error:
            self._findings.append(f"nothing can be pushed: {error}")

    def _check_datadog(self) -> None:
        """Ask about the keys; about the application key only where a backfill is asked for."""
        self._findings.append(self._datadog_sink(self._deadline).validate())
        if self._job.backfill:
            from common.datadog.historical import READING

            history = self._historical_ingestion()
            history.enabled([health.UP.name])
            self._findings.append(f"the application key has the permission {READING} at {history.address}")

    def _check(self) -> None:
        """Look at everything that a push needs, and name all that is wrong with it, not the first."""
        if self._job.backfill:
            check_history(self._collector)
        wrong: list[FleetgaugeError] = []
        try:
            self._read_settings()
            if self._core.node_local:
                self._check_node_local()
            if self._host:
                self._findings.append(f"metrics will carry the host {self._host}")
            window = due(self._now, self._job.step or self._core.step, None, self._now)
            for found in self._collector.check(self._context(window, {})):
                if isinstance(found, str):
                    self._findings.append(found)
                else:
                    wrong.append(found)
                self._parent.progress("checking", len(self._findings) + len(wrong), None)
        except NotConfiguredError as error:
            if not self._job.named:  # skipped, whatever else is wrong
                raise
            wrong.append(error)
        except FleetgaugeError as error:
            wrong.append(error)
        try:
            store = state.open_store(self._core)
            if store is None:
                self._findings.append(WITHOUT_STATE)
            else:
                state.check(store, self._state_key())
                self._findings.append(f"state can be kept in {self._core.state}")
        except FleetgaugeError as error:
            wrong.append(error)
        if wrong:
            raise together(wrong)
