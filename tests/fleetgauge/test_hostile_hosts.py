"""Hosts in trouble: whatever happens around a probe, the host computes and ends as without it.

One process imports the probes and forks a host for each case, which runs a program and ends in its own way.
A host prints its result as JSON; what a probe logs goes to stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import yaml

from fleetgauge import records
from support.project import ROOT

FORKER = """
import json, os, signal, sys, traceback
programs, folder = json.load(sys.stdin), sys.argv[1]
codes = {}
for number, program in enumerate(programs):
    own = f"{folder}/{number}/"
    os.mkdir(own)
    if host := os.fork():
        codes[number] = os.waitstatus_to_exitcode(os.waitpid(host, 0)[1])
        continue
    signal.alarm(60)
    for descriptor in (1, 2):
        os.dup2(os.open(f"{own}{descriptor}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
    os.chdir(own)
    exec(program, {**globals(), "folder": own})
    sys.exit()
print(json.dumps(codes))
"""


class Ended(NamedTuple):
    """How a host ended."""

    code: int
    result: Any  # None where it printed none
    stderr: str
    written: list[dict[str, Any]]

    @property
    def n_puts(self) -> int:
        return sum(record["count"] for record in self.written if record.get("op") == "put")


def run(prelude: str, programs: list[str], folder: Path) -> list[Ended]:
    paths = f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}\n"
    forker = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", paths + prelude + FORKER, str(folder)],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    ended = []
    for number, code in json.loads(forker.stdout).items():
        output = (folder / number / "1").read_text().splitlines()
        written = [one for path in (folder / number).rglob("*.jsonl") for one in records.read(path)]
        result = json.loads(output[-1]) if output else None
        ended.append(Ended(code, result, (folder / number / "2").read_text(), written))
    return ended


class Case(NamedTuple):
    """A program, its result, and what is logged, no line twice: nothing if empty, anything for None."""

    program: str
    result: Any
    warned: str | None = ""
    code: int = 0
    setup: str = ""  # before a hook or a logger is opened


def read_cases(group: str) -> dict[str, Case]:
    given = yaml.safe_load((ROOT / "tests" / "data" / "hosts.yaml").read_text())[group]
    return {name: Case(**case) for name, case in given.items()}


def assert_unharmed(cases: dict[str, Case], ended: list[Ended]) -> None:
    wrong = {}
    for (name, case), end in zip(cases.items(), ended, strict=True):
        lines = end.stderr.splitlines()
        quiet = len(lines) == len(set(lines)) and ("Traceback" in end.stderr) == (case.code == 1)
        if case.warned:
            quiet = quiet and case.warned in end.stderr
        elif case.warned == "" and case.code != 1:
            quiet = not lines
        if (end.code, end.result) != (case.code, case.result) or not quiet:
            wrong[name] = end
    assert wrong == {}


DATA_PLANE = """
import asyncio, atexit, json, logging, multiprocessing, os, resource, shutil, signal, sys, threading, time
from support.data_plane_fakes import Tensor
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain
from fleetgauge.records import RecordWriter
from fleetgauge.records.background import Worker
def give_up_soon():
    Worker.close.__defaults__ = RecordWriter.close.__defaults__ = (0.2,)
class Inner:
    def put_samples(self, *arguments, **options): return "stored"
    clear_samples = get_samples = put_samples
    def close(self): return "closed"
class Run:
    def log(self, data, *, commit): pass
def put(client, *keys):
    return client.put_samples(list(keys), "p", fields={"x": Tensor(len(keys))})
def puts(client, n=20):
    results = {put(client, str(number)) for number in range(n)}
    assert results == {"stored"}, results
    return client.snapshot()["total_ops"]
def end(result):
    print(json.dumps(result), flush=True)
def end_after_losses(sink):
    ops = puts(MetricsDataPlaneClient(Inner(), sink))
    sink.close()
    end([ops, sink.dropped if isinstance(sink, JsonlEvents) else sink.errors])
"""


def test_host_of_a_data_plane_is_unharmed_and_a_loss_is_warned_once(tmp_path: Path) -> None:
    cases = read_cases("data_plane")
    assert_unharmed(cases, run(DATA_PLANE, [case.program for case in cases.values()], tmp_path))


ENDINGS = {
    "sys.exit(5)": 5,
    "raise ValueError": 1,
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); os.kill(os.getpid(), 15)": 3,
    "os.kill(os.getpid(), 15)": -15,
    "os.kill(os.getpid(), 9)": -9,
    "os._exit(4)": 4,
}
TWO_INTERVALS = """
now = [1000.0]
sink = JsonlEvents(folder, 10, clock=lambda: now[0])
client = MetricsDataPlaneClient(Inner(), sink)
puts(client)
now[0] = 1011.0
put(client, "next")
sink.flush()
while not any("op" in line for path in os.scandir(folder) if "jsonl" in path.name for line in open(path)):
    time.sleep(0.01)
"""


def test_exit_code_is_the_hosts_and_only_a_killed_one_loses_an_interval(tmp_path: Path) -> None:
    ended = run(DATA_PLANE, [TWO_INTERVALS + ending for ending in ENDINGS], tmp_path)
    found = [(end.code, end.n_puts, "end" in {one["event"] for one in end.written}) for end in ended]
    killed = (-15, -9, 4)
    assert found == [(code, 20 if code in killed else 21, code not in killed) for code in ENDINGS.values()]


OTHERS = """
import asyncio, atexit, itertools, json, os, pickle, signal, sys, threading, types
import pytest
from fleetgauge.compute import metadata, nvml
from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook, patch, recording
from support.xenna_pipeline import standin
def end(result): os.write(1, json.dumps(result).encode())
def fail(*_, **__): raise RuntimeError("W&B is down")
def hang(*_, **__): threading.Event().wait()
def give_up_soon(): recording.MAX_END_WAIT_S = 0.3
wandb = sys.modules["wandb"] = types.ModuleType("wandb")
wandb.__spec__ = types.SimpleNamespace()
wandb.run, wandb.define_metric = None, lambda *_, **__: None
"""
HOOK = """
path, log_wandb = folder, wandb.run is not None
{setup}
monitor_class, answer = standin.install(pytest.MonkeyPatch()), standin.one()
def pipeline(updates=5):
    with monitor_class(itertools.repeat(answer)) as monitor:
        return sum(monitor.update() is answer for _ in range(updates))
def make_hook():
    return XennaWandbStatsHook(XennaObservabilityConfig(log_wandb, 30, path, "shared"), "curate")
with make_hook():
    computed = pipeline()
{program}
end(computed)
sys.exit(7)
"""
COMPUTE = """
{setup}
metadata.read_host(deadline=0.1)
{program}
end([bool(host.os_cpus), host.gpus])
sys.exit(7)
"""


def test_host_of_a_hook_or_of_compute_is_unharmed_and_warned_once(tmp_path: Path) -> None:
    cases, programs = dict[str, Case](), []
    for group, host, depth in (("hook", HOOK, "    "), ("compute", COMPUTE, "")):
        for name, case in read_cases(group).items():
            programs.append(host.format(setup=case.setup, program=indent(case.program, depth)))
            cases[f"{group}: {name}"] = case if case.code else case._replace(code=7)
    assert_unharmed(cases, run(OTHERS, programs, tmp_path))
