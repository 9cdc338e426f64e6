"""What the export asks of W&B: what the tracker's own exporter asks, but for what is listed, and safely."""

from __future__ import annotations

import importlib
import json
import math
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stormlog import wandb_integration as stormlog  # type: ignore[import-untyped]

from fleetgauge import gpu_memory
from fleetgauge.gpu_memory import (
    SessionSummary,
    WandbExportConfig,
    export_tracking_run_to_wandb,
    load_recording,
    sample_timeline_rows,
    session_slug,
    tracking_timeline_rows,
)
from fleetgauge.gpu_memory.wandb_export import attribution_page

Calls = list[tuple[Any, ...]]  # whatever W&B was given

# What differs for every session, by name, and why.
ALWAYS = {
    "define_metric": "the rows have a step of their own, so that they do not run along the steps of the job",
    "stormlog_tracking_dashboard": "the page has a time axis, aligned series, the capacity and the alerts",
}
SESSION = SessionSummary("0123456789ab", "completed", job_id="job-7", rank=1, local_rank=1, world_size=2)
EVENTS: list[dict[str, Any]] = [
    {"timestamp": 10.0, "event_type": "start"},
    {"timestamp": 11.0, "memory_allocated": 4, "memory_reserved": 6, "device_total": 8, "rank": 1},
    {"timestamp": 12.5, "type": "warning", "memory_allocated": 5, "context": "c", "job_id": "j", "rank": 1},
    {"event_type": "error", "memory_change": -2},
]


def export(config: WandbExportConfig | None = None, **options: Any) -> None:
    given = {"command_name": "track", "session_summary": SESSION, "stats": {}, "events": EVENTS, **options}
    export_tracking_run_to_wandb(config or WandbExportConfig(enabled=True), **given)


def logged(calls: Calls) -> dict[str, Any]:
    """The last of everything logged, by key."""
    return {key: value for call in calls if call[0] == "log" for key, value in call[1].items()}


def summary(calls: Calls) -> dict[str, Any]:
    return {key: value for call in calls if call[0] == "summary" for key, value in call[1].items()}


def artifacts(calls: Calls) -> dict[str, list[Any]]:
    return {call[2]: [call[1], *call[3:]] for call in calls if call[0] == "artifact"}


def both(calls: Calls, **given: Any) -> tuple[Calls, Calls]:
    """What the tracker's exporter asks of W&B, and what ours does."""
    options = given.pop("options", {})
    common = {"command_name": "track", "session_summary": None, "stats": {}, "events": []} | given
    stormlog.export_tracking_run_to_wandb(stormlog.WandbExportConfig(enabled=True, **options), **common)
    theirs = list(calls)
    calls.clear()
    export_tracking_run_to_wandb(WandbExportConfig(enabled=True, **options), **common)
    return theirs, list(calls)


def comparable(calls: Calls) -> list[str]:
    """The calls but for what always differs; as text, where not-a-number equals itself."""
    return [
        repr(call)
        for call in calls
        if call[0] != "define_metric" and not (call[0] == "log" and ALWAYS.keys() & call[1].keys())
    ]


