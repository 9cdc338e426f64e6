"""Record the statistics of a cosmos-xenna pipeline, to W&B and to a JSONL file (docs/probes.md).

with xenna_stats(cfg.observability, "pretrain", run_hash, run_dir, names): run_pipeline(spec)

A bad configuration is refused when the hook is built. From then on the pipeline runs as it would without.
`patch` finds the pipelines, `recording` records them.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from fleetgauge.records import resolve_path
from fleetgauge.xenna import patch
from fleetgauge.xenna.recording import KIND, PipelineRecording, RunOptions
from fleetgauge.xenna.wandb_log import WandbRun


@dataclass(frozen=True)
class XennaObservabilityConfig:
    """What to record of a pipeline, and where to.

    `pipeline_logging_interval_s` is what the recipe passes to `PipelineConfig(logging_interval_s=…)`: the
    pipeline alone decides when it computes statistics. The path is as in docs/records.md. `wandb_run` is
    where W&B gets the statistics: in a run of their "own", beside the job's, or "shared" with the job's
    metrics. Raises ValueError for a value that cannot be used.
    """

    wandb_log_pipeline_stats: bool = True
    pipeline_logging_interval_s: float = 30
    pipeline_stats_jsonl_path: str | PathLike[str] | None = None
    wandb_run: WandbRun = "own"

    def __post_init__(self) -> None:
        if not isinstance(self.wandb_log_pipeline_stats, bool):
            raise ValueError(f"wandb_log_pipeline_stats is {self.wandb_log_pipeline_stats!r}: true or false")
        if self.wandb_run not in get_args(WandbRun):
            raise ValueError(f"wandb_run is {self.wandb_run!r}: write own or shared")
        interval = self.pipeline_logging_interval_s
        if type(interval) is bool or not isinstance(interval, int | float) or not 0 < interval < math.inf:
            raise ValueError(f"pipeline_logging_interval_s is {interval!r}: write seconds above 0")
        # Placeholders only: it raises for a path that can never work, whatever the run.
        if self.pipeline_stats_jsonl_path is not None:
            resolve_path(self.pipeline_stats_jsonl_path, kind=KIND, run_id="0", run_hash="0")

    @classmethod
    def of(cls, observability: object) -> XennaObservabilityConfig:
        """Return the configuration of a mapping, an OmegaConf node or any object; other keys are ignored.

        Raises ValueError for a value that cannot be used, TypeError for an object without any of the fields.
        """
        if isinstance(observability, cls):
            return observability
        get: Callable[[str], Any] = partial(getattr, observability)  # Any: a recipe's own settings
        names: Container[object] = dir(observability)
        if isinstance(observability, Mapping):
            get, names = observability.__getitem__, observability
        given = {field.name: get(field.name) for field in fields(cls) if field.name in names}
        if not given and not isinstance(observability, Mapping):
            raise TypeError(f"observability is a {type(observability).__name__}: pass a config or a mapping")
        return cls(**given)


def make_xenna_wandb_stats_hook(
    observability: object,
    pipeline_kind: str,
    run_hash: str | None = None,
    run_dir: str | PathLike[str] | None = None,
    dataset_names: Iterable[str] | None = None,
) -> XennaWandbStatsHook | None:
    """Return a hook, or None where neither W&B nor JSONL is configured. Raises ValueError for a bad one.

    `pipeline_kind` names the pipeline in records; a relative path is taken below `run_dir`.
    """
    if observability is None:
        return None
    config = XennaObservabilityConfig.of(observability)
    if not config.wandb_log_pipeline_stats and config.pipeline_stats_jsonl_path is None:
        return None
    return XennaWandbStatsHook(config, pipeline_kind, run_hash, run_dir, dataset_names)


def xenna_stats(
    observability: object,
    pipeline_kind: str,
    run_hash: str | None = None,
    run_dir: str | PathLike[str] | None = None,
    dataset_names: Iterable[str] | None = None,
) -> AbstractContextManager[XennaWandbStatsHook | None]:
    """Return a context manager that records pipelines, or does nothing where that is switched off.

    Takes what `make_xenna_wandb_stats_hook` takes, and raises ValueError for a bad configuration.
    """
    hook = make_xenna_wandb_stats_hook(observability, pipeline_kind, run_hash, run_dir, dataset_names)
    return nullcontext() if hook is None else hook


class XennaWandbStatsHook:
    """Records the pipelines that run inside its `with`; each `with` is a run of its own.

    With several hooks open a pipeline belongs to those of its own thread, or else to all of them. The same
    hook may be entered several times, also from several threads.
    """

    def __init__(
        self,
        observability: object,
        pipeline_kind: str,
        run_hash: str | None = None,
        run_dir: str | PathLike[str] | None = None,
        dataset_names: Iterable[str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Check and store the configuration; nothing is opened or patched before `__enter__`.

        Raises ValueError or TypeError for a configuration that can never work. `clock` returns epoch seconds.
        """
        config = XennaObservabilityConfig.of(observability)
        directory = None if run_dir is None else fspath(run_dir)
        named = None if run_hash is None else str(run_hash)
        path = config.pipeline_stats_jsonl_path
        if path is not None:
            path = _within(directory, fspath(path))
            resolve_path(path, kind=KIND, run_id="0", run_hash=named)
        names = (dataset_names,) if isinstance(dataset_names, str) else dataset_names or ()
        self._options = RunOptions(
            pipeline_kind=str(pipeline_kind),
            run_hash=named,
            run_dir=directory,
            dataset_names=tuple(map(str, names)),
            jsonl_path=path,
            wandb_run=config.wandb_run if config.wandb_log_pipeline_stats else None,
            interval_s=config.pipeline_logging_interval_s,
            # An empty variable is no job.
            job=os.environ.get("SLURM_JOB_ID") or None,
            clock=clock,
        )
        self._recordings: list[PipelineRecording] = []

    def __enter__(self) -> Self:
        """Start recording. Where that fails, it warns, leaves nothing behind, and the pipeline runs."""
        try:
            monitor_class = patch.find_monitor()
        except Exception as error:
            text = "pipeline statistics are not recorded: cosmos-xenna cannot be used (%s: %s): %s"
            patch.log_safely(logging.WARNING, text, type(error).__name__, error, patch.INSTALL)
            return self
        try:
            recording = PipelineRecording(self._options)
            recording.start()
            patch.register(recording, monitor_class)
            self._recordings.append(recording)
        except Exception as error:
            text = "pipeline statistics are not recorded: %s: %s"
            patch.log_safely(logging.WARNING, text, type(error).__name__, error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop recording, with the end record; the pipeline's error, if any, passes."""
        thread = threading.get_ident()
        # The last one opened in this thread, or else the last one.
        recordings = sorted(self._recordings, key=lambda recording: recording.thread == thread)
        if not recordings:
            return
        self._recordings.remove(recordings[-1])
        try:
            if patch.unregister(recordings[-1]):
                recordings[-1].end(_error_name(kind, error))
        except Exception as trouble:
            text = "the end of the run is not recorded: %s: %s"
            patch.log_safely(logging.WARNING, text, type(trouble).__name__, trouble)


def _within(directory: str | None, path: str) -> str:
    """Return the path, below the run's directory where it is relative.

    A final slash marks a directory, and stays: `Path` would drop it.
    """
    relative = directory is not None and "://" not in path and not Path(path).is_absolute()
    return f"{directory}/{path}" if relative else path


def _error_name(kind: type[BaseException] | None, error: BaseException | None) -> str | None:
    """Return the class of an exception that ends a run badly; None for none, and for `sys.exit(0)`."""
    if kind is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return None
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
