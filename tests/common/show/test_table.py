"""What a person sees of a run: transcripts of every command, and how values and texts are shown."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from common.metric import gauge
from common.outcome import ErrorSummary, Outcome, Report, Status
from common.show.points import exact
from common.show.table import Output, for_people, rounded, show, show_totals
from support.sinks import GivenPoints
from support.transcripts import FOLDER, transcripts

AT = 1794786458
ODD = "a\x1b[2J\nb\x9b[red]"


def shown(
    outcome: Outcome, points: GivenPoints | None = None, width: int | None = 80, *, colour: bool = False
) -> str:
    stream = io.StringIO()
    console = width and Console(
        file=stream,
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        highlight=False,
        markup=False,
    )
    output = Output(stream, console or None)
    show(output, [outcome], {outcome.collector: points} if points else {})
    show_totals(output, [outcome], pushed=False)
    return stream.getvalue()


def test_every_command_prints_what_its_transcript_says() -> None:
    made = transcripts()
    stored = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.txt")}
    assert [name for name in {*made, *stored} if made.get(name) != stored.get(name)] == []


@pytest.mark.parametrize("width", [80, 160])
def test_no_line_of_a_transcript_is_wider_than_the_terminal(width: int) -> None:
    lines = [line for path in FOLDER.glob(f"*-{width}.txt") for line in path.read_text("utf-8").splitlines()]
    assert max(map(cell_len, lines)) <= width


values = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.text("xyz蟻 ", max_size=90)), values, max_size=6),
    st.integers(80, 200),
)
def test_pipe_has_exact_values_and_a_terminal_every_tag(
    rows: dict[tuple[str, str], float], width: int
) -> None:
    metrics = {name: gauge(name, "item", "x", "tag") for name in "abc"}
    found = [metrics[name](value, AT, tag=text) for (name, text), value in rows.items()]
    points = GivenPoints(found)
    outcome = Outcome("toy", Status.OK)
    piped = shown(outcome, points, None).splitlines()
    narrow, wide = (shown(outcome, points, columns) for columns in (width, 400))
    assert all(cell_len(line) <= width for line in narrow.splitlines())
    for (name, text), value in rows.items():
        tag = f"tag:{text}".rstrip()
        assert any(line.split()[:2] == [name, exact(value)] and line.endswith(tag) for line in piped)
        assert rounded(value) in narrow
        assert tag in wide


def test_long_name_is_folded_and_its_link_is_below_in_one_piece() -> None:
    link = f"https://wandb.ai/acme/ants/runs/{'r' * 60}"
    entries: list[dict[str, object]] = [
        {"run": name, "state": "running", "hours": 1.5, "url": link} for name in ("ants", "ants." * 30)
    ]
    outcome = Outcome("wandb", Status.OK, report=Report(tables={"runs": entries}))
    heads, short, _, *folded, below = shown(outcome).splitlines()[2:-2]
    assert (heads.split(), short.split()) == (["run", "state", "hours"], ["ants", "running", "1.500"])
    assert "".join(folded).split()[1:3] == ["running", "1.500"]
    assert "".join(line.split()[0] for line in folded) == "ants." * 30
    assert below == f"      {link}"
    assert all(len(line) <= 80 for line in (heads, short, *folded))
    assert shown(outcome, width=None).splitlines()[2].split() == ["run", "state", "hours", "url"]


@pytest.mark.parametrize("width", [None, 80])
def test_text_of_others_is_shown_as_it_is_spelled(width: int | None) -> None:
    error = ErrorSummary("SourceError", ODD, details=[ODD])
    report = Report(lost=[ODD], findings=[ODD], examples={"bad": ODD})
    outcome = Outcome("host", Status.PARTIAL, report=report, error=error)
    text = shown(outcome, width=width)
    assert all(line.isprintable() for line in text.splitlines())
    assert text.count(r"a\x1b[2J\nb\x9b[red]") == 5


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.OK, "32"), (Status.PARTIAL, "33"), (Status.FAILED, "31"), (Status.EMPTY, "2")],
)
def test_status_has_a_colour_on_a_terminal(status: Status, code: str) -> None:
    assert shown(Outcome("a", status), colour=True).startswith(f"\x1b[{code}ma: {status} in 0.0 s\x1b[0m")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567.0, "1,234,567"),
        (-0.0123456, "-0.012"),
        (0.0001234, "0.000123"),
        (1e-7, "1e-07"),
        (1e300, "1e+300"),
    ],
)
def test_values_are_rounded_to_three_decimals(value: float, text: str) -> None:
    assert rounded(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (59, "second", ""),
        (90_000, "millisecond", "1 min 30 s"),
        (2_147_483_648, "byte", "2.00 GiB"),
        (12, "byte", ""),
        (23.5, "gibibyte", ""),
        (-1e308, "byte", ""),  # of 300 digits
        (1e308, "second", ""),
        (1000, "hour", ""),  # of GPUs: no duration
    ],
)
def test_large_bytes_and_durations_are_shown_for_people_too(value: float, unit: str, text: str) -> None:
    assert for_people(value, unit) == text
