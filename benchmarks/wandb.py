"""Reading W&B: ours against a bare client, one connection and the official client, and many ticks at once.

The servers run in processes of their own and answer 150 ms late; each way of reading runs in another. One
server executes the schema over 26,000 runs, for the official client's sake; the other answers from prepared
bytes, so that what is measured is the reader. Usage and utilisation are off where they are not measured. CPU
is counted after imports, memory is the sum of the peaks of a process and its children. The official client as
it comes is measured on a part of the runs and scaled to the others, except for memory. A bare client requests
pages by offset over as many connections, and only receives them.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # without this folder, whose wandb.py is not the client

from benchmarks.measure import Claim, judge, smallest  # noqa: E402

KEY = "0123456789abcdef0123456789abcdef01234567"
LATENCY = 0.15
ROUNDS = 3  # of what is over in a second; the median counts
MEASURED = 300  # runs the official client reads
NOW = 1_794_700_800
DAY = 86_400
CONNECTIONS = 4
DEADLINE = 110.0  # of a collector, by default, without what is kept back to deliver


def serve_schema(recent: int, total: int) -> None:
    """Serve runs of 500 summary and 200 config keys; a line on stdin is answered with what was sent."""
    from support.servers.faults import Fault
    from support.servers.fleet import THROUGHPUT_KEYS, Row, client_config
    from support.servers.wandb import Wandb

    chance = random.Random(11)  # noqa: S311
    filler = (
        {f"losses/part_{n}": n * 1.000123 for n in range(495)},
        {f"trainer.option_{n}": {"desc": None, "value": n * 1.5} for n in range(199)},
    )

    def row(number: int) -> Row:
        end = NOW - chance.uniform(0, DAY / 2) if number < recent else NOW - chance.uniform(2, 60) * DAY
        name = f"github.sky.main.{number:07x}.arena.1" if number % 20 == 0 else f"train.{number}"
        summary = {key: chance.uniform(3e4, 4e4) for key in THROUGHPUT_KEYS} if number % 20 == 0 else {}
        start = end - chance.uniform(0.1, 11) * 3600
        made = (f"r{number}", "finished", start, end, name)
        return Row(*made, config=client_config(8), summary=summary, filler=filler)

    with Wandb(KEY) as server:
        server.add("acme", "ants", [row(number) for number in range(total)])
        server.faults.add(Fault(delay=LATENCY), times=None)
        print(server.url, flush=True)
        for _ in sys.stdin:
            print(json.dumps({"requests": len(server.requests)}), flush=True)
            server.requests.clear()


def serve_bytes() -> None:
    """Serve projects that are named by their size (`runs-100000`, `wide-8000`, `one-17`, `fleet-20000`)."""
    asyncio.run(_BytesServer().run())


class _BytesServer:
    def __init__(self) -> None:
        self.requests = 0

    async def run(self) -> None:
        server = await asyncio.start_server(self.converse, "127.0.0.1", 0)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps({"requests": self.requests}), flush=True)
            self.requests = 0

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                self.requests += 1
                variables = json.loads(body)["variables"]
                project = variables["project"]
                if b"systemMetrics" in body:  # of a fleet a tenth is active
                    project = f"active-{int(project.split('-')[1]) // 10}"
                limits = created_limits(json.loads(variables.get("filters", "{}")))
                answer, packed = page_bytes(project, variables["first"], variables["after"], *limits)
                await asyncio.sleep(LATENCY)
                encoding = b"Content-Encoding: gzip\r\n" if packed else b""
                size = str(len(answer)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\n%bContent-Length: %b\r\n\r\n" % (encoding, size))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def created_limits(filters: Any) -> tuple[float, float]:
    """Return the first and the last time of creation that a filter lets through; Any: JSON."""
    from support.servers.mongo import instant

    created = filters.get("$and", [{}])[-1].get("createdAt", {})
    since, until = (instant(created[key]) if key in created else None for key in ("$gte", "$lt"))
    return since or 0.0, until or math.inf


def page_bytes(
    project: str, first: int, after: str | None, since: float = 0.0, until: float = math.inf
) -> tuple[bytes, bool]:
    """A page as it goes over the wire, and whether it is compressed; of runs created in `[since, until)`."""
    kind, size = project.split("-")
    total = 1 if kind == "one" else int(size)
    low, high = (
        bisect_left(range(total), at, key=lambda number: created(number, total)) for at in (since, until)
    )
    if kind in {"runs", "fleet", "active"}:
        return _packed_page(kind, total, first, after, low, high), True
    return _page(kind, total, first, after, low, high), False


@lru_cache(maxsize=4096)
def _packed_page(kind: str, total: int, first: int, after: str | None, low: int, high: int) -> bytes:
    return gzip.compress(_page(kind, total, first, after, low, high), compresslevel=1)


def created(number: int, total: int) -> float:
    """Return when a run was created: they are spread over half a day, in milliseconds."""
    return NOW - DAY // 2 + (DAY // 2 - 3600) * 1000 * number // total / 1000


def encoded_cursor(offset: int) -> str:
    """Return the cursor of an offset."""
    return base64.b64encode(f"arrayconnection:{offset}".encode()).decode()


def _page(kind: str, total: int, first: int, after: str | None, low: int, high: int) -> bytes:
    begin = low + (int(base64.b64decode(after).decode().partition(":")[2]) + 1 if after else 0)
    end = min(begin + first, high)
    made = {"fleet": _owned, "active": _active, "wide": _wide}.get(kind)
    nodes = [
        json.dumps(made(number, total)) if made else _node_text(number, total) for number in range(begin, end)
    ]
    cursor = encoded_cursor(end - 1 - low) if nodes else None
    information = json.dumps({"hasNextPage": end < high, "endCursor": cursor})
    edges = ", ".join(f'{{"node": {node}}}' for node in nodes)
    runs = f'{{"totalCount": {high - low}, "pageInfo": {information}, "edges": [{edges}]}}'
    return f'{{"data": {{"viewer": {{"id": "x"}}, "project": {{"runs": {runs}}}}}}}'.encode()


def _wide(number: int, total: int) -> dict[str, Any]:
    node = _node(number, total)
    return node | {"config": json.dumps(json.loads(node["config"]) | {"padding": "x" * 45_000})}


def _active(number: int, total: int) -> dict[str, Any]:
    """The runs of a fleet that are active, with their system metrics."""
    from support.servers.fleet import system_row

    node = _owned(10 * number, 10 * total)
    return node | {"systemMetrics": json.dumps(system_row(*[float(10 * number % 100)] * 8))}


def _node(number: int, total: int) -> dict[str, Any]:
    node: dict[str, Any] = json.loads(_node_text(number, total))
    return node


def _node_text(number: int, total: int) -> str:
    """Return a run as JSON; written by hand, so that the server is no slower than a reader."""
    from support.servers.fleet import text

    start = created(number, total)
    took = 600 + (number * 104_729) % max(1, round(NOW - start) - 600)
    name = f"github.sky.main.{number:07x}.arena{number % 9}.1" if number % 20 == 0 else f"train.{number}"
    speeds = _SPEEDS.replace("SPEED", str(30_000 + number % 977)) if number % 20 == 0 else ""
    sweep = f'"s{number % 400}"' if number % 4 == 1 else "null"
    return (
        f'{{"id": "UnVuOnYxOnJ1bi0{number:08d}", "name": "run{number:08d}", "displayName": "{name}", '
        f'"state": "{"finished" if number % 9 else "failed"}", "createdAt": "{text(start)}", '
        f'"heartbeatAt": "{text(start + took)}", "sweepName": {sweep}, "config": {_CONFIG}, '
        f'"summaryMetrics": "{{\\"_wandb\\": {{\\"runtime\\": {took}}}{speeds}}}", '
        f'"computeSeconds": {took}, "runInfo": {{"gpuCount": 8}}}}'
    )


_CONFIG = json.dumps(json.dumps({"_wandb": {"value": {"e": {"w": {"gpu_count": 8, "gpu": "NVIDIA H100"}}}}}))
_KEYS = (
    *("overview/steps_per_second", "overview/epoch_steps_per_second", "overview/sps"),
    *("timing_cumulative/sps", "timing_per_epoch/sps"),
)
_SPEEDS = "".join(f', \\"{key}\\": SPEED' for key in _KEYS)


def _owned(number: int, total: int) -> dict[str, Any]:
    """A run of one of 300 people on one of three types of GPU; every tenth is active."""
    from support.servers.fleet import text

    node = _node(number, total)
    gpu = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4")[number % 3]
    node["config"] = json.dumps({"_wandb": {"value": {"e": {"w": {"gpu_count": 8, "gpu": gpu}}}}})
    node["user"] = {"username": f"user{number % 300}"}
    if number % 10 == 0:
        node |= {"state": "running", "heartbeatAt": text(NOW - 30), "computeSeconds": 0}
    return node


def ours(url: str, projects: str, connections: str, parts: str = "") -> dict[str, float]:
    """One run of the collector, with the collector's own garbage collection."""
    import gc

    import urllib3  # noqa: F401  # imports do not count, also those made late

    from collectors.wandb.collector import COLLECTOR
    from common.collector import Context
    from common.config.sources import Configuration
    from common.net.retry import Deadline
    from common.window import due

    gc.set_threshold(100_000)  # as in common.cli.main
    environ = {
        "WANDB_API_KEY": KEY,
        "WANDB_PROJECTS": projects,
        "WANDB_BASE_URL": url,
        "FLEETGAUGE_WANDB_CONNECTIONS": connections,
        "FLEETGAUGE_WANDB_MAX_RUNS": "2000000",
        "FLEETGAUGE_WANDB_USAGE": str("usage" in parts),
        "FLEETGAUGE_WANDB_UTILIZATION": str("utilization" in parts),
    }
    settings = Configuration(environ, None).table(COLLECTOR.settings, "wandb")
    context = Context(settings, due(NOW, 900, None, NOW - 3000), NOW, Deadline(DEADLINE))

    def work() -> float:
        found = COLLECTOR.collect(context)
        counted = {"wandb.runs.completed_24h", "wandb.runs.failed_24h"}
        return sum(sum(series.values) for series in found if series.metric.name in counted)

    return _measured(work)


