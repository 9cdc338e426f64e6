"""The points that the records of a fleet amount to, from the records alone: no code is the product's."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from support.record_fleets import ENDS, Fleet, Json, Key, Line, Points, path_of


class Truth(NamedTuple):
    """The points of some records: those that one record states alone, and those that add up.

    `feeds` has the lines that each point comes from.
    """

    gauges: Points
    sums: Points
    feeds: Mapping[Key, list[Line]]


def truth(made: Fleet, lines: Iterable[Line] | None = None, now: float = math.inf) -> Truth:
    """Compute the points of a fleet's records, or of some of them; manifests are as they are at a time."""
    found = _Sums(made.settings)
    found.sessions({path: content for at, path, content in made.documents if at <= now})
    {"xenna": found.xenna, "gpu_memory": found.gpu_memory, "data_plane": found.data_plane}[made.kind](
        _distinct(made.records if lines is None else [line for line in lines if line.record])
    )
    return Truth(found.gauges, found.sums, found.feeds)


def _distinct(lines: Iterable[Line]) -> list[Line]:
    """Drop the repetitions of records that have a run and a number, and of events of one time."""
    distinct: dict[object, Line] = {}
    for line in lines:
        record = line.record or {}
        number = record.get("seq", record.get("timestamp_ns"))
        name = (record.get("run_id", record.get("session_id")), record.get("rank"), number)
        distinct.setdefault(id(line) if number is None else (*name, record.get("event_type")), line)
    return list(distinct.values())


_MEANS = ("speed_tasks_per_s",)


