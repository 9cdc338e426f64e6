"""One run being recorded: what the pipeline's thread hands over, and the threads that take it from there.

A first thread turns copies into metrics and gives them to the record writer, which has a thread of its own,
and to W&B, which has one too: each may hang or fail for ever, and only its own output is missing.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fleetgauge.records import Event, RecordWriter
from fleetgauge.records.background import Worker
from fleetgauge.xenna.stats import Metrics, Pipeline, PoolCopy, Snapshot, copy_pool, copy_stats
from fleetgauge.xenna.wandb_log import WandbLog, WandbRun, log

MAX_WAITING = 1000  # items that may wait for a thread
MAX_END_WAIT_S = 5.0  # at the end of a run, for everything that still waits

KIND = "xenna"


@dataclass(frozen=True)
class RecordedRun:
    """What a run is, and where it is recorded."""

    pipeline_kind: str
    run_hash: str | None
    run_dir: str | None
    dataset_names: tuple[str, ...]
    jsonl_path: str | None
    wandb_run: WandbRun | None
    interval_s: float
    job: str | None
    clock: Callable[[], float]


class HookRecording:
    """The watcher of one run. The pipeline's thread calls its methods: they copy, queue and return."""

    def __init__(self, run: RecordedRun) -> None:
        self.closed = False
        self.group: object = self  # the same for hooks opened around each other
        self._run = run
        self._pipelines: weakref.WeakKeyDictionary[object, Pipeline] = weakref.WeakKeyDictionary()
        self._only = Pipeline()  # for monitors that cannot be told apart
        self._now = run.clock()
        self._writer: RecordWriter | None = None
        self._totals: tuple[Pipeline, float, Metrics] | None = None
        self._version = ""
        self.wandb = WandbLog(run.wandb_run, MAX_WAITING) if run.wandb_run else None
        self.worker = Worker("xenna", "the pipeline", MAX_WAITING, log)
        self.worker.put(self._start)

    def start(self) -> None:
        """Start the threads. Raises RuntimeError where they cannot be had, and leaves none."""
        if self.wandb:
            self.wandb.worker.thread.start()
        try:
            self.worker.thread.start()
        except BaseException:
            if self.wandb:
                self.wandb.worker.close(MAX_END_WAIT_S)
            raise

    def watches(self, monitor: object) -> bool:
        """Whether this is its pipeline, or could become it because it has none."""
        return not self._pipelines or monitor in self._pipelines

    def observe(self, monitor: object, stats: object) -> None:
        """Copy a pipeline's statistics, and have them recorded."""
        snapshot = copy_stats(stats, self._run.clock(), getattr(monitor, "_log_interval_s", None))
        self.worker.put(partial(self._stats, self._pipeline(monitor), snapshot))

    def finish(self, monitor: object, pools: Sequence[object]) -> None:
        """Copy the totals of a pipeline that has ended, if it is ours."""
        with suppress(TypeError):
            pipeline = self._pipelines.pop(monitor, None)
            if pipeline and pools:
                copies = [copy_pool(pool) for pool in pools]
                self.worker.put(partial(self._finished, pipeline, self._run.clock(), copies))

    def end(self, error: str | None) -> None:
        """Record the end, and wait for what is queued, all in all for a few seconds."""
        until = time.monotonic() + MAX_END_WAIT_S
        try:
            self.worker.put(partial(self._end, self._run.clock(), error), last=True)
        finally:
            self.worker.close(MAX_END_WAIT_S)
            if self._writer:
                self._writer.close(max(0.0, until - time.monotonic()))
            if self.wandb:
                self.wandb.close(until - time.monotonic())

    def _pipeline(self, monitor: object) -> Pipeline:
        try:
            return self._pipelines.setdefault(monitor, Pipeline())
        except TypeError:
            return self._only

    # From here on everything runs on the worker's thread.

    def _start(self) -> None:
        from importlib import metadata  # slow to import, and needed on this thread only

        run = self._run
        with suppress(metadata.PackageNotFoundError):
            self._version = metadata.version("cosmos-xenna")
        if run.jsonl_path is not None:
            self._writer = RecordWriter(
                run.jsonl_path, KIND, run_hash=run.run_hash, job=run.job, clock=lambda: self._now
            )
        self._write(Event.START, self._now, {}, run_dir=run.run_dir)

    def _stats(self, pipeline: Pipeline, snapshot: Snapshot) -> None:
        self._compare_interval(snapshot.interval)
        if self._totals:  # another pipeline goes on, or begins: the end record will not hold these
            ended, ended_at, totals = self._totals
            self._totals = None
            self._write(Event.STATS, ended_at, totals, ended)
        metrics = pipeline.metrics(snapshot)
        if not metrics:
            text = "statistics of cosmos-xenna %s have an unknown layout: they are not recorded"
            self.worker.warn("unknown", text, self._version)
            return
        self._write(Event.STATS, snapshot.taken_at, metrics, pipeline)
        if self.wandb:
            self.wandb.put(metrics)

    def _finished(self, pipeline: Pipeline, at: float, copies: list[PoolCopy]) -> None:
        totals = pipeline.totals(at, copies)
        self._totals = (pipeline, at, totals)
        if self.wandb:
            self.wandb.put(totals)

    def _end(self, at: float, error: str | None) -> None:
        pipeline, _, totals = self._totals or (None, at, {})
        status: dict[str, object] = {"status": "ok"} if error is None else {"status": "error", "error": error}
        self._write(Event.END, at, totals, pipeline, **status)

    def _write(
        self, event: Event, at: float, metrics: Metrics, pipeline: Pipeline | None = None, **more: object
    ) -> None:
        if not self._writer:
            return
        self._now = at
        body = {
            "pipeline_kind": self._run.pipeline_kind,
            "run_hash": self._run.run_hash,
            "metrics": metrics,
            "stages": pipeline.stages if pipeline else [],
            "dataset_names": self._run.dataset_names,
            "xenna_version": self._version,
        }
        self._writer.write(event, {**body, **more})

    def _compare_interval(self, interval: object) -> None:
        wanted = self._run.interval_s
        if isinstance(interval, int | float) and interval != wanted:
            text = (
                "the pipeline logs every %g s, not every %g s: pass logging_interval_s=%g to PipelineConfig"
            )
            self.worker.warn("interval", text, interval, wanted, wanted)
