"""Hostile situations around the xenna hook, the W&B logger and compute: hosts are unharmed, losses reported.

Every situation is a process of its own: a host that runs five updates of a pipeline inside a hook, prints
what it computed and exits with 7. `setup` makes the situation before the host starts, `inside` happens within
the hook. Warnings of the logger go to a file, as stderr may be gone.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from support.project import ROOT

pytestmark = pytest.mark.slow

HOST = """
import atexit, itertools, logging, os, signal, sys, threading, types
logging.basicConfig(filename=sys.argv[1], level=logging.WARNING)
directory = sys.argv[2] + "/"
wandb = sys.modules["wandb"] = types.ModuleType("wandb")
wandb.run = wandb.log = wandb.define_metric = None
path, log_wandb = directory, False
{setup}
import pytest
from fleetgauge.xenna import XennaObservabilityConfig, XennaWandbStatsHook, patch, recording
from support.xenna_pipeline import standin
recording.MAX_END_WAIT_S = 0.5
monitor_class, answer = standin.install(pytest.MonkeyPatch()), standin.one()
def pipeline(updates=5):
    with monitor_class(itertools.repeat(answer)) as monitor:
        return sum(monitor.update() is answer for _ in range(updates))
def make_hook():
    config = XennaObservabilityConfig(log_wandb, 30, path, "shared")
    return XennaWandbStatsHook(config, "curate")
with make_hook():
    computed = pipeline()
    {inside}
os.write(1, b"computed %d" % computed)
sys.exit(7)
"""
LOGGER = """
import logging, os, sys, types
logging.basicConfig(filename=sys.argv[1], level=logging.WARNING)
from fleetgauge import wandb_package
wandb = sys.modules["wandb"] = types.ModuleType("wandb")
wandb.__spec__ = types.SimpleNamespace()
class Run:
    config = types.SimpleNamespace(as_dict=dict, update=lambda *_, **__: None)
    summary = {{}}
    def log(self, *_, **__): pass
    def finish(self, exit_code): pass
def fail(*_, **__): raise RuntimeError("W&B is down")
wandb.run, wandb.init, wandb.Settings, wandb.Table = None, lambda **_: Run(), lambda **_: None, None
{setup}
from fleetgauge.wandb_logger import WandbLogger
with WandbLogger(None, "classify") as logger:
    for _ in range(5):
        logger.log_metrics({{"accuracy": 1}})
    {inside}
