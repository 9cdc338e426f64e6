"""A busy tick in the image succeeds with a fifth of the chart's memory limit to spare; and the image's parts.

The chart's own CronJob pod runs every collector from the image, with podman, against servers on loopback:
20,000 runs in W&B and a quarter of an hour of records from 128 writers of each kind. Anonymous memory is what
cannot be given back; the page cache that the kernel counts beside it can. The smallest limit under which the
tick still succeeds is found by halving. Needs what the image's tests need: root, podman, buildah.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

import pytest  # noqa: E402

from benchmarks.measure import Claim, cannot_run, judge, smallest  # noqa: E402
from support.containers import Engine, Pod, build, running, why_not  # noqa: E402
from support.project import KEY  # noqa: E402
from support.release import SECRETS, Release  # noqa: E402
from support.servers.aws import Aws  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402
from support.servers.wandb import Wandb  # noqa: E402

LIMIT = 384
MEBIBYTE = 2**20


class Size(NamedTuple):
    """How busy the tick is, and to how many MiB the smallest limit is found."""

    runs: int = 20_000
    writers: int = 128
    precision: int = 8


SMALLEST = Size(runs=60, writers=1, precision=128)


class Tick(NamedTuple):
    """How a tick ended, and the most memory it had at once, in MiB."""

    code: int
    anonymous: float
    with_cache: float


@contextmanager
def releases(image: str, folder: Path, size: Size) -> Iterator[Release]:
    """A release with a fleet to read."""
    with Aws() as aws, Intake(key=KEY) as intake, Wandb(key=KEY) as wandb:
        release = Release(image, intake, wandb, aws, folder)
        release.fill(size.writers, size.runs)
        yield release


def tick(engine: Engine, release: Release, limit: int) -> Tick:
    """Run every collector once, from the start of its records, under a limit."""
    for path in (release.folder / "state").iterdir():
        path.unlink()
    resources = {"requests": {"memory": "16Mi"}, "limits": {"memory": f"{limit}Mi"}}
    memory = {"resources": resources, "timeout": 170}
    template = release.template("CronJob", memory)
    with running(engine, template, secrets=SECRETS, claims=release.claims) as pod:
        group = Group(pod)
        code = pod.wait(900)
        return Tick(code, group.stop(), group.peak())


class Group:
    """The control group of a pod, watched until it is over."""

    def __init__(self, pod: Pod) -> None:
        first = Path("/sys/fs/cgroup/memory", pod.cgroup.lstrip("/"))
        self._folder = first if first.exists() else Path("/sys/fs/cgroup", pod.cgroup.lstrip("/"))
        self._key = "total_rss" if first.exists() else "anon"
        self._over = threading.Event()
        self._most = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            lines = (self._folder / "memory.stat").read_text().splitlines()
            values = dict(line.split(" ", 1) for line in lines)
            self._most = max(self._most, int(values[self._key]))

    def stop(self) -> float:
        """The most anonymous memory that was seen."""
        self._over.set()
        self._thread.join()
        return self._most / MEBIBYTE

    def peak(self) -> float:
        """The most memory of any kind, as the kernel kept it."""
        names = ("memory.max_usage_in_bytes", "memory.peak")
        [path] = [self._folder / name for name in names if (self._folder / name).exists()]
        return int(path.read_text()) / MEBIBYTE


def least_limit(engine: Engine, release: Release, precision: int) -> int:
    """The smallest limit under which a tick succeeds."""
    fails, works = 16, LIMIT
    while works - fails > precision:
        middle = (fails + works) // 16 * 8
        if tick(engine, release, middle).code == 0:
            works = middle
        else:
            fails = middle
    return works


def show_sizes(engine: Engine, image: str) -> None:
    """What the image adds to its base, largest first."""
    root = Path(engine.run("podman", "image", "mount", image).stdout.strip())
    [packages] = (root / "opt" / "venv" / "lib").glob("python3.*/site-packages")
    parts = {path.name: path for path in packages.iterdir()} | {"the service itself": root / "app"}
    sizes = {name: _size(path) for name, path in parts.items()}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:10]:
        print(f"{size / 1e6:8.1f} MB  {name}")
    print(f"{sum(sizes.values()) / 1e6:8.1f} MB  added to the base in all")
    print(f"{engine.inspect('image', image)['Size'] / 1e6:8.1f} MB  with the stand-in for the base")
    engine.run("podman", "image", "unmount", image)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.lstat().st_size for each in files if not each.is_dir())


def measure(engine: Engine, image: str, folder: Path, size: Size) -> list[Claim]:
    """What is in the image, then a tick under the chart's limit, and under less and less."""
    show_sizes(engine, image)
    with releases(image, folder, size) as release:
        return measure_ticks(engine, release, size.precision)


def measure_ticks(engine: Engine, release: Release, precision: int) -> list[Claim]:
    """The memory that a tick takes, and that it needs."""
    taken = tick(engine, release, LIMIT)
    points = len(release.intake.points)
    print(f"a busy tick ended with {taken.code}; {points:,} points arrived")
    print(f"{taken.anonymous:8.1f} MiB  anonymous memory at its peak")
    print(f"{taken.with_cache:8.1f} MiB  with page cache")
    least = least_limit(engine, release, precision)
    print(f"{least:8d} MiB  is the smallest limit it succeeds under")
    return [
        Claim("exit code under the chart's limit", taken.code, 0),
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
