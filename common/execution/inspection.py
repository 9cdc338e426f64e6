"""A run that shows no points: are settings, secrets and access good, or which settings are in force."""

from __future__ import annotations

from common.config.shown import in_force
from common.errors import FleetgaugeError, NotConfiguredError, together
from common.execution import health
from common.execution.backfill_state import no_backfill
from common.execution.run import Run
from common.job import DATADOG, Mode
from common.times import tick


class InspectionRun(Run):
    """A run for `--check` or `--print-config`; in place of a collector it may be about what all share."""

    def _do(self) -> None:
        self._configure()
        settings = self._job.mode is Mode.SETTINGS
        if self._job.collector == DATADOG:
            self._tell_shared_settings() if settings else self._check_datadog()
            return
        self._load_collector()
        self._work() if settings else self._check()

    def _work(self) -> None:
        """Tell the settings of the collector."""
        self._read_settings()
        self._tally.tables["settings"] = in_force(self._settings)

    def _tell_shared_settings(self) -> None:
        """What every collector shares, and how Datadog is reached; without a key one can still look."""
        self._tally.tables["core"] = in_force(self._core)
        try:
            self._tally.tables["datadog"] = in_force(self._configuration.datadog_alone())
        except NotConfiguredError as error:
            self._findings.append(f"nothing can be pushed: {error}")

    def _check_datadog(self) -> None:
        """Ask about the keys; about that of the past only where the past is asked for."""
        self._findings.append(self._datadog_sink(self._deadline).validate())
        if self._job.backfill:
            from common.datadog.historical import READING

            history = self._historical_ingestion()
            history.enabled([health.UP.name])
            self._findings.append(f"the application key has the permission {READING} at {history.address}")

    def _check(self) -> None:
        """Look at everything that a push needs, and name all that is wrong with it, not the first."""
        if self._job.backfill and self._collector.backfill is None:
            raise no_backfill(self._collector)
        wrong: list[FleetgaugeError] = []
        try:
            self._read_settings()
            at = tick(self._job.now, self._job.step or self._core.step)
            for found in self._collector.check(self._context({}, at, None)):
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
            if place := self._store():
                place.check(self._key())
                self._findings.append(f"checkpoints can be kept in {self._core.checkpoints}")
        except FleetgaugeError as error:
            wrong.append(error)
        if wrong:
            raise together(wrong)
