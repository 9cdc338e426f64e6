"""Reading records costs a small multiple of parsing and sending them, once, in little memory, and linearly.

The floor is what nobody can do without: `orjson.loads` of every line, and the same points made into the
intake's JSON by orjson, compressed as the client does, and posted over one connection. Ours is the collector,
delivery, sink and checkpoint as in a push, in a process of its own, from its first line to its last save.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, medians, python, smallest  # noqa: E402

LIMITS = {"xenna": 4.0, "gpu_memory": 5.5, "data_plane": 7.0}
UNTAGGED = {"xenna": "STAGE_RUN_HASH", "gpu_memory": "TAG_JOB_ID", "data_plane": "TAG_RANK"}
WRITERS = {"xenna": 64, "gpu_memory": 64, "data_plane": 128}
ROUNDS = 5

_CHILD = """
import gc, json, logging, resource, sys, time, zlib
from pathlib import Path
gc.set_threshold(100_000)
way, kind, folder, url, store, now, untagged = sys.argv[1:]
now = int(now)
import orjson, urllib3
from common.collector import Context, load_collector
from common.config.configuration import Configuration
from common.datadog.payloads import documents
from common.datadog.series import SeriesTable
from common.datadog.sink import DatadogSink
from common.execution.delivery import Delivery
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.shards import ALONE
from common.state.directory import DirectoryStore
from common.state.slots import SlotCheckpoint
environ = dict(DD_ENV="bench", DD_API_KEY="bench-key", FLEETGAUGE_DD_URL=url, FLEETGAUGE_SERIES_CAP="1000000")
environ["FLEETGAUGE_" + kind.upper() + "_PATHS"] = folder
if untagged:
    environ["FLEETGAUGE_" + kind.upper() + "_" + untagged] = "false"
found = Configuration(environ, None)
collector = load_collector(kind)
settings = found.collector(kind, collector.settings)
result = {}
if way == "floor":
    context = Context(settings, now, now, "node", {}, Deadline(600), logging.getLogger("bench"))
    samples = [one for one in collector.collect(context) if isinstance(one, Sample)]
    batches = []
    for first in range(0, len(samples), 10_000):
        table = SeriesTable(["env:bench", "service:fleetgauge"], 10**6)
        batches.append(list(documents(table.take(samples[first : first + 10_000], 0, 2**40))))
    del samples
    pool = urllib3.HTTPConnectionPool("127.0.0.1", int(url.rpartition(":")[2]))
    begun = time.process_time()
    for path in Path(folder).rglob("*.jsonl"):
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)
    for series in batches:
        pool.request("POST", "/api/v2/series", body=zlib.compress(orjson.dumps({"series": series})))
    result["cpu"] = time.process_time() - begun
else:
    sink = DatadogSink(found.datadog(), found.core, Deadline(600))
    sink.validate()  # imports and connects, which is not what is measured here
    saving = 0.0
    begun = time.process_time()
    with SlotCheckpoint(DirectoryStore(Path(store)), kind, ALONE) as checkpoint:
        def remember(changes):
            global saving
            before = time.process_time()
            checkpoint.change(changes)
            saving += time.process_time() - before
        state, log = checkpoint.saved.state, logging.getLogger("bench")
        context = Context(settings, now, now, "node", state, Deadline(600), log)
        samples = set() if way == "count" else None
        yielded = 0
        with Delivery(sink, remember) as delivery:
            for item in collector.collect(context):
                if isinstance(item, Sample):
                    yielded += 1
                    if samples is not None:
                        samples.add((item.metric.name, item.tags, item.host, item.timestamp))
                delivery.take(item)
            delivery.flush()
    result = {"cpu": time.process_time() - begun, "saving": saving, "yielded": yielded}
    result["true"] = len(samples) if samples is not None else 0
