"""The command line as a person, a program and the CronJob use it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from common.process.cli import parser
from fleetgauge import __version__
from support.project import ROOT, Project
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.wandb import Wandb

SCRIPT = ROOT / "scripts" / "run_collector.py"


def test_help_needs_no_third_party_module() -> None:
    # -S leaves site-packages out altogether.
    ran = subprocess.run(
        [sys.executable, "-S", SCRIPT, "--help"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "exit code: 0 ok, empty or skipped" in ran.stdout


def test_the_version_is_that_of_the_probes_and_needs_no_third_party_module() -> None:
    command = [sys.executable, "-S", str(SCRIPT), "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pus"], "unrecognized arguments: --pus (did you mean '--push'?)"),
        (["--pusch"], "unrecognized arguments: --pusch (did you mean '--push'?)"),
        (["host", "--push", "--check"], "argument --check: not allowed with argument --push"),
        (["hots"], "there is no collector 'hots' (did you mean 'host'?); there are:"),
        ([], "name a collector, or all; there are:"),
        (["host", "--csv", "x"], "--csv goes with --since"),
        (["host", "--push", "--points"], "--points is for looking: leave --push out"),
    ],
)
def test_an_error_of_the_command_line_is_two_lines_at_most_and_needs_no_third_party_module(
    arguments: list[str], said: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-S", SCRIPT, *arguments], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"run_collector.py: {said}")
    assert ran.stderr.count("\n") <= 2


def test_help_has_groups_and_three_examples() -> None:
    text = parser(100).format_help()
    assert len(re.findall(r"^  run_collector.py ", text, re.MULTILINE)) == 3
    assert re.findall(r"^(\w.*):$", text, re.MULTILINE) == [
        "positional arguments",
        "what to do, besides showing what would be sent",
        "how",
        "what to see",
        "the past (docs/backfill.md)",
        "examples",
    ]


def test_list_names_every_collector_with_what_it_reads(project: Project) -> None:
    project.keep("host")
    project.add("toy", "yield")
    assert project.run("--list").stdout == (
        "host  CPUs, memory, disks and GPUs of the node this runs on.\ntoy   A toy called toy.\n"
    )
    assert json.loads(project.run("--list", "--json").stdout)["toy"] == "A toy called toy."


def test_a_dry_run_shows_an_aligned_table_and_sends_nothing(project: Project, intake: Intake) -> None:
    project.add(
        "toy",
        "yield VALUE(1234567, context.window.until, kind='first')\n"
        "yield VALUE(0.5, context.window.until, kind='b')",
    )
    ran = project.run("toy")
    assert ran.returncode == 0
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"toy: ok in \d+\.\d s, as of 20\S+T\d\d:(00|15|30|45):00Z", lines[0])
    assert lines[1] == "  toy.value        0.5  item  kind:b"
    assert lines[2] == "  toy.value  1,234,567  item  kind:first"
    assert re.fullmatch(r"1 ok; 2 samples, nothing sent \(dry run\); \d+\.\d s; dropped: nothing", lines[-1])
    assert intake.requests == []


def test_the_json_document_of_a_dry_run_is_the_designed_one(project: Project) -> None:
    project.add(
        "toy",
        "yield VALUE(3, context.window.until, kind='a')\nyield VALUE(float('inf'), context.window.until)",
    )
    document = project.document("toy")
    [entry] = document["collectors"]
    [sample] = entry.pop("samples")
    assert 0 <= entry.pop("seconds") < 60
    assert entry == {
        "collector": "toy",
        "status": "ok",
        "error": None,
        "lost": [],
        "dropped": {"not_finite": 1},
        "as_of": sample["timestamp"],
    }
    assert sample.pop("timestamp") > 1_700_000_000
    assert sample == {
        "metric": "toy.value",
        "type": "gauge",
        "unit": "item",
        "value": 3,
        "host": None,
        "tags": ["kind:a"],
    }
    assert document["status"] == "ok"


def test_no_name_and_a_wrong_name_are_configuration_errors_that_help(project: Project) -> None:
    project.keep("host")
    for arguments, said in (((), "there are: host"), (("hots",), "did you mean 'host'?")):
        ran = project.run(*arguments)
        assert ran.returncode == 2
        assert said in ran.stderr
        assert ran.stdout == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0", "0 is not between 1 s and 1 day"),
        ("2d", "2d is not between 1 s and 1 day"),
        *(
            (value, f"{value!r} is not a duration: write seconds (900)")
            for value in ("-1", "nan", "inf", "abc")
        ),
    ],
)
def test_a_timeout_that_is_no_time_is_refused_with_what_to_write(
    project: Project, value: str, said: str
) -> None:
    ran = project.run("toy", f"--timeout={value}")
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"run_collector.py: argument --timeout: {said}")
    assert ran.stderr.endswith("\nrun_collector.py: --help lists what there is\n")
    assert ran.stderr.count("\n") == 2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("2m", 120)])
def test_a_timeout_is_seconds_or_has_units(project: Project, text: str, seconds: int) -> None:
    project.add("toy", "yield VALUE(context.deadline.seconds, context.window.until)")
    [sample] = project.document("toy", "--timeout", text)["collectors"][0]["samples"]
    assert sample["value"] == pytest.approx(seconds - 10, abs=1)


def test_what_is_asked_about_the_past_has_an_hour(project: Project) -> None:
    project.add(
        "toy", "yield VALUE(context.deadline.seconds, context.window.since)", options=", has_history=True"
    )
    [sample] = project.document("toy", "--since", "20m")["collectors"][0]["samples"]
    assert sample["value"] == pytest.approx(3600 - 10, abs=1)


@pytest.mark.parametrize("value", ["0", "2d", "soon"])
def test_an_interval_that_is_none_is_refused(project: Project, value: str) -> None:
    ran = project.run("toy", f"--every={value}")
    assert ran.returncode == 2
    assert "duration" in ran.stderr or "between" in ran.stderr


NEEDY = "token: Secret\narea: Text"


def test_under_all_a_collector_that_is_not_configured_is_skipped_with_what_it_lacks(
    project: Project, intake: Intake
) -> None:
    project.add("needy", "yield VALUE(1, context.window.until)", settings=NEEDY)
    project.add("toy", "yield VALUE(1, context.window.until)")
    ran = project.run("all", "--push")
    assert ran.returncode == 0
    assert "needy: skipped" in ran.stdout
    assert (
        "FLEETGAUGE_NEEDY_TOKEN, FLEETGAUGE_NEEDY_AREA are not set; looked in: the environment" in ran.stdout
    )
    assert intake.value("collector.up", tags=("collector:needy",)) is None
    assert intake.value("collector.up", tags=("collector:toy",)) == 1


def test_by_name_a_collector_that_is_not_configured_is_a_configuration_error_and_down(
    project: Project, intake: Intake
) -> None:
    project.add("needy", "yield VALUE(1, context.window.until)", settings=NEEDY)
    ran = project.run("needy", "--push")
    assert ran.returncode == 2
    assert "FLEETGAUGE_NEEDY_TOKEN" in ran.stdout
    assert intake.value("collector.up", tags=("collector:needy",)) == 0


@pytest.mark.slow
def test_pushing_without_a_key_or_an_environment_is_a_configuration_error_even_under_all(
    project: Project, intake: Intake
) -> None:
    project.add("toy", "yield VALUE(1, context.window.until)")
    for name in ("DD_API_KEY", "DD_ENV"):
        ran = project.run("all", "--push", **{name: ""})
        assert ran.returncode == 2
        assert f"{name} is not set" in ran.stdout
    assert intake.requests == []


@pytest.mark.slow
def test_a_configuration_file_configures_and_its_mistakes_are_named(project: Project, tmp_path: Path) -> None:
    project.add("toy", "yield VALUE(context.settings.size, context.window.until)", settings="size: int")
    file = tmp_path / "fleetgauge.toml"
    file.write_text("[toy]\nsize = 3\n")
    entry = json.loads(project.run("toy", "--json", "--config", str(file)).stdout)["collectors"][0]
    assert entry["samples"][0]["value"] == 3
    for text, said in (
        ("[toy]\nsise = 3\n", "unknown key 'sise' in [toy] (did you mean 'size'?)"),
        ("[tyo]\nsize = 3\n", "unknown table [tyo] (did you mean 'toy'?)"),
        ("stepp = 3\n", "unknown key 'stepp' in the top level (did you mean 'step'?)"),
        ("[toy\n", "is not TOML"),
    ):
        file.write_text(text)
        ran = project.run("toy", "--config", str(file))
        assert ran.returncode == 2
        assert said in ran.stdout
    ran = project.run("toy", "--config", str(tmp_path / "none.toml"))
    assert ran.returncode == 2
    assert "none.toml: No such file" in ran.stdout


@pytest.mark.slow
def test_check_says_what_is_good_and_sends_nothing(project: Project, intake: Intake) -> None:
    project.keep("host")
    ran = project.run("host", "--check", FLEETGAUGE_NODE_NAME="node-7")
    assert ran.returncode == 0, ran.stdout
    assert "metrics will carry the host node-7" in ran.stdout
    assert f"the API key is valid at {intake.url}" in ran.stdout
    assert [request.path for request in intake.requests] == ["/api/v1/validate"]
    entries = project.document("host", "--check", FLEETGAUGE_NODE_NAME="node-7")["collectors"]
    assert entries[0]["findings"][0] == "metrics will carry the host node-7"
    assert entries[1]["findings"] == [f"the API key is valid at {intake.url}"]


def test_check_fails_on_a_key_that_datadog_does_not_know(project: Project, intake: Intake) -> None:
    project.keep("host")
    ran = project.run("host", "--check", DD_API_KEY="another-key-than-expected")
    assert ran.returncode == 2
    assert "check that DD_API_KEY is valid and belongs to this site" in ran.stdout
    assert "another-key-than-expected" not in ran.stdout + ran.stderr


CANARY = "canary-3f9d0c71-never-to-be-seen"

SPY = """
import logging
log.info("with %s", context.settings.token.get_secret_value())
log.debug("and %r", {"token": context.settings.token.get_secret_value()})
Path(context.settings.path).write_text(json.dumps({"environ": dict(os.environ), "argv": sys.orig_argv}))
yield VALUE(1, context.window.until)
raise RuntimeError("it broke with " + context.settings.token.get_secret_value())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *(("--push", "--verbose"), ("--verbose",), ("--check", "--verbose"), ("--json",)),
        *(("--print-config", "--verbose"), ("--print-config", "--json")),
    ],
)
def test_a_secret_is_never_seen(
    project: Project, intake: Intake, aws: Aws, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The canary is every credential there is, from the environment and from AWS."""
    spied = tmp_path / "spied"
    project.add("spy", SPY, settings="token: Secret\npath: Text")
    project.keep("host")
    aws.put_secret("test/datadog", {"DD_API_KEY": f"{CANARY}-datadog\n"})
    aws.put_secret("test/spy", {"FLEETGAUGE_SPY_TOKEN": f"{CANARY}-spy\n"})
    project.environment.pop("DD_API_KEY")
    extra = {
        **aws.environment,
        "AWS_SECRET_ACCESS_KEY": f"{CANARY}-aws",
        "AWS_SESSION_TOKEN": f"{CANARY}-session",
        "DD_APP_KEY": f"{CANARY}-app",
        "WANDB_API_KEY": f"{CANARY}-wandb",
        "HTTPS_PROXY": f"http://user:{CANARY}-proxy@127.0.0.1:9",
        "FLEETGAUGE_SECRET_PREFIX": "test",
        "FLEETGAUGE_SPY_PATH": str(spied),
    }
    ran = project.run("all", *options, **extra)
    assert CANARY not in ran.stdout
    assert CANARY not in ran.stderr
    if "--print-config" in options:
        assert "********" in ran.stdout
        assert "the AWS secret test/spy" in ran.stdout
        assert "the AWS secret test/datadog" in ran.stdout
    elif "--check" not in options:
        assert "[redacted]" in ran.stdout + ran.stderr
        assert CANARY not in json.dumps(json.loads(spied.read_text())["argv"])
    for request in intake.requests:
        assert CANARY not in request.target
        assert CANARY.encode() not in request.body


@pytest.mark.slow
def test_a_variable_reaches_the_collector_with_the_longest_name_and_no_other(
    project: Project, tmp_path: Path
) -> None:
    body = "Path(context.settings.path).write_text(json.dumps(dict(os.environ)))\nyield VALUE(1, context.now)"
    names = ("queue", "queue_depth", "depth")
    for name in names:
        project.add(name, body, settings="path: Text")
    given = {f"FLEETGAUGE_{name.upper()}_PATH": str(tmp_path / name) for name in names}
    given |= {
        "QUEUE_OWN": "1",
        "QUEUE_DEPTH_OWN": "1",
        "DEPTH_OWN": "1",
        "FLEETGAUGE_STEP": "60",
        "OTHER": "1",
    }
    ran = project.run("all", **given)
    assert ran.returncode == 0, ran.stdout
    for name in names:
        seen = given.keys() & json.loads((tmp_path / name).read_text())
        assert seen == {f"FLEETGAUGE_{name.upper()}_PATH", f"{name.upper()}_OWN", "FLEETGAUGE_STEP"}


@pytest.mark.slow
def test_a_child_sees_only_the_credentials_it_needs(project: Project, aws: Aws, tmp_path: Path) -> None:
    body = "Path(context.settings.path).write_text(json.dumps(dict(os.environ)))\nyield VALUE(1, context.now)"
    project.add("plain", body, settings="path: Text")
    project.add("needy", body, settings="token: Secret\npath: Text")
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DD_APP_KEY", "WANDB_API_KEY", "HTTPS_PROXY")
    extra = dict.fromkeys(names, f"http://{CANARY}") | {"FLEETGAUGE_NEEDY_TOKEN": CANARY}
    extra |= {
        "FLEETGAUGE_PLAIN_PATH": str(tmp_path / "plain"),
        "FLEETGAUGE_NEEDY_PATH": str(tmp_path / "needy"),
    }
    extra |= {"FLEETGAUGE_SECRET_PREFIX": "test"}

    def seen(name: str, *options: str) -> set[str]:
        ran = project.run(name, *options, **extra)
        assert ran.returncode == 0, ran.stdout
        environ = json.loads((tmp_path / name).read_text())
        return {key for key, value in environ.items() if CANARY in value or key == "DD_API_KEY"}

    assert seen("plain") == set()
    assert seen("needy") == {"FLEETGAUGE_NEEDY_TOKEN", "HTTPS_PROXY"}
    assert seen("plain", "--push") == {"DD_API_KEY", "HTTPS_PROXY"}
    extra["FLEETGAUGE_NEEDY_TOKEN"] = ""
    environ = aws.environment
    aws.put_secret("test/needy", {"FLEETGAUGE_NEEDY_TOKEN": "from-aws"})
    extra |= {**environ, "AWS_SESSION_TOKEN": CANARY}
    assert seen("needy") == {"AWS_SESSION_TOKEN", "HTTPS_PROXY"}
    aws.make_bucket("state")
    assert seen("plain") == set()
    extra["FLEETGAUGE_STATE"] = "s3://state/test"
    assert seen("plain") == {"AWS_SESSION_TOKEN", "HTTPS_PROXY"}


@pytest.mark.slow
def test_the_settings_in_force_are_shown_with_where_they_come_from(project: Project, tmp_path: Path) -> None:
    project.keep("host")
    file = tmp_path / "fleetgauge.toml"
    file.write_text('step = "5m"\n[host]\npaths = ["/", "/tmp"]\n')
    document = project.document("host", "--print-config", "--config", str(file), FLEETGAUGE_HOST_GPU_UUID="1")
    told, datadog = document["collectors"]
    assert told["settings"][:3] == [
        {"setting": "FLEETGAUGE_HOST_PATHS", "value": "/,/tmp", "from": f"{file}: paths in [host]"},
        {"setting": "FLEETGAUGE_HOST_ROOT", "value": "", "from": "not set"},
        {"setting": "FLEETGAUGE_HOST_GPU_UUID", "value": "true", "from": "the environment"},
    ]
    core = {row["setting"]: (row["value"], row["from"]) for row in datadog["core"]}
    assert core["FLEETGAUGE_STEP"] == ("5m", f"{file}: step in the top level")
    assert core["DD_SERVICE"] == ("fleetgauge", "default")
    keys = {row["setting"]: (row["value"], row["from"]) for row in datadog["datadog"]}
    assert keys["DD_API_KEY"] == ("********", "the environment")
    ran = project.run("host", "--print-config", DD_API_KEY="")
    assert ran.returncode == 0
    assert "nothing can be pushed: DD_API_KEY is not set; looked in: the environment" in ran.stdout


@pytest.mark.slow
def test_verbose_says_what_was_asked_answered_and_found_where(fleet: Project, wandb: Wandb) -> None:
    quiet, loud = fleet.run("wandb"), fleet.run("wandb", "--verbose")
    assert '"status": "debug"' not in quiet.stderr
    said = [json.loads(line)["message"] for line in loud.stderr.splitlines()]
    assert "WANDB_API_KEY is from the environment" in said
    assert any(re.fullmatch(rf"POST {wandb.url}/graphql: sending [\d,]+ bytes", line) for line in said)
    assert any(
        re.fullmatch(rf"POST {wandb.url}/graphql: 200 after \d+ ms, [\d,]+ bytes", line) for line in said
    )


@pytest.mark.slow
def test_a_table_in_a_pipe_has_what_the_document_has(fleet: Project) -> None:
    samples = fleet.document("wandb")["collectors"][0]["samples"]
    rows = fleet.run("wandb").stdout.splitlines()
    for tag in ("ref:main", "user:ann"):
        found = [sample for sample in samples if tag in sample["tags"]]
        assert found
        assert len([row for row in rows if tag in row]) == len(found)


@pytest.mark.slow
def test_on_a_terminal_a_run_ends_with_what_to_do_next(project: Project) -> None:
    project.add("toy", "context.report.drop('odd')\nyield VALUE(1, context.window.until, kind='a')")
    environ = {**project.environment, "TERM": "xterm", "COLUMNS": "60"}
    code, shown = on_a_pty(project.command("toy"), environ)
    assert code == 0
    *_, total, more, send = shown.splitlines()
    assert "\x1b[33mdropped: 1 odd\x1b[0m" in total
    assert more == "next, to see more of what was dropped: run_collector.py toy --verbose"
    assert send == "next, to send it: run_collector.py toy --push"
    code, shown = on_a_pty(project.command("toy", "--push"), environ)
    assert code == 0
    assert shown.splitlines()[-1].endswith("of what was dropped: run_collector.py toy --push --verbose")
    code, shown = on_a_pty(project.command("toy", "--push"), {**environ, "DD_API_KEY": "", "NO_COLOR": "1"})
    assert code == 2
    assert shown.splitlines()[-1] == "next, to see all that is wrong: run_collector.py toy --check"
    assert "\x1b[3" not in shown


@pytest.mark.slow
def test_on_a_terminal_only_what_makes_sense_is_proposed(project: Project, tmp_path: Path) -> None:
    body = "if not context.window.is_live:\n    yield VALUE(7, context.window.since)"
    project.add("toy", body, options=", has_history=True")
    config = tmp_path / "fleetgauge.toml"
    config.write_text("series_cap = 100\n")
    environ = {**project.environment, "TERM": "xterm", "NO_COLOR": "1"}

    def proposed(*arguments: str, code: int = 0, **variables: str) -> list[str]:
        ended, shown = on_a_pty(project.command("toy", *arguments), {**environ, **variables})
        assert ended == code, shown
        return [line for line in shown.splitlines() if line.startswith("next")]

    assert proposed() == []
    assert proposed("--since", "20m", "--config", str(config)) == [
        f"next, to send it: run_collector.py toy --since 20m --push --config {config}"
    ]
    assert proposed("--check") == ["next, to look at what would be sent: run_collector.py toy"]
    assert proposed("--check", code=2, DD_API_KEY="") == []


def on_a_pty(command: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Run with a terminal for its output; the exit code, and what it showed there."""
    master, slave = pty.openpty()
    with subprocess.Popen(command, env=environ, stdout=slave, stderr=subprocess.DEVNULL) as run:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while chunk := os.read(master, 65536):
                shown += chunk
        os.close(master)
    return run.returncode, shown.decode()
