"""What each command prints of fixed data, at 80 and 160 columns and in a pipe.

Run as a program it writes the transcripts anew, with `--check` it says whether they are up to date:
`scripts/generate` does.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from rich.console import Console  # noqa: E402

from collectors.host import metrics as host  # noqa: E402
from common.cli.main import main as run_collector  # noqa: E402
from common.metric import Series  # noqa: E402
from common.options import Backfill, Mode, Options  # noqa: E402
from common.outcome import Outcome, Report, Status  # noqa: E402
from common.run.run import run  # noqa: E402
from common.show import table  # noqa: E402
from common.show.points import Points  # noqa: E402
from common.window import Window  # noqa: E402
from support.record_folder import MAKERS  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402
from support.servers.fleet import plausible_day  # noqa: E402
from support.servers.wandb import KEY, Wandb  # noqa: E402
from support.sinks import send  # noqa: E402

FOLDER = ROOT / "tests" / "data" / "terminal"
NOW = 1_794_790_000
SPAN = Window(NOW - 6 * 3600, NOW, 900)
RECORDS = ("data_plane", "gpu_memory", "xenna")
WIDTHS: dict[str, int | None] = {"80": 80, "160": 160, "pipe": None}


def transcripts() -> dict[str, str]:
    """Return every transcript by the name of its file."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (outcomes, points, options) in _commands(Path(folder)).items():
            for suffix, width in WIDTHS.items():
                found[f"{name}-{suffix}.txt"] = printed(outcomes, points, options, width)
    with redirect_stdout(io.StringIO()) as listed:
        run_collector(["--list"], {})
    return found | {"list.txt": listed.getvalue()}


def printed(
    outcomes: list[Outcome], points: Mapping[str, Points], options: Options, width: int | None
) -> str:
    """Return all that is printed of a run, without colour."""
    stream = io.StringIO()
    console = width and Console(
        file=stream, width=width, highlight=False, markup=False, emoji=False, color_system=None
    )
    output = table.Output(stream, console or None)
    table.show(output, outcomes, points, SPAN if options.backfill else None)
    if options.mode in {Mode.DRY_RUN, Mode.PUSH}:
        table.show_totals(output, outcomes, pushed=options.mode is Mode.PUSH)
    return re.sub(r" +$", "", stream.getvalue(), flags=re.MULTILINE)


_Shown = tuple[list[Outcome], dict[str, Points], Options]


def _commands(folder: Path) -> dict[str, _Shown]:
    """Return what each command has to show."""
    points = Points(1000, NOW - 60, NOW)
    send(points, _node())
    outcome = Outcome("host", Status.OK, 1.5, Report(points_sent=15), as_of=NOW)
    shown: dict[str, _Shown] = {"host": ([outcome], {"host": points}, Options())}
    for name in RECORDS:
        environ = {f"FLEETGAUGE_{name.upper()}_PATHS": str(_records(name, folder / name))}
        shown[name] = _run(name, Options(timeout=60), environ, folder)
    with Wandb() as server, Intake() as intake:
        server.add("acme", "ants", plausible_day(NOW, runs=60))
        intake.clock = lambda: NOW
        environ = {
            "WANDB_API_KEY": KEY,
            "WANDB_PROJECTS": "acme/ants",
            "WANDB_BASE_URL": server.url,
            "DD_API_KEY": intake.key,
            "DD_ENV": "test",
            "FLEETGAUGE_DD_URL": intake.url,
        }
        past = Backfill(SPAN.since, SPAN.until)
        for name, options in {
            "wandb": Options(timeout=60),
            "since": Options(timeout=60, backfill=past),
            "check": Options(Mode.CHECK),
            "print-config": Options(Mode.PRINT_CONFIG),
            "explain": Options(Mode.EXPLAIN, explain=("wandb.training.gpus_in_use", "project=ants")),
            "push": Options(Mode.PUSH),
        }.items():
            shown[name] = _run("wandb", options, environ, folder)
        shown["failed"] = _run("wandb", Options(), environ | {"WANDB_PROJECTS": "acme/bees"}, folder)
        shown["unset"] = _run("wandb", Options(), {}, folder)
    return shown


def _run(name: str, options: Options, environ: Mapping[str, str], folder: Path) -> _Shown:
    points: dict[str, Points] = {}
    line = run(name, options, environ, points=points, clock=lambda: NOW).encode()
    line = re.sub(rb"http://127\.0\.0\.1:\d+", b"http://127.0.0.1:12345", line)
    outcome = Outcome.decode(line.replace(str(folder).encode(), b"/data"))
    return [replace(outcome, seconds=1.5)], points, options


def _records(name: str, folder: Path) -> Path:
    """Write records of two writers, one that is none, and one that is too old."""
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


def _node() -> Iterator[Series]:
    """Yield the metrics of a node with two GPUs: values as such a node has them, the same everywhere."""
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


def main(*, check: bool) -> int:
    """Write what changed and remove what is no longer made; return 1 where `check` found any."""
    logging.disable()
    made = transcripts()
    old = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.txt")}
    stale = sorted(name for name in {*made, *old} if made.get(name) != old.get(name))
    for name in stale:
        print(f"{'stale' if check else 'wrote'}: {FOLDER.relative_to(ROOT) / name}", file=sys.stderr)
        if not check and name in made:
            (FOLDER / name).write_text(made[name], encoding="utf-8")
        elif not check:
            (FOLDER / name).unlink()
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