class _Sums:
    """Adds up the records of one fleet."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.width = int(settings.get("aggregate_interval", "60"))
        self.gauges: Points = {}
        self.sums: Points = {}
        self.feeds: defaultdict[Key, list[Line]] = defaultdict(list)
        self._ranks: dict[Key, tuple[object, ...]] = {}

    def on(self, tag: str) -> bool:
        """Whether a tag is on, which it is by default."""
        return self.settings.get(tag, "true") == "true"

    def state(self, key: Key, value: float, line: Line, rank: tuple[object, ...]) -> None:
        """Set a gauge; of several values of a series and second, the highest rank wins."""
        self.feeds[key].append(line)
        if key not in self._ranks or rank >= self._ranks[key]:
            self._ranks[key] = rank
            self.gauges[key] = value

    def add(self, key: Key, value: float, line: Line) -> None:
        """Add to a sum."""
        self.feeds[key].append(line)
        self.sums[key] = self.sums.get(key, 0) + value

    def xenna(self, lines: list[Line]) -> None:
        last: dict[tuple[str, tuple[str, ...], int, str], tuple[tuple[float, int], float, Line]] = {}
        for line in lines:
            record = line.record or {}
            at, run = record["timestamp"], str(record.get("run_id", f"plain {path_of(line.file)}"))
            names = ("pipeline_kind", "rank", "run_hash")
            tags = tuple(f"{name}:{record[name]}" for name in names if record.get(name) is not None)
            if record.get("event") == "end":
                status = "ok" if record["status"] == "ok" else "error"
                self.add(("xenna.runs.ended", (f"status:{status}",), None, int(at)), 1, line)
            for key, value in record["metrics"].items():
                if not isinstance(value, int | float) or key == "unheard_of":
                    continue
                family, _, rest = key.partition("/")
                rank = (at, run, record.get("seq", 0))
                if family == "cluster":
                    self.state((f"xenna.cluster.{rest}", tags, None, int(at)), value, line, rank)
                elif family != "stage":
                    self.state((f"xenna.pipeline.{key}", tags, None, int(at)), value, line, rank)
                else:
                    stage, _, what = rest.partition("/")
                    name = f"xenna.stage.{what.replace('/', '.')}"
                    if self.on("stage_run_hash"):
                        self.state((name, (*tags, f"stage:{stage}"), None, int(at)), value, line, rank)
                        continue
                    start = int(at) // self.width * self.width
                    shared: tuple[str, ...] = (f"pipeline_kind:{record['pipeline_kind']}", f"stage:{stage}")
                    slot, order = (name, shared, start, run), (at, record.get("seq", 0))
                    self.feeds[name, shared, None, start].append(line)
                    if slot not in last or order >= last[slot][0]:
                        last[slot] = (order, value, line)
        totals: defaultdict[Key, list[float]] = defaultdict(list)
        for (name, shared, start, _), (_, value, _) in last.items():
            totals[name, shared, None, start].append(value)
        for key, values in totals.items():
            total = sum(values) / (len(values) if key[0].endswith(_MEANS) else 1)
            self.sums[key] = round(total, 9)

    def sessions(self, manifests: Mapping[str, bytes]) -> None:
        """Count sessions that were interrupted when they ended."""
        for content in manifests.values():
            for session in json.loads(content)["sessions"]:
                if session["status"] == "interrupted":
                    key: Key = ("gpu_memory.sessions.interrupted", (), None, session["ended_at_ns"] // 10**9)
                    self.sums[key] = self.sums.get(key, 0) + 1

    def gpu_memory(self, lines: list[Line]) -> None:
        device: dict[tuple[str, str, str, str, int, str], tuple[float, float]] = {}
        tagged = self.on("tag_job_id")
        for line in lines:
            event = line.record or {}
            at = event["timestamp_ns"] / 10**9
            rank, host, job = str(event["rank"]), event["host"], event["job_id"]
            gpu = str(event["device_id"]) if event["device_id"] >= 0 else ""
            total = event.get("device_total_bytes")
            used = event.get("device_used_bytes", event["allocator_reserved_bytes"])
            values = {
                "allocated_bytes": event["allocator_allocated_bytes"],
                "reserved_bytes": event["allocator_reserved_bytes"],
                "device_used_bytes": used,
            }
            if total:
                values |= {"device_total_bytes": total, "utilization_pct": used / total * 100.0}
            names = (("gpu", gpu), ("job_id", job), ("rank", rank))
            tags = tuple(f"{name}:{value}" for name, value in names if value)
            if not tagged:
                tags = (f"rank:{rank}",)
            if event["event_type"] != "sample":
                alert = (*tags, f"type:{event['event_type']}")
                self.add(("gpu_memory.alerts", alert, host, int(at)), 1, line)
            start = int(at) // self.width * self.width
            for name, value in values.items():
                if tagged:
                    key = (f"gpu_memory.{name}", tags, host, int(at))
                    self.state(key, value, line, (at, event["session_id"]))
                else:
                    slot = (host, rank, gpu, event["session_id"] + job, start, name)
                    self.feeds[f"gpu_memory.{name}", tags, host, start].append(line)
                    if at >= device.get(slot, (0.0, 0.0))[0]:
                        device[slot] = (at, value)
        if not tagged:
            self._devices(device)

    def _devices(self, device: Mapping[tuple[str, str, str, str, int, str], tuple[float, float]]) -> None:
        """Add up what sessions hold; of a device, they all state the same."""
        by_gpu: defaultdict[tuple[str, str, str, int, str], list[float]] = defaultdict(list)
        measured: defaultdict[tuple[str, str, str, int], list[float]] = defaultdict(list)
        for (host, rank, gpu, session, start, name), (_, value) in device.items():
            if name != "utilization_pct":
                by_gpu[host, rank, gpu, start, name].append(value)
            else:
                slot = (host, rank, gpu, session, start, "device_used_bytes")
                measured[host, rank, gpu, start].append(device[slot][1])
        totals: defaultdict[tuple[str, str, int, str], float] = defaultdict(float)
        for (host, rank, gpu, start, name), values in by_gpu.items():
            of_device = bool(gpu) and name.startswith("device_")
            totals[host, rank, start, name] += max(values) if of_device else sum(values)
        for (host, rank, gpu, start), values in measured.items():
            totals[host, rank, start, "measured"] += max(values) if gpu else sum(values)
        for (host, rank, start, name), total in totals.items():
            if name == "measured":
                name, total = "utilization_pct", total / totals[host, rank, start, "device_total_bytes"] * 100
            self.sums[f"gpu_memory.{name}", (f"rank:{rank}",), host, start] = total

    def data_plane(self, lines: list[Line]) -> None:
        calls: defaultdict[tuple[tuple[str, ...], int], list[Line]] = defaultdict(list)
        width = 1 if self.on("tag_job") and self.on("tag_rank") else self.width
        for line in lines:
            record = line.record or {}
            at = record["timestamp"]
            start = int(at) // width * width
            if "op" in record:
                calls[self._tags(record, "job", "op", "partition_id", "rank"), start].append(line)
                continue
            tags, outstanding = self._tags(record, "job", "rank"), record["bytes_outstanding"]
            for name in ("foreign_clears", "keys_overflowed"):
                self.add((f"data_plane.{name}", tags, None, start), record[name], line)
            if not (record["sole_writer"] and self.on("tag_job")):
                continue
            rank = (at, record["run_id"], record["seq"])
            for name in ("peak_bytes_outstanding", "keys_outstanding"):
                self.state((f"data_plane.{name}", tags, None, int(at)), record[name], line, rank)
            by_tags: defaultdict[tuple[str, ...], int] = defaultdict(int)
            for partition, n_bytes in outstanding.items():
                tagged = self._tags(record | {"partition_id": partition}, "job", "partition_id", "rank")
                by_tags[tagged] += n_bytes
            for tagged, n_bytes in by_tags.items():
                self.state(("data_plane.bytes_outstanding", tagged, None, int(at)), n_bytes, line, rank)
        for (tags, start), those in calls.items():
            for name, value in _operations([line.record or {} for line in those]).items():
                self.sums[f"data_plane.{name}", tags, None, start] = value
                self.feeds[f"data_plane.{name}", tags, None, start] += those

    def _tags(self, record: Json, *names: str) -> tuple[str, ...]:
        switched = ("job", "rank", "partition_id")
        return tuple(
            f"{name}:{record[name]}"
            for name in names
            if record.get(name) not in (None, "") and (name not in switched or self.on(f"tag_{name}"))
        )


def _operations(records: list[Json]) -> dict[str, float]:
    """Return the points of calls of one series: of a bucket's times, those that lie evenly in it."""
    good = [record for record in records if record["status"] == "ok"]
    walls = [record["wall_ms"] for record in good]
    number = sum(record["count"] for record in good)
    found: dict[str, float] = {
        "ops": number,
        "errors": sum(record["count"] for record in records if record["status"] == "error"),
        "timeouts": sum(record["count"] for record in records if record["status"] == "timeout"),
        "keys": sum(record["keys"] for record in good),
        "bytes": sum(record["bytes"] for record in good),
    }
    if not number:
        return found
    low, high = min(wall["min"] for wall in walls), max(wall["max"] for wall in walls)
    buckets: defaultdict[int, int] = defaultdict(int)
    for wall in walls:
        for index, many in wall["buckets"].items():
            buckets[int(index)] += many
    for percent in (50, 95, 99):
        rank, reached = max(1, math.ceil(number * percent / 100)), 0
        for index, many in sorted(buckets.items()):
            if reached + many >= rank:
                start = max(low, ENDS[index - 1] if index else 0.0)
                end = min(high, ENDS[index] if index < len(ENDS) else math.inf)
                found[f"wall_ms.p{percent}"] = start + (end - start) * ((rank - reached) / many)
                break
            reached += many
    found["wall_ms.avg"] = round(sum(wall["sum"] for wall in walls) / number, 9)
    found["wall_ms.max"] = high
    return found
