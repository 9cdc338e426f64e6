"""The W&B run that a pipeline's statistics are logged to, from a thread of its own.

Never imports W&B: the job does. A run has one counter of steps, and what is logged at a step that has
passed is lost; so the statistics have a run of their own beside the job's, unless they are to share it.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from fleetgauge import wandb_package
from fleetgauge.records.background import Worker
from fleetgauge.xenna.stats import Metrics

log = logging.getLogger("fleetgauge.xenna")

WandbRun = Literal["own", "shared"]
PREFIX = "xenna/"
STEP = f"{PREFIX}pipeline_duration_s"
LINK = f"{PREFIX}run"
# A run beside another one captures no output and measures no machine: the other one does.
_SETTINGS = {"console": "off", "x_disable_stats": True, "init_timeout": 30.0, "finish_timeout": 300.0}


class WandbLog:
    """Logs beside or into whatever W&B run the job has.

    Only the worker's thread touches W&B: a log call that hangs must not stop the pipeline.
    """

    def __init__(self, wandb_run: WandbRun, max_waiting: int) -> None:
        self.worker = Worker("wandb", "W&B", max_waiting, log)
        self._wandb_run = wandb_run
        self._job_run: Any = None  # Any: here and below, W&B is optional, and may be a stand-in
        self._own: Any = None
        self._target: Any = None  # our own run, or the module, which logs to the job's

    def put(self, metrics: Metrics) -> None:
        """Have one row logged."""
        self.worker.put(partial(self._log, {f"{PREFIX}{key}": value for key, value in metrics.items()}))

    def close(self, timeout: float) -> None:
        """Log what waits and finish our own run, if there is one; for at most `timeout` seconds."""
        self.worker.put(self._finish, last=True)
        self.worker.close(timeout)

    def _log(self, row: dict[str, float]) -> None:
        """Log one row; begin a run of ours where the job has a new one."""
        # Searched at each row: the job may call `wandb.init` after the start of the pipeline.
        wandb: Any = sys.modules.get("wandb")
        run = getattr(wandb, "run", None)
        if run is None and self._own is None:
            why = "wandb.init() was not called" if wandb_package.is_installed() else wandb_package.MISSING
            self.worker.warn("absent", "pipeline statistics are not logged to W&B: %s", why)
            return
        # A job may finish its run and begin another: then ours ends with it.
        if run is not None and run is not self._job_run:
            self._finish()
            self._job_run = run
            if self._wandb_run == "own":
                self._own = self._target = _begin(wandb, run)
            else:
                self._target = wandb
            self._define()
        self._target.log(row)  # fails where the run could not be started, and is counted as lost

    def _define(self) -> None:
        """Draw our metrics over the pipeline's own time; the job's steps are for its own metrics."""
        try:
            self._target.define_metric(STEP)
            self._target.define_metric(f"{PREFIX}*", step_metric=STEP)
        except Exception as error:
            self.worker.warn("define", "W&B charts pipeline statistics by its own step: %s", error)

    def _finish(self) -> None:
        """Finish our own run; the job's is never finished here."""
        own, self._own, self._target = self._own, None, None
        if own is not None:
            own.finish()


def _begin(wandb: Any, run: Any) -> Any:
    """Return a run in the group of the job's, which is linked to it and otherwise left alone."""
    # Releases of W&B differ in their settings: an unknown one would raise.
    known = wandb.Settings.model_fields
    own = wandb.init(
        reinit="create_new",
        project=run.project,
        entity=run.entity or None,
        group=run.group or None,
        name=f"{run.name or run.id}-xenna",
        job_type="xenna",
        mode=run.settings.mode,
        dir=run.settings.root_dir,
        settings=wandb.Settings(**{key: value for key, value in _SETTINGS.items() if key in known}),
    )
    with suppress(Exception):  # the job may have finished its own
        run.summary.update({LINK: own.url or own.id})
    return own
