"""Run the CronJob's command against Datadog, W&B and AWS on loopback, and check that every point arrived.

`scripts/demo` installs the environment and starts this.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from common.options import Mode, Options  # noqa: E402
from common.run.health import METRICS as SELF_METRICS  # noqa: E402
from common.run.health import SENT  # noqa: E402
from common.run.run import run as run_once  # noqa: E402
from common.show.table import rounded  # noqa: E402
from scripts.demo_records import SPAN, Clock, write_records  # noqa: E402
from support.servers.aws import Aws  # noqa: E402
from support.servers.datadog import Intake, PointKey  # noqa: E402
from support.servers.fleet import plausible_week  # noqa: E402
from support.servers.wandb import Wandb  # noqa: E402

PREFIX = "demo/datadog/collectors"
KEY = "a-key-of-forty-characters-for-demo-only-"
APP_KEY = "an-application-key-for-the-demo-only-123"
RUN_COLLECTOR = str(ROOT / "scripts" / "run_collector.py")
KEEP_SECONDS = 3600.0
OWN = "demo-node"  # the name of this machine
RECORDS = ("data_plane", "gpu_memory", "xenna")
HIGHLIGHTS = (
    *("data_plane.bytes_outstanding", "data_plane.wall_ms.p95", "gpu_memory.alerts"),
    *(
        "gpu_memory.utilization_pct",
        "host.gpu.power_watts",
        "host.memory_used_pct",
        "wandb.idle.cost_per_hour",
    ),
    *("wandb.push_to_main.success_rate_pct", "wandb.runs.active", "wandb.training.gpus_in_use"),
    *("xenna.pipeline.progress", "xenna.runs.active"),
)
SELF_NAMES = {metric.name for metric in SELF_METRICS}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="scripts/demo", description=__doc__, allow_abbrev=False)
    made.add_argument("--all", action="store_true", help="list every series, not only a few")
    made.add_argument("--html", metavar="FILE", help="draw the past week of W&B runs on a page")
    made.add_argument(
        "--values", metavar="FILE", help="write a value of every metric, as docs/metrics.md has"
    )
    made.add_argument(
        "--keep",
        metavar="SECONDS",
        type=float,
        nargs="?",
        const=KEEP_SECONDS,
        help="leave the servers running for so long (an hour), or until Ctrl-C",
    )
    return made


def main(argv: list[str]) -> int:
    """Return the exit code of the run that is shown; 1 where points that were sent did not arrive."""
    options = parser().parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="fleetgauge-demo-") as folder,
        Aws() as aws,
        Intake(key=KEY, app_key=APP_KEY) as intake,
        Wandb(key=KEY) as wandb,
    ):
        environment = prepare(Path(folder), aws, intake, wandb)
        print(f"Embedded: Datadog at {intake.url}, W&B at {wandb.url}, AWS at {aws.url}")
        print("Simulated: all jobs and runs, and the node gpu-node-3 with its GPUs\n", flush=True)
        code = run(["all", "--push"], environment)
        print(f"exit code {code}\n", flush=True)
        if options.html:
            week = ["wandb", "--since", "7d", "--html", options.html]
            code = max(code, run(week, environment, quiet=True))
            print()
        code = max(code, show(intake, everything=options.all))
        if options.values:
            Path(options.values).write_text(
                json.dumps(dict(values(intake)), indent=1) + "\n", encoding="utf-8"
            )
        if options.keep is not None:
            keep(environment, options.keep)
    return code


def prepare(folder: Path, aws: Aws, intake: Intake, wandb: Wandb) -> dict[str, str]:
    """Fill the servers and the disk, push the hour before, and return the environment of the CronJob."""
    now = time.time()
    (folder / "state").mkdir()
    for name in RECORDS:
        (folder / name).mkdir()
    wandb.add("acme", "ants", plausible_week(now))
    datadog_secret = {"DD_API_KEY": KEY, "DD_APP_KEY": APP_KEY}
    wandb_secret = {"WANDB_API_KEY": KEY, "WANDB_ENTITY": "acme", "WANDB_PROJECT": "ants"}
    aws.put_secret(f"{PREFIX}/datadog", datadog_secret)
    aws.put_secret(f"{PREFIX}/wandb", wandb_secret)
    environment = {
        "DD_ENV": "demo",
        "FLEETGAUGE_DD_URL": intake.url,
        "FLEETGAUGE_SECRET_PREFIX": PREFIX,
        "FLEETGAUGE_NODE_NAME": OWN,
        "FLEETGAUGE_STATE": str(folder / "state"),
        "FLEETGAUGE_DATA_PLANE_PATHS": str(folder / "data_plane"),
        "FLEETGAUGE_GPU_MEMORY_PATHS": str(folder / "gpu_memory"),
        "FLEETGAUGE_XENNA_PATHS": str(folder / "xenna"),
        "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49,a100-80gb=1.79",
        "WANDB_BASE_URL": wandb.url,
        **aws.environment,
    }
    # These run in this process, which has no credentials of AWS in its own environment.
    without_aws = {key: value for key, value in environment.items() if key != "FLEETGAUGE_SECRET_PREFIX"}
    push_the_hour_before(intake, without_aws | datadog_secret | wandb_secret)
    write_records(folder, now)
    push_a_node(folder / "node", environment | datadog_secret)
    return environment


def push_the_hour_before(intake: Intake, environment: Mapping[str, str]) -> None:
    """Push the ticks of the last hour, as the CronJob would have: a run is idle after an hour.

    There are no records yet: the next run sends all that follow. The intake's clock is set back as ours is,
    so that no point is too old.
    """
    logging.disable(logging.INFO)
    for earlier in (3600, 2700, 1800, 900):
        clock = Clock(time.time() - earlier)
        intake.clock = clock
        for name in ("wandb", *(RECORDS if earlier == SPAN else ())):
            outcome = run_once(name, Options(Mode.PUSH, timeout=60), environment, clock=clock)
            if outcome.error:
                raise SystemExit(f"{name}: {outcome.error.message}")
    intake.clock = time.time
    logging.disable(logging.NOTSET)


def push_a_node(folder: Path, environment: Mapping[str, str]) -> None:
    """Push what a node with GPUs would. The GPUs are simulated."""
    node = [sys.executable, str(ROOT / "scripts" / "demo_node.py"), str(folder)]
    subprocess.run(node, env={**os.environ, **environment}, check=True)


def run(arguments: list[str], environment: Mapping[str, str], *, quiet: bool = False) -> int:
    """Run the service's command as the CronJob does and return its exit code; show its log where it fails.

    With `quiet` only the last line of its output is shown.
    """
    print("$ scripts/run_collector.py", shlex.join(arguments), flush=True)
    ran = subprocess.run(
        [sys.executable, RUN_COLLECTOR, *arguments],
        env={**environment, "PATH": os.environ.get("PATH", ""), "COLUMNS": os.environ.get("COLUMNS", "120")},
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ran.returncode:
        sys.stderr.write(ran.stderr)
    if quiet:
        print(ran.stdout.strip().rpartition("\n")[2], flush=True)
    return ran.returncode


class PointCount(NamedTuple):
    """Points of one collector: sent, as it reports; self-metrics that arrived; stored by the intake."""

    sent: int
    self_metrics: int
    stored: int


def count_points(intake: Intake) -> dict[str, PointCount]:
    """Return what every collector reports to have sent, beside what the intake stores of it."""
    stored = Counter(map(sender, intake.points))
    # Two runs of one tick send `collector.up` for the same second: that is one point.
    written = {write.key for write in intake.write_log if write.key.metric in SELF_NAMES}
    self_metrics = Counter(map(sender, written))
    sent: Counter[str] = Counter()
    for key, value in intake.points.items():
        sent[sender(key)] += int(value) if key.metric == SENT.name else 0
    names = sorted(stored | self_metrics)
    return {name: PointCount(sent[name], self_metrics[name], stored[name]) for name in names}


def sender(key: PointKey) -> str:
    """Return the collector that sent a point: self-metrics have it as a tag, others begin with it."""
    if key.metric in SELF_NAMES:
        return next(tag.partition(":")[2] for tag in key.tags if tag.startswith("collector:"))
    return key.metric.partition(".")[0]


def show(intake: Intake, *, everything: bool) -> int:
    """Print some values and the number of points; return 1 where a point is missing or was never sent."""
    print("Values in Datadog now:\n" if everything else "Values in Datadog now, for example:\n")
    rows = list(latest(intake) if everything else highlights(intake))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, text, tags in rows:
        print(f"  {name:<{widths[0]}}  {text:>{widths[1]}}  {tags}".rstrip())
    print("\nAll points, with the ticks of the hour before and the simulated node:")
    print(f"\n  {'collector':<12}{'points sent':>13}{'self-metrics':>14}{'stored':>9}")
    counts = count_points(intake)
    total = PointCount(*(sum(column) for column in zip(*counts.values(), strict=True)))
    for name, count in [*counts.items(), ("all", total)]:
        print(f"  {name:<12}{count.sent:>13,}{count.self_metrics:>14,}{count.stored:>9,}")
    wrong = [name for name, count in counts.items() if count.sent + count.self_metrics != count.stored]
    if wrong or intake.dropped:
        print(f"\nPoints differ: {', '.join(wrong) or 'none'}; {intake.dropped} points were too old.")
        return 1
    print(
        f"\nEvery point arrived: {total.sent:,} + {total.self_metrics:,} = {total.stored:,}, "
        f"in {len(intake.requests)} requests. Nothing left this machine."
    )
    return 0


def latest(intake: Intake) -> Iterator[tuple[str, str, str]]:
    """Yield the latest point of each series: metric, value, tags."""
    for name in intake.names():
        for (tags, host), points in sorted(intake.series(name).items(), key=str):
            yield name, rounded(points[max(points)]), labels(tags, host)


def labels(tags: tuple[str, ...], host: str | None) -> str:
    """Return the tags that distinguish a series, and its host."""
    own = [tag for tag in tags if tag not in ("env:demo", "service:fleetgauge")]
    return " ".join([*own, *([f"host:{host}"] if host else [])])


def highlights(intake: Intake) -> Iterator[tuple[str, str, str]]:
    """Yield a few metrics, each with one of its series."""
    rows = list(latest(intake))
    for name in HIGHLIGHTS:
        first, *others = [row for row in rows if row[0] == name]
        more = f"  (and {len(others)} more)" if others else ""
        yield name, first[1], first[2] + more


def values(intake: Intake) -> Iterator[tuple[str, list[str]]]:
    """Yield the largest latest value of each metric with its tags, preferably not of this machine."""
    for name in intake.names():
        last = {series: points[max(points)] for series, points in intake.series(name).items()}
        series = max(last, key=lambda each: (each[1] != OWN, last[each], str(each)))
        yield name, [rounded(last[series]), labels(*series)]


def keep(environment: Mapping[str, str], seconds: float) -> None:
    """Leave the servers running, and print how to reach them."""
    print("\nThe servers keep running. Paste this into another terminal, then try for example")
    print("scripts/run_collector.py all --since 1h --step 1m --html .")
    print("scripts/provision.py --push\n")
    for name, value in environment.items():
        print(f"export {name}={shlex.quote(value)}")
    try:
        print(f"\nThey end with Ctrl-C, or after {seconds:,.0f} s.", flush=True)
        time.sleep(seconds)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
