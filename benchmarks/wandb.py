"""Reading W&B: ours against the official client used the obvious way, and many instants against one.

The server runs in a process of its own and answers 150 ms late; each way of reading runs in another. CPU is
counted after imports, memory is the sum of the peaks of a process and its children. The official client is
measured on 300 runs and scaled to the rest, except for memory, which is what 300 runs took.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # without this folder, whose wandb.py is not the client

KEY = "0123456789abcdef0123456789abcdef01234567"
LATENCY = 0.15
MEASURED = 300  # runs the official client reads
NOW = 1_794_700_800
DAY = 86_400


def serve(recent: int, total: int) -> None:
    """Serve runs of 500 summary and 200 config keys; a line on stdin is answered with what was sent."""
    from servers.faults import Fault
    from servers.fleet import THROUGHPUT_KEYS, Row, client_config
    from servers.wandb import Wandb

    chance = random.Random(11)  # noqa: S311
    filler = (
        {f"losses/part_{n}": n * 1.000123 for n in range(495)},
        {f"trainer.option_{n}": {"desc": None, "value": n * 1.5} for n in range(199)},
    )

    def row(number: int) -> Row:
        end = NOW - chance.uniform(0, DAY / 2) if number < recent else NOW - chance.uniform(2, 60) * DAY
        name = f"github.sky.main.{number:07x}.arena.1" if number % 20 == 0 else f"train.{number}"
        summary = {key: chance.uniform(3e4, 4e4) for key in THROUGHPUT_KEYS} if number % 20 == 0 else {}
        start = end - chance.uniform(0.1, 11) * 3600
        return Row(
            f"r{number}",
            "finished",
            start,
            end,
            name,
            config=client_config(8),
            summary=summary,
            filler=filler,
        )

    with Wandb(KEY) as server:
        server.add("acme", "ants", [row(number) for number in range(total)])
        server.faults.add(Fault(delay=LATENCY), times=None)
        print(server.url, flush=True)
        for _ in sys.stdin:
            told = {
                "requests": len(server.requests),
                "wire": sum(request.sent for request in server.requests),
                "raw": sum(request.raw_size for request in server.requests),
            }
            server.requests.clear()
            print(json.dumps(told), flush=True)


def ours(url: str) -> dict[str, float]:
    """One run of the collector."""
    import tenacity  # noqa: F401  # imports do not count, also those made late
    import urllib3  # noqa: F401

    from collectors.wandb.collector import COLLECTOR
    from common.collector import Context
    from common.config.settings import ConfigurationFile, load
    from common.net.retry import Deadline

    environ = {"WANDB_API_KEY": KEY, "WANDB_PROJECTS": "acme/ants", "WANDB_BASE_URL": url}
    settings = load(COLLECTOR.settings, "wandb", environ=environ, file=ConfigurationFile())
    context = Context(settings, NOW, NOW, "node", {}, Deadline(100), logging.getLogger("bench"))

    def work() -> float:
        values = {sample.metric.name: sample.value for sample in COLLECTOR.collect(context)}  # type: ignore[union-attr]
        return values["wandb.runs.completed_24h"]

    return _measured(work)


def official(url: str) -> dict[str, float]:
    """The official client, the way its documentation shows."""
    import wandb

    from servers.fleet import text

    def work() -> float:
        api = wandb.Api(overrides={"base_url": url}, api_key=KEY, timeout=60)
        found = []
        for run in api.runs("acme/ants", filters={"createdAt": {"$gte": text(NOW - DAY)}}):
            found.append((run.state, run.created_at, run.summary.get("overview/sps")))
            if len(found) == MEASURED:
                break
        return len(found)

    return _measured(work)


def _measured(work: Callable[[], float]) -> dict[str, float]:
    import psutil

    begun, cpu = time.perf_counter(), time.process_time()
    runs = work()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    children = psutil.Process().children(recursive=True)
    cpu += sum(sum(child.cpu_times()[:2]) for child in children)
    peak = sum(_peak(pid) for pid in (os.getpid(), *(child.pid for child in children)))
    return {"runs": runs, "seconds": seconds, "cpu": cpu, "peak_mb": peak}


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def serving(recent: int, total: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own."""
    command = [sys.executable, __file__, "serve", str(recent), str(total)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield _line(process), process
        if process.stdin is not None:
            process.stdin.close()


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise RuntimeError("the server has no output")
    return process.stdout.readline().strip()


def measure(way: str, server: tuple[str, subprocess.Popen[str]]) -> dict[str, float]:
    """One way of reading, in a process of its own, with what the server sent for it."""
    url, process = server
    with tempfile.TemporaryDirectory() as folder:
        names = ("HOME", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
        environ = {"PATH": os.environ["PATH"], "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
        environ.update(dict.fromkeys(names, folder))
        command = [sys.executable, __file__, way, url]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    if process.stdin is not None:
        process.stdin.write("\n")
        process.stdin.flush()
    return {**found, **json.loads(_line(process))}


def scaled(found: dict[str, float], runs: int) -> dict[str, float]:
    """What was measured on fewer runs, for so many; memory is left as it is."""
    factor = runs / found["runs"]
    return {key: value if key == "peak_mb" else value * factor for key, value in found.items()}


def show(title: str, found: dict[str, float]) -> None:
    print(
        f"{title:<34} {found['requests']:>8,.0f} {found['wire'] / 1e6:>8.2f} {found['raw'] / 1e6:>8.2f} "
        f"{found['cpu']:>7.2f} {found['peak_mb']:>8.0f} {found['seconds']:>8.2f}"
    )


def instants() -> float:
    """How many times the time of one instant a week of ticks takes, over 100,000 runs."""
    from collectors.wandb.evaluate import Rules, evaluate_many
    from collectors.wandb.runs import SECOND, Run, RunKind, State, Target

    chance = random.Random(5)  # noqa: S311
    states = list(State)
    runs = []
    for number in range(100_000):
        kind = RunKind(number % 3)
        end = NOW - chance.randrange(8 * DAY)
        took = chance.randrange(12 * 3600)
        push = kind is RunKind.PUSH_TO_MAIN
        runs.append(
            Run(
                id=str(number),
                state=chance.choice(states),
                kind=kind,
                start=(end - took) * SECOND,
                seen=end * SECOND,
                worked_from=(end - took) * SECOND,
                duration=took * SECOND,
                gpus=8,
                gpus_assumed=False,
                sweep=f"s{number % 500}" if kind is RunKind.SWEEP else None,
                target=Target("main", f"c{number % 20}") if push else None,
                throughput={"overview/steps_per_second": 4e4} if push else {},
            )
        )

    def took_for(ticks: range) -> float:
        times = []
        for _ in range(3):
            begun = time.process_time()
            for _ in evaluate_many(runs, ticks, Rules()):
                pass
            times.append(time.process_time() - begun)
        return min(times)

    one, week = took_for(range(NOW, NOW + 1)), took_for(range(NOW - 7 * DAY, NOW, 900))
    print(f"100,000 runs: one instant {one:.2f} s, 672 instants {week:.2f} s")
    return week / one


def claim(text: str, value: float, limit: float, *, at_least: bool = False) -> bool:
    """Print a measured value beside its target, and whether it holds."""
    holds = value >= limit if at_least else value <= limit
    sign = ">=" if at_least else "<="
    print(f"{'holds' if holds else 'FAILS'}: {text}: {value:.3g} (target {sign} {limit:g})")
    return holds


def main() -> int:
    """Measure everything in one run."""
    print(f"{'':<34} {'requests':>8} {'wire MB':>8} {'raw MB':>8} {'CPU s':>7} {'peak MB':>8} {'seconds':>8}")
    with serving(600, 26_000) as server:
        day = measure("ours", server)
        show("ours, 600 of 26,000 runs", day)
        client = measure("official", server)
        show(f"official client, {MEASURED} runs", client)
        show("official client, scaled to 600", scaled(client, 600))
    with serving(5_000, 5_000) as server:
        many = measure("ours", server)
        show("ours, 5,000 runs", many)
        show("official client, scaled to 5,000", scaled(client, 5_000))
    if (day["runs"], many["runs"]) != (600, 5_000):
        raise SystemExit(f"wrong counts: {day['runs']} and {many['runs']}")
    holds = [
        claim("requests for 600 runs", day["requests"], 3),
        claim("times faster at 600 runs", scaled(client, 600)["seconds"] / day["seconds"], 50, at_least=True),
        claim("requests for 5,000 runs", many["requests"], 12),
        claim("MB on the wire for 5,000 runs", many["wire"] / 1e6, 3),
        claim("CPU s for 5,000 runs", many["cpu"], 0.3),
        claim("peak MB for 5,000 runs", many["peak_mb"], 70),
        claim("672 instants / one instant", instants(), 20),
    ]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", recent, total]:
            serve(int(recent), int(total))
        case ["ours", url]:
            print(json.dumps(ours(url)))
        case ["official", url]:
            print(json.dumps(official(url)))
        case _:
            sys.exit(main())
