"""Building a hook: what is asked for, what is refused, where records go, what is pointed out."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from fleetgauge import records
from fleetgauge.xenna import (
    XennaObservabilityConfig,
    XennaWandbStatsHook,
    flatten_stats,
    make_xenna_wandb_stats_hook,
    xenna_stats,
)
from support.project import ROOT
from support.xenna_pipeline import standin
from support.xenna_pipeline.standin import hook, one, read, warnings

pytestmark = pytest.mark.usefixtures("nothing_stays")


def test_context_manager_records_or_does_nothing(monitor: Any, tmp_path: Path) -> None:
    for nothing in (XennaObservabilityConfig(False), {"wandb_log_pipeline_stats": False}, None):
        assert make_xenna_wandb_stats_hook(nothing, "curate", "hash1", None, []) is None
        with xenna_stats(nothing, "curate") as made:
            assert made is None
            assert monitor([one()]).update() is not None
    assert make_xenna_wandb_stats_hook({}, "curate", "hash1", None, []) is not None
    with xenna_stats(XennaObservabilityConfig(False, 30, f"{tmp_path}/"), "curate", "hash1") as made:
        monitor([one()]).update()
    assert type(made) is XennaWandbStatsHook
    assert [record["event"] for record in read(tmp_path)] == ["start", "stats", "end"]


GIVEN = {"wandb_log_pipeline_stats": False, "pipeline_logging_interval_s": 7.5, "wandb_log_downloads": True}


@pytest.mark.parametrize("observability", [SimpleNamespace(**GIVEN), GIVEN], ids=["object", "mapping"])
def test_any_object_with_such_fields_is_a_configuration(observability: object) -> None:
    assert XennaObservabilityConfig.of(observability) == XennaObservabilityConfig(False, 7.5, None, "own")
    assert make_xenna_wandb_stats_hook(observability=observability, pipeline_kind="sft") is None


def test_omegaconf_is_resolved_and_a_config_is_itself() -> None:
    node = OmegaConf.create({"base": "/d", "pipeline_stats_jsonl_path": "${base}/a", "wandb_run": "shared"})
    config = XennaObservabilityConfig(True, 30, "/d/a", "shared")
    assert XennaObservabilityConfig.of(node) == config
    assert XennaObservabilityConfig.of(config) is config


def test_flattened_statistics_are_what_the_hook_logs(monitor: Any, tmp_path: Path) -> None:
    with hook(tmp_path):
        monitor([one()]).update()
    [recorded] = standin.metrics(tmp_path)
    assert flatten_stats(one()) == {f"xenna/{key}": value for key, value in recorded.items()}
    assert flatten_stats(one(), prefix="") == recorded
    assert flatten_stats(object()) == {}


def test_configuration_that_cannot_work_is_refused_when_built() -> None:
    refused: list[tuple[str, object, str]] = [
        ("pipeline_stats_jsonl_path", "s3://bucket/a.jsonl", "object storage cannot append"),
        ("pipeline_stats_jsonl_path", "{run}.jsonl", "is not one of"),
        ("wandb_log_pipeline_stats", "yes", "true or false"),
        ("wandb_run", "mine", "write own or shared"),
    ]
    refused += [("pipeline_logging_interval_s", odd, "above 0") for odd in (0, float("nan"), "30", True)]
    for name, value, reason in refused:
        with pytest.raises(ValueError, match=reason):
            XennaObservabilityConfig.of({name: value})
    with pytest.raises(ValueError, match="not known here"):
        make_xenna_wandb_stats_hook(
            {"pipeline_stats_jsonl_path": "{run_hash}.jsonl"}, "curate", None, None, []
        )
    with pytest.raises(TypeError, match="pass a config or a mapping"):
        XennaObservabilityConfig.of("yes")


@pytest.mark.parametrize(
    ("path", "found", "job"),
    [
        ("records/", "run/records/*.jsonl", "4711"),
        ("{run_hash}.jsonl", "run/h1.jsonl", ""),
        ("{tmp}/a.jsonl", "a.jsonl", ""),
    ],
)
def test_relative_path_is_below_the_run_directory_and_the_job_slurms(
    monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, found: str, job: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job)
    observability = XennaObservabilityConfig(False, 30, path.replace("{tmp}", str(tmp_path)))
    for names, expected in ((["one", "two"], ["one", "two"]), ("one", ["one"])):
        with xenna_stats(observability, "curate", "h1", tmp_path / "run", names):
            pass
        [file] = tmp_path.glob(found)
        start, end = records.read(file)
        file.unlink()
        assert (start["event"], start["run_dir"], end["event"]) == ("start", str(tmp_path / "run"), "end")
        for record in (start, end):
            assert (record["dataset_names"], record.get("job")) == (expected, job or None)
            assert (record["pipeline_kind"], record["run_hash"]) == ("curate", "h1")
            assert record["kind"] == "xenna"


def test_an_interval_that_differs_is_said_once(
    monitor: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hook(tmp_path / "a"):
        watched = monitor([one()] * 3, interval=60.0)
        for _ in range(3):
            watched.update()
    assert warnings(caplog) == [
        "the pipeline logs every 60 s, not every 30 s: pass logging_interval_s=30 to PipelineConfig"
    ]
    caplog.clear()
    with hook(tmp_path / "b", interval=60):
        monitor([one()], interval=60.0).update()
    assert warnings(caplog) == []


def test_the_recipe_of_the_documentation_records(
    monitor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "probes.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.setitem(sys.modules, "wandb", None)
    xenna = vars(sys.modules["cosmos_xenna.pipelines.v1"])
    xenna["PipelineConfig"] = lambda logging_interval_s: logging_interval_s
    xenna["PipelineSpec"] = lambda inputs, stages, interval: (inputs, interval)

    def run_pipeline(spec: tuple[list[Any], float]) -> None:
        monitor(spec[0], interval=spec[1]).update()

    xenna["run_pipeline"] = run_pipeline
    given = {"run_hash": "h", "run_dir": tmp_path, "dataset_names": ["d"], "inputs": [one()], "stages": []}
    exec(compile(code, "probes.md", "exec"), given)  # noqa: S102
    assert [record["event"] for record in standin.read(tmp_path / "records")] == ["start", "stats", "end"]