result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(result))
"""


@contextmanager
def intake(seen: Callable[[bytes], object] = len) -> Iterator[str]:
    """A server that accepts everything, in this process, so that its cost is nobody's, and shows it."""

    class Accept(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            seen(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(202, b'{"errors": []}')

        def do_GET(self) -> None:
            self._answer(200, b'{"valid": true}')

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Accept)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def run(way: str, kind: str, folder: str, url: str, untagged: str = "") -> dict[str, float]:
    """One way in a process of its own, with a store of its own."""
    with tempfile.TemporaryDirectory() as store:
        now = str(int(time.time()))
        command = [*python(_CHILD), way, kind, folder, url, store, now, untagged]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def _cpu(way: str, kind: str, folder: str, url: str) -> float:
    return run(way, kind, folder, url)["cpu"]


def against_the_floor(kind: str, writers: int, rounds: int, url: str) -> list[Claim]:
    """CPU against the floor, points against the true ones, and memory."""
    from support.record_files import write

    with tempfile.TemporaryDirectory() as folder:
        size = write(kind, Path(folder), writers, int(time.time()))
        cpu = medians(rounds, {way: partial(_cpu, way, kind, folder, url) for way in ("ours", "floor")})
        counted, taken = run("count", kind, folder, url), run("ours", kind, folder, url)
    print(f"{kind}: {writers} writers, {size / 1e6:.0f} MB, {counted['true']:,.0f} points; CPU s: {cpu}")
    return [
        Claim(f"{kind}: CPU, of the floor", cpu["ours"] / cpu["floor"], LIMITS[kind]),
        Claim(f"{kind}: points sent, of the true ones", counted["yielded"] / counted["true"], 1.02),
        Claim(f"{kind}: peak MB", taken["peak_mb"], 200),
    ]


def growth(kind: str, untagged: str, smallest_size: int, doublings: int, rounds: int, url: str) -> Claim:
    """The most that a doubling of writers multiplies the CPU by, from fifty to eight hundred."""
    from support.record_files import write

    cpu = dict.fromkeys([smallest_size * 2**doubling for doubling in range(doublings + 1)], math.inf)
    with tempfile.TemporaryDirectory() as folder:
        for writers in cpu:
            write(kind, Path(folder, str(writers)), writers, int(time.time()), steps=8)
        for _ in range(rounds):  # each size in turn, so that no noise of the machine is one size's alone
            for writers in cpu:
                taken = run("ours", kind, f"{folder}/{writers}", url, untagged)["cpu"]
                cpu[writers] = min(cpu[writers], taken)
    most = max(after / before for before, after in pairwise(cpu.values()))
    return Claim(f"{kind}{' untagged' if untagged else ''}: CPU of twice the writers", most, 2.2)


def saves(writers: int, url: str) -> Claim:
    """What saving takes of the CPU of a tick over so many files."""
    from support.record_files import write

    with tempfile.TemporaryDirectory() as folder:
        write("data_plane", Path(folder), writers, int(time.time()), steps=8)
        found = run("ours", "data_plane", folder, url)
    return Claim(f"saving, of the CPU with {writers} files", found["saving"] / found["cpu"], 0.03)


def damage(count: int) -> Claim:
    """Ticks that fail over so many damaged records of the three kinds."""
    from random import Random

    from support.record_fuzzer import KINDS, damaged, ticks_of
    from support.xenna_ticks import NOW

    failed = 0
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            expected: dict[Any, float] = {}
            chance = Random(kind.collector.name)  # noqa: S311
            for number in range(max(1, count // 3 // 500)):
                found = damaged(kind, chance, 500)
                path = Path(folder, str(number), kind.name)
                path.parent.mkdir()
                path.write_bytes(b"".join(line + b"\n" for line in found.lines))
                expected |= found.good
            ticks = ticks_of(kind, Path(folder))
            for ticks.now in (NOW, NOW + 300, NOW + 700):
                try:
                    ticks.tick()
                except Exception as error:
                    print(f"{kind.collector.name}: {type(error).__name__}: {error}")
                    failed += 1
            points = {
                (tag.partition(":")[2], at): value
                for (name, tags, at), value in ticks.points.items()
                for tag in tags
                if name == kind.metric and ":good-" in tag
            }
            failed += points != expected
    return Claim(f"ticks that failed over {count:,} damaged records", failed, 0)


def main(argv: list[str]) -> int:
    """All claims of the record engine."""
    tiny = smallest(argv, __doc__)
    claims: list[Claim] = []
    with intake() as url:
        for kind, writers in WRITERS.items():
            claims += against_the_floor(kind, 2 if tiny else writers, 1 if tiny else ROUNDS, url)
        for kind, untagged in UNTAGGED.items():
            for tags in ("", untagged):
                claims.append(growth(kind, tags, *((1, 1, 1) if tiny else (50, 4, ROUNDS)), url))
        claims.append(saves(2 if tiny else 1600, url))
    claims.append(damage(1500 if tiny else 100_000))
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
