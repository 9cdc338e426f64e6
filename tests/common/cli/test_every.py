"""A push that stays: one child per collector for many runs, started again where it died or hung."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.processes import ended
from support.project import KEY, Project
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.faults import Fault

# Writes of each run which process it is in, and how many there were before.
WRITE = """
collect.runs = getattr(collect, "runs", 0) + 1
run = {"pid": os.getpid(), "run": collect.runs, "now": context.now, "memory": dict(context.memory)}
run |= {"stays": context.stays, "size": context.settings.size}
run |= {"ready": bool(context.settings.ready) and os.path.exists(context.settings.ready)}
context.memory["seen"] = collect.runs
yield VALUE(collect.runs, context.window.until)
with open(context.settings.fifo, "w") as fifo:
    json.dump(run, fifo)
"""
SETTINGS = "fifo: Text\nready: Text = ''\nsize: int = 0"
FORBIDDEN = Fault(status=403, body=b'{"errors": ["Forbidden"]}')


class Staying:
    """A push with `--every`, and what its runs write."""

    def __init__(self, process: subprocess.Popen[str], fifo: Path) -> None:
        self.process = process
        self._fifo = fifo

    def next_run(self) -> Any:
        """Wait for the next run; return what it writes."""
        return json.loads(self._fifo.read_text())

    def stop(self) -> str:
        """End it; return what it printed and logged."""
        self.process.send_signal(signal.SIGTERM)
        shown, logged = self.process.communicate(timeout=30)
        assert self.process.returncode == 143
        return shown + logged


@contextmanager
def staying(project: Project, *arguments: str, body: str = WRITE, **extra: str) -> Iterator[Staying]:
    project.add("toy", body, settings=SETTINGS)
    fifo = project.root / "fifo"
    os.mkfifo(fifo)
    environ = {"FLEETGAUGE_TOY_FIFO": str(fifo), **extra}
    process = project.start("toy", "--push", "--every", "1s", *arguments, **environ)
    try:
        yield Staying(process, fifo)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_one_child_runs_again_and_again(project: Project, intake: Intake, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.touch()  # by an earlier process
    project.set_constant("net/retry.py", "MAX_ATTEMPTS", "1")
    files = {"FLEETGAUGE_READY_FILE": str(ready), "FLEETGAUGE_TOY_READY": str(ready)}
    with staying(project, FLEETGAUGE_STEP="30m", **files) as push:
        runs = [push.next_run(), push.next_run()]
        intake.faults.add(Fault(status=503), times=2)  # points and self-metrics of one run
        runs += [push.next_run() for _ in range(3)]
        logged = push.stop()
    assert [run["run"] for run in runs] == [1, 2, 3, 4, 5]
    assert len({run["pid"] for run in runs}) == 1
    assert len({run["now"] for run in runs}) == 5
    assert all(run["stays"] for run in runs)
    # What a run observed is kept in memory whatever becomes of its delivery, also without a store.
    assert [run["memory"].get("seen") for run in runs] == [None, 1, 2, 3, 4]
    assert [run["ready"] for run in runs[:2]] == [False, True]
    assert "interrupted by SIGTERM" in logged
    assert ended(runs[0]["pid"])
    [points] = intake.series("toy.value").values()
    assert 1 in points.values()
    assert len(points) >= 2
    assert any(second % 1800 for second in points)  # the interval is the step
    assert intake.value("collector.up") == 1


MISBEHAVING = {
    "breaks": "raise RuntimeError('a defect')",
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "fails": "raise SourceError('the source is down')",
    "good": "yield VALUE(1, context.now)",
    "hangs": "import ctypes; ctypes.PyDLL(None).sleep(3600)",
}


@pytest.mark.slow
def test_error_costs_one_run_and_a_lost_child_is_started_again(project: Project, intake: Intake) -> None:
    project.set_constant("cli/supervise.py", "GRACE", "0.5")
    log = "with open(__file__ + '.log', 'a') as log: print(os.getpid(), int(time.time()), file=log)\n"
    for name, body in MISBEHAVING.items():
        project.add(name, f"{log}{body}\nyield VALUE(2, context.now)")
    push = project.start("all", "--push", "--every", "1s", "--timeout", "4")
    assert push.stdout is not None
    seen: Counter[str] = Counter()
    while min(seen[name] for name in MISBEHAVING) < 2:
        line = push.stdout.readline()
        assert line, "it has ended"
        if found := re.match(rf"({'|'.join(MISBEHAVING)}): (ok|failed)", line):
            assert (found[2] == "ok") is (found[1] == "good")
            seen[found[1]] += 1
    push.send_signal(signal.SIGTERM)
    push.communicate(timeout=30)
    assert push.returncode == 143
    for name in MISBEHAVING:
        lines = (project.root / "collectors" / name / "collector.py.log").read_text().splitlines()
        pids, seconds = zip(*(map(int, line.split()) for line in lines), strict=True)
        assert len(lines) >= 2
        assert (len({*pids}) == 1) is (name in {"breaks", "fails", "good"})
        assert len({*seconds}) == len(seconds), "not more often than once in an interval"
        assert all(map(ended, pids))
        assert intake.value("collector.up", tags=(f"collector:{name}",)) == (name == "good")


@pytest.mark.slow
def test_settings_are_read_again_after_a_change_of_the_file(project: Project, tmp_path: Path) -> None:
    """The file is that of a ConfigMap, which Kubernetes replaces with its directory."""
    config, data = tmp_path / "fleetgauge.toml", tmp_path / "..data"
    for version, size in (("1", 1), ("2", 4444)):
        (tmp_path / version).mkdir()
        (tmp_path / version / config.name).write_text(f"[toy]\nsize = {size}\n")
    data.symlink_to("1")
    config.symlink_to(f"..data/{config.name}")
    with staying(project, "--config", str(config)) as push:
        first, second = push.next_run(), push.next_run()
        config.write_text("[toy]\nsize = 22\n")
        later = [push.next_run() for _ in range(3)]  # one may have been under way
        config.write_text("[toy]\nsise = 3\n")
        (tmp_path / "new").symlink_to("2")
        (tmp_path / "new").rename(data)
        shutil.rmtree(tmp_path / "1")
        last = [push.next_run() for _ in range(3)]
    assert [first["size"], second["size"], later[-1]["size"], last[-1]["size"]] == [1, 1, 22, 4444]
    assert len({run["pid"] for run in (first, second, *later, *last)}) == 1


@pytest.mark.slow
def test_key_is_read_once_and_again_after_a_refusal(project: Project, intake: Intake, aws: Aws) -> None:
    aws.put_secret("dev/datadog", {"DD_API_KEY": KEY})
    with staying(project, **aws.environment, FLEETGAUGE_SECRET_PREFIX="dev", DD_API_KEY="") as push:
        for _ in range(3):
            push.next_run()
        before = aws.asked("secretsmanager")
        intake.faults.add(FORBIDDEN, times=2)  # of one run, or of the end of one and the next
        for _ in range(3):
            push.next_run()
        after = aws.asked("secretsmanager")
        push.stop()
    assert before == 1
    assert after in {2, 3}


@pytest.mark.slow
def test_three_refusals_in_a_row_end_it(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(1, context.window.until)")
    intake.faults.add(FORBIDDEN, times=None)
    ran = project.run("toy", "--push", "--every", "1s")
    assert (ran.returncode, "refused the key in 3 runs in a row" in ran.stderr) == (1, True)
