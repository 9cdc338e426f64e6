"""Sixteen shards read a quarter of an hour of a fleet of 100 GB a day, each at the cost of its share.

The fleet has 2,176 writers of the three kinds of records, which wrote 1 GB. Shards run as pods do, by the
command line with `--shard` and over one checkpoint store, one after the other; each of their collectors is a
process of its own. For some of them the files of their share are read in turns by one process that has no
others to look at: what a shard costs beside that is the price of sharing. Fleets of a sixteenth, an eighth, a
quarter and a half of this one, over as many shards, show how the cost per point grows. Points are sent to a
server in this process, so that its cost is nobody's. CPU is counted with its start.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, Cost, cost, judge, smallest  # noqa: E402
from benchmarks.records import intake  # noqa: E402
from collectors.data_plane.collector import DataPlaneIngest  # noqa: E402
from collectors.gpu_memory.collector import GpuMemoryIngest  # noqa: E402
from collectors.xenna.collector import XennaIngest  # noqa: E402
from common.records.engine import Ingest  # noqa: E402
from common.shards import Shard, slot  # noqa: E402
from support.record_files import KINDS  # noqa: E402
from support.servers.fleet import plausible_day  # noqa: E402
from support.servers.wandb import KEY, Wandb  # noqa: E402

INGEST: dict[str, type[Ingest[Any, Any]]] = {
    "xenna": XennaIngest,
    "gpu_memory": GpuMemoryIngest,
    "data_plane": DataPlaneIngest,
}
RANKS = 8  # of a job of the data plane
WRITERS = {"xenna": 48, "gpu_memory": 40, "data_plane": 6 * RANKS}  # of a sixteenth of the fleet
COUNTS = (1, 2, 4, 8, 16)
PAIRED = range(0, 16, 2)  # shards of sixteen whose share one process reads as well


class Part(NamedTuple):
    """What one process did, over how much."""

    cost: Cost
    points: int
    megabytes: float


Run = dict[str, Part]  # by kind


def write(kind: str, folder: Path, writers: int) -> Iterator[tuple[Path, str]]:
    """A file for each writer, and the slot it belongs to."""
    now = int(time.time())
    for writer in range(writers):
        job, rank = divmod(writer, RANKS)
        told = {"job": f"job-{job}", "rank": rank} if kind == "data_plane" else {}
        lines = [orjson.dumps(record | told) for record in KINDS[kind](writer, now)]
        place = folder / f"writer-{writer}"
        path = place / "segment-000001.jsonl" if kind == "gpu_memory" else place.with_suffix(".jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\n".join(lines) + b"\n")
        os.utime(path, (now - 60, now - 60))
        yield path, slot(INGEST[kind].unit(str(path), orjson.loads(lines[0])))


class Fleet:
    """The records of a fleet in a folder, and the address that its points go to."""

    def __init__(self, folder: Path, url: str, writers: Mapping[str, int]) -> None:
        self._folder, self._url = folder, url
        self.slots = {kind: dict(write(kind, folder / kind, number)) for kind, number in writers.items()}

    def read(self, shard: Shard) -> Run:
        """What a shard does, each collector in its turn."""
        return {kind: self._run(kind, self._folder, "shards", shard) for kind in KINDS}

    def read_alone(self, shard: Shard) -> Run:
        """What one process does that has only the shard's files to look at."""
        place = self._folder / f"share-{shard.index}"
        for kind in KINDS:
            (place / kind).mkdir(parents=True)  # a share of few files may have none of a kind
            for path in self._share(kind, shard):
                copy = place / path.relative_to(self._folder)
                copy.parent.mkdir(exist_ok=True)
                os.link(path, copy)
        return {kind: self._run(kind, place, f"alone-{shard.index}", Shard()) for kind in KINDS}

    def _share(self, kind: str, shard: Shard) -> list[Path]:
        return [path for path, slot in self.slots[kind].items() if shard.owns_slot(slot)]

    def _run(self, kind: str, folder: Path, store: str, shard: Shard) -> Part:
        paths = {f"FLEETGAUGE_{kind.upper()}_PATHS": str(folder / kind)}
        found, points = push(kind, self._url, self._folder / store, paths, *shard.options)
        size = sum(path.stat().st_size for path in self._share(kind, shard))
        return Part(found, points, size / 1e6)


def push(kind: str, url: str, store: Path, more: Mapping[str, str], *options: str) -> tuple[Cost, int]:
    """One tick of one collector, and how many points it sent."""
    store.mkdir(exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "DD_ENV": "bench",
        "DD_API_KEY": "bench-key",
        "FLEETGAUGE_DD_URL": url,
        "FLEETGAUGE_CHECKPOINTS": str(store),
        "FLEETGAUGE_SERIES_CAP": "1000000",
        **more,
    }
    program = [sys.executable, str(ROOT / "scripts" / "run_collector.py"), kind, "--push", "--json"]
    with tempfile.TemporaryFile() as said:
        found = cost([*program, "--timeout", "20m", *options], environ, said)
        said.seek(0)
        [outcome] = json.load(said)["collectors"]
    return found, int(outcome["points_sent"])


