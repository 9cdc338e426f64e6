"""Input, output and messages in any state that whoever starts us may leave them in."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from support.project import Project

pytestmark = pytest.mark.slow

HELLO = "log.warning('hello')\nprint('hello')\nyield VALUE(7, context.window.until)"


@pytest.fixture
def toy(project: Project) -> Project:
    project.add("toy", HELLO, options=", has_history=True")
    return project


def shell(project: Project, line: str, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run in a shell: `line` is what stands before or behind the command, which is `"$@"`."""
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", *project.command(*arguments)],
        env={**project.environment, **extra},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        encoding="utf-8",
        errors="replace",
    )


@pytest.mark.parametrize("options", [("toy",), ("toy", "--push"), ("toy", "--json"), ("--list",)])
def test_output_that_cannot_be_written_is_a_sentence(toy: Project, options: tuple[str, ...]) -> None:
    ran = shell(toy, 'exec "$@" >/dev/full', *options)
    sentence = f"run_collector.py: standard output cannot be written: {os.strerror(errno.ENOSPC)}\n"
    assert (ran.returncode, ran.stderr.splitlines(keepends=True)[-1]) == (1, sentence)
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(toy: Project, redirection: str) -> None:
    for mode in (("--push",), ()):
        ran = shell(toy, f'exec "$@" {redirection}', "toy", *mode)
        assert (ran.returncode, ran.stderr, "1 ok; 1 " in ran.stdout) == (0, "", ">&- 2" not in redirection)
    assert shell(toy, f'exec "$@" {redirection}', "no_such_collector").returncode == 2


def test_process_that_stays_survives_a_full_disk(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "runs"
    project.add("toy", f"open({str(file)!r}, 'a').write('x')\nyield VALUE(7, context.window.until)")
    ran = shell(project, 'timeout 5 "$@" >/dev/full', "toy", "--every", "1s", "--push")
    assert (ran.returncode, len(file.read_text()) > 1) == (124, True), ran.stderr
    assert f"standard output cannot be written: {os.strerror(errno.ENOSPC)}" in ran.stderr


@pytest.mark.parametrize("mode", [("--push",), (), ("--push", "--every", "1s")])
def test_reader_that_is_gone_ends_it_without_a_word(
    toy: Project, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    code = tmp_path / "code"
    ran = shell(toy, f'{{ "$@" 2>{tmp_path}/messages; echo $? >{code}; }} | :', "toy", *mode)
    assert (code.read_text(), ran.stderr) == ("141\n", "")
    assert "Traceback" not in (tmp_path / "messages").read_text()


@pytest.mark.parametrize(
    ("extra", "shown"),
    [
        ({"PYTHONIOENCODING": "ascii"}, "gr\\xfcn"),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, "gr\\xfcn"),
        ({"LC_ALL": "C.UTF-8"}, "grün"),
    ],
)
def test_ascii_terminal_shows_what_it_can(project: Project, extra: dict[str, str], shown: str) -> None:
    project.add("toy", "context.report.lose('project grün', 'gone')\nyield VALUE(7, context.window.until)")
    for mode in ((), ("--push",)):
        ran = shell(project, 'exec "$@"', "toy", *mode, **extra)
        assert (ran.returncode, f"  lost project {shown}: gone\n" in ran.stdout) == (1, True)
