"""What ours writes where the systems of docs/migrating.md wrote something: keys, fields, options and lines.

Everything here is had by running our code; W&B is a stand-in that keeps what it is given.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from collectors.host.metrics import METRICS as HOST_METRICS
from collectors.wandb.metrics import METRICS as WANDB_METRICS
from collectors.wandb.settings import WandbSettings
from common.cli import arguments
from common.config.settings import CoreSettings, DatadogSettings, variables
from common.run import health
from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.gpu import Gpu
from fleetgauge.compute.metadata import Host
from fleetgauge.data_plane import MetricsDataPlaneClient, log_event
from fleetgauge.gpu_memory import SessionSummary, WandbExportConfig, export_tracking_run_to_wandb
from fleetgauge.gpu_memory.__main__ import main as gpu_memory_command
from fleetgauge.gpu_memory.events import read_event
from fleetgauge.wandb_logger import WandbLogger, nest
from fleetgauge.xenna import XennaObservabilityConfig
from support.data_plane_fakes import CALLS, Events, Store
from support.xenna_pipeline import standin

STATISTICS = """peak_memory total_events alert_count current_memory_allocated current_memory_reserved
    memory_utilization_percent total_allocations total_deallocations total_allocation_bytes
    total_deallocation_bytes tracking_duration_seconds allocations_per_second bytes_allocated_per_second
    history_retained_events history_dropped_events rollover_count pruned_segment_count pruned_bytes
    final_retained_files final_retained_bytes"""


# What users of each system know, and what is called the same here: keys, fields, options and lines.
SAME = {
    "xenna": """
        wandb_log_pipeline_stats pipeline_logging_interval_s pipeline_stats_jsonl_path
        timestamp pipeline_kind run_hash metrics stages
        xenna/pipeline_duration_s xenna/main_loop_rate_hz xenna/progress xenna/num_outputs
        xenna/num_input_remaining xenna/num_initial_inputs xenna/inputs_processed_per_s xenna/outputs_per_s
        xenna/cluster/{total,avail}_{cpus,gpus,mem_gb,obj_store_gb}
        xenna/stage/<name>/actors_{target,pending,ready,running,idle}
        xenna/stage/<name>/{tasks_completed,queue_in,queue_out,slots_used,slots_empty,speed_tasks_per_s}
        xenna/stage/<name>/resource/{cpu_util_pct,mem_gb,actor_count}
    """,
    "uair": """
        stage run_id wandb.{enabled,project,entity,group,tags,table_sample_rows,table_sample_seed}
        WANDB_{PROJECT,ENTITY,MODE,DIR,GROUP} <key>/{rows,total_rows,sampled,sample_seed} <panel_group>/<key>
        system.{platform,python_version,hostname,user}
        compute.{cpu_count,cpu_architecture,gpu_count,gpu_type,memory_gb,gpus}
        compute.gpus.{index,name,total_memory_gb,major,minor,multi_processor_count}
        slurm.slurm_{job_id,job_name,nodelist,submit_dir,cpus_per_task,cpus_on_node,mem_per_node,mem_per_cpu}
        slurm.slurm_{gpus_per_node,tasks_per_node,job_num_nodes,partition} slurm.submitit_job_id
        model.{model_source,batch_size,concurrency}
        model.engine_kwargs.{max_model_len,max_num_seqs,max_num_batched_tokens,gpu_memory_utilization}
        model.engine_kwargs.{tensor_parallel_size,enable_chunked_prefill,enable_prefix_caching,dtype}
        model.engine_kwargs.kv_cache_dtype
        runtime.{debug,sample_n,job_memory_gb,rows_per_block,streaming_io,prefilter_mode,keyword_buffering}
        runtime.use_llm_{classify,decompose}
    """,
    "stormlog": """
        timestamp memory_allocated memory_reserved memory_change device_used device_total timestamp_ns
        allocator_{allocated,reserved,change}_bytes device_total_bytes session_id local_rank world_size
        host pid metadata name storage_ptr tensor_count total_size_bytes shape dtype
    """,
    "nemo": """
        op partition_id n_keys n_bytes wall_ms status on_event inner ok error timeout
        register claim_meta get_data check_consumption_status put get clear close
        total_bytes last_put_bytes_per_key total_keys total_ops bytes_outstanding peak_bytes_outstanding
        max_bytes_per_key_seen n_keys_outstanding by_op
    """,
    "collector": """
        wandb --push --verbose --json WANDB_API_KEY DD_API_KEY DD_APP_KEY DD_SITE WANDB_ENTITY WANDB_PROJECT
        wandb.runs.{active,completed_24h,failed_24h,total_recent}
        wandb.training.{avg_duration_hours,total_gpu_hours_24h}
        wandb.push_to_main.{runs_completed_24h,runs_failed_24h,success_rate_pct,avg_duration_hours}
        wandb.push_to_main.overview.{steps_per_second,epoch_steps_per_second,sps}
        wandb.push_to_main.{timing_cumulative,timing_per_epoch}.sps
        wandb.sweep.{runs_total_24h,runs_completed_24h,runs_failed_24h,runs_active,success_rate_pct}
    """,
}
LINES = {
    "xenna": ["Installed PipelineMonitor._make_stats patch"],
    "uair": [
        "[wandb] Starting run: <name> (mode=<mode>, dir=<dir>)",
        "[wandb] ✓ Logged compute metadata: <cpus> CPUs, <gpus> GPUs",
        "[wandb] ✓ Run started: <name> (ONLINE - real-time syncing)",
    ],
    "nemo": ["data_plane_event: <event>"],
}


class Asked(dict[str, Any]):
    """A mapping that knows what it was asked for."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(given or {})
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


