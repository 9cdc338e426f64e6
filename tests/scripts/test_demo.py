"""The demo pushes every collector, every point arrives, and the README shows its output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import demo, metric_examples
from support.project import ROOT
from support.servers.datadog import Intake, PointKey, Write

pytestmark = pytest.mark.slow

COLLECTORS = ["data_plane", "gpu_memory", "host", "wandb", "xenna"]

GPU = "gpu:1 gpu_type:nvidia_h100_80gb_hbm3 host:gpu-node-3"


def shape(text: str) -> list[str]:
    """The lines of an output without what differs from machine to machine: numbers and how wide they are."""
    return [re.sub(r"\d[\d.,:e-]*", "N", re.sub(r" +", " ", line)).strip() for line in text.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """What the demo prints and a folder with what it writes; its servers stay until the tests are over."""
    folder = tmp_path_factory.mktemp("demo")
    files = ["--html", str(folder / "demo.html"), "--values", str(folder / "values.json")]
    with subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "demo.py"), *files, "--all", "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Tests that a shell runs in the background would have it ignore Ctrl-C, and wait for it for ever.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as kept:
        assert kept.stdout is not None
        printed = ""
        for line in kept.stdout:
            printed += line
            if line.startswith("They end with Ctrl-C, or after 3,600 s."):
                break
        [state] = re.findall(r"FLEETGAUGE_STATE=(\S+)", printed)
        assert Path(state).is_dir(), printed
        yield printed, folder
        kept.send_signal(signal.SIGINT)
        assert kept.wait(60) == 0
    assert not Path(state).exists()


def test_every_series_is_listed_and_every_metric_has_a_value(whole: tuple[str, Path]) -> None:
    text, folder = whole
    assert "\nEvery point arrived: " in text
    values = json.loads((folder / "values.json").read_text())
    listed = re.findall(r"^  ([a-z_]+\.[\w.]+) ", text, re.MULTILINE)
    assert {*listed} == {*values}
    assert {name.partition(".")[0] for name in values} == {"collector", *COLLECTORS}
    assert values["collector.up"] == ["1", "collector:xenna"]
    assert values["xenna.runs.ended"] == ["1", "status:ok"]
    assert values["gpu_memory.oom_dumps"] == ["1", ""]
    assert values["gpu_memory.sessions.interrupted"] == ["1", ""]
    assert values["host.gpu.energy_joules"] == ["10,353", GPU]
    assert values["host.gpu.xid_errors"] == ["1", GPU.replace(" host", " xid:94 host")]
    assert {*values} == {*metric_examples.values()}
    assert ", every 15m" in (folder / "demo.html").read_text()


def test_missing_and_unexpected_points_fail_the_demo(
    intake: Intake, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = ("collector:host", "env:demo")
    sent = PointKey("collector.points_sent", tags, None, 1)
    highlighted = [PointKey(name, (), None, 1) for name in demo.HIGHLIGHTS if name.startswith("host.")]
    intake.points |= dict.fromkeys(highlighted, 5.0) | {sent: float(len(highlighted))}
    intake.write_log += [Write(sent, 1.0, None)]
    assert demo.count_points(intake) == {"host": demo.PointCount(2, 1, 3)}
    assert demo.show(intake, everything=True) == 0
    stranger = PointKey("host.load_1m", (), None, 1)
    for change in (lambda: intake.points.update({stranger: 1.0}), lambda: intake.points.pop(highlighted[0])):
        before = dict(intake.points)
        change()
        assert demo.show(intake, everything=True) == 1
        assert "Points differ: host" in capsys.readouterr().out
        intake.points = before
    intake.dropped = 1
    assert demo.show(intake, everything=True) == 1


def test_readme_shows_the_demo(whole: tuple[str, Path]) -> None:
    [shown] = re.findall(r"```text\n(\$ scripts.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert {*shape(shown)} - {*shape(whole[0])} == {"..."}


def test_kept_servers_of_the_demo_can_be_used(whole: tuple[str, Path]) -> None:
    printed, folder = whole
    environment = folder / "environment"
    environment.write_text("".join(re.findall(r"^export .*\n", printed, re.MULTILINE)))

    def last_line(command: str) -> str:
        ran = subprocess.run(
            ["/bin/sh", "-c", f". {environment} && {sys.executable} {ROOT}/scripts/{command}"],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()[-1]

    last_line("run_collector.py all --check")
    for options, expected in (
        ("", r"dry run, nothing changed \(--push writes\): \d+ create; metadata of \d+ metrics"),
        ("--push", r"pushed: \d+ created; metadata of [1-9]"),
        ("--push --yes", r"pushed: \d+ unchanged; metadata of 0 metrics"),
        ("--remove --push --yes", r"pushed: \d+ removed$"),
    ):
        assert re.match(expected, last_line(f"provision.py {options}"))
