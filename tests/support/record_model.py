"""The model of a live record collector: random fleets, runs that are killed, repeated and left out.

`check(seed, folder)` plays one fleet and raises AssertionError where the collector breaks a promise of
`docs/records.md`. What must be sent is computed from the generated records and from the times of the runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from support.record_fleets import BEGIN, SETTLE, STEP, Disk, Fleet, Key, Line, Shape, fleet, time_of
from support.record_runs import HOUR, TIMEOUT, Ran, Runs, unreadable
from support.record_truth import Truth, truth

LOOKBACK = 2 * STEP
PRESENT = (
    "xenna.run.last_record_age_seconds",
    "xenna.run.stalled",
    "xenna.runs.active",
    "gpu_memory.sessions",
)


@dataclass(frozen=True)
class Tick:
    """What becomes of one tick: the runs it has, and the files that cannot be read."""

    at: int
    fates: tuple[str, ...]  # of each run: "completed" or "killed"; a tick without runs was left out
    denied: int  # how many files


@dataclass
class Played:
    """A fleet that was played to its end."""

    seed: int
    fleet: Fleet
    runs: Runs
    disk: Disk
    denied: list[frozenset[str]] = field(default_factory=list)  # for each run, the files that were refused
    truths: list[Truth] = field(default_factory=list)  # for each run, of the records that it could read

    @property
    def width(self) -> int:
        """The length of the buckets in which records add up."""
        settings = self.fleet.settings
        shared = {
            "xenna": settings.get("stage_run_hash") == "false",
            "gpu_memory": settings.get("tag_job_id") == "false",
            "data_plane": "false" in (settings.get("tag_job"), settings.get("tag_rank")),
        }[self.fleet.kind]
        return int(settings.get("aggregate_interval", "60")) if shared else 1


def make(seed: int) -> tuple[Fleet, bool]:
    """Make the fleet of a seed; and whether its runs have a store."""
    chance = Random(f"fleet {seed}")
    kind = ("xenna", "gpu_memory", "data_plane")[seed % 3]
    tags = {
        "xenna": ("stage_run_hash",),
        "gpu_memory": ("tag_job_id",),
        "data_plane": ("tag_job", "tag_rank", "tag_partition_id"),
    }[kind]
    settings = {tag: chance.choice(("true", "false")) for tag in tags}
    settings["aggregate_interval"] = chance.choice(("60", "60", "300"))
    # Which of two live writers with the same tags wins is not promised where records come late.
    silence = chance.choice((0, 0, 1800, 7200))
    shape = Shape(
        seconds=chance.choice((5400, 9000, 14400)),
        writers=chance.choice((2, 3, 4)),
        intervals=(20, 45, 90),
        lag=chance.choice((0, 20, SETTLE - 1)),
        damage=chance.choice((0.0, 0.02)),
        rivals=not silence and chance.random() < 0.5,
        rotation=chance.random() < 0.6,
        removal=chance.random() < 0.6,
        silence=silence,
        repeats=chance.choice((0.0, 0.05)),
    )
    return fleet(kind, seed, shape, **settings), chance.random() < 0.7


def schedule(seed: int, last: int) -> Iterator[Tick]:
    """Yield the ticks of a fleet, of which no two in a row are without a completed run.

    In every fourth fleet nothing happens to runs; in another fourth several in a row may be left out.
    """
    chance, mode = Random(f"schedule {seed}"), seed // 3 % 4
    bad_before = False
    for at in range(BEGIN, last + 4 * STEP, STEP):
        fates: tuple[str, ...] = ("completed",)
        over = at > last + STEP
        if mode and not over and (mode == 3 or not bad_before) and chance.random() < 0.3:
            fates = chance.choice(((), ("killed",), ("killed", "killed")))
        elif mode and chance.random() < 0.2:
            fates = chance.choice(
                (("completed", "completed"), ("killed", "completed"), ("completed", "killed"))
            )
        bad_before = "completed" not in fates
        denied = chance.choice((1, 2)) if mode and not over and chance.random() < 0.15 else 0
        yield Tick(at, fates, denied)


def play(seed: int, folder: Path) -> Played:
    """Run all ticks of a fleet over its growing files."""
    made, store = make(seed)
    chance = Random(f"play {seed}")
    rivals = any("-rival" in json.dumps(line.record) for line in made.records)
    disk, runs = Disk(made, folder), Runs(made.kind, folder, made.settings, store=store)
    played = Played(seed, made, runs, disk)
    for tick in schedule(seed, made.last):
        now = tick.at + chance.randrange(3, 40)
        for fate in tick.fates:
            disk.advance(now)
            there = sorted(file for file, path in disk.paths.items() if path.exists())
            number = 0 if rivals else tick.denied  # see `make`
            denied = frozenset(chance.sample(there, min(number, len(there))))
            with unreadable([str(disk.paths[file]) for file in denied]):
                stop = (lambda steps: chance.randrange(steps)) if fate == "killed" else None
                runs.run(now, stop, chunk=chance.choice((50, 500, 10_000)))
            played.denied.append(denied)
            played.truths.append(truth(made, _readable(played, now, there, denied), now))
            now += chance.randrange(2, 60)
    return played


def _readable(played: Played, now: int, there: Iterable[str], denied: frozenset[str]) -> Iterator[Line]:
    """Yield the lines that a run can read, and that are young enough to matter to it."""
    files = set(there) - denied
    for line in played.fleet.lines:
        if line.written > now or line.file not in files or line.record is None:
            continue
        if time_of(played.fleet.kind, line.record) >= now - 2 * HOUR:
            yield line


def check(seed: int, folder: Path) -> Played:
    """Play a fleet; AssertionError, which names the seed, where a promise is broken."""
    folder.mkdir(parents=True, exist_ok=True)
    played = play(seed, folder)
    _check_windows(played)
    for ran, found, denied in zip(played.runs.ran, played.truths, played.denied, strict=True):
        _check_run(played, ran, found, denied)
    _check_repeated_sums(played)
    _check_everything_arrived(played)
    return played


def _floor(second: float, width: int) -> int:
    return math.floor(second) // width * width


def _check_windows(played: Played) -> None:
    """Windows follow each other without a hole, and reach up to what has settled."""
    width, sent_until = played.width, None
    for ran in played.runs.ran:
        earliest = -(-(ran.now + TIMEOUT - HOUR) // width) * width
        tick = ran.now // STEP * STEP
        if sent_until is None:
            expected = (_floor(tick - STEP - SETTLE, width), _floor(tick - SETTLE, width))
        else:
            expected = (max(sent_until, earliest), _floor(ran.now - SETTLE, width))
        assert (ran.window.since, ran.window.until) == expected, (
            f"seed {played.seed}: window of the run at {ran.now}"
        )
        if played.runs.store and not ran.killed:
            sent_until = ran.window.until


def gauges_since(ran: Ran, width: int) -> int:
    """Return from when on a run sends what one record states alone."""
    start = _floor(ran.now // STEP * STEP - LOOKBACK - SETTLE, width)
    return min(ran.window.since, max(start, ran.now + TIMEOUT - HOUR))


def _check_run(played: Played, ran: Ran, found: Truth, denied: frozenset[str]) -> None:
    """What a run sends is true of the records that it could read, and complete if it was not killed."""
    seed, window = played.seed, ran.window
    sent = {key: v for key, v in ran.sent.items() if ".ingest." not in key[0] and key[0] not in PRESENT}
    true = found.gauges | found.sums
    wrong = [(key, value, true.get(key)) for key, value in sent.items() if true.get(key) != value]
    assert wrong == [], f"seed {seed}: the run at {ran.now} sent what is not true"
    outside = [key for key in sent if key in found.sums and not window.since <= key[3] < window.until]
    assert outside == [], f"seed {seed}: the run at {ran.now} sent sums of other windows"
    named = "\n".join(ran.report.lost)
    for file in denied:
        if any(line.file == file for line in _of_window(played, ran)):
            assert any(path in named for path in played.disk.former[file]), (
                f"seed {seed}: {file} was not named"
            )
    if ran.killed:
        return
    since = gauges_since(ran, played.width)
    missing = [key for key in found.gauges if since <= key[3] < window.until and key not in sent]
    missing += [key for key in found.sums if window.since <= key[3] < window.until and key not in sent]
    assert missing == [], f"seed {seed}: the run at {ran.now} did not send all of its window"


def _of_window(played: Played, ran: Ran) -> Iterator[Line]:
    """Yield the records of a run's window that were written before it."""
    for line in played.fleet.records:
        at = time_of(played.fleet.kind, line.record or {})
        if line.written <= ran.now and ran.window.since <= at < ran.window.until:
            yield line


