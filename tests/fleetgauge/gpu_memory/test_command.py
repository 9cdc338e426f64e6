"""The command: a directory of a crashed job becomes a page in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fleetgauge.gpu_memory.__main__ import main

Calls = list[tuple[Any, ...]]  # whatever W&B was given
ROOT = Path(__file__).parents[3]


def test_a_report_is_written_in_one_line_without_anything_installed(samples: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    command = [sys.executable, "-S", "-m", "fleetgauge.gpu_memory", "report"]
    sink = samples / "torn-running-sink"
    ran = subprocess.run([*command, sink, "-o", page], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.splitlines() == ["note: 1 left out: torn line", f"{page}: 4 sessions, 167 events"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none", None, "there is no such file or directory"),
        (".", None, "it holds no segment and no manifest; a telemetry sink, a track file"),
        ("track.json", "", "it is not JSON: Expecting value: line 1 column 1 (char 0)\n"),
        ("track.json", "[]", "it holds no event\n"),
        ("track.json", "[" * 100_000, "it is not JSON: it is nested too deeply\n"),
        ("track.json", '{"events": []}', "it holds no event\n"),
        ("track.json", '[7, {"a": 1}]', "it holds no event (1 not an event, 1 not an object)\n"),
    ],
)
def test_path_without_events_is_refused_and_nothing_written(
    name: str, content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    before = list(tmp_path.iterdir())
    assert main(["report", str(tmp_path / name), "-o", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot read {tmp_path / name}: {why}")
    assert list(tmp_path.iterdir()) == before


def test_page_that_cannot_be_written_and_wandb_that_is_missing_are_named(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["report", str(samples / "cpu-sink"), "-o", str(tmp_path / "none" / "page.html")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
    assert main(["export", str(samples / "cpu-sink"), "--project", "p"]) == 2
    assert "pip install 'fleetgauge[wandb]'" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["-o", "."], []])
def test_a_page_in_a_directory_is_named_by_whose_memory_and_when(
    options: list[str], samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(samples / "cpu-sink"), *options]) == 0
    [page] = tmp_path.iterdir()
    assert page.name == "GPU-memory-of-cpu-sink-2026-11-15-23-43-14-to-23-43-20-UTC.html"
    assert "<title>GPU memory of cpu-sink, 2026-11-15 23:43:14 to 23:43:20 UTC</title>" in page.read_text()
    assert page.read_text().count("<script>") == 1


def test_options_reach_the_run_of_each_session(
    samples: Path, wandb: ModuleType, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = str(samples / "torn-running-sink")
    assert main(["export", sink, "--project", "p", "--entity", "e", "--offline", "--artifacts"]) == 0
    options = {
        "project": "p",
        "entity": "e",
        "mode": "offline",
        "group": "cpu-job",
        "job_type": "gpu-memory-export",
    }
    names = ("efa11bbf", "f971aada", "cb2e351c", "cd7c1cce")
    expected = [("init", options | {"name": f"gpu-memory-export-{name}"}) for name in names]
    assert [(call[0], dict(call[1])) for call in calls if call[0] == "init"] == expected
    kinds = [call[2] for call in calls if call[0] == "artifact"]
    assert kinds == ["stormlog-tracking-dashboard", "stormlog-telemetry-sink"] * 4
    points = [
        call[1]["stormlog_chart_point_count"]
        for call in calls
        if call[0] == "summary" and "stormlog_chart_point_count" in call[1]
    ]
    assert points == [60, 31, 50, 26]
    calls.clear()
    assert main(["export", sink, "--project", "p"]) == 0
    assert "mode" not in calls[0][1]
    assert not [call for call in calls if call[0] == "artifact"]


def test_dump_of_a_session_and_its_attribution_go_with_it(
    tmp_path: Path, wandb: ModuleType, calls: Calls
) -> None:
    def recorded() -> int:
        """How many runs say whether the history was recorded."""
        summaries = [call[1] for call in calls if call[0] == "summary"]
        return sum("stormlog_attribution_history_recorded" in summary for summary in summaries)

    for session in ("s", "t"):
        dump = tmp_path / f"oom_dump_20261116T011500Z_1_cuda_{session}"
        dump.mkdir()
        stated = {"session_id": session, "status": "running"}
        (dump / "manifest.json").write_text(json.dumps({"session": stated}))
        (dump / "events.json").write_text(json.dumps([{"timestamp": 1.0, "session_id": session}]))
        (dump / "cuda_native_debug_metadata.json").write_text('{"history_recorded": true}')
    assert main(["export", str(tmp_path), "--project", "p", "--artifacts", "--attribution"]) == 0
    dumps = [call[3] for call in calls if call[2:3] == ("stormlog-oom-dump",)]
    assert [Path(str(dump[1])).name[-1] for dump in dumps] == ["s", "t"]
    assert recorded() == 2
    calls.clear()
    assert main(["export", str(dump), "--project", "p", "--attribution"]) == 0
    assert recorded() == 1
