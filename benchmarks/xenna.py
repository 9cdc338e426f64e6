"""The xenna ingestor against the obvious way: CPU and memory from files on disk to accepted payloads.

    python benchmarks/xenna.py

Each way runs in a process of its own against an intake on loopback that only answers. The obvious way is
`json.loads` and one series per point through the client's model classes, measured on a part and scaled.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = 30
STAGES = 3
OBVIOUS_RUNS = 10
STAGE_KEYS = (
    *("actors_target", "actors_pending", "actors_ready", "actors_running", "actors_idle"),
    *("tasks_completed", "tasks_failed", "queue_in", "queue_out", "slots_used", "slots_empty"),
    *("speed_tasks_per_s", "throughput_tasks_per_s"),
    *("resource/cpu_util_pct", "resource/mem_gb", "resource/actor_count"),
)


def write_files(directory: Path, runs: int, now: float) -> None:
    """A file per run, as the hook writes them: about 60 points and 4 kB per record."""
    from fleetgauge.records import RecordWriter

    for run in range(runs):
        clock = iter([now - 60 * (RECORDS - number) - 10 for number in range(RECORDS)])
        with RecordWriter(
            directory, "xenna", run_id=f"run-{run:05d}-0123456789abcdef", clock=clock.__next__
        ) as writer:
            for number in range(RECORDS):
                event = "start" if number == 0 else "stats"
                writer.write(event, body(run, number))
        os.utime(writer.path, (now - 60, now - 60))


def body(run: int, number: int) -> dict[str, Any]:
    metrics: dict[str, float] = {
        "pipeline_duration_s": number * 60.123456,
        "main_loop_rate_hz": 56.17753358446917 + number,
        "progress": number * 3.123456789,
        "progress_stages": number * 2.123456789,
        "num_input_remaining": 1000 - number,
        "inputs_processed_per_s": 4.632757428553125,
        "cluster/total_cpus": 64.0,
        "cluster/avail_cpus": 63.0,
        "cluster/total_gpus": 8.0,
        "cluster/avail_gpus": 0.0,
        "cluster/total_mem_gb": 243.25378048,
        "cluster/avail_mem_gb": 243.25378048,
    }
    stages = [f"some_rather_long_name_of_a_stage_{stage}" for stage in range(STAGES)]
    for stage, name in enumerate(stages):
        for place, key in enumerate(STAGE_KEYS):
            metrics[f"stage/{name}/{key}"] = place * 1.2345678901 + number + stage
    notes = [
        {"name": f"Stage {stage:02d}", "class": name, "note": "x" * 160} for stage, name in enumerate(stages)
    ]
    return {
        "pipeline_kind": "curate",
        "run_hash": f"hash-{run:05d}",
        "metrics": metrics,
        "stages": notes,
        "dataset_names": ["some/dataset/name"],
        "xenna_version": "0.5.12",
    }


def intake() -> tuple[ThreadingHTTPServer, str]:
    """A server that accepts everything, in this process, so that its cost is not the client's."""

    class Accept(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
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
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def ours(directory: Path, url: str, now: int, again: bool) -> dict[str, float]:
    """The collector and delivery, marks and all; `again` is a second tick over unchanged files."""
    from collectors.xenna.collector import COLLECTOR, XennaSettings
    from common.collector import Context
    from common.config.settings import ConfigurationFile, CoreSettings, DatadogSettings, load
    from common.datadog.sink import DatadogSink
    from common.metric import Mark, Sample
    from common.net.retry import Deadline

    environ = {
        "DD_ENV": "bench",
        "DD_API_KEY": "bench-key",
        "FLEETGAUGE_DD_URL": url,
        "FLEETGAUGE_SERIES_CAP": "1000000",
        "FLEETGAUGE_XENNA_PATHS": str(directory),
        "FLEETGAUGE_XENNA_BYTES_PER_TICK": "1000000000",
    }
    nothing = ConfigurationFile()
    core = load(CoreSettings, None, environ=environ, file=nothing)
    sink = DatadogSink(load(DatadogSettings, "datadog", environ=environ, file=nothing), core, Deadline(600))
    settings = load(XennaSettings, "xenna", environ=environ, file=nothing)
    state: dict[str, object] = {}
    sink.validate()  # imports and connects: neither way pays for that here
    seconds = 0.0
    for turn in range(2 if again else 1):
        if turn:
            state = json.loads(json.dumps(state))
        before = time.process_time()
        context = Context(settings, now, now, "node", state, Deadline(600), logging.getLogger("bench"))
        waiting: list[Sample] = []
        changes: dict[str, object] = {}
        for item in COLLECTOR.collect(context):
            if isinstance(item, Mark):
                changes |= item.changes
                if len(waiting) >= 20_000:  # the runner coalesces marks much like this
                    sink.send(waiting)
                    waiting.clear()
            else:
                waiting.append(item)
        sink.send(waiting)
        state = {**state, **changes}
        seconds = time.process_time() - before
    return {"points": sink.points_sent, "cpu": seconds}


def obvious(directory: Path, url: str) -> dict[str, float]:
    """What one would write first: a series per point, as objects of the client's classes."""
    from datadog_api_client import ApiClient, Configuration
    from datadog_api_client.v2.api.metrics_api import MetricsApi
    from datadog_api_client.v2.model.metric_intake_type import MetricIntakeType
    from datadog_api_client.v2.model.metric_payload import MetricPayload
    from datadog_api_client.v2.model.metric_point import MetricPoint
    from datadog_api_client.v2.model.metric_series import MetricSeries

    before, points = time.process_time(), 0
    api = MetricsApi(ApiClient(Configuration(host=url, api_key={"apiKeyAuth": "bench-key"})))
    for path in sorted(directory.iterdir())[:OBVIOUS_RUNS]:
        series = []
        for line in path.read_text().splitlines():
            record = json.loads(line)
            tags = [
                "env:bench",
                "service:fleetgauge",
                "pipeline_kind:curate",
                f"run_hash:{record['run_hash']}",
            ]
            for key, value in record["metrics"].items():
                family, _, rest = key.partition("/")
                stage, _, name = rest.partition("/") if family == "stage" else ("", "", key)
                point = MetricPoint(timestamp=int(record["timestamp"]), value=value)
                series.append(
                    MetricSeries(
                        metric=f"xenna.{name.replace('/', '.')}",
                        type=MetricIntakeType.GAUGE,
                        points=[point],
                        tags=[*tags, f"stage:{stage}"] if stage else tags,
                    )
                )
        for start in range(0, len(series), 5000):
            api.submit_metrics(body=MetricPayload(series=series[start : start + 5000]))
        points += len(series)
    return {"points": points, "cpu": time.process_time() - before}


def measure(way: str, directory: Path, url: str, now: int) -> dict[str, float]:
    """One way in a process of its own."""
    command = [sys.executable, __file__, way, str(directory), url, str(now)]
    environ = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return dict(json.loads(done.stdout))


def child(way: str, directory: Path, url: str, now: int) -> None:
    result = obvious(directory, url) if way == "obvious" else ours(directory, url, now, way == "again")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**result, "peak_mb": peak}))


