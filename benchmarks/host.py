"""A tick of a host collector that stays costs at most 1.5 scrapes of node_exporter, and no memory.

Process CPU of a child, over two hundred ticks pushed to an intake on loopback, beside two hundred
scrapes of a node_exporter with its defaults, in turns. Then a thousand ticks, whose memory stays flat. Where
there is no node_exporter only the memory is judged, and the cost of a tick printed.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

import psutil  # noqa: E402
import urllib3  # noqa: E402

from benchmarks.measure import Claim, judge, python, smallest  # noqa: E402
from support.project import KEY  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402

BINARY = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
MISSING = "neither prometheus-node-exporter nor node_exporter is installed"
_LINE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)

# A child, with nothing between two ticks: runs as many as a line on its input says.
CHILD = """
from common.options import Mode, Options
from common.run.run import run
from common.run.session import Cache
cache, options = Cache(), Options(Mode.PUSH, 60.0, step=60, every=60)
for line in sys.stdin:
    for _ in range(int(line)):
        outcome = run("host", options, cache=cache)
        assert outcome.error is None, outcome
    print("done", flush=True)
"""


class Staying:
    """A child that stays."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.tick(1)
        self._child = psutil.Process(process.pid)

    def tick(self, times: int) -> None:
        """Run so many ticks, one after another."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the child has no pipes")
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise SystemExit("a tick failed")

    def cpu(self) -> float:
        """Seconds so far."""
        return sum(self._child.cpu_times()[:2])

    def resident_mb(self) -> float:
        """Memory now."""
        return float(self._child.memory_info().rss) / 1e6

    def descriptors(self) -> int:
        """Open file descriptors now."""
        return self._child.num_fds()


@contextmanager
def staying() -> Iterator[Staying]:
    """A child whose intake is on loopback."""
    with Intake(key=KEY) as intake:
        environment = {"PATH": "/usr/bin:/bin", "DD_ENV": "test", "DD_API_KEY": KEY}
        process = subprocess.Popen(
            python(CHILD),
            env={**environment, "FLEETGAUGE_DD_URL": intake.url, "FLEETGAUGE_NODE_NAME": "node-7"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Staying(process)
        finally:
            process.communicate()


class NodeExporter:
    """One that runs and can be scraped."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._url = f"http://127.0.0.1:{port}/metrics"

    def scrape(self) -> dict[tuple[str, str], float]:
        """Every value, by metric and labels as they are written."""
        text = urllib3.request("GET", self._url, timeout=10).data.decode()
        return {(name, labels or ""): float(value) for name, labels, value in _LINE.findall(text)}


@contextmanager
def node_exporter() -> Iterator[NodeExporter]:
    """Started on a port of loopback that is free, with what it measures by default; ended again."""
    if BINARY is None:
        raise FileNotFoundError(MISSING)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--web.listen-address=127.0.0.1:{port}", "--collector.filesystem.fs-types-exclude=^$"]
    process = subprocess.Popen([BINARY, *options], stderr=subprocess.PIPE)
    try:
        if process.stderr is None:
            raise RuntimeError("node_exporter has no pipe")
        for line in process.stderr:  # it says where it listens once it does
            if b"istening on" in line or b"TLS is disabled" in line:
                break
        else:
            raise RuntimeError("node_exporter ended at once")
        # It logs what fails at each scrape, and would wait for a reader of a full pipe.
        Thread(target=process.stderr.read, daemon=True).start()
        yield NodeExporter(process, port)
    finally:
        process.kill()
        process.communicate()


def costs(host: Staying, exporter: NodeExporter | None, rounds: int, each: int) -> tuple[float, float]:
    """CPU of one tick and of one scrape, which take turns."""
    scraped = psutil.Process(exporter.process.pid) if exporter else None
    ticks = scrapes = 0.0
    for _ in range(rounds):
        before = host.cpu()
        host.tick(each)
        ticks += host.cpu() - before
        if exporter and scraped:
            before = sum(scraped.cpu_times()[:2])
            for _ in range(each):
                exporter.scrape()
            scrapes += sum(scraped.cpu_times()[:2]) - before
    return ticks / (rounds * each), scrapes / (rounds * each)


def main(argv: Sequence[str]) -> int:
    """Two hundred in turns, then a thousand more."""
    tiny = smallest(argv, __doc__)
    rounds, each, more = (1, 2, 10) if tiny else (10, 20, 1000)
    with ExitStack() as stack:
        host = stack.enter_context(staying())
        exporter = stack.enter_context(node_exporter()) if BINARY else None
        tick, scrape = costs(host, exporter, rounds, each)
        before, descriptors = host.resident_mb(), host.descriptors()
        host.tick(more)
        after, opened = host.resident_mb(), host.descriptors() - descriptors
    print(f"a tick {1000 * tick:.1f} ms of CPU, a scrape {1000 * scrape:.1f} ms")
    print(f"memory {before:.1f} MB, after {more} more ticks {after:.1f} MB")
    claims = [Claim("memory after / before", after / before, 1.05), Claim("descriptors opened", opened, 0)]
    if exporter:
        claims.append(Claim("a tick / a scrape of node_exporter", tick / scrape if scrape else 0.0, 1.5))
    else:
        print(f"not compared with node_exporter: {MISSING}")
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
