"""Delivery costs little more than the cheapest sender there can be, and makes no request too many.

The floor is written for the series of this benchmark alone: it packs the same points into the same payloads,
compressed as ours are, and does nothing but `orjson`, compression and one keep-alive connection: no check of
value, time, tag, host, collision or cap, no retries, no deadline. Both are measured in each encoding.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, medians, smallest  # noqa: E402
from common.datadog.payloads import Encoding  # noqa: E402
from common.metric import Series, gauge  # noqa: E402
from support.servers.loopback import Answer, LoopbackServer, Request  # noqa: E402
from support.servers.series import decoded  # noqa: E402

KEY = "benchmark-key"
ROUNDS = 9
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


def ours(url: str, encoding: Encoding) -> Send:
    """Return the service's own way, from series to the intake's answer."""
    from common.config.sources import Configuration
    from common.datadog.client import DatadogClient
    from common.datadog.intake import DatadogSink
    from common.net.retry import Deadline

    environment = {"DD_ENV": "bench", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": url}
    found = Configuration({**environment, "FLEETGAUGE_SERIES_CAP": "1000000000"}, None)
    core, settings = found.core, found.datadog

    def send(every: list[Series]) -> None:
        client = DatadogClient(settings, core, Deadline(600))
        client.encoding = encoding
        sink = DatadogSink(client, core)
        for series in every:
            sink.add(series)
        sink.flush()

    return send


def floor(url: str, encoding: Encoding) -> Send:
    """Return the cheapest sender of these series."""
    import orjson

    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding, "DD-API-KEY": KEY}

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
            body = encoding.compress(orjson.dumps({"series": series}))
            connection.request("POST", "/api/v2/series", body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 202:
                raise SystemExit(f"the intake answered {answer.status}")

    return send


def work(way: str, encoding: str, url: str, points: int, per_series: int) -> None:
    """Send once for each line on standard input; print the CPU seconds it took, and the peak MB so far."""
    gc.set_threshold(100_000)
    every = series_of(points, per_series)
    send = {"ours": ours, "floor": floor}[way](url, Encoding(encoding))
    send(every[:10])
    print(0, flush=True)
    for _ in sys.stdin:
        begun = time.process_time()
        send(every)
        cpu = time.process_time() - begun
        print(cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


class Worker:
    """A process that sends on request; what arrives is compared with what it has."""

    def __init__(self, way: str, encoding: Encoding, intake: Tally, points: int, per_series: int) -> None:
        self._intake = intake
        self._points = points
        self.requests = 0
        self.peak_mb = 0.0
        arguments = (way, str(encoding), intake.url, points, per_series)
        code = f"from benchmarks.delivery import work; work(*{arguments!r})"
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
        """Return the CPU seconds of one round."""
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
def workers(points: int, per_series: int, encoding: Encoding, ways: Sequence[str]) -> Iterator[list[Worker]]:
    """Start one of each way, for the same series."""
    with Tally() as intake:
        made = [Worker(way, encoding, intake, points, per_series) for way in ways]
        try:
            yield made
        finally:
            for worker in made:
                worker.process.communicate()


def ratio(points: int, per_series: int, encoding: Encoding) -> tuple[float, Worker]:
    """Return our CPU time over the floor's, medians of rounds in which they take turns; and our worker."""
    with workers(points, per_series, encoding, ("floor", "ours")) as (theirs, mine):
        cpu = medians(ROUNDS, {"floor": theirs.send, "ours": mine.send})
    print(
        f"{points:,} points, {per_series} a series, {encoding}: ours {cpu['ours']:.3f} CPU s in "
        f"{mine.requests} requests, floor {cpu['floor']:.3f} CPU s in {theirs.requests}"
    )
    return cpu["ours"] / cpu["floor"], mine


def main(argv: list[str]) -> int:
    """Measure what 100,000 points cost in two shapes, and how many requests they and 180,000 take."""
    tiny = smallest(argv, __doc__)
    points = POINTS // 50 if tiny else POINTS
    claims = []
    for encoding in Encoding:
        single, worker = ratio(points, 1, encoding)
        thirty, _ = ratio(points, 30, encoding)
        claims += [
            Claim(f"CPU, ours / floor, one point a series, {encoding}", single, 2.2),
            Claim(f"CPU, ours / floor, thirty points a series, {encoding}", thirty, 1.5),
            Claim(f"requests for {points:,} points, {encoding}", worker.requests, 11),
            Claim(f"peak MB of {points:,} points and their delivery, {encoding}", worker.peak_mb, 250),
        ]
    with workers(points * 9 // 5, 1, Encoding.ZSTD, ("ours",)) as (more,):
        more.send()
    return judge([*claims, Claim(f"requests for {points * 9 // 5:,} points", more.requests, 19)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
