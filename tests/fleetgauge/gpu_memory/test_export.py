"""What the export asks of W&B, rule by rule."""

from __future__ import annotations

import json
import math
import pickle
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


def test_disabled_neither_imports_nor_calls_nor_reads(wandb: ModuleType, calls: Calls) -> None:
    export(WandbExportConfig(), events=(pytest.fail("events were read") for _ in (1,)))
    assert calls == []


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


def test_a_run_too_old_to_define_a_step_is_exported_all_the_same(
    wandb: ModuleType, run: SimpleNamespace, calls: Calls
) -> None:
    del run.define_metric
    export()
    assert "stormlog_timeline_allocated_bytes" in logged(calls)


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
