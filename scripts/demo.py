"""Run the CronJob's command against Datadog, W&B and AWS on loopback, then show what arrived.

Started by `scripts/demo`, which makes the environment first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from common.report import number  # noqa: E402
from servers.aws import Aws  # noqa: E402
from servers.datadog import Intake  # noqa: E402
from servers.fleet import plausible_day  # noqa: E402
from servers.wandb import Wandb  # noqa: E402

PREFIX = "demo/datadog/collectors"
KEY = "a-key-of-forty-characters-for-demo-only-"


def main() -> int:
    """The exit code of the run that is shown."""
    with Aws() as aws, Intake(key=KEY) as intake, Wandb(key=KEY) as wandb:
        wandb.add("acme", "ants", plausible_day(time.time()))
        aws.put_secret(f"{PREFIX}/datadog", {"DD_API_KEY": KEY})
        aws.put_secret(
            f"{PREFIX}/wandb", {"WANDB_API_KEY": KEY, "WANDB_ENTITY": "acme", "WANDB_PROJECT": "ants"}
        )
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "DD_ENV": "demo",
            "FLEETGAUGE_DD_URL": intake.url,
            "FLEETGAUGE_SECRET_PREFIX": PREFIX,
            "FLEETGAUGE_NODE_NAME": "demo-node",
            "WANDB_BASE_URL": wandb.url,
            **aws.environment,
        }
        print(f"Embedded: Datadog at {intake.url}, W&B at {wandb.url}, AWS at {aws.url}\n")
        print("$ scripts/run_collector.py all --push", flush=True)
        command = [sys.executable, str(ROOT / "scripts" / "run_collector.py"), "all", "--push"]
        code = subprocess.run(command, env=environment, check=False).returncode
        print(f"exit code {code}\n\nWhat Datadog holds now:\n")
        show(intake)
    return code


def show(intake: Intake) -> None:
    """Every point the intake keeps, one line each, without the reasons for which nothing was dropped."""
    lines = [
        (key.metric, number(value), " ".join([*key.tags, *([f"host:{key.host}"] if key.host else [])]))
        for key, value in sorted(intake.points.items(), key=lambda point: (point[0].metric, point[0].tags))
        if value or key.metric != "collector.points_dropped"
    ]
    name_width = max((len(name) for name, _, _ in lines), default=0)
    value_width = max((len(value) for _, value, _ in lines), default=0)
    for name, value, tags in lines:
        print(f"  {name:<{name_width}}  {value:>{value_width}}  {tags}")
    print(f"\n{len(intake.points)} points in {len(intake.requests)} requests; nothing left this machine.")


if __name__ == "__main__":
    sys.exit(main())
