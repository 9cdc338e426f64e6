"""Delivery costs little more than the cheapest sender there can be, and makes no request too many.

The floor is written for the series of this benchmark alone: it packs the same points into the same payloads,
and does nothing but `orjson`, `zlib` at level 5 and one keep-alive connection: no check of
value, time, tag, host, collision or cap, no retries, no deadline.

Each way of sending is a process of its own, which has sent a few series before it is measured, so that
imports do not count. Both look for cycles as rarely as the service's children do. What they send arrives in
this process, where points are counted and nothing is kept.
"""

from __future__ import annotations

import gc
import http.client
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, medians, smallest  # noqa: E402
from common.metric import Series, gauge  # noqa: E402
from support.servers.loopback import Answer, LoopbackServer, Request  # noqa: E402
from support.servers.series import decoded  # noqa: E402

KEY = "benchmark-key"
ROUNDS = 5
POINTS = 100_000
PAYLOAD = 10_000  # points

METRIC = gauge("bench.value", "item", "A value.", "entity", "project", "run", "stage")
Send = Callable[[list[Series]], None]


class Tally(LoopbackServer[Request]):
    """An intake that only counts what arrives."""

    request_type = Request

    def __init__(self) -> None:
        self.sizes: list[int] = []  # points of each payload
        super().__init__()

    def respond(self, request: Request) -> Answer:
        """Accept it."""
        raw = decoded(request.body, request.headers["Content-Encoding"])
        self.sizes.append(raw.count(b'"timestamp":'))
        request.body = b""
        return Answer.json(202, {"errors": []})


def series_of(points: int, per_series: int) -> list[Series]:
    """Return the points of a tick, or of several ticks, of many runs."""
    times = range(int(time.time()) - per_series, int(time.time()))
    return [
        METRIC.series(
            times[: min(per_series, points - first)],
            [number * 0.37 for number in range(first, min(first + per_series, points))],
            entity="acme",
            project="ants",
            run=f"r{first // per_series}",
            stage=f"s{first // per_series % 7}",
        )
        for first in range(0, points, per_series)
    ]


def ours(url: str) -> Send:
    """The service's own way, from series to the intake's answer."""
    from common.config.sources import Configuration
    from common.datadog.sink import DatadogSink
    from common.net.retry import Deadline

    environment = {"DD_ENV": "bench", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": url}
    found = Configuration({**environment, "FLEETGAUGE_SERIES_CAP": "1000000000"}, None)
    core, settings = found.core, found.datadog()

    def send(every: list[Series]) -> None:
        sink = DatadogSink(settings, core, Deadline(600))
        for series in every:
            sink.add(series)
        sink.flush()

    return send


def floor(url: str) -> Send:
    """The cheapest sender of these series."""
    import orjson

    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"Content-Type": "application/json", "Content-Encoding": "deflate", "DD-API-KEY": KEY}

    def send(every: list[Series]) -> None:
        size = max(1, PAYLOAD // len(every[0].times))
        for start in range(0, len(every), size):
            series = [
                {
                    "metric": metric.name,
                    "type": 3,
                    "unit": "item",
                    "tags": [*tags, "env:bench", "service:fleetgauge"],
                    "points": [
                        {"timestamp": second, "value": value}
                        for second, value in zip(times, values, strict=True)
                    ],
                }
                for metric, tags, _, times, values in every[start : start + size]
            ]
            body = zlib.compress(orjson.dumps({"series": series}), 5)  # as ours
            connection.request("POST", "/api/v2/series", body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 202:
                raise SystemExit(f"the intake answered {answer.status}")

    return send


def work(way: str, url: str, points: int, per_series: int) -> None:
    """Send once for each line on standard input, and say the CPU seconds it took, and the peak MB so far."""
    gc.set_threshold(100_000)
    every = series_of(points, per_series)
    send = {"ours": ours, "floor": floor}[way](url)
    send(every[:10])
    print(0, flush=True)
    for _ in sys.stdin:
        begun = time.process_time()
        send(every)
        cpu = time.process_time() - begun
        print(cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


class Worker:
    """A process that sends when told to; what arrives is compared with what it has."""

    def __init__(self, way: str, intake: Tally, points: int, per_series: int) -> None:
        self._intake = intake
        self._points = points
        self.requests = 0
        self.peak_mb = 0.0
        code = f"from benchmarks.delivery import work; work({way!r}, {intake.url!r}, {points}, {per_series})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._read()  # it is warm

    def _read(self) -> list[float]:
        assert self.process.stdout is not None
        answer = [float(word) for word in self.process.stdout.readline().split()]
        if not answer:
            raise SystemExit("a sender ended early")
        return answer

    def send(self) -> float:
        """The CPU seconds of one round."""
        assert self.process.stdin is not None
        self._intake.sizes.clear()
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        cpu, self.peak_mb = self._read()
        self.requests = len(self._intake.sizes)
        if sum(self._intake.sizes) != self._points:
            raise SystemExit(f"{sum(self._intake.sizes):,} of {self._points:,} points arrived")
        return cpu


@contextmanager
def workers(
    points: int, per_series: int, ways: tuple[str, ...] = ("floor", "ours")
) -> Iterator[list[Worker]]:
    """One of each way, for the same series."""
    with Tally() as intake:
        made = [Worker(way, intake, points, per_series) for way in ways]
        try:
            yield made
        finally:
            for worker in made:
                worker.process.communicate()


def ratio(points: int, per_series: int) -> tuple[float, Worker]:
    """Our CPU time over the floor's, medians of rounds in which they take turns; and our worker."""
    with workers(points, per_series) as (theirs, mine):
        cpu = medians(ROUNDS, {"floor": theirs.send, "ours": mine.send})
    print(
        f"{points:,} points, {per_series} a series: ours {cpu['ours']:.3f} CPU s in {mine.requests} requests,"
        f" floor {cpu['floor']:.3f} CPU s in {theirs.requests}"
    )
    return cpu["ours"] / cpu["floor"], mine


def main(argv: list[str]) -> int:
    """What 100,000 points cost in two shapes, and how many requests they and 180,000 take."""
    tiny = smallest(argv, __doc__)
    points = POINTS // 50 if tiny else POINTS
    single, worker = ratio(points, 1)
    thirty, _ = ratio(points, 30)
    with workers(points * 9 // 5, 1, ("ours",)) as (more,):
        more.send()
    return judge(
        [
            Claim("CPU, ours / floor, one point a series", single, 3),
            Claim("CPU, ours / floor, thirty points a series", thirty, 2.2),
            Claim(f"requests for {points:,} points", worker.requests, 11),
            Claim(f"requests for {points * 9 // 5:,} points", more.requests, 19),
            Claim(f"peak MB of {points:,} points and their delivery", worker.peak_mb, 250),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
