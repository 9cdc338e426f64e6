"""Hosts in trouble: whatever happens around a probe, the host computes and ends as without it.

One process imports the probes and forks a host for each case, which runs a program and ends in its own way.
A host prints its result as JSON; what a probe logs goes to stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import yaml

from fleetgauge import records
from support.project import ROOT

GIVEN = yaml.safe_load((ROOT / "tests" / "data" / "hosts.yaml").read_text())

FORKER = """
import json, os, signal, sys, traceback
programs, folder = json.load(sys.stdin), sys.argv[1]
codes = {}
for number, program in enumerate(programs):
    own = f"{folder}/{number}/"
    os.mkdir(own)
    if host := os.fork():
        codes[number] = os.waitstatus_to_exitcode(os.waitpid(host, 0)[1])
        continue
    signal.alarm(60)
    for descriptor in (1, 2):
        os.dup2(os.open(f"{own}{descriptor}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
    os.chdir(own)
    exec(program, {**globals(), "folder": own})
    sys.exit()
print(json.dumps(codes))
"""


class Ended(NamedTuple):
    """How a host ended."""

    code: int
    result: Any  # None where it printed none
    stderr: str
    written: list[dict[str, Any]]

    @property
    def n_puts(self) -> int:
        return sum(record["count"] for record in self.written if record.get("op") == "put")


def run(group: str, programs: list[str], folder: Path) -> list[Ended]:
    paths = f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}\n"
    forker = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", paths + GIVEN["preludes"][group] + FORKER, str(folder)],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    ended = []
    for number, code in json.loads(forker.stdout).items():
        output = (folder / number / "1").read_text().splitlines()
        written = [one for path in (folder / number).rglob("*.jsonl") for one in records.read(path)]
        result = json.loads(output[-1]) if output else None
        ended.append(Ended(code, result, (folder / number / "2").read_text(), written))
    return ended


class Case(NamedTuple):
    """A program, its result, and what is logged, no line twice: nothing if empty, anything for None."""

    program: str
    result: Any
    warned: str | None = ""
    code: int = 0
    setup: str = ""  # before a hook or a logger is opened
    records: int | None = None  # that it leaves behind


def read_cases(group: str) -> dict[str, Case]:
    return {name: Case(**case) for name, case in GIVEN[group].items()}


def assert_unharmed(cases: dict[str, Case], ended: list[Ended]) -> None:
    wrong = {}
    for (name, case), end in zip(cases.items(), ended, strict=True):
        lines = end.stderr.splitlines()
        quiet = len(lines) == len(set(lines)) and ("Traceback" in end.stderr) == (case.code == 1)
        if case.warned:
            quiet = quiet and case.warned in end.stderr
        elif case.warned == "" and case.code != 1:
            quiet = not lines
        n_records = len(end.written) if case.records is not None else None
        if (end.code, end.result, n_records) != (case.code, case.result, case.records) or not quiet:
            wrong[name] = end
    assert wrong == {}


def test_host_of_a_data_plane_is_unharmed_and_a_loss_is_warned_once(tmp_path: Path) -> None:
    cases = read_cases("data_plane")
    assert_unharmed(cases, run("data_plane", [case.program for case in cases.values()], tmp_path))


def test_exit_code_is_the_hosts_and_only_a_killed_one_loses_an_interval(tmp_path: Path) -> None:
    host = GIVEN["hosts"]["two intervals"]
    ended = run("data_plane", [host.replace("ENDING", ending) for ending in GIVEN["endings"]], tmp_path)
    found = [(end.code, end.n_puts, "end" in {one["event"] for one in end.written}) for end in ended]
    killed = (-15, -9, 4)
    assert found == [
        (code, 20 if code in killed else 21, code not in killed) for code in GIVEN["endings"].values()
    ]


def test_host_of_a_hook_or_of_compute_is_unharmed_and_warned_once(tmp_path: Path) -> None:
    cases, programs = dict[str, Case](), []
    for group, depth in (("hook", "    "), ("compute", "")):
        for name, case in read_cases(group).items():
            programs.append(
                GIVEN["hosts"][group].format(setup=case.setup, program=indent(case.program, depth))
            )
            cases[f"{group}: {name}"] = case if case.code else case._replace(code=7)
    assert_unharmed(cases, run("others", programs, tmp_path))