def records(sink: Path) -> list[dict[str, Any]]:
    lines = [line for part in sorted(sink.glob("*.jsonl")) for line in part.read_text().splitlines(True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("sink", ["gpu-sink", "cpu-sink", "torn-running-sink"])
def test_a_real_session_is_exported_as_the_tracker_does(
    sink: str, samples: Path, wandb: ModuleType, calls: Calls
) -> None:
    stats = json.loads((samples / "gpu-stats.json").read_text())
    [*_, session] = load_recording(samples / sink).sessions
    given = {"session_summary": session.summary, "stats": stats, "events": records(samples / sink)}
    theirs, ours = both(calls, **given)
    assert comparable(theirs) == comparable(ours)
    assert len(elapsed(ours)) == {"gpu-sink": 203, "cpu-sink": 186, "torn-running-sink": 167}[sink]
    assert {call[0] for call in ours} - {call[0] for call in theirs} == {"define_metric"}


PATHS = ("output_path", "telemetry_sink_dir", "oom_dump_path", "attribution_bundle_dir")
ALL = {"log_artifacts": True, "log_attribution": True}
WORDS = {"backend": "cuda", "collector_last_error": "e", "session_status": "running", "peak_memory": True}


def test_module_without_plots_gets_everything_else(wandb: ModuleType, calls: Calls) -> None:
    del wandb.plot
    theirs, ours = both(calls, session_summary=SESSION, events=EVENTS)
    assert comparable(theirs) == comparable(ours)


@pytest.mark.parametrize(
    ("options", "given", "paths"),
    [
        ({}, {"session_summary": SESSION, "events": EVENTS, "stats": WORDS}, ()),
        ({}, {"session_summary": SessionSummary("s", "running"), "events": EVENTS[-1:]}, ()),
        ({}, {"events": [{"timestamp": 1.0, "memory_reserved": 3}]}, ()),
        ({}, {"events": [{"timestamp": 1.0}], "stats": dict.fromkeys(WORDS)}, ()),
        ({}, {"events": [{"timestamp": at, "type": "peak"} for at in range(249)] + EVENTS[-1:] * 2}, ()),
        ({"log_tables": False}, {"events": EVENTS}, PATHS),
        ({"entity": "e", "run_name": "n", "group": "g", "job_type": "t"}, {"session_summary": SESSION}, ()),
        ({"project": "p", "mode": "offline", "run_id": "r"} | ALL, {"events": EVENTS}, PATHS),
        (ALL, {"session_summary": SESSION, "events": EVENTS}, PATHS[:3]),
        ({"log_artifacts": True}, {"events": EVENTS}, PATHS),
        ({"log_attribution": True}, {"events": EVENTS}, PATHS[1:]),
    ],
)
def test_any_session_is_exported_as_the_tracker_does(
    options: dict[str, Any],
    given: dict[str, Any],
    paths: tuple[str, ...],
    wandb: ModuleType,
    calls: Calls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "output_path").touch()
    for name in PATHS[1:]:
        (tmp_path / name).mkdir()
    storages = [
        {"names": ["w"], "storage_ptr": 1, "tensors": [{"size_bytes": n, "shape": [n], "dtype": "f"}]}
        for n in range(300)
    ]
    for name in PATHS[2:]:
        (tmp_path / name / "cuda_tensor_attribution.json").write_text(
            json.dumps({"attributed_storage_pointers": storages})
        )
        (tmp_path / name / "cuda_native_debug_metadata.json").write_text('{"history_recorded": true}')
    existing = {name: tmp_path / (name if name in paths else "missing") for name in PATHS}
    theirs, ours = both(calls, options=options, **given, **existing)
    assert comparable(theirs) == comparable(ours)
    assert ours[-1] == ("finish",)


def elapsed(calls: Calls) -> list[float]:
    name = "stormlog_timeline_elapsed_seconds"
    return [call[1][name] for call in calls if call[0] == "log" and name in call[1]]


# Where the tracker's exporter does worse: what is given, what is looked at, and what ours makes of it.
DIFFERENCES: dict[str, tuple[dict[str, Any], Callable[[Calls], object], object]] = {
    "an event without a time has no place on the axis": (
        {"events": [{"timestamp": 5.0}, {"timestamp": math.nan}]},
        elapsed,
        [0.0],
    ),
    "W&B would keep not-a-number as a text": (
        {"stats": {"peak_memory": math.nan, "total_events": 4}},
        lambda calls: sorted(summary(calls))[1:],
        ["stormlog_total_events"],
    ),
    "W&B refuses a table column of two types": (
        {"events": [{"timestamp": 1.0, "context": {"a": 1}}, {"timestamp": 2.0, "context": "b"}]},
        lambda calls: [row[8] for row in logged(calls)["stormlog_memory_timeline_table"][2]],
        ["{'a': 1}", "b"],
    ),
}


@pytest.mark.parametrize("reason", DIFFERENCES)
def test_what_is_better_is_better_for_a_reason(
    reason: str, wandb: ModuleType, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    given, look, expected = DIFFERENCES[reason]
    export(**{"session_summary": None, **given})
    assert look(calls) == expected


def test_configuration_is_the_trackers_and_an_unknown_mode_refused() -> None:
    assert asdict(WandbExportConfig()) == asdict(stormlog.WandbExportConfig())
    for mode in ("online", "offline", None):
        assert WandbExportConfig(mode=mode).mode == mode
    with pytest.raises(ValueError, match="must be 'online', 'offline' or None, not 'shared'"):
        WandbExportConfig(mode="shared")


def test_the_trackers_own_functions_ask_the_same_of_w_and_b(
    samples: Path, wandb: ModuleType, calls: Calls
) -> None:
    events = records(samples / "gpu-sink")
    tracking = importlib.import_module("stormlog._wandb.tracking")
    memory = ("memory_allocated", "allocator_allocated_bytes")
    for name, fields in (
        ("event_timestamp_seconds", ()),
        ("event_value", ("context",)),
        ("event_int_value", memory),
    ):
        ours, theirs = getattr(gpu_memory, name), getattr(tracking, name)
        assert [ours(event, *fields) for event in events] == [theirs(event, *fields) for event in events]
    rows = sample_timeline_rows(tracking_timeline_rows(events))
    run = wandb.init(project="p")
    asked = []
    for module in (tracking, gpu_memory):
        calls.clear()
        module.log_alerts_table(wandb, run, events[:200])
        module.log_tracking_time_series(run, rows)
        options = {"session_slug": "s", "dashboard_root": None, "allow_artifact_logging": False}
        assert module.log_tracking_visualizations(wandb, run, rows, **options) == {}
        asked.append(comparable(calls))
    assert asked[0] == asked[1]
    assert len(asked[0]) > len(rows)
    calls.clear()
    assert gpu_memory.log_tracking_visualizations(wandb, run, rows, session_slug="s") == {}
    assert "artifact" not in {call[0] for call in calls}


def test_disabled_neither_imports_nor_calls_nor_reads(wandb: ModuleType, calls: Calls) -> None:
    export(WandbExportConfig(), events=(pytest.fail("events were read") for _ in (1,)))
    assert calls == []


def test_an_active_run_is_used_and_left_open(
    wandb: ModuleType, run: SimpleNamespace, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb, "run", run, raising=False)
    export()
    assert {"init", "finish"}.isdisjoint(call[0] for call in calls)
    assert summary(calls)["stormlog_session_id"] == "0123456789ab"


@pytest.mark.parametrize("failing", ["log", "summary", "log_artifact", "define_metric"])
def test_run_is_finished_once_whatever_raises(
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


def test_slug_is_safe_short_and_still_its_sessions_own() -> None:
    slugs = {
        "a b/c": "a-b-c",
        "é": "-",
        "": "session",
        "x" * 100: "x" * 100,
        "x" * 101: "x" * 91 + "-c675a2e6",
    }
    for session_id, slug in slugs.items():
        assert session_slug(SessionSummary(session_id, "running")) == slug
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
