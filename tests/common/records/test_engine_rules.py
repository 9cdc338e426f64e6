"""The rules of one reading, to the second and to the mark, with a grammar as small as can be."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from common.collector import Context
from common.config.settings import ConfigurationFile, load, named
from common.errors import ConfigurationError, SourceError
from common.intake import MAX_AGE
from common.metric import Mark, Metric, Sample, count, gauge
from common.net.retry import Deadline
from common.records import buckets, engine
from common.records.collector import collector_over
from common.records.engine import Ingest, in_batches
from common.records.entry import Entry
from common.records.envelope import UnusableRecordError
from common.records.file import NotDue
from common.records.reading_metrics import IngestMetrics
from common.records.replay import PASS, REACHED
from common.records.settings import RecordSettings
from common.records.window import Tick, Window
from common.span import Span
from common.times import iso

NOW, SETTLE = 1_000_000, 5
VALUE = gauge("ants.value", "", "Of one writer.")
EATEN = count("ants.eaten", "", "Of all writers.")
ALIVE = gauge("ants.alive", "", "Of now.")


class AntSettings(RecordSettings):
    model_config = named("FLEETGAUGE_ANTS_")


class Said(NamedTuple):
    writer: str
    timestamp: float
    value: float
    last: bool

    @property
    def group(self) -> tuple[str, ...]:
        return (self.writer,)


class Ants(Ingest[AntSettings, Said]):
    """Lines of a writer, a time and a value; another kind has no time."""

    name = "ants"
    metrics: ClassVar[tuple[Metric, ...]] = (VALUE, EATEN, ALIVE)
    live_only = frozenset({ALIVE})
    reading = IngestMetrics("ants")

    def interpret(self, entry: Entry) -> Said | None:
        value = entry.value
        if "bad" in value:
            raise UnusableRecordError("odd", "bad", value["bad"])
        return Said(value["w"], value["t"], value["v"], value.get("last", False)) if "t" in value else None

    def samples(self, record: Said) -> Sequence[Sample]:
        return [VALUE(record.value, int(record.timestamp))]

    def ends(self, record: Said) -> bool:
        return record.last

    def present(self, *, sums: bool) -> Iterator[Sample]:
        yield ALIVE(int(sums), NOW)


class Waiting(Ants):
    waits_for = 10


class Ending(Waiting):
    has_ends = True


class AtOnce(Ants):
    streams = False


class Both(Ants):
    def samples(self, record: Said) -> Sequence[Sample]:
        return [VALUE(record.value, int(record.timestamp)), EATEN(1, int(record.timestamp))]


class Counting(Ants):
    def samples(self, record: Said) -> Sequence[Sample]:
        return [EATEN(record.value, int(record.timestamp))]


def write(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(path, (NOW - 50, NOW - 50))


def said(ago: float, value: float = 1, writer: str = "one", **more: Any) -> dict[str, Any]:
    return {"w": writer, "t": NOW - ago, "v": value, **more}


class Read:
    """One reading of a folder: what was yielded, and what was said meanwhile."""

    def __init__(
        self,
        folder: Path,
        kind: type[Ants] = Ants,
        *,
        live: bool = True,
        elapsed: float = 0,
        intake: float | None = None,
        state: dict[str, object] | None = None,
    ) -> None:
        environ = {"FLEETGAUGE_ANTS_PATHS": str(folder)}
        settings = load(AntSettings, "ants", environ=environ, file=ConfigurationFile())
        times = iter([0.0])
        deadline = Deadline(100, lambda: next(times, elapsed))
        self.announced: list[int] = []
        self.not_due: NotDue = {}
        given: Context[Any] = Context(
            settings, NOW, NOW, "node", state or {}, deadline, logging.getLogger("test")
        )
        self.context = replace(given, about_to_send=self.announced.append, intake_clock=lambda: intake)
        tick = Tick(Window.of(NOW, SETTLE), NOW, 86400, not_due=self.not_due, live=live)
        self.ingest = kind(self.context, tick)
        self.items = [*self.ingest.collect()]

    def values(self, metric: Metric) -> list[float]:
        return [one.value for one in self.items if not isinstance(one, Mark) and one.metric is metric]

    @property
    def told(self) -> list[tuple[int, float] | str]:
        """How long ago and the value of each point of records, and how many keys a mark changes."""
        mine = [one for one in self.items[:-1] if isinstance(one, Mark) or one.metric in (VALUE, EATEN)]
        return [
            f"mark {len(one.changes)}" if isinstance(one, Mark) else (NOW - one.timestamp, one.value)
            for one in mine
        ]


@pytest.mark.parametrize(
    ("kind", "live", "announced"),
    [
        (Ants, True, [NOW - SETTLE - 1]),
        (Waiting, True, [NOW - SETTLE - 10]),
        (Ending, True, [NOW]),
        (Ants, False, []),
    ],
)
def test_up_to_when_points_may_leave_is_announced_before(
    tmp_path: Path, kind: type[Ants], live: bool, announced: list[int]
) -> None:
    assert Read(tmp_path, kind, live=live).announced == announced


def test_times_are_taken_from_the_oldest_to_the_last_that_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agos = [MAX_AGE + 1, MAX_AGE + 0.5, MAX_AGE, MAX_AGE - 1, 500, SETTLE + 1]
    write(tmp_path / "a.jsonl", *(said(ago) for ago in agos), said(SETTLE), said(500))
    read = Read(tmp_path)
    assert read.told == [(ago, 1) for ago in agos[2:]] + ["mark 2"]
    assert dict(read.context.tally.dropped) == {"too_old": 2}
    [(_, until)] = read.not_due.values()
    assert until == NOW - SETTLE + 1
    first, last = iso(NOW - MAX_AGE - 1), iso(NOW - MAX_AGE)
    assert (
        f"2 records from {first} to {last} came too late to be sent; to send them: "
        f"run_collector.py ants --since {first} --until {last} --push --yes"
    ) in caplog.messages
    assert Read(tmp_path, live=False).context.tally.dropped["too_old"] == 2


@pytest.mark.parametrize(
    ("kind", "lines", "taken", "until"),
    [
        (Waiting, [said(20), said(11), said(9)], [20, 11], NOW),
        (Waiting, [said(9)], [], NOW),
        (Waiting, [said(9, last=True)], [], NOW),
        (Waiting, [said(20), said(9), said(8, last=True)], [20], NOW),
        (Ending, [said(20), said(9), said(8, last=True)], [20, 9, 8], None),
        (Ending, [said(20), said(9), said(8, writer="two"), said(7, last=True)], [20], NOW),
        (Ending, [said(9, last=True), said(7)], [9], NOW),
        (Ending, [{"x": 1}, said(9), {"x": 1}, {"bad": 1}, said(7, last=True)], [9, 7], None),
    ],
)
def test_a_bucket_that_may_grow_waits_until_it_is_over_unless_its_writer_has_ended(
    tmp_path: Path, kind: type[Ants], lines: list[dict[str, Any]], taken: list[int], until: int | None
) -> None:
    write(tmp_path / "a.jsonl", *lines)
    read = Read(tmp_path, kind)
    assert [one[0] for one in read.told if isinstance(one, tuple)] == taken
    assert [time for _, time in read.not_due.values()] == ([] if until is None else [until])


@pytest.mark.parametrize(
    ("kind", "live", "elapsed", "read"),
    [
        (Ants, True, 99.5, True),
        (Ants, True, 100, False),
        (AtOnce, True, 99.5, True),
        (AtOnce, True, 100, False),
        (AtOnce, False, 99.5, True),
    ],
)
def test_reading_begins_however_long_it_took_to_find_the_files(
    tmp_path: Path, kind: type[Ants], live: bool, elapsed: float, read: bool
) -> None:
    write(tmp_path / "a.jsonl", said(100))
    done = Read(tmp_path, kind, live=live, elapsed=elapsed)
    assert done.values(VALUE) == ([1] if read else [])
    assert done.ingest.behind is not read


def test_what_is_yielded_is_marked_file_by_file_and_now_and_then_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "test")
    monkeypatch.setattr(engine, "MARK_EVERY", 2)
    write(tmp_path / "a.jsonl", said(100, 1), said(99, 2), said(99, 3), said(98, 4), said(97, 5))
    write(tmp_path / "b.jsonl", said(96, 6, "two"))
    read = Read(tmp_path)
    assert read.told == [
        *[(100, 1), (99, 2), (99, 3), "mark 2", (98, 4), (97, 5), "mark 2"],
        *[(96, 6), "mark 2"],
    ]
    lines = (tmp_path / "a.jsonl").read_text()
    assert [message for message in caplog.messages if "records" in message] == [
        f"{tmp_path}/a.jsonl: read {len(lines)} bytes, 5 records",
        f"{tmp_path}/b.jsonl: read {len(lines) // 5} bytes, 1 records",
    ]


@pytest.mark.parametrize("most", [2, 3])
def test_what_adds_up_leaves_before_all_is_read_where_it_is_too_much(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_CELLS", most)
    monkeypatch.setattr(buckets, "MAX_KEPT", 0)  # and nothing of it is forgotten before all was read
    write(tmp_path / "a.jsonl", said(100, 1), said(99, 2), said(98, 3))
    read = Read(tmp_path, Counting)
    assert sorted(one for one in read.told if isinstance(one, tuple)) == [(98, 3), (99, 2), (100, 1)]
    changed = [one.changes for one in read.items if isinstance(one, Mark)]
    kept = [key for change in changed[:-1] for key, value in change.items() if "cell:" in key and value]
    assert len(kept) == (2 if most == 2 else 0)
    last = {key.partition("/")[2]: value for key, value in changed[-1].items()}
    assert [last[f"cell:{NOW - ago}"] for ago in (100, 99, 98)] == [None] * 3


def test_what_left_is_marked_also_while_something_is_held_back(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", said(100, 5))
    write(tmp_path / "b.jsonl", {"x": 1})
    assert Read(tmp_path, Both).told == [(100, 5), "mark 0", (100, 1)]


def test_points_that_are_whole_come_in_batches_with_marks_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "BATCH_SIZE", 2)
    points = [VALUE(number, NOW) for number in range(5)]
    nothing = Mark({})
    assert [*in_batches(points)] == [*points[:2], nothing, *points[2:4], nothing, points[4]]
    assert [*in_batches(points[:2])] == [*points[:2], nothing]


@pytest.mark.parametrize("off", [-60, 60, 61])
def test_a_clock_that_agrees_with_the_intakes_may_drop_what_is_too_old(
    tmp_path: Path, off: int, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.jsonl", said(MAX_AGE + 1), said(MAX_AGE + 2))
    assert dict(Read(tmp_path, intake=NOW + off).context.tally.dropped) == {"too_old": 2}
    assert not [one for one in caplog.messages if "by this machine's clock alone;" in one]
    assert dict(Read(tmp_path).context.tally.dropped) == {"too_old": 2}
    assert len([one for one in caplog.messages if "by this machine's clock alone;" in one]) == 1


def test_a_clock_that_is_fast_drops_nothing_that_the_intake_takes(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", said(MAX_AGE + 1))
    with pytest.raises(SourceError, match=r"this machine's clock is \+61 s off the intake's"):
        Read(tmp_path, intake=NOW - 61)
    assert dict(Read(tmp_path, live=False, intake=NOW - 61).context.tally.dropped) == {"too_old": 1}


def test_parts_of_the_state_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    read = Read(tmp_path, state={"run:one": "nonsense", "seen:two": 7})
    assert dict(read.context.tally.dropped) == {"bad_checkpoint": 2}
    last = read.items[-1]
    assert isinstance(last, Mark)
    assert last.changes == {"run:one": None, "seen:two": None}


def test_what_is_of_now_is_told_live_where_something_could_be_looked_into(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", said(100))
    assert Read(tmp_path).values(ALIVE) == [True]
    assert Read(tmp_path, live=False).values(ALIVE) == []
    assert Read(tmp_path / "gone").values(ALIVE) == []


def test_what_an_entry_means_can_be_said_in_words(tmp_path: Path) -> None:
    ants = Read(tmp_path).ingest
    meant = [ants.means(Entry(value, 0, None, 1)) for value in (said(1), {"x": 1}, {"bad": 1}, {"t": 1})]
    assert meant == ["", "of another kind", "odd", "unusable_record"]


COLLECTOR = collector_over(Ants, AntSettings)


def context(folder: object, now: int = NOW, **state: object) -> Context[AntSettings]:
    environ = {"FLEETGAUGE_ANTS_PATHS": str(folder), "FLEETGAUGE_ANTS_SETTLE": str(SETTLE)}
    settings = load(AntSettings, "ants", environ=environ, file=ConfigurationFile())
    return Context(settings, now, now, "node", state, Deadline(100), logging.getLogger("test"))


def test_a_check_tells_of_each_path_how_many_files_it_has_and_what_the_newest_holds(tmp_path: Path) -> None:
    newest = tmp_path / "one" / "a.jsonl"
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    write(newest, said(100), said(99), {"x": 1}, {"bad": 1})
    with newest.open("a") as file:
        file.write("[1]\n")
    write(tmp_path / "one" / "b.jsonl", said(100))
    os.utime(newest, (NOW - 40, NOW - 40))
    wrong, *found = COLLECTOR.check(context(f"{tmp_path}/one,{tmp_path}/two,{tmp_path}/gone"))
    assert isinstance(wrong, ConfigurationError)
    assert str(wrong).startswith(f"FLEETGAUGE_ANTS_PATHS: cannot look into {tmp_path}/gone: it is not there")
    holds = "2 records of ants, 1 not_an_object, 1 odd, 1 of another kind"
    assert found == [
        f"{tmp_path}/one: 2 files; in the newest, {newest}: {holds}",
        f"{tmp_path}/two: 0 files",
        f"{tmp_path}/gone: 0 files",
    ]
    assert (COLLECTOR.name, COLLECTOR.resumes, COLLECTOR.live_only) == ("ants", True, frozenset({ALIVE}))


def passes(given: Context[AntSettings], since: int, until: int) -> list[object]:
    """Up to when each pass of a backfill has passed on everything."""
    assert COLLECTOR.backfill is not None
    items = islice(COLLECTOR.backfill(given, Span(since, until, 1))(), 1000)  # far more than there are
    marks = [item for item in items if isinstance(item, Mark)]
    return [mark.changes[REACHED] for mark in marks if REACHED in mark.changes]


@pytest.mark.parametrize(
    ("since", "until", "now", "reached", "expected"),
    [
        (10 * PASS, 11 * PASS, 99 * PASS, None, range(10, 12 + MAX_AGE // PASS)),
        (10 * PASS + 1, 11 * PASS + 1, 99 * PASS, None, range(10, 13 + MAX_AGE // PASS)),
        (10 * PASS - 1, 10 * PASS, 99 * PASS, None, range(9, 11 + MAX_AGE // PASS)),
        (10 * PASS, 11 * PASS, 99 * PASS, 11 * PASS, range(12, 12 + MAX_AGE // PASS)),
        (10 * PASS, 10 * PASS, 99 * PASS, None, range(0)),
    ],
)
def test_a_backfill_goes_through_its_span_and_an_hour_more_in_passes_of_one_length(
    tmp_path: Path, since: int, until: int, now: int, reached: int | None, expected: range
) -> None:
    given = context(tmp_path, now, **({} if reached is None else {REACHED: reached}))
    assert passes(given, since, until) == [PASS * number for number in expected]


def test_a_backfill_ends_where_the_present_has_settled(tmp_path: Path) -> None:
    given = context(tmp_path, 11 * PASS + SETTLE + 3)
    assert passes(given, 10 * PASS, 12 * PASS) == [10 * PASS, 11 * PASS, 11 * PASS + 3]
