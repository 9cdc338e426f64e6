"""What any grammar does with the records of writers: shows, adds up, holds back, and tells what it drops."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import pytest

from common.collector import Context
from common.config.settings import ConfigurationFile, load, named
from common.intake import MAX_AHEAD
from common.metric import Metric, Sample, count, gauge
from common.net.retry import Deadline
from common.records.buckets import MAX_SPAN
from common.records.entry import Entry
from common.records.grammar import MAX_TRACED, Grammar
from common.records.settings import RecordSettings
from common.records.window import Tick, Window
from common.shards import ALONE, Shard

NOW = 10_000
OWN = gauge("ants.own", "", "Of one writer.", "rank")
TOTAL = gauge("ants.total", "", "Of all writers.", "rank")
MEAN = gauge("ants.mean", "", "Of all writers.", "rank")
CARRIED = count("ants.carried", "", "Of a node.", on_node=True)
EATEN = count("ants.eaten", "", "Of all writers.", "rank")


class Said(NamedTuple):
    writer: str
    timestamp: float
    samples: Sequence[Sample]
    group: tuple[str, ...] = ("a",)


class Plain(Grammar[RecordSettings, Said]):
    """Only what every grammar must say."""

    name = "ants"
    metrics: ClassVar[tuple[Metric, ...]] = (OWN,)
    live_only = frozenset()

    def interpret(self, entry: Entry) -> Said | None:
        return None


class Ants(Plain):
    """Records whose points are theirs, add up, or are counted."""

    metrics: ClassVar[tuple[Metric, ...]] = (OWN, TOTAL, MEAN, CARRIED, EATEN)

    def samples(self, record: Said) -> Sequence[Sample]:
        return record.samples

    @classmethod
    def adds_up(cls, settings: RecordSettings) -> Mapping[str, str]:
        return {TOTAL.name: "sum", MEAN.name: "mean"}

    @classmethod
    def silence(cls, settings: RecordSettings) -> int:
        return 10

    def of_one_unit(self, tags: Sequence[str], host: str | None) -> bool:
        return "rank:0" in tags and host is None


class AntSettings(RecordSettings):
    model_config = named("FLEETGAUGE_ANTS_")


SETTINGS = load(AntSettings, "ants", environ={"FLEETGAUGE_ANTS_PATHS": "/ants"}, file=ConfigurationFile())


def made(
    kind: type[Plain] = Ants,
    state: Mapping[str, object] | None = None,
    shard: Shard = ALONE,
    sent_until: int = 0,
) -> Plain:
    log, deadline = logging.getLogger("test"), Deadline(60)
    given: Context[Any] = Context(SETTINGS, NOW, NOW, "node", state or {}, deadline, log)
    given = replace(given, shard=shard, sent_until=sent_until)
    return kind(given, Tick(Window.of(NOW), NOW, 86400))


def told(samples: Iterable[Sample]) -> list[tuple[str, float, int, tuple[str, ...]]]:
    return [(one.metric.name.removeprefix("ants."), one.value, one.timestamp, one.tags) for one in samples]


def test_what_a_grammar_does_not_say_has_an_answer() -> None:
    plain = made(Plain)
    record = Said("w", 5, ())
    assert (Plain.width(SETTINGS), Plain.history(SETTINGS), Plain.silence(SETTINGS)) == (1, MAX_AHEAD, 0)
    assert (Plain.adds_up(SETTINGS), Plain.survey(plain.context, plain.tick.files)) == ({}, None)
    assert Plain.patterns(SETTINGS, plain.tick.files) == ("/ants",)
    assert (Plain.unit("/ants/a.1.jsonl", {}), plain.family("/ants/a.1.jsonl")) == (
        "/ants/a",
        "/ants/a.1.jsonl",
    )
    assert (plain.ends(record), plain.of_one_unit((), None), plain.points(record)) == (False, False, 1)
    assert (plain.samples(record), [*plain.present(sums=True)], plain.pending) == ((), [], False)
    assert (Ants.width(SETTINGS), Ants.history(SETTINGS)) == (60, MAX_AHEAD)


def test_the_points_of_a_writer_leave_at_once_and_those_of_all_are_added_up_behind_them() -> None:
    ants = made()
    first = [OWN(5, 125), TOTAL(2, 125), MEAN(4, 125), EATEN(3, 125)]
    assert told(ants.take(Said("one", 125, first))) == [("own", 5, 125, ())]
    second = [TOTAL(3.5, 130), MEAN(9, 130), EATEN(1, 125), EATEN(7, 126, rank="1")]
    assert told(ants.take(Said("two", 130, second, ("b",)))) == []
    assert ants.pending
    assert ants.owners.expired() == {}
    assert sorted(told(ants.rest())) == [
        ("eaten", 4, 125, ()),
        ("eaten", 7, 126, ("rank:1",)),
        ("mean", 6.5, 120, ()),
        ("total", 5.5, 120, ()),
    ]
    assert sorted(ants.changes(forget=True)) == [
        "cell:125",
        "cell:126",
        "open:one",
        "open:two",
        "run:one",
        "run:two",
    ]
    assert (ants.pending, told(ants.rest())) == (False, [])


def test_a_count_of_a_node_is_that_nodes_and_a_mean_is_rounded() -> None:
    ants = made()
    ants.take(Said("one", 65, [CARRIED(2, 65, on_host="n1"), CARRIED(1, 65, on_host="n2"), MEAN(1, 65)]))
    for writer in ("two", "three"):
        ants.take(Said(writer, 65, [MEAN(0, 65)]))
    found = {(one.metric.name, one.host): one.value for one in ants.rest()}
    assert found == {("ants.carried", "n1"): 2, ("ants.carried", "n2"): 1, ("ants.mean", None): 0.333333333}


def test_only_counts_or_only_what_is_shared_is_added_up_too() -> None:
    class OnlyCounts(Ants):
        metrics = (OWN, EATEN)
        adds_up = Plain.adds_up

    class OnlyShared(Ants):
        metrics = (OWN, TOTAL)

    counting, sharing = made(OnlyCounts), made(OnlyShared)
    assert told(counting.take(Said("one", 5, [OWN(1, 5), EATEN(3, 5)]))) == [("own", 1, 5, ())]
    assert told(counting.rest()) == [("eaten", 3, 5, ())]
    assert told(sharing.take(Said("one", 65, [OWN(1, 65), TOTAL(3, 65)]))) == [("own", 1, 65, ())]
    assert told(sharing.rest()) == [("total", 3, 60, ())]


@pytest.mark.parametrize(("at", "shown"), [(199, True), (200, False), (240, False), (241, True)])
def test_the_points_of_a_writer_wait_where_one_that_began_later_may_own_the_series(
    at: int, shown: bool
) -> None:
    ants = made()
    ants.hear(Said("old", 100, ()))
    for second in (200, 230):
        assert told(ants.take(Said("new", second, [OWN(2, second)]))) == [("own", 2, second, ())]
    ants.path, ants.entry = "/ants/a.jsonl", Entry({"x": 1}, 70, None, 3)
    held = told(ants.take(Said("old", at, [OWN(1, at), OWN(3, at, rank="0")])))
    mine = [("own", 1, at, ()), ("own", 3, at, ("rank:0",))]
    assert held == (mine if at == 199 else [])
    assert ants.pending is (at != 199)
    ants.path, ants.entry = "", Entry({}, 0, None, 0)
    assert told(ants.rest()) == (mine if at == 241 else [])
    tally = ants.context.tally
    assert dict(tally.dropped) == ({} if shown else {"superseded": 2})
    assert tally.examples == ({} if shown else {"superseded": "/ants/a.jsonl@70 (line 3): writer is 'old'"})


@pytest.mark.parametrize(
    ("shard", "sent_until", "expected", "late"),
    [
        (
            ALONE,
            0,
            [("own", 1, NOW, ("rank:0",)), ("own", 2, NOW, ("rank:1",)), ("eaten", 3, NOW, ("rank:1",))],
            0,
        ),
        (ALONE, NOW, [("own", 1, NOW, ("rank:0",))], 2),
        (
            Shard(1, 2),
            0,
            [
                ("own", 1, NOW, ("rank:0",)),
                ("own", 2, NOW, ("rank:1", "shard:1")),
                ("eaten", 3, NOW, ("rank:1", "shard:1")),
            ],
            0,
        ),
        (Shard(1, 2), NOW, [("own", 1, NOW, ("rank:0",))], 2),
    ],
)
def test_what_several_units_feed_is_told_by_shard_and_never_again_by_another_number_of_them(
    shard: Shard, sent_until: int, expected: list[tuple[str, float, int, tuple[str, ...]]], late: int
) -> None:
    ants = made(shard=shard, sent_until=sent_until)
    samples = [OWN(1, NOW, rank="0"), OWN(2, NOW, rank="1"), EATEN(3, NOW, rank="1")]
    assert told([*ants.take(Said("one", NOW, samples)), *ants.rest()]) == expected
    assert ants.context.tally.dropped["late"] == late


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**53 - 1, int), (2**53, float), (1 - 2**53, int), (-(2**53), float), (1e300, None), (-1e300, None)],
)
def test_a_value_too_large_to_be_saved_as_it_is_is_rounded_and_one_without_end_dropped(
    value: float, kind: type | None
) -> None:
    ants = made()
    ants.take(Said("one", 65, [TOTAL(value, 65)]))
    kept = [total for _, sums in ants.shared.sums() for total, _, _ in sums.values()]
    assert [(total, type(total)) for total in kept] == ([] if kind is None else [(value, kind)])
    assert dict(ants.context.tally.dropped) == ({"not_finite": 1} if kind is None else {})


def test_what_comes_too_late_to_add_up_is_dropped_and_counted() -> None:
    state: dict[str, object] = {"forgotten:cell:": 100, "open:one": [120, []]}
    ants = made(state=state)
    ants.take(Said("one", 100, [EATEN(1, 100), EATEN(2, 101), TOTAL(1, 100), MEAN(1, 100)]))
    assert told(ants.rest()) == [("eaten", 2, 101, ())]
    assert dict(ants.context.tally.dropped) == {"late": 3}


def test_what_was_saved_of_a_metric_that_is_gone_or_is_damaged_is_left_out() -> None:
    ants = made(Plain)
    assert ants.cell_samples(5, ("ants.gone", ""), 1) == ()
    assert ants.cell_samples(5, ("ants.own", "node", "rank:1"), 1) == (
        Sample(OWN, 1, 5, ("rank:1",), "node"),
    )
    assert [*ants.sum_samples(5, {("ants.gone",): (1, 1, 1)})] == []
    damaged = made(state={"bucket:9960": "[[[],[1,1,1]]]"})
    damaged.take(Said("one", 9965, [TOTAL(2, 9965)]))
    damaged.take(Said("one", 10_020, [TOTAL(3, 10_020)]))
    assert told(damaged.rest()) == [("total", 3, 10_020, ())]
    assert damaged.saved.bad == 1


def test_of_each_reason_the_first_ones_are_told_with_their_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "test")
    ants = made()
    ants.path = "/ants/a.jsonl"
    for number in range(MAX_TRACED + 5):
        ants.entry = Entry({}, 10 * number, None, number)
        ants.drop("odd", 1, "x", "y" * number)
        ants.drop("none", 0)
    assert {one.levelname for one in caplog.records} == {"DEBUG"}
    assert dict(+ants.context.tally.dropped) == {"odd": MAX_TRACED + 5}
    assert ants.context.tally.examples == {"odd": "/ants/a.jsonl@0: x is ''"}
    assert caplog.messages[:2] == [
        "dropped /ants/a.jsonl@0: odd: x is ''",
        "dropped /ants/a.jsonl@10 (line 1): odd: x is 'y'",
    ]
    assert len(caplog.messages) == MAX_TRACED
    ants.drop("unusable_record")
    assert (caplog.records[-1].levelname, caplog.messages[-1]) == (
        "WARNING",
        "dropped /ants/a.jsonl@240 (line 24): unusable_record",
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 78, "'" + "x" * 78 + "'"),
        ("x" * 79, "'" + "x" * 76 + "..."),
        ([10**5000], "something that cannot"),
    ],
)
def test_a_value_is_told_in_eighty_characters(value: object, said: str) -> None:
    ants = made()
    ants.drop("odd", 1, "x", value)
    assert ants.context.tally.examples["odd"].startswith(f"@0: x is {said}")
    assert len(ants.context.tally.examples["odd"]) <= len("@0: x is ") + 80


def test_a_mark_of_the_far_future_is_not_believed() -> None:
    ants = made(state={"forgotten:cell:": NOW + MAX_SPAN})
    ants.take(Said("one", 5, [EATEN(1, 5)]))
    assert told(ants.rest()) == [("eaten", 1, 5, ())]
