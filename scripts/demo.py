"""Run the CronJob's command against Datadog, W&B and AWS on loopback, then show what arrived.

Started by `scripts/demo`, which makes the environment first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from common.execution.live import LiveRun  # noqa: E402
from common.job import Job, Mode  # noqa: E402
from common.process.environment import child_environment  # noqa: E402
from common.show.report import number  # noqa: E402
from fleetgauge.records import RecordWriter  # noqa: E402
from servers.aws import Aws  # noqa: E402
from servers.datadog import Intake  # noqa: E402
from servers.fleet import plausible_day  # noqa: E402
from servers.wandb import Wandb  # noqa: E402

PREFIX = "demo/datadog/collectors"
KEY = "a-key-of-forty-characters-for-demo-only-"


def main() -> int:
    """The exit code of the run that is shown."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Aws() as aws,
        Intake(key=KEY) as intake,
        Wandb(key=KEY) as wandb,
    ):
        records, checkpoints = Path(folder, "records"), Path(folder, "checkpoints")
        for made in (records, checkpoints):
            made.mkdir()
        write_records(str(records))
        wandb.add("acme", "ants", plausible_day(time.time()))
        datadog_secret = {"DD_API_KEY": KEY}
        wandb_secret = {"WANDB_API_KEY": KEY, "WANDB_ENTITY": "acme", "WANDB_PROJECT": "ants"}
        aws.put_secret(f"{PREFIX}/datadog", datadog_secret)
        aws.put_secret(f"{PREFIX}/wandb", wandb_secret)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "DD_ENV": "demo",
            "FLEETGAUGE_DD_URL": intake.url,
            "FLEETGAUGE_SECRET_PREFIX": PREFIX,
            "FLEETGAUGE_NODE_NAME": "demo-node",
            "FLEETGAUGE_CHECKPOINTS": str(checkpoints),
            "FLEETGAUGE_XENNA_PATHS": str(records),
            "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49,a100-80gb=1.79",
            "WANDB_BASE_URL": wandb.url,
            **aws.environment,
        }
        print(f"Embedded: Datadog at {intake.url}, W&B at {wandb.url}, AWS at {aws.url}\n")
        push_the_hour_before(environment | datadog_secret | wandb_secret)
        print("$ scripts/run_collector.py all --push", flush=True)
        command = [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "all", "--push"]
        code = subprocess.run(command, env=environment, check=False).returncode
        print(f"exit code {code}\n\nWhat Datadog holds now:\n")
        show(intake)
    return code


def push_the_hour_before(environment: dict[str, str]) -> None:
    """Push the ticks before this one, as the CronJob would have: who idles is known after an hour."""
    for earlier in (3600, 2700, 1800, 900):
        job = Job("wandb", Mode.PUSH, int(time.time()) - earlier, timeout=60)
        LiveRun(job, child_environment(job, environment)).run()


def write_records(folder: str) -> None:
    """What a small cosmos-xenna pipeline leaves on disk: two stages at work, then the end."""
    now = time.time()
    with RecordWriter(folder, "xenna", run_id="demo", clock=lambda: now) as writer:
        body = {"pipeline_kind": "curate", "run_hash": "3f9d", "stages": ["download", "caption"]}
        for minute in (3, 2, 1):
            now = time.time() - 60 * minute
            done = 120 - 40 * minute
            stages = {"stage/download/tasks_completed": done + 20, "stage/caption/tasks_completed": done}
            writer.write(
                "stats", {**body, "metrics": {"progress": done / 1.2, "num_outputs": done, **stages}}
            )
        writer.write("end", {**body, "status": "ok", "metrics": {}})


def show(intake: Intake) -> None:
    """The latest point of each series; of what the runs say about themselves, only whether they are up."""
    shown = [name for name in intake.names() if not name.startswith("collector.") or name == "collector.up"]
    rows = []
    for name in shown:
        for (tags, host), points in sorted(intake.series(name).items(), key=str):
            labels = " ".join([*tags, *([f"host:{host}"] if host else [])])
            rows.append((name, number(points[max(points)]), labels))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, text, labels in rows:
        print(f"  {name:<{widths[0]}}  {text:>{widths[1]}}  {labels}")
    print(f"\n{len(intake.points)} points in {len(intake.requests)} requests; nothing left this machine.")


if __name__ == "__main__":
    sys.exit(main())
