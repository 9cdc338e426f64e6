"""What each collector shows of fixed data, and the golden files that it is compared with.

Run as a program it writes the golden files anew: `.venv/bin/python tests/common/show/terminal.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from collectors.host import metrics as host  # noqa: E402
from common.metric import Series  # noqa: E402
from common.options import Options  # noqa: E402
from common.outcome import Outcome, Status  # noqa: E402
from common.run.run import run  # noqa: E402
from common.show.layout import Look  # noqa: E402
from common.show.overview import show  # noqa: E402
from common.show.points import Points  # noqa: E402
from common.show.report import closing  # noqa: E402
from support.record_folder import MAKERS  # noqa: E402
from support.servers.fleet import plausible_day  # noqa: E402
from support.servers.wandb import KEY, Wandb  # noqa: E402
from support.sinks import send  # noqa: E402

GOLDEN = ROOT / "tests" / "data" / "terminal"
NOW = 1_794_790_000
NAMES = ("data_plane", "gpu_memory", "host", "wandb", "xenna")
LOOKS = {
    **{
        f"{width}{'-colour' if colour else ''}": Look(width, colour)
        for width, colour in product((60, 80, 120), (False, True))
    },
    "pipe": Look(),
}


def recording(name: str, folder: Path) -> tuple[Outcome, Points]:
    """Return a dry run of a collector over fixed data, without how long it took."""
    if name == "host":
        return Outcome("host", Status.OK, 1.5, samples=15, as_of=NOW), _host()
    points: dict[str, Points] = {}
    if name == "wandb":
        with Wandb() as server:
            server.add("acme", "ants", plausible_day(NOW, runs=60))
            environ = {"WANDB_API_KEY": KEY, "WANDB_PROJECTS": "acme/ants", "WANDB_BASE_URL": server.url}
            outcome = run(name, Options(timeout=60), environ, points=points, clock=lambda: NOW)
    else:
        environ = {f"FLEETGAUGE_{name.upper()}_PATHS": str(_records(name, folder / name))}
        outcome = run(name, Options(timeout=60), environ, points=points, clock=lambda: NOW)
    examples = {reason: text.replace(str(folder), "/data") for reason, text in outcome.examples.items()}
    return replace(outcome, seconds=1.5, examples=examples), points[name]


def shown(outcome: Outcome, points: Points, look: Look) -> str:
    """Return all that is printed of it."""
    lines = [*show([outcome], {outcome.collector: points}, look), *closing([outcome], look, pushed=False)]
    return "".join(f"{line}\n" for line in lines)


def _records(name: str, folder: Path) -> Path:
    """Records of two writers, one that is none, and one that is too old."""
    make, path = MAKERS[name], folder / "segment-000001.jsonl"
    folder.mkdir()
    lines = [
        json.dumps(make(writer, number, NOW - 1000 + 20 * number))
        for writer in ("ants-7f3a", "bees")
        for number in range(40)
    ]
    lines += ["{", json.dumps(make("cold", 1, NOW - 9000))]
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (NOW - 190, NOW - 190))
    return folder


def _host() -> Points:
    """Return a node with two GPUs: values as such a node has them, the same on every machine."""
    points = Points(host.METRICS, 1000, NOW - 60, NOW)
    send(points, _node())
    return points


def _node() -> Iterator[Series]:
    node = "gpu-node-17.cluster.example"
    for metric, value in (
        (host.CPU_COUNT, 192),
        (host.CPU_UTILIZATION, 37.24),
        (host.LOAD_1M, 61.4),
        (host.MEMORY, 2015.56),
        (host.MEMORY_AVAILABLE, 0.47),
    ):
        yield metric(value, NOW, on_host=node)
    for folder, free, used in (("/", 74.53, 26.6), ("/scratch/a-path-of-some-length", 10721.9, 99.96)):
        yield host.DISK_FREE(free, NOW, path=folder, on_host=node)
        yield host.DISK_USED(used, NOW, path=folder, on_host=node)
    for gpu, used in (("0", 79.12), ("1", 0.0)):
        tags = {"gpu": gpu, "gpu_type": "h100"}
        yield host.GPU_UTILIZATION(used, NOW, on_host=node, **tags)
        yield host.GPU_MEMORY_USED(used, NOW, on_host=node, **tags)
        yield host.GPU_TEMPERATURE(54, NOW, on_host=node, **tags)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for one in NAMES:
        with tempfile.TemporaryDirectory() as made:
            told = recording(one, Path(made))
            for look_name, look in LOOKS.items():
                (GOLDEN / f"{one}-{look_name}.txt").write_text(shown(*told, look), encoding="utf-8")
