"""What jobs import of the probes: these names stay where they are, whatever moves behind them."""

from __future__ import annotations

import ast
import importlib
import sys

import pytest

from support.data_plane_fakes import in_a_process_of_its_own
from support.project import ROOT

PUBLIC = {
    "fleetgauge.compute": "collect_compute_metadata",
    "fleetgauge.data_plane": """
        BUCKET_ENDS_MS DataPlaneEvent DataPlaneStats EventSink EventStatus JsonlEvents
        MetricsDataPlaneClient OpCounts OperationTotals WandbEvents chain log_event
    """,
    "fleetgauge.gpu_memory": """
        BadEvent LoadedRecording LoadedSession ManifestError MemoryEvent RecordingError SessionSummary
        TimelineRow WandbExportConfig event_int_value event_timestamp_seconds event_value
        export_tracking_run_to_wandb load_recording log_alerts_table log_tracking_time_series
        log_tracking_visualizations parse_event sample_timeline_rows session_slug tracking_metrics
        tracking_summary_fields tracking_timeline_rows
    """,
    "fleetgauge.records": """
        Event Json MAX_LINE_BYTES RecordWriter SCHEMA_VERSION file_name read resolve_path
    """,
    "fleetgauge.xenna": """
        XennaObservabilityConfig XennaWandbStatsHook flatten_stats make_xenna_wandb_stats_hook xenna_stats
    """,
    "fleetgauge.wandb_logger": "WandbLogger",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_of_the_probes_can_be_imported(module: str) -> None:
    names = PUBLIC[module].split()
    imported = importlib.import_module(module)
    assert [name for name in names if not hasattr(imported, name)] == []
    assert sorted(names) == sorted(getattr(imported, "__all__", names))


def test_importing_the_probes_loads_the_standard_library_only() -> None:
    """Nothing heavy, no pickle, and no page."""
    imports = "; ".join(f"import {module}" for module in PUBLIC)
    code = f"before = set(sys.modules); {imports}; print(*(set(sys.modules) - before))"
    loaded = in_a_process_of_its_own(code).split()
    others = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert others == {"fleetgauge"}
    assert not [name for name in loaded if name.startswith("fleetgauge.pages") or name.endswith(".page")]


def test_every_import_that_a_document_shows_is_public() -> None:
    shown = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("collectors/*/README.md")]:
        for line in page.read_text().splitlines():
            if line.strip().startswith("from fleetgauge"):
                [statement] = ast.parse(line.strip()).body
                assert isinstance(statement, ast.ImportFrom)
                shown |= {(statement.module, alias.name) for alias in statement.names}
    public = {(module, name) for module, names in PUBLIC.items() for name in names.split()}
    assert ("fleetgauge.wandb_logger", "WandbLogger") in shown
    assert shown - public == set()
