"""Parse one run as W&B returns it into a typed record.

Knows no clock and no window. A value that cannot be read is dropped and counted: a timestamp costs its run, a
summary value itself. Numbers may be written as text. Times are integers, in microseconds, so that their sums
are exact. `query` selects the fields, `groups` reads the owner, `ledger` counts the runs.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import orjson

from collectors.wandb.groups import NO_OWNER, Json, Owner, Owners, wire_value
from collectors.wandb.metrics import THROUGHPUT

SECOND = 1_000_000
HOUR_US = 3600 * SECOND
MAX_GPUS = 1_000_000
MAX_SECONDS = 10**11  # a larger number is not a duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EMPTY: Mapping[str, Json] = {}
# Metadata of a client that saw a GPU, and of one that saw other devices. It leaves out what it did not see.
_GPU_KEYS = ("gpu", "gpu_count", "gpu_nvidia", "gpu_amd", "apple")
_OTHER_KEYS = ("cpu_count", "tpu", "trainium")


class State(StrEnum):
    """The states of W&B. A run that is preempting still runs; one that is preempted does not."""

    RUNNING = "running"
    PREEMPTING = "preempting"
    PENDING = "pending"
    FINISHED = "finished"
    FAILED = "failed"
    CRASHED = "crashed"
    KILLED = "killed"
    PREEMPTED = "preempted"


TERMINAL = frozenset({State.FINISHED, State.FAILED, State.CRASHED, State.KILLED, State.PREEMPTED})
_STATES = {state.value: state for state in State}


class RunKind(StrEnum):
    """The purpose of a run. Push-to-main takes precedence over sweep."""

    OTHER = "other"
    PUSH_TO_MAIN = "push_to_main"
    SWEEP = "sweep"


class Target(NamedTuple):
    """What a push-to-main run measures: `main` or any pull request, and the configuration as a tag value."""

    ref: str
    config: str


class Reported(NamedTuple):
    """The figures of a run's GPUs: how many report, and the sum of their shares (1 is fully busy, or full).

    `busiest` is in percent; `timestamp` is that of the row, in seconds, or None. `low_seconds` is how long
    all were low at every observation; None without an earlier observation of the project.
    """

    gpus: int = 0
    busy: float = 0.0
    memory_gpus: int = 0
    memory_filled: float = 0.0
    busiest: float = 0.0
    timestamp: float | None = None
    low_seconds: int | None = None


class Run(NamedTuple):
    """A run. `seen` is its last heartbeat, or its start where it had none; the end, once it is terminal.

    `worked_from` is the earliest time at which it may have computed: a resumed or edited run keeps its start,
    and its heartbeat advances over pauses. `name` is the id in its address, `title` its display name.
    `reported` is None where its GPUs were not queried.

    A named tuple, because a backfill has hundreds of thousands. Times are microseconds since the epoch.
    """

    id: str
    state: State
    kind: RunKind
    start: int
    seen: int
    worked_from: int
    duration: int | None
    gpus: int
    gpus_assumed: bool
    sweep: str | None
    target: Target | None
    throughput: Mapping[str, float]
    owner: Owner = NO_OWNER
    name: str = ""
    title: str = ""
    reported: Reported | None = None


class RunReader:
    """Reads the runs of a project: their kind, GPUs, times and owner.

    `config_keys` and `summary_keys` are to be selected. `_wandb` has the metadata of the clients that wrote a
    run.

    `push_to_main` is a shell pattern of names. `gpu_count_key` is a key of config or summary that has the
    number of GPUs; `assumed_gpus` is taken where nothing has it. Without `owners`, runs have no group and no
    price.
    """

    def __init__(
        self, push_to_main: str, gpu_count_key: str | None, assumed_gpus: int, owners: Owners | None = None
    ) -> None:
        self._push_to_main = re.compile(fnmatch.translate(push_to_main)).match
        # <prefix>main.<commit>.<config>.<timestamp>, where the prefix is the pattern up to its first wildcard
        prefix = re.escape(re.split(r"[*?\[]", push_to_main)[0])
        self._target = re.compile(prefix + r"(?:(main)|pr\d+)\.[^.]+\.(.+)\.[^.]+").fullmatch
        self._gpu_count_key = gpu_count_key
        # A nested value is selected by its top-level key.
        selected = [] if gpu_count_key is None else [gpu_count_key, gpu_count_key.split(".")[0]]
        self.config_keys = ["_wandb", *selected]
        self.summary_keys = [*THROUGHPUT, *selected, "_wandb"]
        self._assumed_gpus = assumed_gpus
        self._owners = owners or Owners()

    def read(self, node: Mapping[str, Json], flaws: list[str]) -> Run | None:
        """Return the run of one row, or None; `flaws` gains a reason for each value that was dropped.

        None is a run of an unknown state, or without readable times.
        """
        state = _STATES.get(str(node.get("state")).lower())
        if state is None:
            flaws.append("unknown_state")
            return None
        start = microseconds(node.get("createdAt"))
        seen = start if node.get("heartbeatAt") is None else microseconds(node["heartbeatAt"])
        if start is None or seen is None:
            flaws.append("bad_timestamp")
            return None
        title = str(node.get("displayName") or node.get("name") or "")
        kind, target = self._classify(title, node)
        ended = state in TERMINAL
        computed = _duration(node.get("computeSeconds"), "bad_compute_seconds", flaws)
        # A summary is parsed only where something in it is needed: without `keys` it is the complete one.
        needs_summary = not (ended and computed) or kind is RunKind.PUSH_TO_MAIN or self._gpu_count_key
        summary = _document(node.get("summaryMetrics"), "bad_summary", flaws) if needs_summary else _EMPTY
        if not (ended and computed):
            # Whether the server updates its figure while a run lasts is not documented: take the larger.
            computed = max(computed, _duration(find(summary, "_wandb.runtime"), "bad_summary_value", flaws))
        row = _document(node.get("systemMetrics"), "bad_system_metrics", flaws)
        percentages = read_percentages(row, flaws)
        gpus, gpu = self._gpus(node, summary, percentages, flaws)
        is_assumed = gpus is None
        gpus = self._assumed_gpus if gpus is None else gpus
        # A resumed run has its first start, and its pauses are not work: the time computed, counted back from
        # the last heartbeat, is the better begin.
        worked_from, duration = start, computed or seen - start
        if computed or state is State.PENDING:  # one that waits may have a heartbeat, and computes nothing
            worked_from = max(start, seen - computed)
        if ended and duration < 0:  # clocks disagree
            flaws.append("negative_duration")
        name = str(node.get("name") or node["id"])
        sweep = str(node["sweepName"]) if node.get("sweepName") else None
        throughput = _throughput(summary, flaws) if kind is RunKind.PUSH_TO_MAIN else _EMPTY
        reported = None
        if "systemMetrics" in node:
            timestamp = _number(row.get("_timestamp"), "bad_system_metrics", flaws, 0)
            reported = sum_percentages(percentages, gpus, timestamp)
        return Run(  # by position, which is faster
            *(str(node["id"]), state, kind, start, seen, worked_from),
            *(duration if ended and duration >= 0 else None, gpus, is_assumed, sweep, target, throughput),
            *(self._owners.read(node, gpu, kind), name, title or name, reported),
        )

    def _classify(self, title: str, node: Mapping[str, Json]) -> tuple[RunKind, Target | None]:
        """Return the kind of a run by its name and its sweep, and what a push-to-main run measures."""
        if self._push_to_main(title):
            parts = self._target(title)
            return RunKind.PUSH_TO_MAIN, parts and Target(parts[1] or "pr", wire_value("config", parts[2]))
        if node.get("sweepName") or ".sweep" in title.lower():
            return RunKind.SWEEP, None
        return RunKind.OTHER, None

    def _gpus(
        self,
        node: Mapping[str, Json],
        summary: Mapping[str, Json],
        percentages: GpuPercentages,
        flaws: list[str],
    ) -> tuple[int | None, str | None]:
        """Return the number of GPUs by the first source that has it, None if unknown; and their name.

        Where the sources have 0 and GPUs report nevertheless, these are counted.
        """
        config = _document(node.get("config"), "bad_config", flaws)
        config = {key: _unwrapped(value, "value") for key, value in config.items()}
        metadata = find(config, "_wandb.e")
        clients = metadata.values() if isinstance(metadata, dict) else ()
        writers: list[dict[str, Json]] = [each for each in clients if isinstance(each, dict)]
        # Of a resumed run, the client that saw most GPUs: clients of one run share their GPUs.
        writer = max(writers, key=lambda each: _count(each.get("gpu_count"), []) or 0, default=_EMPTY)
        gpu = _gpu_name(writer)
        # The user's own key first: W&B's metadata counts the GPUs of one node only.
        for values in (config, summary) if self._gpu_count_key else ():
            if (count := _count(find(values, self._gpu_count_key or ""), flaws)) is not None:
                return count, gpu
        known = _count(writer.get("gpu_count"), flaws)
        if known is None:
            known = _count(find(node, "runInfo.gpuCount"), flaws)
        # Metadata leaves out what a client did not see. A client that lists CPUs and no GPU ran without one;
        # a run without any metadata is unknown.
        if known is None and not any(writer.get(key) for writer in writers for key in _GPU_KEYS):
            known = 0 if any(key in writer for writer in writers for key in _OTHER_KEYS) else None
        return len(percentages.devices) if known == 0 else known, gpu


def microseconds(text: Json) -> int | None:
    """Return an ISO 8601 time, with any offset (UTC without one) and fraction, since the epoch.

    None for anything else.
    """
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // _MICROSECOND


def find(values: Mapping[str, Json], key: str) -> Json:
    """Return the value of a key, which may be nested at its dots; None where absent."""
    if key in values:
        return values[key]
    value: Json = values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _document(text: Json, flaw: str, flaws: list[str]) -> Mapping[str, Json]:
    """Return a JSON object that is written as text; an empty one for no text.

    Over GraphQL, summaries and configs are JSON strings that may be null, cut off, or contain NaN. `flaw` is
    added to `flaws` where it is none.
    """
    if text is None or text == "":
        return _EMPTY
    document: Json = None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        # orjson is strict; the standard library is slower and only tried after it.
        with suppress(TypeError, ValueError, RecursionError):
            document = json.loads(text)  # accepts NaN and Infinity, which W&B's own client writes
    if isinstance(document, dict):
        return document
    flaws.append(flaw)
    return _EMPTY


def _unwrapped(value: Json, key: str) -> Json:
    """Return what a key of an object has, and any other value as it is.

    Config values are in `{"value": …, "desc": …}`, summary values of `define_metric` in `{"last": …}`.
    """
    return value[key] if isinstance(value, dict) and key in value else value


def _number(
    value: Json, flaw: str, flaws: list[str], least: float = -math.inf, most: float = math.inf
) -> float | None:
    """Return a finite number, also one that is wrapped or written as text; None where it is absent.

    One that is none, or out of bounds, is None too, and a flaw.
    """
    value = _unwrapped(value, "last")
    if value is None:
        return None
    with suppress(ValueError, OverflowError):  # an int may be too large for a float
        found = float(value) if isinstance(value, str) else value
        # By `type`, as a bool is an int.
        if type(found) in (int, float) and math.isfinite(found) and least <= found <= most:
            return found
    flaws.append(flaw)
    return None


def _count(value: Json, flaws: list[str]) -> int | None:
    """Return a number of GPUs; None where it is absent, or no integer within bounds."""
    count = _number(value, "bad_gpu_count", flaws, 0, MAX_GPUS)
    if count is not None and count != int(count):
        flaws.append("bad_gpu_count")
        return None
    return None if count is None else int(count)


def _gpu_name(writer: Mapping[str, Json]) -> str | None:
    """Return the name that the driver gives to its first GPU."""
    name = writer.get("gpu")
    with suppress(LookupError, TypeError, AttributeError):
        first = (writer.get("gpu_nvidia") or writer["gpu_amd"])[0]
        name = name or first.get("name") or first["series"]  # of AMD's, some clients write only this
    return name if isinstance(name, str) else None


def _duration(value: Json, flaw: str, flaws: list[str]) -> int:
    """Return how long a run computed, in microseconds; 0 where that is not known."""
    return round((_number(value, flaw, flaws, 0, MAX_SECONDS) or 0) * SECOND)


def _throughput(summary: Mapping[str, Json], flaws: list[str]) -> Mapping[str, float]:
    """Return the throughput values of a summary that are numbers, by key."""
    speeds = {key: _number(find(summary, key), "bad_summary_value", flaws) for key in THROUGHPUT}
    return {key: speed for key, speed in speeds.items() if speed is not None}


# System metrics: `system.gpu.<i>.gpu` for every GPU that the client sees, those of other users too, and
# `system.gpu.process.<i>.gpu` for those that the run itself uses. In shared mode each process adds a label,
# `/l:<name>`, and an index with two labels is two GPUs.

_Device = tuple[str, int]  # label and index
_KEY = re.compile(r"system\.gpu\.(process\.)?([0-9]{1,6})\.(gpu|memoryAllocated)(?:/l:(.+))?", re.DOTALL)


class GpuPercentages(NamedTuple):
    """Percentages of utilisation and of allocated memory by GPU, and the GPUs that the run itself uses."""

    busy: dict[_Device, float]
    filled: dict[_Device, float]
    own: set[_Device]

    @property
    def devices(self) -> set[_Device]:
        """Return the GPUs of the process, else all that have a figure."""
        return self.own or {*self.busy, *self.filled}


def read_percentages(row: Mapping[str, Json], flaws: list[str]) -> GpuPercentages:
    """Return the figures in a row of system metrics. A value that is no percentage is dropped."""
    percentages = GpuPercentages({}, {}, set())
    for key, value in row.items():
        parsed = _parse_key(key)
        percent = None if parsed is None else _number(value, "bad_system_metrics", flaws, 0, 100)
        if parsed is None or percent is None:
            continue
        is_process, is_memory, device = parsed
        values = percentages.filled if is_memory else percentages.busy
        if is_process:
            percentages.own.add(device)
            values[device] = percent
        else:
            values.setdefault(device, percent)
    return percentages


def sum_percentages(percentages: GpuPercentages, gpus: int, timestamp: float | None) -> Reported:
    """Return the sums over the GPUs of a run, which has so many; `timestamp` is that of the row."""
    shares = []
    for values in (percentages.busy, percentages.filled):
        devices = percentages.own & values.keys()
        if not percentages.own:
            # A client sees every GPU of its machine, those of other jobs too: without figures of the process,
            # the first `gpus` indices are the best guess.
            devices = {*sorted(each for each in values if each[1] < gpus)[:gpus]}
        shares.append([values[device] for device in devices])
    busy, filled = shares
    sums = (len(busy), math.fsum(busy) / 100, len(filled), math.fsum(filled) / 100)
    return Reported(*sums, busiest=max(busy, default=0.0), timestamp=timestamp)


@lru_cache(maxsize=2**14)  # every row has the same few keys
def _parse_key(key: str) -> tuple[bool, bool, _Device] | None:
    """Return whether a figure is of the process, whether of memory, and its GPU; None for any other key."""
    found = _KEY.fullmatch(key)
    return found and (bool(found[1]), found[3] != "gpu", (found[4] or "", int(found[2])))
