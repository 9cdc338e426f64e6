"""Reading records costs a small multiple of parsing and sending them, in little memory, and linearly.

The floor is the least that any reader needs: `orjson.loads` of every line whose points are sent, and these
points made into the intake's JSON by orjson, compressed as our client does, and posted over one connection.
Ours is a run from its first listing to its last accepted payload, in a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, medians, python, smallest  # noqa: E402

LIMITS = {"xenna": 2.2, "gpu_memory": 3.2, "data_plane": 4.2}
UNTAGGED = {"xenna": "STAGE_RUN_HASH", "gpu_memory": "TAG_JOB_ID", "data_plane": "TAG_RANK"}
WRITERS = {"xenna": 64, "gpu_memory": 64, "data_plane": 128}
ROUNDS = 5

# A run of the version before windows, which stored byte offsets, over the same files: a quarter of an hour is
# new, in files of an hour. In floors of that quarter, because machines differ; measured on 2026-11-17 as the
# median of 5 rounds, without what it took to save its state.
FORMER_RUN = {"xenna": 3.61, "gpu_memory": 4.04, "data_plane": 7.51}
# It sends gauges for two steps instead of one, and may still cost no more; gpu_memory has little else.
OF_FORMER_RUN = {"xenna": 1.0, "gpu_memory": 1.3, "data_plane": 1.0}

_CHILD = """
import gc, json, sys, time, zlib
from pathlib import Path
gc.set_threshold(100_000)
way, kind, folder, url, now, sent_until, untagged, offsets = sys.argv[1:]
now = int(now)
import orjson, urllib3
from common.collector import Context, load_collector
from common.config.sources import Configuration
from common.datadog.client import DatadogClient
from common.datadog.intake import DatadogSink
from common.net.retry import Deadline
environ = dict(DD_ENV="bench", DD_API_KEY="bench-key", FLEETGAUGE_DD_URL=url, FLEETGAUGE_SERIES_CAP="1000000")
environ["FLEETGAUGE_" + kind.upper() + "_PATHS"] = folder
if untagged:
    environ["FLEETGAUGE_" + kind.upper() + "_" + untagged] = "false"
found = Configuration(environ, None)
collector = load_collector(kind)
settings = found.table(collector.settings, kind)
window = collector.due(settings, now, 900, int(sent_until), now + 600 - 3600)
context = Context(settings=settings, window=window, now=now, deadline=Deadline(600))
result = {}
if way == "floor":
    documents, payloads, points = [], [], 0
    for series in collector.collect(context):
        new = [(at, value) for at, value in zip(series.times, series.values) if at >= window.since]
        if ".ingest." in series.metric.name or not new:
            continue
        if points + len(new) > 10_000:
            payloads.append(documents)
            documents, points = [], 0
        document = {"metric": series.metric.name, "type": 3}
        document["tags"] = ["env:bench", "service:fleetgauge", *series.tags]
        document["points"] = [{"timestamp": at, "value": value} for at, value in new]
        if series.host:
            document["resources"] = [{"type": "host", "name": series.host}]
        documents.append(document)
        points += len(new)
        result["points"] = result.get("points", 0) + len(new)
    payloads.append(documents)
    starts = json.loads(offsets)
    level = 6 if starts else 5  # as the version did that a run is compared with, or as ours does
    pool = urllib3.HTTPConnectionPool("127.0.0.1", int(url.rpartition(":")[2]))
    gc.collect()
    gc.freeze()
    started = time.process_time()
    for path in Path(folder).rglob("*.jsonl"):
        with path.open("rb") as file:
            file.seek(starts.get(str(path), 0))
            for line in file:
                orjson.loads(line)
    for documents in payloads:
        body = zlib.compress(orjson.dumps({"series": documents}), level)
        pool.request("POST", "/api/v2/series", body=body)
    result["cpu"] = time.process_time() - started
else:
    client = DatadogClient(found.datadog, found.core, Deadline(600))
    sink = DatadogSink(client, found.core)
    client.validate()  # imports and connects, which is not what is measured here
    started = time.process_time()
    for series in collector.collect(context):
        sink.add(series)
    sink.flush()
    result = {"cpu": time.process_time() - started, "points": sink.points_sent}
