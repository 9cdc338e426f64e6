"""Hosts in trouble, each in a process of its own: result and exit code are unharmed, losses are counted.

Every program ends with a line of JSON, its result, unless it is killed. What a probe logs goes to stderr.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleetgauge import records
from support.project import ROOT

PRELUDE = """
import atexit, json, os, resource, shutil, signal, sys, threading, time
from support.data_plane_fakes import Tensor
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient, WandbEvents, chain
from fleetgauge.records import RecordWriter
from fleetgauge.records.background import Worker
Worker.close.__defaults__ = RecordWriter.close.__defaults__ = (0.2,)
folder = sys.argv[1]
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
def end(**result):
    print(json.dumps(result), flush=True)
def end_after_losses(sink):
    ops = puts(MetricsDataPlaneClient(Inner(), sink))
    sink.close()
    end(ops=ops, dropped=sink.dropped)
def end_after_errors(sink):
    ops = puts(MetricsDataPlaneClient(Inner(), sink))
    sink.close()
    end(ops=ops, errors=sink.errors)
"""


class Ended(NamedTuple):
    code: int
    result: dict[str, Any]
    warnings: list[str]
    written: list[dict[str, Any]]


def run(program: str, folder: Path) -> Ended:
    script = f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}\n{PRELUDE}{program}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, f"{folder}/"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    written = [one for path in sorted(folder.rglob("*.jsonl")) for one in records.read(path)]
    return Ended(done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr.splitlines(), written)


def n_puts(ended: Ended) -> int:
    return sum(one["count"] for one in ended.written if one.get("op") == "put")


# name: program, its result, and whether the probe has something to warn of
UNHARMED: dict[str, tuple[str, dict[str, Any], bool | None]] = {
    "W&B that hangs": (
        """
class Hanging:
    def log(self, data, *, commit): threading.Event().wait()
end(ops=puts(MetricsDataPlaneClient(Inner(), WandbEvents(Hanging(), 0))))
""",
        {"ops": 20},
        True,
    ),
    "W&B that raises": (
        """
class Raising:
    def log(self, data, *, commit): raise ConnectionError("offline")
end_after_errors(WandbEvents(Raising(), 0))
""",
        {"ops": 20, "errors": 21},
        True,
    ),
    "W&B that exits": (
        """
class Exiting:
    def log(self, data, *, commit): sys.exit(9)
end_after_errors(WandbEvents(Exiting(), 0))
""",
        {"ops": 20, "errors": 21},
        True,
    ),
    "disk that hangs": (
        """
real = os.open
os.open = lambda *arguments, **options: threading.Event().wait()
client = MetricsDataPlaneClient(Inner(), JsonlEvents(folder, 0.01))
end(ops=puts(client))
""",
        {"ops": 20},
        True,
    ),
    "disk that hangs under a record writer": (
        """
os.write = lambda *arguments: threading.Event().wait()
records = RecordWriter(folder, "k", queue_size=5)
taken = sum(records.write("stats", {}) for _ in range(50))
end(lost=records.dropped == 50 - taken > 0)
""",
        {"lost": True},
        True,
    ),
    "full disk": (
        """
end_after_losses(JsonlEvents("/dev/full"))
""",
        {"ops": 20, "dropped": 3},
        True,
    ),
    "directory that cannot be written": (
        """
end_after_losses(JsonlEvents("/proc/no/such/place/"))
""",
        {"ops": 20, "dropped": 3},
        True,
    ),
    "limit on the size of files": (
        """
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
end_after_losses(JsonlEvents(folder))
""",
        {"ops": 20, "dropped": 3},
        True,
    ),
    "no file descriptor left": (
        """
sink = JsonlEvents(folder)
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True: taken.append(os.dup(1))
except OSError: pass
ops = puts(MetricsDataPlaneClient(Inner(), sink))
sink.close()
for descriptor in taken: os.close(descriptor)
end(ops=ops, dropped=sink.dropped)
""",
        {"ops": 20, "dropped": 3},
        True,
    ),
    "directory that is removed": (
        """
sink = JsonlEvents(folder + "gone/", 0.01)
client = MetricsDataPlaneClient(Inner(), sink)
puts(client)
sink.flush()
shutil.rmtree(folder + "gone", ignore_errors=True)
ops = puts(client)
sink.close()
end(ops=ops)
""",
        {"ops": 40},
        None,  # a record may be lost that is written while the directory goes
    ),
    "closed stderr": (
        """
