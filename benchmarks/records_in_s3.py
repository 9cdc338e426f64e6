"""Records in S3 cost little more than fetching and reading them, unchanged objects little more than listing.

S3 is moto's server on loopback, in this process, so that its cost is nobody's. Every way runs in a process of
its own. The floor of reading is boto3's own `get_object` of every object plus the collector over the same
files on disk; that of a tick in which nothing is new is the paginator alone: boto3's own, and that of our
client, which reads times more quickly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, medians, python, smallest  # noqa: E402

WRITERS = 32
OBJECTS = 20_000
ROUNDS = 5
PLACE = "s3://records/run/"

_CHILD = """
import gc, json, logging, os, sys, time
from pathlib import Path
import boto3
gc.set_threshold(100_000)
way, path, now = sys.argv[1], sys.argv[2], int(sys.argv[3])
from common.collector import Context, load_collector
from common.config import aws
from common.config.configuration import Configuration
from common.net.retry import Deadline
found = Configuration({**os.environ, "DD_ENV": "bench", "FLEETGAUGE_XENNA_PATHS": path}, None)
collector = load_collector("xenna")
settings = found.collector("xenna", collector.settings)
def listed(client):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="records", Prefix="run/")
    return [(one["Key"], one["Size"], one["ETag"]) for page in pages for one in page["Contents"]]
aws.READ_TIMEOUT = 60  # of 20,000 objects moto may take long over a page
client, objects, state = aws.client("s3", found.core, "importing"), [], {}
if way in ("get", "unchanged"):
    objects = listed(client)
if way == "unchanged":
    for key, size, tag in objects:
        place = {"offset": size, "tail": "", "at": now, "whole": [size, tag]}
        state["file:0123456789abcdef:s3://records/" + key] = place
begun, taken = time.process_time(), 0
if way in ("get", "list"):
    client = boto3.client("s3")  # boto3's own, which every run needs
if way == "list_own":
    client = aws.client("s3", found.core, "listing")
if way == "get":
    for key, _, _ in objects:
        taken += len(client.get_object(Bucket="records", Key=key)["Body"].read())
elif way in ("list", "list_own"):
    taken = len(listed(client))
else:
    context = Context(
        settings, now, now, "node", state, Deadline(600), logging.getLogger("bench"), network=found.core
    )
    for item in collector.collect(context):
        taken += 1
    assert not context.tally.lost, context.tally.lost
cpu = time.process_time() - begun
status = Path("/proc/self/status").read_text()  # what resource tells is at least the parent's
peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"cpu": cpu, "taken": taken, "peak_mb": peak}))
"""


def run(way: str, path: str, environment: dict[str, str]) -> dict[str, float]:
    """One way in a process of its own."""
    command = [*python(_CHILD), way, path, str(int(time.time()))]
    kept = {**os.environ, **environment}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=kept)
    return dict(json.loads(done.stdout))


def _cpu(way: str, path: str, environment: dict[str, str]) -> float:
    return run(way, path, environment)["cpu"]


def reading(writers: int, rounds: int) -> list[Claim]:
    """CPU against the floor, and memory against that of half as many objects."""
    from support.record_files import write
    from support.record_objects import Bucket
    from support.servers.aws import Aws

    peaks = []
    for share in (writers // 2 or 1, writers):
        with Aws() as aws, tempfile.TemporaryDirectory() as folder:
            here = aws.environment
            size = write("xenna", Path(folder), share, int(time.time()))
            Bucket(aws).mirror(Path(folder), "run")
            peaks.append(run("s3", PLACE, here)["peak_mb"])
            if share == writers:
                ways = {"s3": PLACE, "get": PLACE, "local": folder}
                cpu = medians(rounds, {way: partial(_cpu, way, path, here) for way, path in ways.items()})
    print(f"{writers} objects, {size / 1e6:.0f} MB; CPU s: {cpu}; peak MB: {peaks}")
    return [
        Claim(
            "reading: CPU, of get_object and the files on disk", cpu["s3"] / (cpu["get"] + cpu["local"]), 1.5
        ),
        Claim("reading: peak memory, of half as many objects", peaks[1] / peaks[0], 1.05),
    ]


def listing(objects: int, rounds: int) -> list[Claim]:
    """The CPU of a tick over unchanged objects, against paginators alone: boto3's own, our client's."""
    from support.record_objects import Bucket
    from support.servers.aws import Aws

    with Aws() as aws:
        here = aws.environment
        Bucket(aws).fill({f"run/{number % 100:02d}/{number}.jsonl": b"{}\n" for number in range(objects)})
        ways = ("unchanged", "list", "list_own")
        cpu = medians(rounds, {way: partial(_cpu, way, PLACE, here) for way in ways})
    print(f"{objects} unchanged objects; CPU s: {cpu}")
    name = f"{objects:,} unchanged objects: CPU, of the listing by"
    return [
        Claim(f"{name} boto3", cpu["unchanged"] / cpu["list"], 1.3),
        Claim(f"{name} our client", cpu["unchanged"] / cpu["list_own"], 1.3),
    ]


def main(argv: list[str]) -> int:
    """All claims about records in S3."""
    tiny = smallest(argv, __doc__)
    claims = reading(2 if tiny else WRITERS, 1 if tiny else ROUNDS)
    claims += listing(5 if tiny else OBJECTS, 1 if tiny else ROUNDS)
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
