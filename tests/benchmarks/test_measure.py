"""The verdict of a benchmark, and how what it compares takes turns."""

from __future__ import annotations

import math

import pytest

from benchmarks.measure import CANNOT_RUN, Claim, cannot_run, judge, medians


@pytest.mark.parametrize(
    "broken",
    [
        Claim("too much", 1.01, 1),
        Claim("too little", 49.9, 50, at_least=True),
        Claim("not measured", math.nan, 1),
        Claim("not measured", math.nan, 1, at_least=True),
    ],
)
def test_one_claim_that_does_not_hold_fails_the_benchmark(
    broken: Claim, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge([Claim("kept", 1, 1), broken]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-2].endswith("FAILS")
    assert out[-1] == "claims: 2, failed: 1"


def test_without_a_claim_or_a_tool_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="without a claim"):
        judge([])
    assert cannot_run("no podman") == CANNOT_RUN
    assert capsys.readouterr().err == "cannot run: no podman\n"


def test_what_is_compared_takes_turns_and_an_outlier_does_not_count() -> None:
    order: list[str] = []
    times = {"ours": iter([1.0, 9.0, 2.0]), "theirs": iter([4.0, 3.0, 5.0])}

    def way(name: str) -> float:
        order.append(name)
        return next(times[name])

    assert medians(3, {"ours": lambda: way("ours"), "theirs": lambda: way("theirs")}) == {
        "ours": 2.0,
        "theirs": 4.0,
    }
    assert order == ["ours", "theirs"] * 3
