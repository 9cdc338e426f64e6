"""What a run looks like to a person and to a program."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.outcome import Failure, Outcome, Status
from common.show.layout import Look
from common.show.overview import show
from common.show.points import SeriesKey, SeriesPoints
from common.show.report import closing, headline, number, overall, write_document

from .given import series_points

AT = 1794786458
ACTIVE = series_points(
    SeriesKey("wandb.runs.active", ("entity:acme", "project:ants"), None), "run", [(AT, 3)]
)


def document(outcomes: list[Outcome], pieces: Mapping[str, Iterable[SeriesPoints]] | None) -> str:
    stream = io.StringIO()
    write_document(outcomes, pieces, stream)
    return stream.getvalue()


class TestDocument:
    def test_a_dry_run_is_the_document_of_the_design(self) -> None:
        outcome = Outcome("wandb", Status.OK, seconds=0.41, samples=1, dropped={"not_finite": 1})
        assert json.loads(document([outcome], {"wandb": [ACTIVE]})) == {
            "status": "ok",
            "collectors": [
                {
                    "collector": "wandb",
                    "status": "ok",
                    "seconds": 0.41,
                    "error": None,
                    "lost": [],
                    "samples": [
                        {
                            "metric": "wandb.runs.active",
                            "type": "gauge",
                            "unit": "run",
                            "value": 3,
                            "timestamp": AT,
                            "host": None,
                            "tags": ["entity:acme", "project:ants"],
                        }
                    ],
                    "dropped": {"not_finite": 1},
                }
            ],
        }

    def test_what_an_error_is_about_is_a_list_of_its_own(self) -> None:
        failed = Outcome(
            "wandb", Status.FAILED, error=Failure("ConfigurationError", "off", details=["a", "b"])
        )
        [entry] = json.loads(document([failed], None))["collectors"]
        assert entry["error"] == {"type": "ConfigurationError", "message": "off", "details": ["a", "b"]}

    def test_a_failure_names_its_class_and_a_push_its_points(self) -> None:
        failed = Outcome(
            "wandb",
            Status.PARTIAL,
            seconds=2,
            points_sent=9,
            lost=["acme/ants: gone"],
            error=Failure("SourceError", "no"),
        )
        assert json.loads(document([failed], None)) == {
            "status": "partial",
            "collectors": [
                {
                    "collector": "wandb",
                    "status": "partial",
                    "seconds": 2,
                    "error": {"type": "SourceError", "message": "no"},
                    "lost": ["acme/ants: gone"],
                    "points_sent": 9,
                    "dropped": {},
                }
            ],
        }

    def test_a_check_has_findings_and_no_samples(self) -> None:
        made = json.loads(document([Outcome("host", Status.OK, findings=["all is well"])], {}))
        assert made["collectors"][0]["findings"] == ["all is well"]
        assert "samples" not in made["collectors"][0]

    def test_two_collectors_stand_one_below_the_other(self) -> None:
        made = document([Outcome("a", Status.OK), Outcome("b", Status.FAILED)], {})
        assert [line[:17] for line in made.splitlines()] == [
            '{"status": "faile',
            '{"collector": "a"',
            '{"collector": "b"',
        ]
        assert [one["collector"] for one in json.loads(made)["collectors"]] == ["a", "b"]

    def test_a_collector_without_samples_has_an_empty_list(self) -> None:
        made = json.loads(document([Outcome("host", Status.EMPTY)], {}))
        assert made["collectors"][0]["samples"] == []

    @given(st.data())
    def test_any_text_and_any_number_written_sample_by_sample_is_read_back(self, data: st.DataObject) -> None:
        integers, floats = st.integers(-(10**18), 10**18), st.floats(allow_nan=False, allow_infinity=False)
        points = st.lists(st.tuples(st.integers(0, 2**32), integers), min_size=1, max_size=3) | st.lists(
            st.tuples(st.integers(0, 2**32), floats), min_size=1, max_size=3
        )
        text = st.text(max_size=5) | st.sampled_from(['"', "\n}", "},", "{\n", '"value": 0'])
        series = st.builds(SeriesKey, text, st.lists(text, max_size=2).map(tuple), st.none() | text)
        names = data.draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True))
        made: dict[str, list[SeriesPoints]] = {}
        expected: list[dict[str, Any]] = []
        for name in names:
            samples, made[name] = [], []
            for one, unit in data.draw(st.lists(st.tuples(series, text), max_size=3)):
                pairs = data.draw(points)
                made[name].append(series_points(one, unit, pairs))
                samples += [
                    {
                        "metric": one.metric,
                        "type": "gauge",
                        "unit": unit,
                        "value": value,
                        "timestamp": at,
                        "host": one.host,
                        "tags": list(one.tags),
                    }
                    for at, value in pairs
                ]
            entry = {"collector": name, "status": "ok", "seconds": 0.0, "error": None, "lost": [name]}
            expected.append({**entry, "dropped": {}, "samples": samples})
        outcomes = [Outcome(name, Status.OK, lost=[name]) for name in names]
        written = document(outcomes, made)
        assert json.loads(written) == {"status": "ok" if names else "empty", "collectors": expected}
        assert written.count("\n") == 1 + len(names) + sum(len(entry["samples"]) for entry in expected)


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        ((Status.OK, Status.EMPTY, Status.SKIPPED), Status.OK),
        ((Status.EMPTY, Status.SKIPPED), Status.EMPTY),
        ((Status.OK, Status.PARTIAL), Status.PARTIAL),
        ((Status.PARTIAL, Status.FAILED, Status.OK), Status.FAILED),
        ((Status.SKIPPED,), Status.SKIPPED),
        ((), Status.EMPTY),
    ],
)
def test_the_whole_run_is_as_bad_as_its_worst_collector(statuses: tuple[Status, ...], worst: Status) -> None:
    for order in permutations(statuses):
        assert overall([Outcome("x", status) for status in order]) is worst


PLAIN = Look()


class TestHeadline:
    def test_a_dry_run_says_as_of_when(self) -> None:
        outcome = Outcome("wandb", Status.OK, seconds=0.41, as_of=AT)
        assert [*headline(outcome, PLAIN)] == ["wandb: ok in 0.4 s, as of 2026-11-15T23:47:38Z"]
        [entry] = json.loads(document([outcome], {}))["collectors"]
        assert entry["as_of"] == AT

    def test_nothing_of_a_stranger_reaches_the_terminal_raw(self) -> None:
        odd = "a\x1b[2J\nb\x9b"
        lost = Outcome("host", Status.PARTIAL, lost=[odd], error=Failure("SourceError", odd, details=[odd]))
        assert [*headline(lost, PLAIN)] == [
            "host: partial",
            r"  SourceError: a\x1b[2J\nb\x9b",
            r"    a\x1b[2J\nb\x9b",
            r"  lost a\x1b[2J\nb\x9b",
        ]
        lines = closing([Outcome("host", Status.OK, examples={"bad": odd})], PLAIN, pushed=True)
        assert all(line.isprintable() for line in lines)

    def test_only_what_failed_is_red(self) -> None:
        error, colour = Failure("ConfigurationError", "not set"), Look(80, colour=True)
        assert [*headline(Outcome("a", Status.FAILED, error=error), colour)] == [
            "a: \x1b[31mfailed\x1b[0m",
            "  \x1b[31mConfigurationError: not set\x1b[0m",
        ]
        assert [*headline(Outcome("a", Status.SKIPPED, error=error), colour)] == [
            "a: \x1b[2mskipped\x1b[0m",
            "  ConfigurationError: not set",
        ]

    def test_what_went_wrong_stands_under_the_headline(self) -> None:
        outcome = Outcome(
            "wandb", Status.PARTIAL, lost=["a: gone", "b: gone"], error=Failure("SourceError", "no answer")
        )
        assert [*headline(outcome, PLAIN)] == [
            "wandb: partial",
            "  SourceError: no answer",
            "  lost a: gone",
            "  lost b: gone",
        ]

    @pytest.mark.parametrize(
        ("status", "painted"),
        [
            (Status.OK, "\x1b[32mok\x1b[0m"),
            (Status.PARTIAL, "\x1b[33mpartial\x1b[0m"),
            (Status.FAILED, "\x1b[31mfailed\x1b[0m"),
            (Status.SKIPPED, "\x1b[2mskipped\x1b[0m"),
        ],
    )
    def test_the_status_has_a_colour(self, status: Status, painted: str) -> None:
        [line] = headline(Outcome("host", status), Look(80, colour=True))
        assert line == f"host: {painted} in 0.0 s"

    def test_what_was_lost_dropped_or_failed_has_a_colour_too(self) -> None:
        bad = Outcome("a", Status.FAILED, lost=["b"], dropped={"c": 1}, error=Failure("SourceError", "no"))
        _, error, lost = headline(bad, Look(80, colour=True))
        assert (error, lost) == ("  \x1b[31mSourceError: no\x1b[0m", "  \x1b[33mlost b\x1b[0m")
        [line] = closing([bad], Look(80, colour=True), pushed=True)
        assert line == "\x1b[31m1 failed\x1b[0m; 0 points sent; 0.0 s; \x1b[33mdropped: 1 c\x1b[0m"


class TestClosing:
    OUTCOMES = (
        Outcome("a", Status.OK, seconds=1.0, samples=1, points_sent=1000, dropped={"too_old": 2}),
        Outcome(
            "b", Status.OK, seconds=0.5, samples=2, points_sent=234, dropped={"not_finite": 1, "too_old": 1}
        ),
        Outcome("c", Status.SKIPPED),
    )

    def test_a_dry_run(self) -> None:
        assert [*closing(list(self.OUTCOMES), PLAIN, pushed=False)] == [
            "2 ok, 1 skipped; 3 samples, nothing sent (dry run); 1.5 s; dropped: 1 not_finite, 3 too_old"
        ]

    def test_a_push(self) -> None:
        assert [*closing(list(self.OUTCOMES), PLAIN, pushed=True)] == [
            "2 ok, 1 skipped; 1,234 points sent; 1.5 s; dropped: 1 not_finite, 3 too_old"
        ]

    def test_one_is_not_several_and_nothing_dropped_is_said(self) -> None:
        one = Outcome("a", Status.FAILED, points_sent=1)
        assert [*closing([one], PLAIN, pushed=True)] == ["1 failed; 1 point sent; 0.0 s; dropped: nothing"]

    def test_the_first_of_each_reason_is_named(self) -> None:
        examples = {"too_old": "m at 3", "not_finite": "n host:a at 4"}
        one = Outcome("a", Status.OK, dropped={"too_old": 1200, "not_finite": 1}, examples=examples)
        assert [*closing([one], PLAIN, pushed=False)] == [
            "1 ok; 0 samples, nothing sent (dry run); 0.0 s; dropped: 1 not_finite, 1,200 too_old",
            "  not_finite, first: n host:a at 4",
            "  too_old, first: m at 3",
        ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (1234567, "1,234,567"),
        (0.5, "0.500"),
        (0.1, "0.100"),
        (0.0999, "0.0999"),
        (-0.5, "-0.500"),
        (-0.0123456, "-0.0123"),
        (1234.5678, "1,234.568"),
        (1e-7, "1e-07"),
        (999999999999999.0, "999,999,999,999,999"),
        (1e15, "1,000,000,000,000,000.000"),
        (0, "0"),
    ],
)
def test_a_number_has_the_digits_that_mean_something(value: float, text: str) -> None:
    assert number(value) == text


class TestTablesOfACollector:
    OUTCOME = Outcome(
        "wandb",
        Status.OK,
        tables={
            "usage": [
                {"user": "ann", "gpu_hours": 1234.5, "utilization_pct": 83.25},
                {"user": "b\x1b[2Job", "gpu_hours": 6, "utilization_pct": None},
            ],
            "idle": [],
            "gone": [{"user": "cat"}],
        },
    )

    def test_they_stand_below_the_samples_with_their_columns_aligned(self) -> None:
        lines = list(show([self.OUTCOME], {}, Look(len("    user        gpu_hours  utilization_pct"))))
        assert lines[1:] == [
            "  usage:",
            "    user        gpu_hours  utilization_pct",
            "    ann           1,234.5             83.2",
            "    b\\x1b[2Job          6",
            "",
            "  idle: nothing",
            "",
            "  gone:",
            "    user",
            "    cat",
            "",
        ]

    def test_where_they_do_not_fit_each_cell_has_its_head_beside_it(self) -> None:
        assert list(show([self.OUTCOME], {}, Look(41)))[2:6] == [
            "    ann",
            "      gpu_hours 1,234.5",
            "      utilization_pct 83.2",
            "    b\\x1b[2Job",
        ]

    def test_a_program_finds_them_under_their_names(self) -> None:
        stream = io.StringIO()
        write_document([self.OUTCOME], {}, stream)
        [entry] = json.loads(stream.getvalue())["collectors"]
        assert entry["usage"][0] == {"user": "ann", "gpu_hours": 1234.5, "utilization_pct": 83.25}
        assert entry["idle"] == entry["samples"] == []
