"""What the export asks of W&B, rule by rule."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fleetgauge.gpu_memory import (
    SessionSummary,
    WandbExportConfig,
    export_tracking_run_to_wandb,
    session_slug,
    tracking_metrics,
    tracking_summary_fields,
)
from fleetgauge.gpu_memory.wandb_export import attribution_page

Calls = list[tuple[Any, ...]]  # whatever W&B was given
SESSION = SessionSummary(
    "0123456789ab", "completed", job_id="job-7", rank=1, local_rank=1, world_size=2, source="t"
)
EVENTS = [
    {"timestamp": 10.0, "event_type": "start"},
    {"timestamp": 11.0, "memory_allocated": 4, "memory_reserved": 6, "device_total": 8, "rank": 1},
    {
        "timestamp": 12.5,
        "event_type": "warning",
        "memory_allocated": 5,
        "context": "c",
        "job_id": "j",
        "rank": 1,
    },
    {"event_type": "error", "memory_change": -2},
]


def export(config: WandbExportConfig | None = None, **options: Any) -> None:
    given: dict[str, Any] = {
        "command_name": "track",
        "session_summary": SESSION,
        "stats": {},
        "events": EVENTS,
    } | options
    export_tracking_run_to_wandb(config or WandbExportConfig(enabled=True), **given)


def logged(calls: Calls) -> dict[str, Any]:
    """The last of everything logged, by key."""
    return {key: value for call in calls if call[0] == "log" for key, value in call[1].items()}


def summary(calls: Calls) -> dict[str, Any]:
    return {key: value for call in calls if call[0] == "summary" for key, value in call[1].items()}


def artifacts(calls: Calls) -> dict[str, list[Any]]:
    return {call[2]: [call[1], *call[3:]] for call in calls if call[0] == "artifact"}


def test_a_mode_that_wandb_does_not_know_is_refused() -> None:
    for mode in ("online", "offline", None):
        assert WandbExportConfig(mode=mode).mode == mode
    with pytest.raises(ValueError, match="must be 'online', 'offline' or None, not 'shared'"):
        WandbExportConfig(mode="shared")
    assert WandbExportConfig() == WandbExportConfig(
        False,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        log_tables=True,
        log_artifacts=False,
        log_attribution=False,
    )


def test_disabled_neither_imports_nor_calls_nor_reads(wandb: ModuleType, calls: Calls) -> None:
    export(WandbExportConfig(), events=(pytest.fail("events were read") for _ in (1,)))
    assert calls == []


def test_import_loads_the_standard_library_only_and_no_page() -> None:
    code = "import sys; import fleetgauge.gpu_memory; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    modules = ran.stdout.split()
    tops = {name.split(".")[0] for name in modules}
    assert tops - sys.stdlib_module_names - {"__main__", "_distutils_hack"} == {"fleetgauge"}
    assert "pickle" not in tops
    assert not [name for name in modules if "page" in name]


def test_enabled_without_wandb_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"pip install 'fleetgauge\[wandb\]'"):
        export()


def test_a_wandb_that_lacks_something_itself_says_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wandb.py").write_text("import something_wandb_needs")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ModuleNotFoundError, match="something_wandb_needs"):
        export()


def test_a_run_of_ours_is_named_after_the_session_and_finished_once(wandb: ModuleType, calls: Calls) -> None:
    export()
    assert calls[0] == (
        "init",
        {"project": "stormlog", "name": "track-01234567", "group": "job-7", "job_type": "track"},
    )
    assert [call for call in calls if call[0] == "finish"] == [calls[-1]]


def test_a_configured_run_is_what_was_configured(wandb: ModuleType, calls: Calls) -> None:
    config = WandbExportConfig(True, "p", "e", "offline", "id", "n", "g", "t")
    export(config)
    expected = {"project": "p", "entity": "e", "mode": "offline", "name": "n", "group": "g", "job_type": "t"}
    assert calls[0] == ("init", expected | {"id": "id", "resume": "allow"})


def test_without_a_session_the_run_is_named_after_the_command(wandb: ModuleType, calls: Calls) -> None:
    export(WandbExportConfig(True, log_artifacts=True), session_summary=None)
    assert calls[0] == ("init", {"project": "stormlog", "name": "track", "job_type": "track"})
    assert not {key for key in summary(calls) if "session" in key or "rank" in key}
    assert artifacts(calls)["stormlog-tracking-dashboard"][0] == "stormlog-tracking-dashboard-session"


def test_an_active_run_is_used_and_left_open(
    wandb: ModuleType, run: SimpleNamespace, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb, "run", run, raising=False)
    export()
    assert {"init", "finish"}.isdisjoint(call[0] for call in calls)
    assert summary(calls)["stormlog_session_id"] == "0123456789ab"


@pytest.mark.parametrize("failing", ["log", "summary", "log_artifact", "define_metric"])
def test_whatever_raises_the_run_is_finished_once_and_the_error_comes_through(
    failing: str, wandb: ModuleType, run: SimpleNamespace, calls: Calls, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("gone")

    setattr(run, failing, SimpleNamespace(update=fail) if failing == "summary" else fail)
    with pytest.raises(ConnectionError, match="gone"):
        export(WandbExportConfig(True, log_artifacts=True))
    assert [call for call in calls if call[0] == "finish"] == [("finish",)]


def test_events_that_cannot_be_read_start_no_run(wandb: ModuleType, calls: Calls) -> None:
    def broken() -> object:
        yield EVENTS[0]
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        export(events=broken())
    assert calls == []


def test_the_twenty_statistics_have_their_names() -> None:
    sources = {
        "peak_memory": "peak_memory_bytes",
        "total_events": "total_events",
        "alert_count": "alert_count",
        "current_memory_allocated": "current_memory_allocated_bytes",
        "current_memory_reserved": "current_memory_reserved_bytes",
        "memory_utilization_percent": "memory_utilization_percent",
        "total_allocations": "total_allocations",
        "total_deallocations": "total_deallocations",
        "total_allocation_bytes": "total_allocation_bytes",
        "total_deallocation_bytes": "total_deallocation_bytes",
        "tracking_duration_seconds": "tracking_duration_seconds",
        "allocations_per_second": "allocations_per_second",
        "bytes_allocated_per_second": "bytes_allocated_per_second",
        "history_retained_events": "history_retained_events",
        "history_dropped_events": "history_dropped_events",
        "rollover_count": "sink_rollover_count",
        "pruned_segment_count": "sink_pruned_segment_count",
        "pruned_bytes": "sink_pruned_bytes",
        "final_retained_files": "sink_retained_files",
        "final_retained_bytes": "sink_retained_bytes",
    }
    stats = {name: number for number, name in enumerate(sources)}
    assert tracking_metrics(stats | {"other": 1}) == {
        f"stormlog_{new}": stats[old] for old, new in sources.items()
    }


def test_only_finite_numbers_are_statistics() -> None:
    odd = {
        "peak_memory": "4",
        "total_events": None,
        "alert_count": math.nan,
        "pruned_bytes": math.inf,
        "rollover_count": 1j,
    }
    assert tracking_metrics(
        odd | {"total_allocations": True, "total_deallocations": 0, "peak_memory": 10**400}
    ) == {
        "stormlog_total_allocations": True,
        "stormlog_total_deallocations": 0,
        "stormlog_peak_memory_bytes": 10**400,
    }


def test_the_summary_has_words_and_the_output_file_if_it_exists(tmp_path: Path) -> None:
    stats = {
        "backend": "cuda",
        "collector_health_status": "healthy",
        "collector_last_error": None,
        "session_status": "running",
    }
    output = tmp_path / "track.json"
    words = {
        "stormlog_backend": "cuda",
        "stormlog_collector_health_status": "healthy",
        "stormlog_session_status": "running",
    }
    assert tracking_summary_fields(stats, output_path=output) == words
    output.touch()
    assert tracking_summary_fields(stats, output_path=str(output)) == words | {
        "stormlog_output_file": "track.json"
    }
    assert tracking_summary_fields({}, output_path=tmp_path) == {}


def test_the_statistics_win_over_the_session(wandb: ModuleType, calls: Calls) -> None:
    export(stats={"session_status": "interrupted", "total_events": 4})
    assert summary(calls) == {
        "stormlog_total_events": 4,
        "stormlog_chart_point_count": 3,
        "stormlog_session_id": "0123456789ab",
        "stormlog_session_source": "t",
        "stormlog_session_status": "interrupted",
        "stormlog_rank": 1,
        "stormlog_local_rank": 1,
        "stormlog_world_size": 2,
        "stormlog_job_id": "job-7",
    }
    calls.clear()
    export(session_summary=SessionSummary("s", "running"))
    assert "stormlog_job_id" not in summary(calls)


def test_every_row_is_logged_on_a_step_of_its_own_without_unknown_values(
    wandb: ModuleType, calls: Calls
) -> None:
    export(WandbExportConfig(True, log_tables=False))
    step = "stormlog_timeline_elapsed_seconds"
    assert calls[2:-1] == [
        ("define_metric", step, {}),
        ("define_metric", "stormlog_timeline_*", {"step_metric": step}),
        ("log", {step: 0.0}),
        (
            "log",
            {
                step: 1.0,
                "stormlog_timeline_allocated_bytes": 4,
                "stormlog_timeline_reserved_bytes": 6,
                "stormlog_timeline_device_used_bytes": 6,
                "stormlog_timeline_utilization_percent": 75.0,
            },
        ),
        (
            "log",
            {step: 2.5, "stormlog_timeline_allocated_bytes": 5, "stormlog_timeline_device_used_bytes": 5},
        ),
    ]


def test_the_alerts_are_the_last_250_also_those_without_a_time(wandb: ModuleType, calls: Calls) -> None:
    export()
    columns = [
        "timestamp_s",
        "event_type",
        "context",
        "memory_allocated_bytes",
        "memory_reserved_bytes",
        "memory_change_bytes",
        "job_id",
        "rank",
    ]
    rows: list[list[object]] = [
        [12.5, "warning", "c", 5, None, None, "j", 1],
        [None, "error", None, None, None, -2, None, None],
    ]
    assert logged(calls)["stormlog_alerts"] == ("Table", columns, rows)
    calls.clear()
    export(events=[{"timestamp": number, "type": "peak"} for number in range(300)])
    table = logged(calls)["stormlog_alerts"]
    assert [row[0] for row in table[2]] == [float(number) for number in range(50, 300)]
    calls.clear()
    export(events=EVENTS[:2])
    assert "stormlog_alerts" not in logged(calls)


def test_the_timeline_is_a_table_and_two_plots(wandb: ModuleType, calls: Calls) -> None:
    export()
    found = logged(calls)
    columns = [
        "sample_index",
        "elapsed_seconds",
        "event_type",
        "memory_allocated_bytes",
        "memory_reserved_bytes",
        "memory_change_bytes",
        "device_used_bytes",
        "utilization_percent",
        "context",
        "rank",
    ]
    assert found["stormlog_memory_timeline_table"] == (
        "Table",
        columns,
        [
            [0, 0.0, "start", None, None, None, None, None, None, None],
            [1, 1.0, "sample", 4, 6, None, 6, 75.0, None, 1],
            [2, 2.5, "warning", 5, None, None, 5, None, "c", 1],
        ],
    )
    xs, titles = [0.0, 1.0, 2.5], {"xname": "Elapsed Seconds"}
    ys = [[math.nan, 4.0, 5.0], [math.nan, 6.0, math.nan], [math.nan, 6.0, 5.0]]
    keys = ["allocated_bytes", "reserved_bytes", "device_used_bytes"]
    memory = ("line_series", {"xs": xs, "ys": ys, "keys": keys, "title": "Stormlog Memory Timeline"} | titles)
    share = {"xs": xs, "ys": [[math.nan, 75.0, math.nan]], "keys": ["utilization_percent"]}
    utilization = ("line_series", share | {"title": "Stormlog Memory Utilization"} | titles)
    assert repr(found["stormlog_memory_timeline_plot"]) == repr(memory)
    assert repr(found["stormlog_memory_utilization_plot"]) == repr(utilization)


def test_a_plot_without_a_value_is_not_drawn(
    wandb: ModuleType, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(events=[{"timestamp": 1.0, "memory_reserved": 3}])
    plot = logged(calls)["stormlog_memory_timeline_plot"]
    assert plot[1]["keys"] == ["reserved_bytes", "device_used_bytes"]
    assert "stormlog_memory_utilization_plot" not in logged(calls)
    calls.clear()
    export(events=[{"timestamp": 1.0}])
    assert "stormlog_memory_timeline_plot" not in logged(calls)
    monkeypatch.delattr(wandb, "plot")
    calls.clear()
    export()
    assert not [key for key in logged(calls) if key.endswith("plot")]


def test_a_run_too_old_to_define_a_step_is_exported_all_the_same(
    wandb: ModuleType, run: SimpleNamespace, calls: Calls
) -> None:
    del run.define_metric
    export()
    assert "stormlog_timeline_allocated_bytes" in logged(calls)


def test_without_a_timed_event_there_is_neither_table_nor_page(wandb: ModuleType, calls: Calls) -> None:
    export(WandbExportConfig(True, log_artifacts=True), events=[{"event_type": "error"}])
    assert [call[0] for call in calls] == ["init", "summary", "log", "finish"]
    assert list(logged(calls)) == ["stormlog_alerts"]
    assert artifacts(calls) == {}


def test_without_tables_only_summary_time_series_and_artifacts_are_left(
    wandb: ModuleType, calls: Calls, tmp_path: Path
) -> None:
    export(WandbExportConfig(True, log_tables=False, log_artifacts=True), telemetry_sink_dir=tmp_path)
    assert {key.startswith("stormlog_timeline_") for key in logged(calls)} == {True}
    assert list(artifacts(calls)) == ["stormlog-telemetry-sink"]


def test_artifacts_are_logged_only_if_asked_for_and_only_those_that_exist(
    wandb: ModuleType, calls: Calls, tmp_path: Path
) -> None:
    output, sink, dump, bundle = (
        tmp_path / "out" / "track.json",
        *(tmp_path / name for name in ("sink", "dump", "bundle")),
    )
    for directory in (output.parent, sink, dump, bundle):
        directory.mkdir()
    output.touch()
    paths: dict[str, Any] = {
        "output_path": output,
        "telemetry_sink_dir": str(sink),
        "oom_dump_path": dump,
        "attribution_bundle_dir": bundle,
    }
    export(**paths)
    assert artifacts(calls) == {}
    assert list(output.parent.iterdir()) == [output]
    calls.clear()
    export(WandbExportConfig(True, log_artifacts=True), **paths)
    page = output.with_name("stormlog_tracking_dashboard.html")
    slug = "0123456789ab"
    assert artifacts(calls) == {
        "stormlog-tracking-dashboard": [
            f"stormlog-tracking-dashboard-{slug}",
            ("file", str(page), page.name),
        ],
        "stormlog-track-output": [f"stormlog-track-output-{slug}", ("file", str(output), "track.json")],
        "stormlog-telemetry-sink": [f"stormlog-telemetry-sink-{slug}", ("directory", str(sink), "sink")],
        "stormlog-oom-dump": [f"stormlog-oom-dump-{slug}", ("directory", str(dump), "dump")],
        "stormlog-attribution-bundle": [
            f"stormlog-attribution-bundle-{slug}",
            ("directory", str(bundle), "bundle"),
        ],
    }
    assert summary(calls)["stormlog_tracking_dashboard_file"] == page.name
    assert ("Html", page.read_text()) == logged(calls)["stormlog_tracking_dashboard"]
    calls.clear()
    missing: dict[str, Any] = dict.fromkeys(paths, tmp_path / "none")
    export(WandbExportConfig(True, log_artifacts=True), **missing)
    assert list(artifacts(calls)) == ["stormlog-tracking-dashboard"]
    calls.clear()
    export(
        WandbExportConfig(True, log_artifacts=True),
        oom_dump_path=dump,
        attribution_bundle_dir=tmp_path / "out" / ".." / "dump",
    )
    assert list(artifacts(calls)) == ["stormlog-tracking-dashboard", "stormlog-oom-dump"]


def test_the_page_is_never_left_in_the_sink_nor_in_a_temporary_directory(
    wandb: ModuleType, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, sink = tmp_path / "temporary", tmp_path / "sink"
    for directory in (temporary, sink):
        directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (sink / "track.json").touch()
    export(
        WandbExportConfig(True, log_artifacts=True), output_path=sink / "track.json", telemetry_sink_dir=sink
    )
    assert [path.name for path in sink.iterdir()] == ["track.json"]
    assert list(temporary.iterdir()) == []
    [_, (_, used, name)] = artifacts(calls)["stormlog-tracking-dashboard"]
    assert (Path(used).parent.parent, name) == (temporary, "stormlog_tracking_dashboard.html")


@pytest.mark.parametrize(
    ("session_id", "slug"),
    [
        ("a b/c", "a-b-c"),
        ("é", "-"),
        ("", "session"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 91 + "-c675a2e6"),
    ],
)
def test_a_slug_is_safe_short_and_still_its_sessions_own(session_id: str, slug: str) -> None:
    assert session_slug(SessionSummary(session_id, "running")) == slug
    assert len(slug) <= 100
    assert session_slug(None) == "session"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """An attribution bundle whose pickle would create a file if it were loaded."""
    directory = tmp_path / "bundle"
    directory.mkdir()

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (tmp_path / "unpickled",))

    tensors: list[object] = [
        {
            "names": ["<b>", 2, "c", "d"],
            "storage_ptr": 99,
            "tensor_count": 7,
            "tensors": [{"size_bytes": 5, "shape": [1], "dtype": "f"}, {"size_bytes": 6}],
        },
        {"names": [], "tensors": [{"size_bytes": 50}, {"size_bytes": "x"}, 7], "tensor_count": "many"},
        "nonsense",
        {"tensors": 7},
        *({"names": [f"n{number}"], "tensors": [{"size_bytes": 1}]} for number in range(300)),
    ]
    (directory / "cuda_allocator_snapshot.pickle").write_bytes(pickle.dumps(Trap()))
    (directory / "cuda_tensor_attribution.json").write_text(
        json.dumps({"attributed_storage_pointers": tensors})
    )
    (directory / "cuda_native_debug_metadata.json").write_text('{"history_recorded": false}')
    (directory / "cuda_allocator_state_history_annotated.html").write_text("<script>alert(1)</script>")
    return directory


def test_a_bundle_is_logged_and_its_pickle_never_loaded(
    bundle: Path, wandb: ModuleType, calls: Calls, tmp_path: Path
) -> None:
    trap = pickle.loads((bundle / "cuda_allocator_snapshot.pickle").read_bytes())  # noqa: S301  (it is our own)
    assert trap is None
    (tmp_path / "unpickled").unlink()
    export(WandbExportConfig(True, log_artifacts=True, log_attribution=True), attribution_bundle_dir=bundle)
    assert not (tmp_path / "unpickled").exists()
    assert [entry[2] for entry in artifacts(calls)["stormlog-attribution"][1:]] == [
        "cuda_allocator_state_history_annotated.html",
        "cuda_tensor_attribution.json",
        "cuda_native_debug_metadata.json",
    ]
    table = logged(calls)["stormlog_tensor_attribution"]
    assert table[1] == ["name", "storage_ptr", "tensor_count", "total_size_bytes", "shape", "dtype"]
    assert table[2][:2] == [["<unnamed>", "", 3, 50, "", ""], ["<b>, 2, c", "99", 7, 11, "[1]", "f"]]
    assert (len(table[2]), table[2][2]) == (200, ["n0", "", 1, 1, "", ""])
    found = {key: value for key, value in summary(calls).items() if "attribution" in key}
    assert found == {
        "stormlog_attribution_html_file": "cuda_allocator_state_history_annotated.html",
        "stormlog_tensor_attribution_rows": 303,
        "stormlog_attribution_history_recorded": False,
    }
    page = logged(calls)["stormlog_attribution_html"]
    assert "<script" not in page[1]
    assert '<span>&lt;b&gt;, 2, c</span></td><td data-label="Bytes" class="number"><span>11</span>' in page[1]
    assert "303 storages, the largest 12 shown. Allocator history: not recorded." in page[1]
    assert "<p>0 storages, the largest 0 shown. Allocator history: recorded.</p>" in attribution_page(
        [], True
    )
    assert "Allocator history: unknown." in attribution_page([], "true")


def test_attribution_falls_back_to_the_oom_dump_and_is_silent_unless_asked(
    bundle: Path, wandb: ModuleType, calls: Calls
) -> None:
    export(WandbExportConfig(True, log_attribution=True), oom_dump_path=bundle)
    assert summary(calls)["stormlog_tensor_attribution_rows"] == 303
    assert artifacts(calls) == {}
    calls.clear()
    export(WandbExportConfig(True, log_artifacts=True), oom_dump_path=bundle)
    assert "stormlog_tensor_attribution_rows" not in summary(calls)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"attributed_storage_pointers": 7}', "[" * 100_000])
def test_a_bundle_that_cannot_be_read_logs_nothing(
    text: str, tmp_path: Path, wandb: ModuleType, calls: Calls
) -> None:
    for name in ("cuda_tensor_attribution.json", "cuda_native_debug_metadata.json"):
        (tmp_path / name).write_text(text)
    export(WandbExportConfig(True, log_attribution=True), attribution_bundle_dir=tmp_path)
    assert not [key for key in (*logged(calls), *summary(calls)) if "attribution" in key]


def test_the_page_is_of_the_whole_session_though_its_rows_are_a_sample(
    wandb: ModuleType, calls: Calls
) -> None:
    export(events=[{"timestamp": float(at), "memory_allocated": at, "rank": 1} for at in range(600)])
    _, page = logged(calls)["stormlog_tracking_dashboard"]
    assert summary(calls)["stormlog_chart_point_count"] <= 250
    assert "1 session · 600 events · job job-7" in page
    assert "Session 01234567 · rank 1 of 2" in page
