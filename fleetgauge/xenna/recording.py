"""One run of a hook: what the pipeline's thread passes on, and the threads that take it from there.

The pipeline's thread takes the time and an immutable copy. A first thread computes metrics of the copies and
gives them to the record writer, which has a thread of its own, and to W&B, which has another: each may hang
or fail, and only its own output is missing. `stats` has the copies and the metrics.
"""

from __future__ import annotations

import threading
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

MAX_WAITING_STATS = 1000  # items that may wait for a thread
MAX_END_WAIT_S = 5.0  # at the end of a run, for everything that still waits

KIND = "xenna"


@dataclass(frozen=True)
class RunOptions:
    """What a run is, and where it is recorded: no file without `jsonl_path`, no W&B without `wandb_run`."""

    pipeline_kind: str
    run_hash: str | None
    run_dir: str | None
    dataset_names: tuple[str, ...]
    jsonl_path: str | None
    wandb_run: WandbRun | None
    interval_s: float
    job: str | None
    clock: Callable[[], float]


class PipelineRecording:
    """One run. The pipeline's thread calls its public methods: they copy, queue and return."""

    def __init__(self, options: RunOptions) -> None:
        self.thread = threading.get_ident()  # of the hook
        self.worker = Worker("xenna", "the pipeline", MAX_WAITING_STATS, log)
        self._options = options
        # Weak: a monitor has Ray's actors, which must end when the pipeline drops it.
        self._pipelines: weakref.WeakKeyDictionary[object, Pipeline] = weakref.WeakKeyDictionary()
        self._started = 0  # pipelines
        self._now = options.clock()
        self._writer: RecordWriter | None = None
        self._version = ""
        self.wandb = WandbLog(options.wandb_run, MAX_WAITING_STATS) if options.wandb_run else None
        # Queued before the thread starts: whatever follows finds the file open.
        self.worker.put(self._start)

    def start(self) -> None:
        """Start the threads; where the system has none left, everything is lost, after a warning."""
        if self.wandb:
            self.wandb.worker.start()
        self.worker.start()

    def observe(self, monitor: object, stats: object) -> None:
        """Have a copy of a pipeline's statistics recorded; what cannot be copied is counted as lost.

        The copy is made here, as upstream empties the object.
        """
        try:
            snapshot = copy_stats(stats, self._options.clock(), getattr(monitor, "_log_interval_s", None))
            pipeline = self._pipelines.get(monitor)
            if pipeline is None:
                self._started += 1
                pipeline = self._pipelines[monitor] = Pipeline(self._started)
            self.worker.put(partial(self._write_stats, pipeline, snapshot))
        except Exception as error:
            self.worker.lose("it could not be taken", error)

    def finish(self, monitor: object, pools: Sequence[object]) -> None:
        """Have the totals of a pipeline that has ended recorded, if it is one of this run."""
        pipeline = self._pipelines.pop(monitor, None)
        if pipeline and pools:
            copies = [copy_pool(pool) for pool in pools]
            self.worker.put(partial(self._write_totals, pipeline, self._options.clock(), copies))

    def end(self, error: str | None) -> None:
        """Record the end, and wait for everything that is queued, in sum for a few seconds.

        `error` is the name of the exception that ended the run, None where it succeeded.
        """
        # Not the clock of the records, which may be set or replaced.
        until = time.monotonic() + MAX_END_WAIT_S
        status: dict[str, object] = {"status": "ok"} if error is None else {"status": "error", "error": error}
        try:
            end = partial(self._write, Event.END, self._options.clock(), {}, None, **status)
            self.worker.put(end, last=True)
        finally:
            self.worker.close(MAX_END_WAIT_S)
            # In the order in which data passes: each thread is closed after the one that feeds it.
            if self._writer:
                self._writer.close(max(0.0, until - time.monotonic()))
            if self.wandb:
                self.wandb.close(until - time.monotonic())

    # From here on everything runs on the worker's thread.

    def _start(self) -> None:
        """Open the file and write the start record."""
        from importlib import metadata  # slow to import, and needed on this thread only

        options = self._options
        with suppress(Exception):  # an installation may be damaged
            self._version = metadata.version("cosmos-xenna")
        if options.jsonl_path is not None:
            self._writer = RecordWriter(
                options.jsonl_path,
                KIND,
                run_hash=options.run_hash,
                job=options.job,
                clock=lambda: self._now,
            )
        self._write(Event.START, self._now, {}, None, run_dir=options.run_dir)

    def _write_stats(self, pipeline: Pipeline, snapshot: Snapshot) -> None:
        """Write the metrics of one snapshot.

        Warns once where the pipeline has another interval than configured, or where its layout is unknown.
        """
        interval, configured = snapshot.interval, self._options.interval_s
        if isinstance(interval, int | float) and interval != configured:
            text = (
                "the pipeline logs every %g s, not every %g s: pass logging_interval_s=%g to PipelineConfig"
            )
            self.worker.warn("interval", text, interval, configured, configured)
        metrics = pipeline.metrics(snapshot)
        if not metrics:
            text = "statistics of cosmos-xenna %s have an unknown layout: they are not recorded"
            self.worker.warn("unknown", text, self._version)
            return
        self._emit(pipeline, snapshot.taken_at, metrics)

    def _write_totals(self, pipeline: Pipeline, at: float, copies: list[PoolCopy]) -> None:
        self._emit(pipeline, at, pipeline.totals(at, copies))

    def _emit(self, pipeline: Pipeline, at: float, metrics: Metrics) -> None:
        """Pass metrics to the file and to W&B."""
        self._write(Event.STATS, at, metrics, pipeline)
        if self.wandb:
            self.wandb.put(metrics)

    def _write(
        self, event: Event, at: float, metrics: Metrics, pipeline: Pipeline | None, **more: object
    ) -> None:
        """Write one record of the time `at`; nothing without a file."""
        if not self._writer:
            return
        # The writer's clock: a record has the time at which its values were copied.
        self._now = at
        body: dict[str, object] = {
            "pipeline_kind": self._options.pipeline_kind,
            "run_hash": self._options.run_hash,
            "metrics": metrics,
            "stages": pipeline.stages if pipeline else [],
            "dataset_names": self._options.dataset_names,
            "xenna_version": self._version,
        }
        # Most runs have one pipeline, whose records need no number.
        if pipeline and pipeline.number > 1:
            body["pipeline"] = pipeline.number
        self._writer.write(event, {**body, **more})