os.write(1, b"computed 5")
sys.exit(7)
"""
COMPUTE = """
import os, sys, threading
from fleetgauge.compute import metadata, nvml
{setup}
host = metadata.read_host(deadline=0.1)
{inside}
os.write(1, b"computed 5" if host.os_cpus and host.gpus is None else b"")
sys.exit(7)
"""
RUN = "wandb.run, log_wandb = object(), True\nwandb.define_metric = lambda *_, **__: None\n"


class Situation(NamedTuple):
    """What is hostile, what the log has exactly once, and how the host ends."""

    setup: str = ""
    inside: str = "pass"
    warned: str | None = None
    code: int = 7
    host: str = HOST


SITUATIONS = {
    "nothing": Situation(),
    "disk hangs": Situation(
        "write = os.write\n"
        "os.write = lambda fd, text: write(fd, text) if fd < 3 else threading.Event().wait()",
        warned="gave up waiting for ",
    ),
    "disk full": Situation("path = '/dev/full'", warned="No space left on device"),
    "directory not writable": Situation("path = '/proc/self/records/'", warned="lost a record for /proc"),
    "directory is a file": Situation(
        "open('file', 'w').close()\npath = 'file/records/'", warned="Not a directory"
    ),
    "wandb.log hangs": Situation(
        RUN + "wandb.log = lambda row: threading.Event().wait()", warned="gave up waiting for W&B"
    ),
    "wandb.log raises": Situation(
        RUN + "def fail(row): raise OSError('down')\nwandb.log = fail", warned="lost a record for W&B"
    ),
    "wandb and disk hang": Situation(
        RUN + "wandb.log = lambda row: threading.Event().wait()\npath = '/dev/full'",
        warned="No space left on device",
    ),
    "wandb without a run": Situation("log_wandb = True", warned="wandb.init() was not called"),
    "stderr and stdin closed": Situation("os.close(0)\nos.close(2)\nsys.stderr = None\npath = '/dev/full'"),
    "log handler raises": Situation(
        "class Failing(logging.Handler):\n"
        "    def handle(self, record): raise RuntimeError('no')\n"
        "logging.getLogger('fleetgauge').addHandler(Failing())\npath = '/dev/full'"
    ),
    "no thread can be started": Situation(
        'def refuse(thread): raise RuntimeError("can\'t start new thread")\nthreading.Thread.start = refuse',
        warned="can't start new thread",
    ),
    "no cosmos-xenna": Situation(
        inside="sys.modules['cosmos_xenna.pipelines.private.monitoring'].PipelineMonitor = None\n"
        "    with make_hook(): computed = pipeline()",
        warned="cosmos-xenna cannot be used",
    ),
    "SIGTERM": Situation(inside="os.kill(os.getpid(), signal.SIGTERM)", code=-15),
    "SIGTERM with a handler": Situation(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))",
        "os.kill(os.getpid(), signal.SIGTERM)",
        code=9,
    ),
    "the host raises": Situation(inside="raise ValueError('its own')", code=1),
    "os._exit": Situation(inside="os._exit(11)", code=11),
    "exit while daemon threads go on": Situation(
        inside="threads = [threading.Thread(target=pipeline, args=(10**9,), daemon=True) for _ in range(4)]\n"
        "    for thread in threads: thread.start()",
    ),
    "hook never closed": Situation(inside="make_hook().__enter__(); pipeline()"),
    "pipeline at exit": Situation(inside="atexit.register(pipeline)"),
    "fork inside the hook": Situation(
        inside="child = os.fork()\n"
        "    if child == 0: os._exit(pipeline(2) + pipeline(3))\n"
        "    computed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])",
        warned="forked inside an open hook",
    ),
    "child leaves the hook it inherited": Situation(
        inside="child = os.fork()\n"
        "    if child: assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n",
    ),
    "fork while hooks open and close": Situation(
        inside="busy = threading.Event()\n"
        "    def turn():\n"
        "        while not busy.is_set():\n"
        "            with make_hook(): pass\n"
        "    thread = threading.Thread(target=turn); thread.start()\n"
        "    for _ in range(10):\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            with make_hook(): os._exit(pipeline())\n"
        "        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
        "    busy.set(); thread.join()",
    ),
    "spawned child": Situation(
        inside="import multiprocessing\n"
        "    child = multiprocessing.get_context('spawn').Process(target=os.getpid)\n"
        "    child.start(); child.join(); assert child.exitcode == 0",
    ),
    "pickled hook": Situation(
        inside="import pickle\n    with pickle.loads(pickle.dumps(make_hook())): computed = pipeline()"
    ),
    "asyncio": Situation(inside="import asyncio\n    computed = asyncio.run(asyncio.to_thread(pipeline))"),
    "gevent": Situation("from gevent import monkey\nmonkey.patch_all()"),
    "wandb.init raises": Situation(
        "wandb.init = fail", warned="the W&B run could not be started", host=LOGGER
    ),
    "log of a run raises": Situation(
        "Run.log = fail", warned="metrics could not be logged to W&B", host=LOGGER
    ),
    "finish raises": Situation("Run.finish = fail", warned="could not be finished", host=LOGGER),
    "config of a run raises": Situation("Run.config = None", warned="compute metadata", host=LOGGER),
    "stdout closed before a logger": Situation("sys.stdout = None", host=LOGGER),
    "logger around a host that raises": Situation(inside="raise ValueError('its own')", code=1, host=LOGGER),
    "GPU driver hangs": Situation(
        "nvml.NvmlLibrary = lambda: threading.Event().wait()", "host = metadata.read_host()", host=COMPUTE
    ),
    "GPU driver raises": Situation("nvml.NvmlLibrary = lambda: 1 / 0", host=COMPUTE),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_host_ends_as_without_the_probe_and_a_loss_is_warned_once(name: str, tmp_path: Path) -> None:
    situation = SITUATIONS[name]
    if name == "gevent" and importlib.util.find_spec("gevent") is None:
        pytest.skip("gevent is not installed")
    log = tmp_path / "log"
    code = situation.host.format(setup=situation.setup, inside=situation.inside)
    paths = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
    ran = subprocess.run(
        [sys.executable, "-c", paths + code, str(log), str(tmp_path / "records")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == situation.code, ran.stderr
    if situation.code == 7:
        assert ran.stdout.endswith("computed 5")
        assert "Traceback" not in ran.stderr
    warnings = log.read_text() if log.exists() else ""
    assert situation.warned is None or warnings.count(situation.warned) == 1, warnings