def show_wandb(runs: tuple[int, int]) -> None:
    """What a run of W&B costs: the difference between two projects, of which one has more of the last day."""
    cpu = []
    for number in runs:
        with intake() as url, Wandb() as wandb, tempfile.TemporaryDirectory() as folder:
            wandb.add("acme", "ants", plausible_day(time.time(), number))
            more = {"WANDB_API_KEY": KEY, "WANDB_PROJECTS": "acme/ants", "WANDB_BASE_URL": wandb.url}
            found, points = push("wandb", url, Path(folder), more)
        cpu.append(found.cpu)
    each = 1000 * (cpu[1] - cpu[0]) / (runs[1] - runs[0])
    took = f"{cpu[1]:.1f} CPU s, {found.peak_mb:.0f} MB, {points} points"
    print(f"wandb: {took} of {runs[1]:,} runs of a day; {each:.2f} ms for each beyond {runs[0]:,}")


def of_all(run: Run) -> Part:
    """What the collectors of a shard did together; the peak is that of the largest."""
    parts = run.values()
    cpu, peak = sum(part.cost.cpu for part in parts), max(part.cost.peak_mb for part in parts)
    return Part(Cost(cpu, peak), sum(part.points for part in parts), sum(part.megabytes for part in parts))


def per_million(part: Part) -> float:
    """CPU seconds for a million points."""
    return part.cost.cpu / part.points * 1e6


def show(count: int, shards: list[Part]) -> None:
    """One line of the table of growth."""
    cpu, points = sum(one.cost.cpu for one in shards), sum(one.points for one in shards)
    size = [one.megabytes for one in shards]
    most, peak = max(one.cost.cpu for one in shards), max(one.cost.peak_mb for one in shards)
    print(
        f"{count:>6}  {sum(size):>6.0f}  {points:>12,}  {cpu:>6.1f}  {most:>11.1f}  {peak:>7.0f}  "
        f"{cpu / points * 1e6:>10.2f}  {max(size) * len(size) / sum(size):>7.2f}",
        flush=True,
    )


def show_kinds(runs: list[Run], writers: Mapping[str, int], series: Mapping[str, float]) -> None:
    """What each kind costs: the table that docs/scaling.md reckons with."""
    names = ("kind", "writers", "MB", "points", "CPU s", "ms/writer", "ms/MB", "series/writer", "ms/series")
    print("", "  ".join(f"{name:>10}" for name in names), sep="\n")
    for kind, each in series.items():
        parts = [run[kind] for run in runs]
        cpu, size = 1000 * sum(part.cost.cpu for part in parts), sum(part.megabytes for part in parts)
        points, number = sum(part.points for part in parts), writers[kind]
        values = (size, points, cpu / 1000, cpu / number, cpu / size, each, cpu / number / each)
        print("  ".join([f"{kind:>10}", f"{number:>10}", *(f"{value:>10,.5g}" for value in values)]))


def main(argv: list[str]) -> int:
    """All claims about shards."""
    tiny = smallest(argv, __doc__)
    counts, paired = ((2,), (0,)) if tiny else (COUNTS, PAIRED)
    base = {kind: 2 if tiny else number for kind, number in WRITERS.items()}
    series: set[tuple[str, ...]] = set()
    known: dict[str, float] = {}

    def seen(body: bytes) -> None:
        for one in orjson.loads(gzip.decompress(body))["series"] if not known else ():
            series.add((one["metric"], *one["tags"], *(each["name"] for each in one.get("resources", ()))))

    print("shards      MB        points   CPU s  CPU s, most  peak MB  s/M points  uneven")
    runs: list[Run] = []
    ratios, differ = [], 0
    for count in counts:
        writers = {kind: count * number for kind, number in base.items()}
        with intake(seen) as url, tempfile.TemporaryDirectory() as folder:
            fleet, runs = Fleet(Path(folder), url, writers), []
            for index in range(count):
                runs.append(fleet.read(Shard(index, count)))
                if count == counts[-1] and index in paired:
                    alone, ours = of_all(fleet.read_alone(Shard(index, count))), of_all(runs[-1])
                    ratios.append(per_million(ours) / per_million(alone))
                    differ += abs(ours.points - alone.points)
        known = known or {
            kind: sum(name.startswith(f"{kind}.") for name, *_ in series) / writers[kind] for kind in KINDS
        }
        show(count, [of_all(run) for run in runs])
    show_kinds(runs, writers, known)
    show_wandb((20, 40) if tiny else (1000, 9000))
    print("cost per point, of one process over the same share:", *(f"{ratio:.3f}" for ratio in ratios))
    shards = [of_all(run) for run in runs]
    return judge(
        [
            Claim("CPU s of a shard", max(one.cost.cpu for one in shards), 120),
            Claim("peak MB of a shard's collector", max(one.cost.peak_mb for one in shards), 200),
            Claim("cost per point, of one process over the same share", statistics.median(ratios), 1.15),
            Claim("points by which the two differ", differ, 0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