def main() -> None:
    """Print what was measured, and the ratios that are claimed."""
    server, url = intake()
    now = int(time.time())
    rates = {}
    for runs in (100, 1000):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            write_files(directory, runs, now)
            size = sum(path.stat().st_size for path in directory.iterdir())
            mine = measure("ours", directory, url, now)
            rates[runs] = mine["points"] / mine["cpu"]
            print(f"{runs} runs x {RECORDS} records, {size / 1e6:.1f} MB, {mine['points']:.0f} points")
            print(f"  ours: {rates[runs]:.0f} points per CPU second, peak {mine['peak_mb']:.0f} MB")
            if runs == 100:
                other = measure("obvious", directory, url, now)
                rate = other["points"] / other["cpu"]
                print(
                    f"  model classes ({OBVIOUS_RUNS} runs): {rate:.0f} points per CPU second, "
                    f"peak {other['peak_mb']:.0f} MB"
                )
                print(f"  ours takes {rates[runs] / rate:.1f} times less CPU per point (claimed: 10)")
    print(f"1,000 runs cost {rates[100] / rates[1000]:.2f} times as much per point as 100 (linear: 1)")
    with tempfile.TemporaryDirectory() as name:
        unchanged(Path(name), url, now)
    server.shutdown()


def unchanged(directory: Path, url: str, now: int) -> None:
    """10,000 files that did not change, next to a bare stat of each."""
    for number in range(10_000):
        record = {
            "timestamp": now - 100,
            "run_hash": str(number),
            "pipeline_kind": "k",
            "metrics": {"progress": 1},
        }
        path = directory / f"{number}.jsonl"
        path.write_text(json.dumps(record) + "\n")
        os.utime(path, (now - 100, now - 100))
    again = measure("again", directory, url, now)
    before = time.process_time()
    for entry in os.scandir(directory):
        entry.stat()
    bare = time.process_time() - before
    print(
        f"10,000 unchanged files: {again['cpu'] * 1e6 / 10_000:.0f} us CPU each, "
        f"{again['cpu'] / bare:.0f} times a bare scan with stat; peak {again['peak_mb']:.0f} MB"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        sys.path.insert(0, str(ROOT))
        main()
