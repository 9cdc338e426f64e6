"""Writers of records whose every move is chance: what they leave on disk, and what live ticks made of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random
from typing import Any

from collectors.data_plane.collector import COLLECTOR as DATA_PLANE
from collectors.gpu_memory.collector import COLLECTOR as GPU_MEMORY
from collectors.xenna.collector import COLLECTOR as XENNA
from support.data_plane_ticks import held as holding
from support.data_plane_ticks import operations
from support.replays import Simulation
from support.xenna_ticks import NOW, record

STEPS = 100
XENNA_STEPS = {"write": 80, "end": 2, "start again": 2, "rotate": 6, "tick": 10}
DATA_PLANE_STEPS = {"put": 60, "hold": 20, "rotate": 5, "tick": 10}
GPU_MEMORY_STEPS = {"sample": 60, "warning": 20, "start again": 2, "roll over": 5, "tick": 10}


def xenna(folder: Path, chance: Random, *, rivals: bool) -> Simulation:
    """Three runs write to two files. Where they are rivals they have one hash, and live at once."""
    simulation = Simulation(XENNA, folder, stage_run_hash=chance.choice(("true", "false")))
    generations = [0, 0, 0]
    seqs = itertools.count()
    for what in chance.choices(list(XENNA_STEPS), list(XENNA_STEPS.values()), k=STEPS):
        simulation.pass_time(chance.choice((0, 1, 3, 60, 200, chance.randrange(1600))))
        number = chance.randrange(3)
        name = "ab"[number % 2] + ".jsonl"
        if what in {"write", "end"}:
            seq, run = next(seqs), f"r{number}.{generations[number]}"
            body = {"progress": seq / 2, "stage/a/queue_in": seq, "stage/a/speed_tasks_per_s": seq / 4}
            more = {"event": "end", "status": "ok"} if what == "end" else {}
            ago = NOW - simulation.now + chance.choice((0, 0, 1.5, 3))  # lines are written late, out of order
            run_hash = "one" if rivals else str(number)
            simulation.write(name, record(seq, ago, body, run_id=run, run_hash=run_hash, **more))
        if what in {"end", "start again"}:
            generations[number] += 1
            simulation.pass_time(5)
        elif what == "rotate":
            simulation.rotate(name)
        elif what == "tick":
            simulation.tick()
    return ended(simulation)


def data_plane(folder: Path, chance: Random, *, rivals: bool) -> Simulation:
    """Four ranks write to three files. Where they are rivals, nobody tells them apart.

    Each has a job of its own, of which three know what it holds.
    """
    interval = chance.choice(("60", "7"))
    simulation = Simulation(DATA_PLANE, folder, tag_rank=str(not rivals).lower(), aggregate_interval=interval)
    seqs = itertools.count()
    for what in chance.choices(list(DATA_PLANE_STEPS), list(DATA_PLANE_STEPS.values()), k=STEPS):
        simulation.pass_time(chance.choice((0, 1, 3, 20, 200, chance.randrange(1600))))
        rank = chance.randrange(4)
        name = f"{min(rank, 2)}.jsonl"
        ago = NOW - simulation.now + chance.choice((0, 0, 1.5, 40))
        if what == "put":
            calls = [(1, chance.randrange(99), chance.randrange(64) / 4) for _ in range(chance.randint(1, 3))]
            status = chance.choice(("ok", "ok", "error", "timeout"))
            simulation.write(name, operations(next(seqs), ago, *calls, rank=rank, status=status))
        elif what == "hold":
            told = {"job": f"ants-{rank}", "foreign_clears": rank // 3, "keys_overflowed": 0}
            told |= {"unknown": "copied" if rank == 3 else ""}
            simulation.write(name, holding(next(seqs), ago, {"p": chance.randrange(99)}, rank, **told))
        elif what == "rotate":
            simulation.rotate(name)
        else:
            simulation.tick()
    return ended(simulation)


def gpu_memory(folder: Path, chance: Random, *, rivals: bool) -> Simulation:
    """Three ranks with a sink each. Where they are rivals they have one rank, and live at once."""
    simulation = Simulation(GPU_MEMORY, folder, tag_job_id=chance.choice(("true", "false")))
    sessions, segments = [0, 0, 0], [1, 1, 1]
    for what in chance.choices(list(GPU_MEMORY_STEPS), list(GPU_MEMORY_STEPS.values()), k=STEPS):
        simulation.pass_time(chance.choice((0, 1, 3, 20, 200, chance.randrange(1600))))
        rank = chance.randrange(3)
        if what in {"sample", "warning"}:
            more = {"rank": 0 if rivals else rank, "session_id": f"{rank}.{sessions[rank]}"}
            one = event(simulation.now + chance.random(), chance.randrange(99), what, **more)
            simulation.write(f"sink-{rank}/segment-{segments[rank]:06d}.jsonl", one)
        elif what == "start again":
            sessions[rank] += 1
            simulation.pass_time(1)
        elif what == "roll over":
            segments[rank] += 1
        else:
            simulation.tick()
    return ended(simulation)


def ended(simulation: Simulation) -> Simulation:
    """Let the last records settle and be sent."""
    simulation.pass_time(200)
    simulation.tick()
    return simulation


def event(at: float, allocated: int, kind: str = "sample", **more: Any) -> dict[str, Any]:
    """What a session on a device of 1,000 bytes writes."""
    return {
        "schema_version": 4,
        "event_type": kind,
        "timestamp_ns": round(at * 1000) * 1_000_000,
        "session_id": "s1",
        "job_id": "j1",
        "rank": 0,
        "host": "node-1",
        "device_id": 0,
        "allocator_allocated_bytes": allocated,
        "device_used_bytes": allocated * 2,
        "device_total_bytes": 1000,
        **more,
    }