def _check_repeated_sums(played: Played) -> None:
    """No bucket of sums has two values, unless the delivery of the first failed or it was partial."""
    sums = set().union(*(found.sums.keys() for found in played.truths))
    for key in sums:
        for (before, ran), (after, _) in pairwise(played.runs.values[key]):
            excused = ran.killed or (not played.runs.store and ran.report.lost)
            assert before == after or excused, f"seed {played.seed}: {key} was sent as {before} and {after}"


def _check_everything_arrived(played: Played) -> None:
    """What was promised is there in the end; with a store, what is missing was named by a run."""
    completed = [ran for ran in played.runs.ran if not ran.killed]
    everything, width = truth(played.fleet), played.width
    since, until = completed[0].window.since, completed[-1].window.until
    named = "\n".join(unit for ran in played.runs.ran for unit in ran.report.lost)
    for key, value in (everything.gauges | everything.sums).items():
        if not since <= key[3] < until or played.runs.points.get(key) == value:
            continue
        lines, about = everything.feeds[key], f"seed {played.seed}: {key} should be {value}, is "
        about += str(played.runs.points.get(key))
        is_gauge = key in everything.gauges
        assert not _is_promised(played, key[3], lines, is_gauge), f"{about}, which was promised"
        if not played.runs.store or _in_a_gap(completed, key[3]):
            continue
        paths = {path for line in lines for path in played.disk.former[line.file]}
        assert any(path in named for path in paths), f"{about}, and no run named any of {sorted(paths)}"
        if is_gauge:
            _check_late(played, key, lines, width)


