"""A busy tick in the image succeeds with a fifth of the chart's memory limit to spare.

The chart's own CronJob pod runs every collector from the image, with podman, against servers on loopback:
20,000 runs in W&B and a quarter of an hour of records from 128 writers of each kind. The smallest limit under
which the tick still succeeds is found by halving. Needs what the image's tests need: root, podman, buildah.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

import pytest  # noqa: E402

from benchmarks.measure import Claim, cannot_run, judge, smallest  # noqa: E402
from support.containers import Engine, build, running, why_not  # noqa: E402
from support.project import KEY  # noqa: E402
from support.release import SECRETS, Release  # noqa: E402
from support.servers.aws import Aws  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402
from support.servers.wandb import Wandb  # noqa: E402

LIMIT = 384  # MiB, of the chart


class Size(NamedTuple):
    """How busy the tick is, and to how many MiB the smallest limit is found."""

    runs: int = 20_000
    writers: int = 128
    precision: int = 8


SMALLEST = Size(runs=60, writers=1, precision=128)


@contextmanager
def releases(image: str, folder: Path, size: Size) -> Iterator[Release]:
    """A release with a fleet to read."""
    with Aws() as aws, Intake(key=KEY) as intake, Wandb(key=KEY) as wandb:
        release = Release(image, intake, wandb, aws, folder)
        release.fill(size.writers, size.runs)
        yield release


def tick(engine: Engine, release: Release, limit: int) -> int:
    """Run every collector once, from the start of its records, under a limit in MiB; its exit code."""
    for path in (release.folder / "state").iterdir():
        path.unlink()
    resources = {"requests": {"memory": "16Mi"}, "limits": {"memory": f"{limit}Mi"}}
    template = release.template("CronJob", {"resources": resources, "timeout": 170})
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        return pod.wait(900)


def least_limit(engine: Engine, release: Release, precision: int) -> int:
    """The smallest limit under which a tick succeeds."""
    fails, works = 16, LIMIT
    while works - fails > precision:
        middle = (fails + works) // 16 * 8
        if tick(engine, release, middle) == 0:
            works = middle
        else:
            fails = middle
    return works


def measure(engine: Engine, image: str, folder: Path, size: Size) -> list[Claim]:
    """A busy tick under the chart's limit, and under less and less."""
    with releases(image, folder, size) as release:
        code = tick(engine, release, LIMIT)
        print(f"a busy tick ended with {code}; {len(release.intake.points):,} points arrived")
        least = least_limit(engine, release, size.precision)
    print(f"{least:8d} MiB  is the smallest limit it succeeds under")
    return [
        Claim("exit code under the chart's limit", code, 0),
        Claim("smallest limit / the chart's limit", least / LIMIT, 0.8),
    ]


def main(argv: Sequence[str]) -> int:
    """Build the image, look into it, run it."""
    size = SMALLEST if smallest(argv, __doc__) else Size()
    if reason := why_not():
        return cannot_run(reason)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Path(folder))
        try:
            image = build(engine, Path(folder))
        except pytest.skip.Exception as skipped:
            return cannot_run(str(skipped))
        try:
            return judge(measure(engine, image, Path(folder), size))
        finally:
            engine.run("podman", "rmi", "--force", image)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
