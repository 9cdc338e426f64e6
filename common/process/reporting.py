"""Reports for the silent: of a child that hung, crashed or was never started, another child says so.

Standard library only.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from common.job import Job, Mode
from common.outcome import Outcome
from common.process.runner import Runner
from common.process.running_child import SILENT

REPORT_TIMEOUT = 10.0

log = logging.getLogger(__name__)


def run_and_report(runner: Runner, jobs: list[Job]) -> list[Outcome]:
    """Run jobs; deliver `collector.up = 0` for each that pushed and could not say it itself."""
    outcomes = runner.run(jobs)
    reports = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.error and outcome.error.type in SILENT:
            log.error("%s: %s", job.collector, outcome.error.message)
            if job.mode is Mode.PUSH and job.backfill is None:
                reports.append(replace(job, mode=Mode.REPORT, outcome=outcome, timeout=REPORT_TIMEOUT))
    runner.run(reports)
    return outcomes