class Artifact:
    """Keeps nothing but its type."""

    def __init__(self, name: str, type: str) -> None:  # noqa: A002  # W&B's own word
        self.type = type

    def add_file(self, local_path: str, name: str) -> None:
        assert Path(local_path).is_file()

    def add_dir(self, local_path: str, name: str) -> None:
        assert Path(local_path).is_dir()


class Run:
    """A W&B run that keeps what it is given."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options, self.rows, self.ended = options, list[dict[str, Any]](), 0
        self.configuration: dict[str, Any] = {}
        self.artifacts: set[str] = set()
        self.summary: dict[str, Any] = {}
        self.config = SimpleNamespace(
            as_dict=dict, update=lambda values, allow_val_change: self.configuration.update(values)
        )

    def log(self, row: dict[str, Any], step: int | None = None) -> None:
        self.rows.append(row)

    def define_metric(self, *_: object, **__: object) -> None: ...

    def log_artifact(self, artifact: Artifact) -> None:
        self.artifacts.add(artifact.type)

    def finish(self, exit_code: int = 0) -> None:
        self.ended += 1


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Put a W&B in the place of the real one; answers its runs, as they are begun."""
    runs: list[Run] = []

    def init(**options: Any) -> Run:
        runs.append(Run(options))
        return runs[-1]

    module: Any = ModuleType("wandb")
    module.run, module.init, module.Settings, module.Artifact = None, init, SimpleNamespace, Artifact
    module.Table = module.Html = lambda *_, **given: SimpleNamespace(**given)
    module.plot = SimpleNamespace(line_series=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return runs


def leaves(found: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of all members, those of members within, and those of the objects of lists."""
    for key, value in found.items():
        yield f"{prefix}{key}"
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Mapping):
                yield from leaves(inner, f"{prefix}{key}.")


class Ours:
    """What ours writes, by system: keys, fields, options, artifacts and lines."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        capsys: pytest.CaptureFixture[str],
        directory: Path,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._caplog = caplog
        self._capsys = capsys
        self._directory = directory

    def _said(self, action: Callable[[], object]) -> set[str]:
        """All lines that an action prints or logs."""
        self._caplog.set_level(logging.INFO)
        self._caplog.clear()
        with suppress(SystemExit):
            action()
        printed = self._capsys.readouterr()
        return {*printed.out.splitlines(), *printed.err.splitlines(), *self._caplog.messages}

    def xenna(self) -> set[str]:
        def record() -> None:
            monitor = standin.install(self._monkeypatch)
            hook = standin.hook(self._directory, run_dir=str(self._directory), dataset_names=["one"])
            with suppress(KeyError), hook:
                watched = monitor([standin.one(line=6), standin.one(line=7)])
                watched.update()
                watched.update()
                raise KeyError

        def lose() -> None:
            missing = self._directory / "file"
            missing.write_text("")
            monitor = standin.install(self._monkeypatch)
            with standin.hook(missing / "below"):
                monitor([standin.one()]).update()

        said = self._said(record)
        records = standin.read(self._directory)
        metrics = {f"xenna/{key}" for found in records for key in found["metrics"]}
        written = {name for found in records for name in leaves(found)}
        config = {field.name for field in fields(XennaObservabilityConfig)}
        return said | metrics | written | config | self._said(lose)

    def uair(self) -> set[str]:
        runs = stand_in(self._monkeypatch)
        section, env = Asked({"enabled": True, "table_sample_rows": 1}), Asked()
        with WandbLogger({"wandb": section}, "classify", env=env) as logger:
            logger.log_table([{"a": 1}, {"a": 2}], "results", panel_group="inspect_results")

        def lose() -> None:
            for mode in ("online", "offline"):
                with WandbLogger({"wandb": {"mode": mode}}, "classify") as logger:
                    runs[-1].log = lambda *_, **__: 1 / 0  # type: ignore[assignment]
                    logger.log_metrics({"accuracy": 0.95})
            self._monkeypatch.setattr(sys.modules["wandb"], "init", lambda **_: 1 / 0)
            WandbLogger({}, "classify").start()

        attributes = {name for name in ("stage", "run_id", "run") if hasattr(logger, name)}
        settings = {f"wandb.{key}" for key in section.asked} | env.asked | attributes
        tables = {key for row in runs[0].rows for key in row}
        return settings | tables | set(leaves(nest(uair_metadata()))) | self._said(lose)

    def stormlog(self) -> set[str]:
        said = self._said(lambda: gpu_memory_command(["export", "--help"]))
        options = {word for line in said for word in re.findall(r"--[\w-]+|\bexport\b", line)}
        run, asked = self._exported()
        tables = [value for row in run.rows for value in row.values() if hasattr(value, "columns")]
        columns = {column for table in tables for column in table.columns}
        track = self._directory / "track.json"
        track.write_text('[{"timestamp": 11.0, "event_type": "sample", "memory_allocated": 4}]')
        command = ["export", str(track), "--project", "memory"]
        lines = self._said(lambda: gpu_memory_command(command))
        self._monkeypatch.setitem(sys.modules, "wandb", None)
        lines |= self._said(lambda: gpu_memory_command(command))
        keys = {key for row in run.rows for key in row} | run.summary.keys()
        return options | keys | run.artifacts | columns | asked | lines

    def _exported(self) -> tuple[Run, set[str]]:
        runs = stand_in(self._monkeypatch)
        output, sink, bundle = (self._directory / name for name in ("track.json", "sink", "bundle"))
        output.write_text("{}")
        sink.mkdir()
        bundle.mkdir()
        (bundle / "cuda_allocator_state_history_annotated.html").write_text("")
        (bundle / "cuda_native_debug_metadata.json").write_text('{"history_recorded": true}')
        held = {"attributed_storage_pointers": [{"names": ["w"], "tensors": [{"size_bytes": 4}]}]}
        (bundle / "cuda_tensor_attribution.json").write_text(json.dumps(held))
        sizes = {"memory_allocated": 4, "memory_reserved": 6, "memory_change": 1, "device_total": 8}
        event = Asked({"timestamp": 11.0, "event_type": "warning", **sizes})
        read_event(event)
        names = ("backend", "collector_health_status", "collector_last_error", "session_status")
        export_tracking_run_to_wandb(
            WandbExportConfig(enabled=True, log_artifacts=True, log_attribution=True),
            command_name="track",
            session_summary=SessionSummary("0123456789ab", "completed", job_id="job-7", source="t"),
            stats=_ones(STATISTICS) | dict.fromkeys(names, "fine"),
            events=[event],
            output_path=output,
            telemetry_sink_dir=sink,
            oom_dump_path=sink,
            attribution_bundle_dir=bundle,
        )
        return runs[0], event.asked

    def nemo(self) -> set[str]:
        store, events = Store(), Events()
        client = MetricsDataPlaneClient(store, events)
        for error in (None, ValueError(), TimeoutError()):
            store.error = error
            for call in CALLS.values():
                with suppress(ValueError, TimeoutError):
                    call(client)
        values = {str(event[key]) for event in events.told for key in ("op", "status")}
        options = set(inspect.signature(MetricsDataPlaneClient).parameters)
        lines = self._said(lambda: log_event(events.last)) | {"fleetgauge.data_plane"}
        return values | set(events.last) | client.snapshot().keys() | options | lines

    def collector(self) -> set[str]:
        models = (WandbSettings, CoreSettings, DatadogSettings)
        options = {option for action in arguments.parser()._actions for option in action.option_strings}
        options |= {"wandb"} | {name for model in models for name in variables(model).values()}
        return options | {metric.name for metric in (*WANDB_METRICS, *HOST_METRICS, *health.METRICS)}


def uair_metadata() -> dict[str, Any]:
    """What a job on a Slurm node with a GPU is told to log."""
    engine = """max_model_len max_num_seqs max_num_batched_tokens gpu_memory_utilization
        tensor_parallel_size enable_chunked_prefill enable_prefix_caching dtype kv_cache_dtype"""
    runtime = """debug sample_n job_memory_gb rows_per_block streaming_io prefilter_mode keyword_buffering
        use_llm_classify use_llm_decompose"""
    model: dict[str, object] = _ones("model_source batch_size concurrency")
    slurm = """SLURM_JOB_ID SLURM_JOB_NAME SLURM_NODELIST SLURM_JOB_NUM_NODES SLURM_CPUS_PER_TASK
        SLURM_CPUS_ON_NODE SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_GPUS_PER_NODE SLURM_TASKS_PER_NODE
        SLURM_JOB_PARTITION SLURM_SUBMIT_DIR SUBMITIT_JOB_ID SLURM_JOB_CPUS_PER_NODE"""
    return collect_compute_metadata(
        {"model": model | {"engine_kwargs": _ones(engine)}, "runtime": _ones(runtime)},
        env=dict.fromkeys(slurm.split(), "1") | {"USER": "ada"},
        host=Host(8, 8, 2**34, (Gpu(0, "H100", 2**36, 9, 0, 132, "GPU-1"),)),
    )


def _ones(names: str) -> dict[str, object]:
    return dict.fromkeys(names.split(), 1)


def matches(name: str, produced: Iterable[str]) -> bool:
    """Whether a name, with <placeholders>, is among what was produced."""
    pattern = re.sub(r"<\w+>", ".+", re.escape(name))
    return any(re.fullmatch(pattern, one) for one in produced)


def same_names(system: str) -> Iterator[str]:
    """The names that a system and ours share, with their braces expanded."""
    for word in SAME[system].split():
        parts = [part.split(",") for part in re.split(r"[{}]", word)]
        yield from map("".join, product(*parts))
    yield from LINES.get(system, [])