os.close(2)
end_after_losses(JsonlEvents("/dev/full"))
""",
        {"ops": 20, "dropped": 3},
        False,
    ),
    "stderr that is None": (
        """
sys.stderr = None
sink = JsonlEvents("/dev/full")
end(ops=puts(MetricsDataPlaneClient(Inner(), sink)))
""",
        {"ops": 20},
        False,
    ),
    "log handler that raises": (
        """
import logging
class Broken(logging.Handler):
    def handle(self, record): raise RuntimeError
logging.getLogger("fleetgauge").addHandler(Broken())
end_after_losses(JsonlEvents("/dev/full"))
""",
        {"ops": 20, "dropped": 3},
        False,
    ),
    "no thread to be had": (
        """
def refuse(self): raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
file, wandb = JsonlEvents(folder), WandbEvents(Run())
end(ops=puts(MetricsDataPlaneClient(Inner(), chain(file, wandb))), lost=[file.dropped, wandb.errors])
""",
        {"ops": 20, "lost": [20, 20]},
        True,
    ),
    "callback that raises": (
        """
def raising(event): raise ValueError("full")
client = MetricsDataPlaneClient(Inner(), raising)
end(ops=puts(client), errors=client.snapshot()["callback_errors"])
""",
        {"ops": 20, "errors": 20},
        True,
    ),
    "callback that interrupts": (
        """
def interrupted(event): raise KeyboardInterrupt
client = MetricsDataPlaneClient(Inner(), interrupted)
try: put(client, "a")
except KeyboardInterrupt: end(ops=client.snapshot()["total_ops"])
""",
        {"ops": 1},
        False,
    ),
    "operation that fails": (
        """
class Failing(Inner):
    def put_samples(self, *arguments, **options): raise TimeoutError("late")
sink = JsonlEvents(folder)
client = MetricsDataPlaneClient(Failing(), sink)
try: put(client, "a")
except TimeoutError as error: text = str(error)
sink.close()
end(text=text, timeouts=client.snapshot()["by_op"]["put"]["timeouts"])
""",
        {"text": "late", "timeouts": 1},
        False,
    ),
    "client of asyncio": (
        """
import asyncio
class Async(Inner):
    async def put_samples(self, *arguments, **options):
        await asyncio.sleep(0)
        return "stored"
async def main(client): return await asyncio.gather(*(put(client, str(number)) for number in range(20)))
client = MetricsDataPlaneClient(Async(), JsonlEvents(folder))
results = asyncio.run(main(client))
end(results=len(results), ops=client.snapshot()["total_ops"])
""",
        {"results": 20, "ops": 20},
        False,
    ),
    "signal handler that uses the client": (
        """
client = MetricsDataPlaneClient(Inner(), chain(JsonlEvents(folder), WandbEvents(Run(), 0)))
handled = []
signal.signal(signal.SIGALRM, lambda *_: handled.append(put(client, "from the handler")))
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
number = 0
while len(handled) < 50:
    put(client, str(number := number + 1))
signal.setitimer(signal.ITIMER_REAL, 0)
end(right=client.snapshot()["total_ops"] == number + len(handled))
""",
        {"right": True},
        False,
    ),
    "exit handler that puts after the sinks were closed": (
        """
client = MetricsDataPlaneClient(Inner(), JsonlEvents(folder))
atexit.register(lambda: end(ops=puts(client)))
puts(client)
""",
        {"ops": 40},
        False,
    ),
    "child of multiprocessing": (
        """
import multiprocessing
def work(client, sink, queue):
    queue.put([puts(client), client.sole_writer])
    sink.close()
sink = JsonlEvents(folder)
client = MetricsDataPlaneClient(Inner(), sink, sole_writer=True)
puts(client)
found = []
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(client, sink, queue))
child.start()
found = queue.get()
child.join()
end(child=found, code=child.exitcode, parent=puts(client))
""",
        {"child": [20, False], "code": 0, "parent": 40},
        False,
    ),
    "daemon of two forks": (
        """
sink = JsonlEvents(folder)
client = MetricsDataPlaneClient(Inner(), sink)
puts(client)
reader, out = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    ops = puts(client)
    sink.close()
    os.write(out, str(ops).encode())
    os._exit(0)