def _is_promised(played: Played, second: int, lines: list[Line], is_gauge: bool) -> bool:
    """Whether the writers and runs did everything that a point depends on.

    Records came in time, their files could always be read, and no two ticks in a row were left out. What adds
    up also needs a store, or that no tick was left out.
    """
    in_time = all(line.written - time_of(played.fleet.kind, line.record or {}) <= SETTLE for line in lines)
    denied = frozenset().union(*played.denied)
    if not in_time or any(line.file in denied for line in lines):
        return False
    ticks = [ran.now // STEP for ran in played.runs.ran if not ran.killed]
    most = 1 if not played.runs.store and not is_gauge else 2
    around = [tick for tick in ticks if abs(tick - second // STEP) <= 8]
    return all(after - before <= most for before, after in pairwise(around))


def _in_a_gap(completed: list[Ran], second: int) -> bool:
    """Whether the runs that would have sent a second were left out for longer than the intake's hour."""
    return any(before.window.until <= second < after.window.since for before, after in pairwise(completed))


def _check_late(played: Played, key: Key, lines: list[Line], width: int) -> None:
    """A late gauge is sent by the first completed run after it was written, if the intake still takes it.

    Where that run cannot read the file, it has named it.
    """
    for line in lines:
        at = time_of(played.fleet.kind, line.record or {})
        if line.written - at <= SETTLE:
            continue
        for ran, denied in zip(played.runs.ran, played.denied, strict=True):
            if ran.killed or ran.now < line.written or ran.window.until <= at:
                continue
            assert line.file in denied or at < -(-(ran.now + TIMEOUT - HOUR) // width) * width, (
                f"seed {played.seed}: {key} was not sent by the run at {ran.now}, which could read "
                f"{line.file}, written {line.written - at:.0f} s late at {line.written}"
            )
            break