assert not context.report.lost, context.report.lost
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
result["peak_mb"] = int(peak.split()[1]) / 1024
print(json.dumps(result))
"""


@contextmanager
def intake(seen: Callable[[bytes], object] = len) -> Iterator[str]:
    """Run a server that accepts everything, in this process, so that its cost is not measured."""

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


def run_time() -> int:
    """Return when runs are measured: right after a tick, as they usually start."""
    return int(time.time()) // 900 * 900 + 5


class Load:
    """Files of one kind, and a run over them: everything from `sent_until` on is new."""

    def __init__(
        self, kind: str, folder: str, url: str, now: int, sent_until: int, untagged: str = ""
    ) -> None:
        self._arguments = [kind, folder, url, str(now), str(sent_until), untagged]
        self.offsets: dict[str, int] = {}  # by file, where the new records begin

    def run(self, way: str) -> dict[str, float]:
        """Run "ours" or the "floor" in a process of its own."""
        command = [*python(_CHILD), way, *self._arguments, json.dumps(self.offsets)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return dict(json.loads(done.stdout))

    def cpu(self, way: str) -> float:
        """Return the CPU seconds of one way."""
        return self.run(way)["cpu"]

    def in_floors(self, rounds: int) -> tuple[float, dict[str, float]]:
        """Return how many floors ours costs, and the CPU seconds of both."""
        cpu = medians(rounds, {way: partial(self.cpu, way) for way in ("ours", "floor")})
        return cpu["ours"] / cpu["floor"], {way: round(seconds, 3) for way, seconds in cpu.items()}


def per_record(kind: str, writers: int, rounds: int, url: str) -> list[Claim]:
    """CPU against the floor where everything that the files hold is sent, and memory."""
    from support.record_files import SPAN, write

    with tempfile.TemporaryDirectory() as folder:
        now = run_time()
        size = write(kind, Path(folder), writers, now)
        load = Load(kind, folder, url, now, now - SPAN - 180)
        floors, cpu = load.in_floors(rounds)
        taken = load.run("ours")
    print(f"{kind}: {writers} writers, {size / 1e6:.0f} MB, {taken['points']:,.0f} points; CPU s: {cpu}")
    return [
        Claim(f"{kind}: CPU, of the floor", floors, LIMITS[kind]),
        Claim(f"{kind}: peak MB", taken["peak_mb"], 150),
    ]


def ordinary_run(kind: str, writers: int, rounds: int, url: str) -> Claim:
    """CPU of a run a step after the last one, over files of an hour, of that of the former version."""
    from support.record_files import SPAN, write

    with tempfile.TemporaryDirectory() as folder:
        now = run_time()
        write(kind, Path(folder), writers, now, span=4 * SPAN)
        load = Load(kind, folder, url, now, now - SPAN - 60)
        for path in Path(folder).rglob("*.jsonl"):
            lines = path.read_bytes().splitlines(keepends=True)
            load.offsets[str(path)] = sum(map(len, lines[: len(lines) * 3 // 4]))
        floors, cpu = load.in_floors(rounds)
        run = load.run("ours")
    sent = f"{run['points']:,.0f} points from {run['peak_mb']:.0f} MB"
    print(f"{kind}: an ordinary run of {writers} writers sends {sent}; CPU s: {cpu}")
    name = f"{kind}: CPU of an ordinary run, of the former version's"
    return Claim(name, floors / FORMER_RUN[kind], OF_FORMER_RUN[kind])


def growth(kind: str, untagged: str, smallest_size: int, doublings: int, rounds: int, url: str) -> Claim:
    """What a doubling of writers multiplies the CPU by, as the mean of four from fifty to eight hundred.

    A mean, because the garbage collector adds a step at the size with which it begins.
    """
    from support.record_files import SPAN, write

    cpu = dict.fromkeys([smallest_size * 2**doubling for doubling in range(doublings + 1)], math.inf)
    with tempfile.TemporaryDirectory() as folder:
        now = run_time()
        for writers in cpu:
            write(kind, Path(folder, str(writers)), writers, now, steps=8)
        for _ in range(rounds):  # each size in turn, so that no noise of the machine is one size's alone
            for writers in cpu:
                load = Load(kind, f"{folder}/{writers}", url, now, now - SPAN - 180, untagged)
                cpu[writers] = min(cpu[writers], load.cpu("ours"))
    print(f"{kind} {untagged}: CPU s by writers: { ({n: round(seconds, 3) for n, seconds in cpu.items()}) }")
    all_together = cpu[max(cpu)] / cpu[smallest_size]
    name = f"{kind}{' untagged' if untagged else ''}: CPU of twice the writers"
    return Claim(name, all_together ** (1 / doublings), 2.1)


def long_file(megabytes: int, writers: int, rounds: int, url: str) -> Claim:
    """CPU of a run over one long file of which half an hour matters, of a file that holds only that."""
    from support.record_files import KINDS

    now, half_hour = run_time(), 1800
    records = [record for writer in range(writers) for record in KINDS["xenna"](writer, now, half_hour)]
    records.sort(key=lambda record: record["timestamp"])
    lines = [json.dumps(record).encode() + b"\n" for record in records]
    old = json.dumps(KINDS["xenna"](0, now - 36_000)[0]).encode() + b"\n"
    with tempfile.TemporaryDirectory() as folder:
        loads = {}
        for name, size in (("short", 0), ("long", megabytes)):
            path = Path(folder, name, "a.jsonl")
            path.parent.mkdir()
            with path.open("wb") as file:
                for _ in range(size):
                    file.write(old * (1_000_000 // len(old) + 1))
                file.writelines(lines)
            os.utime(path, (now - 110, now - 110))  # right after the last record
            loads[name] = Load("xenna", str(path.parent), url, now, now - half_hour - 180)
        cpu = medians(rounds, {name: partial(load.cpu, "ours") for name, load in loads.items()})
    print(f"half an hour of {sum(map(len, lines)) / 1e6:.0f} MB at the end of {megabytes:,} MB; CPU s: {cpu}")
    return Claim("CPU of a long file, of one that holds only the window", cpu["long"] / cpu["short"], 2.0)


def damage(count: int) -> Claim:
    """Runs that fail, or deliver another value of a good record, over so many damaged ones of three kinds."""
    import logging

    from support.record_damage import damaged, lost_points
    from support.record_fleets import Disk, ticks_over
    from support.record_runs import Runs

    logging.disable(logging.WARNING)
    failed = 0
    for kind in WRITERS:
        for number in range(max(1, count // 3 // 500)):
            made = damaged(kind, number, 500)
            with tempfile.TemporaryDirectory() as folder:
                disk, runs = Disk(made, Path(folder)), Runs(kind, Path(folder))
                for now in ticks_over(made):
                    disk.advance(now)
                    try:
                        lost = runs.run(now).report.lost_by_reason
                        failed += not lost.keys() <= {"late"}  # a record that says it is old
                    except Exception as error:
                        print(f"{kind} {number}: {type(error).__name__}: {error}")
                        failed += 1
            failed += bool(lost_points(runs, made))
    logging.disable(logging.NOTSET)
    return Claim(f"runs that failed over {count:,} damaged records", failed, 0)


def main(argv: list[str]) -> int:
    """Measure all claims about reading records."""
    tiny = smallest(argv, __doc__)
    claims: list[Claim] = []
    rounds = 1 if tiny else ROUNDS
    with intake() as url:
        for kind, writers in WRITERS.items():
            claims += per_record(kind, 2 if tiny else writers, rounds, url)
            claims.append(ordinary_run(kind, 2 if tiny else writers, rounds, url))
        for kind, untagged in UNTAGGED.items():
            for tags in ("", untagged):
                claims.append(growth(kind, tags, *((1, 1, 1) if tiny else (50, 4, ROUNDS)), url))
        claims.append(long_file(*((10, 1) if tiny else (2000, 32)), rounds, url))
    claims.append(damage(1500 if tiny else 100_000))
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