os.wait()
end(grandchild=int(os.read(reader, 10)), parent=puts(client))
""",
        {"grandchild": 20, "parent": 40},
        False,
    ),
}


@pytest.mark.parametrize("name", UNHARMED)
def test_host_in_trouble_is_unharmed(name: str, tmp_path: Path) -> None:
    program, result, warns = UNHARMED[name]
    ended = run(program, tmp_path)
    assert (ended.code, ended.result) == (0, result), ended.warnings
    assert warns is None or bool(ended.warnings) == warns, ended.warnings
    assert len(ended.warnings) == len(set(ended.warnings)), "each reason is logged once"


@pytest.mark.parametrize(
    ("last_line", "code"),
    [
        ("sys.exit(5)", 5),
        ("raise ValueError", 1),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); os.kill(os.getpid(), 15)", 3),
    ],
)
def test_exit_code_is_the_hosts_and_the_last_interval_is_written(
    last_line: str, code: int, tmp_path: Path
) -> None:
    program = f"puts(MetricsDataPlaneClient(Inner(), JsonlEvents(folder)))\n{last_line}\n"
    ended = run(program, tmp_path)
    assert (ended.code, n_puts(ended)) == (code, 20)
    assert ended.written[-1]["event"] == "end"


@pytest.mark.parametrize(
    ("last_line", "code"),
    [("os.kill(os.getpid(), 15)", -15), ("os.kill(os.getpid(), 9)", -9), ("os._exit(4)", 4)],
)
def test_killed_host_loses_its_last_interval_and_nothing_else(
    last_line: str, code: int, tmp_path: Path
) -> None:
    program = f"""
now = [1000.0]
sink = JsonlEvents(folder, 10, clock=lambda: now[0])
client = MetricsDataPlaneClient(Inner(), sink)
puts(client)
now[0] = 1011.0
put(client, "next")
sink.flush()
while not any("op" in line for path in os.scandir(folder) for line in open(path)): time.sleep(0.01)
{last_line}
"""
    ended = run(program, tmp_path)
    assert (ended.code, n_puts(ended)) == (code, 20)
    assert "end" not in {one["event"] for one in ended.written}


@pytest.mark.parametrize("sink", ["JsonlEvents(folder, 0.01)", "WandbEvents(Run(), 0)"])
def test_exit_with_daemon_threads_that_keep_putting(sink: str, tmp_path: Path) -> None:
    program = f"""
client = MetricsDataPlaneClient(Inner(), {sink})
def work(thread):
    while True: put(client, thread)
for number in range(8): threading.Thread(target=work, args=(str(number),), daemon=True).start()
while client.snapshot()["total_ops"] < 1000: time.sleep(0.001)
end(done=True)
"""
    ended = run(program, tmp_path)
    assert (ended.code, ended.result) == (0, {"done": True}), ended.warnings


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_pool_of_processes_counts_each_for_itself(method: str, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(
        f"""
import multiprocessing, sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient
from support.data_plane_fakes import PicklableStore, Tensor
def work(sent):
    client, sink, number = sent
    client.put_samples([str(number)], "p", fields={{"x": Tensor(1)}})
    sink.flush()
    return client.snapshot()["total_ops"]
if __name__ == "__main__":
    sink = JsonlEvents(sys.argv[1])
    client = MetricsDataPlaneClient(PicklableStore(), sink)
    client.put_samples(["parent"], "p")
    with multiprocessing.get_context("{method}").Pool(4) as pool:
        print(pool.map(work, [(client, sink, number) for number in range(8)], chunksize=2))
    sink.close()
"""
    )
    command = [sys.executable, str(tmp_path / "pool.py"), f"{tmp_path}/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    # A chunk is one pickle: its two tasks share a copy.
    assert json.loads(done.stdout) == [1, 2] * 4


@pytest.mark.skipif(not importlib.util.find_spec("gevent"), reason="gevent is not installed")
def test_greenlets_of_gevent_are_all_counted(tmp_path: Path) -> None:
    program = """
import gevent, gevent.monkey
gevent.monkey.patch_all()
sink = JsonlEvents(folder)
client = MetricsDataPlaneClient(Inner(), sink)
gevent.joinall([gevent.spawn(puts, client) for _ in range(10)])
sink.close()
end(ops=client.snapshot()["total_ops"])
"""
    ended = run(program, tmp_path)
    assert (ended.code, ended.result, n_puts(ended)) == (0, {"ops": 200}, 200)