def bare(url: str, project: str, connections: str, *, read: bool = False) -> dict[str, float]:
    """The same pages over as many connections; where `read`, with orjson and our own row reader."""
    import orjson
    import urllib3

    from collectors.wandb.runs import RunReader

    number = int(connections)
    total = int(project.split("-")[1])
    reading = RunReader("github.sky.*", None, 1)
    pool = urllib3.PoolManager(maxsize=number)
    begins: SimpleQueue[int] = SimpleQueue()
    for begin in range(0, total, 500):
        begins.put(begin)
    counts = []

    def carry() -> None:
        while True:
            try:
                begin = begins.get_nowait()
            except Empty:
                return
            after = encoded_cursor(begin - 1) if begin else None
            variables = {"project": project.partition("/")[2], "first": 500, "after": after}
            body = orjson.dumps({"query": "", "variables": variables})
            answer = pool.request("POST", url + "/graphql", body=body, headers={"Accept-Encoding": "gzip"})
            if read:
                edges = orjson.loads(answer.data)["data"]["project"]["runs"]["edges"]
                runs = [reading.read(edge["node"], []) for edge in edges]
                counts.append(len(runs))

    def work() -> float:
        threads = [Thread(target=carry) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)

    return _measured(work)


def official(url: str, most: int, *, lazy: bool) -> dict[str, float]:
    """The official client, the way its documentation shows, or with complete runs in each page."""
    import wandb

    from support.servers.fleet import text

    def work() -> float:
        api = wandb.Api(overrides={"base_url": url}, api_key=KEY, timeout=60)
        found = []
        for run in api.runs("acme/ants", filters={"createdAt": {"$gte": text(NOW - DAY)}}, lazy=lazy):
            found.append((run.state, run.created_at, run.summary.get("overview/sps")))
            if len(found) == most:
                break
        return len(found)

    return _measured(work)


