"""System metrics as clients and servers write them: every form of a key, and every way to be wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb.owners import Owners
from collectors.wandb.runs import RunReader
from collectors.wandb.utilization import Reported
from support.servers.fleet import system_row

READING = RunReader("github.sky.*", None, 0, Owners())


def read(row: Any, gpus: int = 8, flaws: list[str] | None = None) -> Reported | None:
    """What is read of a row as a server sends it: as text."""
    text = row if isinstance(row, str | None) else json.dumps(row)
    node: dict[str, Any] = {
        "id": "x",
        "state": "running",
        "createdAt": "2026-11-15T00:00:00Z",
        "systemMetrics": text,
    }
    node["runInfo"] = {"gpuCount": gpus}
    run = READING.read(node, [] if flaws is None else flaws)
    assert run is not None
    assert run.look is not None
    return run.look.reported


class TestKeys:
    def test_figures_of_the_process_stand_before_those_of_the_machine(self) -> None:
        said = read(system_row(50.0, 100.0, memory=25.0))
        assert said == Reported(2, 1.5, 2, 0.5, 100.0, None, None)

    def test_a_process_uses_the_gpus_that_it_says_whatever_their_index(self) -> None:
        row = {"system.gpu.process.7.gpu": 30, "system.gpu.0.gpu": 90, "system.gpu.7.gpu": 30}
        assert read(row, gpus=1) == Reported(1, 0.3, 0, 0.0, 30, None, None)

    def test_of_the_machine_only_as_many_count_as_the_run_has(self) -> None:
        row = {f"system.gpu.{index}.gpu": 10 * index for index in range(8)}
        assert read(row, gpus=3) == Reported(3, 0.3, 0, 0.0, 20, None, None)
        assert read(row, gpus=0) is None
        assert read(row, gpus=100) == Reported(8, 2.8, 0, 0.0, 70, None, None)

    def test_where_the_process_says_anything_the_machine_is_not_asked(self) -> None:
        row = {"system.gpu.process.0.memoryAllocated": 40, "system.gpu.0.gpu": 90}
        assert read(row) == Reported(0, 0, 1, 0.4, 0.0, None, None)

    def test_one_index_under_two_labels_is_two_gpus(self) -> None:
        row = {f"system.gpu.process.{i}.gpu/l:rank-{rank}": 50 for i in (0, 1) for rank in (0, 1, 2)}
        assert read(row) == Reported(6, 3.0, 0, 0.0, 50, None, None)

    def test_labels_of_one_machine_are_no_more_gpus_than_the_run_has(self) -> None:
        row = {f"system.gpu.{i}.gpu/l:rank-{rank}": 100 * (rank == 0) for i in range(8) for rank in range(8)}
        assert read(row, gpus=8) == Reported(8, 8.0, 0, 0.0, 100, None, None)

    def test_two_nodes_of_which_one_reports_are_known_for_one(self) -> None:
        said = read(system_row(*[80.0] * 8), gpus=16)
        assert said is not None
        assert said.gpus == 8

    def test_time_and_runtime_are_taken_where_they_are(self) -> None:
        said = read({"system.gpu.0.gpu": 1, "_timestamp": 1.5, "_runtime": 30})
        assert said == Reported(1, 0.01, 0, 0.0, 1, 1.5, 30)
        begun = read({"system.gpu.0.gpu": 1, "_timestamp": 0, "_runtime": 0})
        assert begun == Reported(1, 0.01, 0, 0.0, 1, 0, 0)
        strange = read({"system.gpu.0.gpu": 1, "_timestamp": True, "_runtime": True})
        assert strange is not None
        assert (strange.timestamp, strange.runtime) == (None, None)
        assert read({"system.gpu.0.gpu": 1, "_timestamp": "x", "_runtime": None}) == Reported(
            1, 0.01, 0, 0.0, 1, None, None
        )

    @pytest.mark.parametrize(
        "key",
        [
            *(
                "system.gpu.0.gpuMemory",
                "gpu.0.gpu",
                "system.gpu.x.gpu",
                "system.gpu.-1.gpu",
                "system.gpu..gpu",
            ),
            *("system.gpu.0.temp", "system.gpu.process.gpu", "system.gpu.0.gpu.extra", "system.gpu.1٣.gpu"),
            *("system.gpu.0.smActive", "system.gpu.0.gpu/rank", "SYSTEM.gpu.0.gpu", "system.gpu.9999999.gpu"),
        ],
    )
    def test_another_key_says_nothing_of_how_busy_a_gpu_is(self, key: str) -> None:
        flaws: list[str] = []
        assert read({key: 50, "x/l:y": 1}, flaws=flaws) is None
        assert flaws == []


class TestNothing:
    @pytest.mark.parametrize("text", [None, "", "{}", '{"system.cpu": 3}', '{"system.gpu.0.gpu": null}'])
    def test_who_says_nothing_is_unknown_without_a_flaw(self, text: str | None) -> None:
        flaws: list[str] = []
        assert read(text, flaws=flaws) is None
        assert flaws == []

    @pytest.mark.parametrize("text", ["{", "[]", "7", '"x"', '{"system.gpu.0.gpu": 3', "[" * 100_000])
    def test_what_cannot_be_read_costs_itself(self, text: str) -> None:
        flaws: list[str] = []
        assert read(text, flaws=flaws) is None
        assert flaws == ["bad_system_metrics"]

    @pytest.mark.parametrize(
        "value", ['"NaN"', "NaN", "Infinity", "-1", "100.1", "true", "[]", "{}", "1e400"]
    )
    def test_a_figure_that_is_none_costs_itself_and_not_its_neighbour(self, value: str) -> None:
        flaws: list[str] = []
        said = read(f'{{"system.gpu.0.gpu": {value}, "system.gpu.1.gpu": 40}}', flaws=flaws)
        assert said == Reported(1, 0.4, 0, 0.0, 40, None, None)
        assert flaws == ["bad_system_metrics"]


def test_shares_are_added_up_alike_in_every_python() -> None:
    found = read({f"system.gpu.process.{index}.gpu": 0.1 for index in range(10)}, gpus=10)
    assert found is not None
    assert found.busy == 1.0 / 100  # by steps it is 0.9999999999999999 before 3.12


def truth(row: dict[str, Any], gpus: int) -> tuple[int, float] | None:
    """How many GPUs say how busy they are and the sum, straight from the words of the specification."""
    found: dict[bool, dict[str, dict[tuple[str, int], float]]] = {
        process: {"gpu": {}, "memoryAllocated": {}} for process in (True, False)
    }
    for key, value in row.items():
        name, _, label = key.partition("/l:")
        parts = name.split(".")
        process = "process" in parts
        index = parts[-2]
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if good and 0 <= value <= 100:
            found[process][parts[-1]][label, int(index)] = value
    own = found[True]
    if not any(own.values()):
        own = {
            measure: dict(sorted(item for item in figures.items() if item[0][1] < gpus)[:gpus])
            for measure, figures in found[False].items()
        }
    busy = own["gpu"].values()
    return (len(busy), sum(busy)) if busy or own["memoryAllocated"] else None


keys = st.builds(
    "system.gpu.{}{}.{}{}".format,
    st.sampled_from(["", "process."]),
    st.integers(0, 12),
    st.sampled_from(["gpu", "memoryAllocated"]),
    st.sampled_from(["", "/l:", "/l:rank-1", "/l:a/l:b"]),
)
figures = st.one_of(
    st.integers(0, 100),
    st.floats(0, 100),
    st.floats(),
    st.none(),
    st.text(max_size=3),
    st.integers(),
    st.booleans(),
)


class TestAnyRow:
    @settings(max_examples=300, deadline=None)
    @given(st.dictionaries(keys, figures, max_size=40), st.integers(0, 12))
    def test_it_is_read_as_specified(self, row: dict[str, Any], gpus: int) -> None:
        said, expected = read(row, gpus), truth(row, gpus)
        assert (said is None) == (expected is None)
        if said is not None and expected is not None:
            assert said.gpus == expected[0]
            assert said.busy == pytest.approx(expected[1] / 100)
            assert 0 <= said.busy <= said.gpus
            assert 0 <= said.memory_filled <= said.memory_gpus

    @settings(max_examples=200, deadline=None)
    @given(
        st.text(max_size=80)
        | st.dictionaries(st.text(max_size=30) | keys, st.text() | figures).map(json.dumps)
    )
    def test_no_text_raises(self, text: str) -> None:
        read(text)

    def test_ten_thousand_keys_are_read(self) -> None:
        row = {f"system.gpu.process.{index}.gpu": 50 for index in range(5000)}
        row |= {f"system.other.{index}": index for index in range(5000)}
        assert read(row) == Reported(5000, 2500.0, 0, 0.0, 50, None, None)
