"""Delivery costs at most a quarter of the CPU of the official model classes, and stays small.

The intake runs in this process, each way of sending in a process of its own, which has sent one sample
before it is measured, so that imports do not count. Both look for cycles as rarely as the service's
children do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import claim, cost  # noqa: E402
from servers.datadog import Intake  # noqa: E402

KEY = "benchmark-key"
ROUNDS = 5

_SAMPLES = """
import gc, sys, time
gc.set_threshold(100_000)
sys.path[:1] = [{root!r}]
from common.metric import gauge
now = int(time.time())
metric = gauge("bench.value", "item", "A value.", "entity", "project", "run", "stage")
samples = [metric(n + 0.5, now, entity="acme", project="ants", run=f"r{{n}}", stage=f"s{{n % 7}}")
           for n in range({count})]
"""
_OURS = (
    _SAMPLES
    + """
from common.datadog import DatadogSink
from common.net.retry import Deadline
from common.config.configuration import Configuration
found = Configuration(dict(DD_ENV="bench", DD_API_KEY={key!r}, FLEETGAUGE_DD_URL={url!r},
                           FLEETGAUGE_SERIES_CAP="1000000000"), None)
core, settings = found.core, found.datadog()
def send(samples):
    DatadogSink(settings, core, Deadline(600)).send(samples)
send(samples[:1])
"""
)
_THEIRS = (
    _SAMPLES
    + """
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.v2.api.metrics_api import MetricsApi
from datadog_api_client.v2.model.metric_content_encoding import MetricContentEncoding
from datadog_api_client.v2.model.metric_intake_type import MetricIntakeType
from datadog_api_client.v2.model.metric_payload import MetricPayload
from datadog_api_client.v2.model.metric_point import MetricPoint
from datadog_api_client.v2.model.metric_series import MetricSeries
configuration = Configuration(host={url!r}, api_key={{"apiKeyAuth": {key!r}}})
def send(samples):
    with ApiClient(configuration) as client:
        body = MetricPayload(series=[
            MetricSeries(metric=sample.metric.name, type=MetricIntakeType.GAUGE,
                         points=[MetricPoint(timestamp=sample.timestamp, value=sample.value)],
                         tags=[*sample.tags, "env:bench", "service:fleetgauge"])
            for sample in samples])
        MetricsApi(client).submit_metrics(body=body, content_encoding=MetricContentEncoding.GZIP)
send(samples[:1])
"""
)


_TIMED = """
best = float("inf")
for _ in range({rounds}):
    begun = time.process_time()
    send(samples)
    best = min(best, time.process_time() - begun)
print(best)
"""


def script(template: str, count: int, url: str, rounds: int) -> list[str]:
    """The command of one way of sending."""
    code = (template + _TIMED).format(root=str(ROOT), count=count, key=KEY, url=url, rounds=rounds)
    return [sys.executable, "-c", code]


def cpu(template: str, count: int) -> float:
    """CPU seconds from samples to accepted payloads: the best of a few rounds."""
    with Intake(key=KEY) as intake:
        ran = subprocess.run(script(template, count, intake.url, ROUNDS), capture_output=True, check=True)
        if len(intake.points) != count:
            raise SystemExit(f"{len(intake.points)} of {count} points arrived")
    return float(ran.stdout)


def main() -> int:
    """Two claims, measured in one run."""
    ours = cpu(_OURS, 10_000)
    theirs = cpu(_THEIRS, 10_000)
    print(f"CPU s for 10,000 samples: ours {ours:.3f}, model classes {theirs:.3f}")
    with Intake(key=KEY) as intake:
        large = cost(script(_OURS, 100_000, intake.url, 1))
        print(f"100,000 samples: {large.cpu:.2f} CPU s in {len(intake.requests)} requests")
    holds = [
        claim("ours / model classes", ours / theirs, 0.25),
        claim("peak MB for 100,000 samples", large.peak_mb, 250),
    ]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