def _measured(work: Callable[[], float]) -> dict[str, float]:
    import psutil

    begun, cpu = time.perf_counter(), time.process_time()
    runs = work()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    children = psutil.Process().children(recursive=True)
    cpu += sum(sum(child.cpu_times()[:2]) for child in children)
    peak = sum(_peak(pid) for pid in (os.getpid(), *(child.pid for child in children)))
    return {"runs": runs, "seconds": seconds, "cpu": cpu, "peak_mb": peak}


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line()

    def _line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the server has no output")
        return self._process.stdout.readline().strip()

    def measure(self, title: str, *way: str) -> dict[str, float]:
        """One way of reading, in a process of its own, with how often the server was asked."""
        with tempfile.TemporaryDirectory() as folder:
            names = ("HOME", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
            environ = {"PATH": os.environ["PATH"], "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
            environ.update(dict.fromkeys(names, folder))
            command = [sys.executable, __file__, way[0], self.url, *way[1:]]
            ran = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        found |= json.loads(self._line())
        print(
            f"{title:<44} {found['runs']:>9,.0f} {found['requests']:>8,.0f} {found['cpu']:>7.2f} "
            f"{found['peak_mb']:>8.0f} {found['seconds']:>8.2f}"
        )
        return found


@contextmanager
def serving(*command: str) -> Iterator[Server]:
    """A server, until the block ends."""
    with subprocess.Popen(
        [sys.executable, __file__, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Server(process)
        if process.stdin is not None:
            process.stdin.close()


def ticks_against_one(number: int) -> float:
    """How many times the time of one tick a week of ticks takes."""
    from collectors.wandb.ledger import Ledger
    from collectors.wandb.runs import RunReader
    from collectors.wandb.settings import Project
    from support.wandb_ledger import DEFAULTS

    reading = RunReader("github.sky.*", None, 1)
    nodes = (reading.read(_node(index, number), []) for index in range(number))
    runs = [run for run in nodes if run is not None]

    def seconds(ticks: range) -> float:
        times = []
        for _ in range(3):
            begun = time.process_time()
            for _ in Ledger(Project("acme", "ants"), runs, ticks, DEFAULTS).stretches():
                pass
            times.append(time.process_time() - begun)
        return min(times)

    one, week = seconds(range(NOW, NOW + 900, 900)), seconds(range(NOW - 7 * DAY + 900, NOW + 1, 900))
    print(f"{number:,} runs: one tick {one:.2f} s, 672 ticks {week:.2f} s")
    return week / one


def against_the_official_client(tiny: bool) -> list[Claim]:
    """A realistic day: few of many runs are recent."""
    recent, total = (20, 100) if tiny else (600, 26_000)
    with serving("serve-schema", str(recent), str(total)) as server:
        server.measure("warming up", "ours", "acme/ants", str(CONNECTIONS))
        title = f"ours, {recent:,} of {total:,} runs"
        days = [server.measure(title, "ours", "acme/ants", str(CONNECTIONS)) for _ in range(ROUNDS)]
        day = sorted(days, key=lambda each: each["seconds"])[ROUNDS // 2]
        client = server.measure("official client, some of them", "official", str(MEASURED), "lazy")
        eager = server.measure("official client, lazy=False", "official", str(recent), "eager")
    if not day["runs"] == eager["runs"] == recent:
        raise SystemExit(f"wrong counts: {day['runs']}, {eager['runs']}")
    scaled = client["seconds"] * recent / client["runs"]
    return [
        Claim(f"requests for {recent:,} of {total:,} runs", day["requests"], 2),
        Claim("times faster than the official client", scaled / day["seconds"], 100, at_least=True),
        Claim("with lazy=False", eager["seconds"] / day["seconds"], 4, at_least=True),
    ]


def against_a_bare_client(server: Server, runs: int) -> list[Claim]:
    """Many runs of one project."""
    project, several = f"acme/runs-{runs}", str(CONNECTIONS)
    server.measure("warming up", "bare", project, several)
    server.measure("warming up", "ours", project, several)
    plain = server.measure(f"bare client, {CONNECTIONS} connections", "bare", project, several)
    reader = server.measure("urllib3 + orjson + row reader", "read", project, several)
    found = server.measure(f"ours, {CONNECTIONS} connections", "ours", project, several)
    single = server.measure("ours, one connection", "ours", project, "1")
    if {found["runs"], single["runs"], reader["runs"]} != {runs}:
        raise SystemExit(f"wrong counts: {found['runs']}, {single['runs']}, {reader['runs']}")
    return [
        Claim(f"{runs:,} runs: wall time / bare client", found["seconds"] / plain["seconds"], 1.5),
        Claim("requests / bare client", found["requests"] / plain["requests"], 1.15),
        Claim("one connection / ours", single["seconds"] / found["seconds"], 3, at_least=True),
        Claim("CPU / urllib3 + orjson + row reader", found["cpu"] / reader["cpu"], 2),
        Claim(f"peak MB at {runs:,} runs", found["peak_mb"], 150),
    ]


def usage_and_utilization(server: Server, runs: int, rounds: int) -> list[Claim]:
    """What usage and utilisation add, a tenth of the runs being active; each way takes its turn."""
    several = str(CONNECTIONS)
    ways = {"off": "", "usage": "usage", "all": "usage,utilization"}
    found: dict[str, list[dict[str, float]]] = {way: [] for way in (*ways, "four times")}
    server.measure("warming up", "ours", f"acme/fleet-{runs}", several, ways["all"])
    server.measure("warming up", "ours", f"acme/fleet-{4 * runs}", several, ways["usage"])
    for _ in range(rounds):
        for way, parts in ways.items():
            title = f"ours, {runs:,} runs, {parts or 'all off'}"
            found[way].append(server.measure(title, "ours", f"acme/fleet-{runs}", several, parts))
        title = f"ours, {4 * runs:,} runs, usage"
        found["four times"].append(server.measure(title, "ours", f"acme/fleet-{4 * runs}", several, "usage"))
    cpu = {way: min(one["cpu"] for one in every) for way, every in found.items()}
    requests = {way: every[0]["requests"] for way, every in found.items()}
    return [
        Claim(f"{runs:,} runs: requests with all off", requests["off"], math.ceil(1.15 * runs / 500)),
        Claim("requests that usage adds", requests["usage"] - requests["off"], 0),
        Claim("CPU with usage / all off", cpu["usage"] / cpu["off"], 1.3),
        Claim(f"requests that {runs // 10:,} active runs add", requests["all"] - requests["usage"], 16),
        Claim("CPU with utilisation / without", cpu["all"] / cpu["usage"], 1.4),
        Claim("CPU of four times the runs / four", cpu["four times"] / cpu["usage"] / 4, 1.2),
    ]


def main(argv: Sequence[str]) -> int:
    """Measure everything in one run."""
    tiny = smallest(argv, __doc__)
    print(f"{'':<44} {'runs':>9} {'requests':>8} {'CPU s':>7} {'peak MB':>8} {'seconds':>8}")
    claims = against_the_official_client(tiny)
    projects, wide, million = (20, 300, 3_000) if tiny else (1_000, 8_000, 1_000_000)
    with serving("serve-bytes") as server:
        claims += against_a_bare_client(server, 2_000 if tiny else 100_000)
        names = ",".join(f"acme/one-{number}" for number in range(projects))
        small = server.measure(f"ours, {projects:,} projects of one run", "ours", names, str(CONNECTIONS))
        claims.append(Claim("projects not delivered in time", projects - small["runs"], 0))
        least = small["requests"] * LATENCY / CONNECTIONS
        claims.append(Claim("their wall time / requests x latency", small["seconds"] / least, 1.2))
        large = server.measure(f"ours, {wide:,} runs of 45 kB", "ours", f"acme/wide-{wide}", str(CONNECTIONS))
        claims.append(Claim(f"runs missing of {wide:,} of 45 kB", wide - large["runs"], 0))
        claims.append(Claim(f"peak MB at {wide:,} runs of 45 kB", large["peak_mb"], 115))
        most = server.measure(f"ours, {million:,} runs, 16 connections", "ours", f"acme/runs-{million}", "16")
        claims.append(Claim(f"runs missing of {million:,}", million - most["runs"], 0))
        claims.append(Claim(f"peak MB at {million:,} runs", most["peak_mb"], 800))
        claims += usage_and_utilization(server, *((400, 1) if tiny else (20_000, 5)))
    claims.append(Claim("672 ticks / one tick", ticks_against_one(2_000 if tiny else 100_000), 2.1))
    return judge(claims)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve-schema", recent, total]:
            serve_schema(int(recent), int(total))
        case ["serve-bytes"]:
            serve_bytes()
        case ["ours", url, projects, connections, *parts]:
            print(json.dumps(ours(url, projects, connections, *parts)))
        case ["bare", url, project, connections]:
            print(json.dumps(bare(url, project, connections)))
        case ["read", url, project, connections]:
            print(json.dumps(bare(url, project, connections, read=True)))
        case ["official", url, most, way]:
            print(json.dumps(official(url, int(most), lazy=way == "lazy")))
        case arguments:
            sys.exit(main(arguments))
