"""A million events become a page and a W&B run within 300 MB, for a few times the CPU of decoding them.

Each command runs in a process of its own on a sink of a hundred segments. The report is compared with
`json.loads` of the same lines; the export with that of the tracker (stormlog), which is given the same events
in the same process in turn: both must log the same rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT)]

from benchmarks.measure import Claim, Cost, cost, judge, python, smallest  # noqa: E402

EVENTS = 1_000_000
PER_SEGMENT = 10_000
LIMIT_MB = 300


LOADS = """
import json, pathlib
for path in sorted(pathlib.Path({sink!r}).iterdir()):
    with path.open() as file:
        for line in file:
            json.loads(line)
"""
EXPORTS = """
import json, pathlib, statistics, sys, time, types
import stormlog.wandb_integration as theirs
import fleetgauge.gpu_memory as ours

paths = sorted(pathlib.Path({sink!r}).iterdir())
events = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
rows = []
run = types.SimpleNamespace(
    log=rows.append, define_metric=lambda *_, **__: None, summary=types.SimpleNamespace(update=rows.append)
)
wandb = sys.modules["wandb"] = types.ModuleType("wandb")
wandb.__dict__.update(run=run, Table=lambda columns, data: (columns, data), Html=lambda text: None)
cpu, logged = {{}}, {{}}
for _ in range(3):
    for module in (theirs, ours):
        rows.clear()
        start = time.process_time()
        module.export_tracking_run_to_wandb(
            module.WandbExportConfig(enabled=True),
            command_name="track", session_summary=None, stats={{}}, events=events,
        )
        cpu.setdefault(module.__name__, []).append(time.process_time() - start)
        logged[module.__name__] = [row for row in rows if "stormlog_tracking_dashboard" not in row]
ratio = statistics.median(cpu[ours.__name__]) / statistics.median(cpu[theirs.__name__])
json.dump([ratio, logged[ours.__name__] == logged[theirs.__name__]], sys.stdout)
"""


def write_sink(directory: Path, events: int) -> None:
    """A session with a wave of memory, a warning now and then, and a capacity."""
    for first in range(0, events, PER_SEGMENT):
        path = directory / f"segment-{first // PER_SEGMENT + 1:06d}.jsonl"
        with path.open("w") as file:
            for number in range(first, first + PER_SEGMENT):
                used = 10**9 + number % 5000 * 10**6
                record = {
                    "schema_version": 4,
                    "session_id": "bench",
                    "timestamp_ns": 1_794_786_294_000_000_000 + number * 10**7,
                    "event_type": "warning" if number % 5003 == 0 else "sample",  # fewer alerts than rows
                    "allocator_allocated_bytes": used,
                    "allocator_reserved_bytes": used + 10**8,
                    "device_total_bytes": 16 * 2**30,
                    "context": f"event {number}",
                    "rank": 0,
                }
                file.write(json.dumps(record) + "\n")


def run(directory: Path, *arguments: str) -> Cost:
    """Run the command in a directory."""
    command = [sys.executable, "-m", "fleetgauge.gpu_memory", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_SILENT": "true", "WANDB_DIR": str(directory)}
    return cost(command, environment)


def main(argv: list[str]) -> int:
    """Each command in a process of its own."""
    events = PER_SEGMENT if smallest(argv, __doc__) else EVENTS
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sink = directory / "sink"
        sink.mkdir()
        write_sink(sink, events)
        size = sum(path.stat().st_size for path in sink.iterdir()) / 2**20
        loads = cost(python(LOADS.format(sink=str(sink))))
        compare = python(EXPORTS.format(sink=str(sink)))
        ratio, equal = json.loads(subprocess.run(compare, stdout=subprocess.PIPE, check=True).stdout)
        report = run(directory, "report", str(sink), "-o", str(directory / "page.html"))
        export = run(directory, "export", str(sink), "--project", "bench", "--offline")
        page = (directory / "page.html").stat().st_size / 1024
    print(f"{events:,} events, {size:.0f} MiB; the page has {page:.0f} KiB")
    print(f"CPU s: json.loads {loads.cpu:.1f}, report {report.cpu:.1f}, export {export.cpu:.1f}")
    return judge(
        [
            Claim("CPU of report / of json.loads", report.cpu / loads.cpu, 3.5),
            Claim("CPU of export / of the tracker's", ratio, 1.2),
            Claim("exports log the same", equal, 1, at_least=True),
            Claim("peak MB of report", report.peak_mb, LIMIT_MB),
            Claim("peak MB of export", export.peak_mb, LIMIT_MB),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
