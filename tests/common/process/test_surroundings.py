"""What the parent may be given by whoever starts it: a sentence and an exit code, or no matter at all."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from support.project import Project
from support.servers.datadog import Intake

HELLO = "yield VALUE(7, context.window.until)"
FULL = Path("/dev/full")


@pytest.fixture
def toy(project: Project) -> Project:
    project.add("toy", HELLO)
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


class TestTemporaryFiles:
    """A limit of no bytes for a file is a full disk: no directory will do."""

    def test_a_push_needs_none(self, toy: Project, intake: Intake) -> None:
        ran = shell(toy, 'ulimit -f 0; exec "$@"', "toy", "--push")
        assert (ran.returncode, intake.value("toy.value")) == (0, 7), ran.stderr

    def test_a_dry_run_says_that_it_needs_one(self, toy: Project) -> None:
        ran = shell(toy, 'ulimit -f 0; exec "$@"', "toy")
        assert ran.returncode == 2
        assert ran.stderr.startswith("run_collector.py: a dry run needs a directory for temporary files (")
        assert ran.stderr.endswith("): set TMPDIR to one that can be written and has room\n")
        assert ran.stderr.count("\n") == 1

    def test_none_is_left_behind(self, toy: Project, tmp_path: Path) -> None:
        (tmp_path / "temporary").mkdir()
        assert toy.run("toy", TMPDIR=str(tmp_path / "temporary")).returncode == 0
        assert list((tmp_path / "temporary").iterdir()) == []

    def test_again_and_again_survives_that_the_directory_vanishes_and_comes_back(
        self, project: Project, tmp_path: Path
    ) -> None:
        place, fifo = tmp_path / "temporary", tmp_path / "fifo"
        place.mkdir()
        os.mkfifo(fifo)
        project.add("toy", f"open({str(fifo)!r}, 'w').write('ran')\nyield VALUE(7, context.window.until)")
        run = project.start("toy", "--every", "1s", TMPDIR=str(place))
        assert fifo.read_text() == "ran"
        assert run.stdout is not None
        assert run.stderr is not None
        while not run.stdout.readline().startswith("1 ok"):
            pass
        place.rename(tmp_path / "gone")  # also with what the run has not taken away yet
        assert "a dry run needs a directory" in json.loads(run.stderr.readline())["message"]
        place.mkdir()
        assert fifo.read_text() == "ran"
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=30)
        assert run.returncode == 143


@pytest.mark.parametrize("most", range(5, 12))
def test_too_few_descriptors_are_a_sentence(toy: Project, most: int) -> None:
    """Two pipes and what starting a process takes: nine are too few, whichever call it is that fails."""
    ran = shell(toy, f'ulimit -n {most}; exec "$@"', "toy", "--push")
    assert "Traceback" not in ran.stderr
    if ran.returncode:
        assert ran.returncode == 1
        assert os.strerror(errno.EMFILE) in ran.stdout + ran.stderr
    if most == 8:
        assert f"the child could not be started: {os.strerror(errno.EMFILE)}" in ran.stdout


def test_how_a_child_ended_is_known_where_sigchld_was_ignored(project: Project) -> None:
    project.add("toy", "os._exit(7)\nyield")
    ran = shell(project, "trap '' CHLD; exec \"$@\"", "toy", "--json")
    assert json.loads(ran.stdout)["collectors"][0]["error"]["message"] == (
        "the child ended with code 7 without a report"
    )


HOSTILE = {
    "deep": "step = " + "[" * 100_000,
    "long": "size = 1 # " + "x" * 2**19,
    "slow": "\n".join(f"[{'.'.join('a' * 5_000)}]\nb{place} = 1" for place in range(9)),
    "binary": "\0" * 9_000,
}


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", *HOSTILE])
def test_whatever_stands_where_the_configuration_should_is_a_sentence(
    toy: Project, tmp_path: Path, kind: str
) -> None:
    """In the parent, which looks for a few settings there, as in its child."""
    path = tmp_path / "fleetgauge.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text(HOSTILE[kind])
    ran = toy.run("toy", "--push", "--config", str(path))
    assert (ran.returncode, ran.stderr) == (2, "")
    assert "ConfigurationError: " in ran.stdout
    assert str(path.resolve()) in ran.stdout


class TestOutput:
    @pytest.mark.parametrize("options", [("toy",), ("toy", "--push"), ("toy", "--json"), ("--list",)])
    @pytest.mark.parametrize(("redirection", "number"), [(">&-", errno.EBADF), (">/dev/full", errno.ENOSPC)])
    def test_output_that_cannot_be_written_is_a_sentence(
        self, toy: Project, redirection: str, number: int, options: tuple[str, ...]
    ) -> None:
        ran = shell(toy, f'exec "$@" {redirection}', *options)
        said = f"run_collector.py: standard output cannot be written: {os.strerror(number)}\n"
        assert (ran.returncode, ran.stderr) == (1, said)

    @pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&- 2>/dev/null", "<&- 2>&-"])
    def test_messages_that_cannot_be_written_and_input_that_is_not_there_change_nothing(
        self, project: Project, intake: Intake, redirection: str
    ) -> None:
        project.add("toy", f"log.warning('hello')\nprint('hello')\n{HELLO}")
        ran = shell(project, f'exec "$@" {redirection}', "toy", "--push")
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "1 ok; 1 point sent" in ran.stdout
        assert intake.value("toy.value") == 7

    @pytest.mark.parametrize("redirection", [">&- 2>&-", "<&- >&- 2>&-"])
    def test_with_everything_closed_the_work_is_done_and_the_exit_code_says_that_nothing_was_shown(
        self, toy: Project, intake: Intake, redirection: str
    ) -> None:
        assert shell(toy, f'exec "$@" {redirection}', "toy", "--push").returncode == 1
        assert intake.value("toy.value") == 7

    def test_a_configuration_error_that_cannot_be_said_is_still_an_exit_code(self, toy: Project) -> None:
        assert shell(toy, 'exec "$@" 2>/dev/full', "no_such_collector").returncode == 2

    @pytest.mark.slow
    def test_a_reader_who_has_had_enough_ends_it(self, toy: Project) -> None:
        with tempfile.TemporaryFile("w+") as code:
            ran = subprocess.run(
                ["/bin/sh", "-c", '{ "$@"; echo $? >&9; } | :', "sh", *toy.command("toy", "--push")],
                env=toy.environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                preexec_fn=lambda: os.dup2(code.fileno(), 9) and None,
                pass_fds=[9],
            )
            code.seek(0)
            assert (code.read(), ran.stderr) == ("141\n", "")

    @pytest.mark.parametrize(
        ("extra", "shown"),
        [
            ({"PYTHONIOENCODING": "ascii"}, "gr\\xfcn"),
            ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, "gr\\xfcn"),
            ({"LC_ALL": "C.UTF-8"}, "grün"),
        ],
    )
    def test_an_ascii_terminal_shows_what_it_can(
        self, project: Project, extra: dict[str, str], shown: str
    ) -> None:
        project.add(
            "toy", "context.report.lose('project grün', 'gone')\nyield VALUE(7, context.window.until)"
        )
        ran = shell(project, 'exec "$@"', "toy", **extra)
        assert ran.returncode == 1
        assert f"  lost project {shown}: gone\n" in ran.stdout

    def test_again_and_again_survives_a_full_disk_that_has_room_again(
        self, project: Project, tmp_path: Path
    ) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        body = f"open({str(fifo)!r}, 'w').write('ran')\nyield VALUE(7, context.window.until)"
        project.add("toy", body, options=", has_history=True")
        with FULL.open("w") as full:
            run = subprocess.Popen(
                project.command("toy", "--push", "--every", "1s"),
                env=project.environment,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        for _ in range(2):
            assert fifo.read_text() == "ran"
            assert run.stderr is not None
            said = json.loads(run.stderr.readline())["message"]
            assert said == f"standard output cannot be written: {os.strerror(errno.ENOSPC)}"
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=30)
        assert run.returncode == 143
