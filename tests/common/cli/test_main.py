"""The command line as a person, a program and the CronJob use it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.cli.main import exit_code
from common.outcome import ErrorSummary, Outcome, Status
from fleetgauge import __version__
from support.project import ROOT, Project
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.wandb import Wandb

SCRIPT = ROOT / "scripts" / "run_collector.py"
HEAVY = ("pydantic", "boto3", "urllib3", "rich", "collectors.host.collector", "collectors.toy.collector")
# Runs the command line in this interpreter, then names what it imported of HEAVY on the last line of stderr.
IMPORTS = f"""
import sys
sys.argv = sys.argv[1:]
sys.path.insert(0, {str(ROOT)!r})
from common.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""
CANARY = "canary-3f9d0c71-never-to-be-seen"


def bare(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run without site-packages."""
    command = [sys.executable, "-S", str(SCRIPT), *arguments]
    environ = {**os.environ, **extra}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environ)


@pytest.mark.parametrize(
    ("statuses", "code"), [("ok empty skipped", 0), ("ok partial", 1), ("failed ok", 1), ("", 0)]
)
def test_exit_code_follows_the_worst_outcome(statuses: str, code: int) -> None:
    assert exit_code([Outcome("toy", Status(status)) for status in statuses.split()]) == code


def test_exit_code_of_configuration_comes_first_but_a_skip_has_none() -> None:
    error = ErrorSummary("ConfigurationError", "no key", configuration=True)
    failed, skipped = (Outcome("a", status, error=error) for status in (Status.FAILED, Status.SKIPPED))
    assert exit_code([Outcome("b", Status.FAILED), failed]) == 2
    assert exit_code([skipped]) == 0


def test_help_needs_no_third_party_module() -> None:
    ran = bare("--help")
    assert (ran.returncode, "exit code: 0 ok, empty or skipped" in ran.stdout) == (0, True), ran.stderr


@pytest.mark.slow
def test_error_of_the_command_line_is_one_line() -> None:
    ran = bare("hots", ANOTHER_IMPLICIT_TOKEN="collector")  # a switch of another program
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    hint = "there is no collector 'hots' (did you mean 'host'?); there are: "
    assert ran.stderr.startswith(f"run_collector.py: {hint}")
    for arguments in ([CANARY], [f"--{CANARY}"], ["host", "--since", CANARY]):
        ran = bare(*arguments, WANDB_API_KEY=CANARY)
        assert (ran.returncode, CANARY in ran.stderr, "[redacted]" in ran.stderr) == (2, False, True)


@pytest.mark.slow
def test_parent_imports_nothing_heavy_while_its_children_report(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(7, context.window.until)")
    project.add("dead", "os._exit(3)\nyield")

    def imported(*arguments: str) -> tuple[int, list[str]]:
        code = IMPORTS.replace(str(ROOT), str(project.root))
        command = [sys.executable, "-c", code, *project.command(*arguments)[1:]]
        ran = subprocess.run(command, env=project.environment, capture_output=True, text=True, check=False)
        return ran.returncode, json.loads(ran.stderr.splitlines()[-1].replace("'", '"'))

    assert imported("--help") == imported("--list") == imported("toy", "--push") == (0, [])
    assert intake.value("toy.value") == 7
    code, names = imported("dead", "--push")  # there it has something to send itself
    assert (code, "pydantic" in names, "boto3" in names) == (1, True, False)


@pytest.mark.slow
def test_list_and_version_are_printed(project: Project) -> None:
    assert bare("--version").stdout == f"{__version__}\n"
    project.keep("host")
    project.add("toy", "yield")
    assert project.run("--list").stdout == (
        "host  CPUs, memory, disks and GPUs of the node this runs on.\ntoy   A toy called toy.\n"
    )
    assert json.loads(project.run("--list", "--json").stdout)["toy"] == "A toy called toy."


DRY = """
print("noise of a library")
context.report.drop("odd", 2)
yield VALUE(0.5, context.window.until, kind="b")
yield VALUE(float("inf"), context.window.until)
"""


def test_dry_run_shows_a_table_or_a_document_and_sends_nothing(project: Project, intake: Intake) -> None:
    project.add("toy", DRY)
    project.add("silent", "yield from ()")
    ran = project.run("toy", "silent")
    assert (ran.returncode, ran.stderr) == (0, "noise of a library\n")
    first, heads, row, *_ = ran.stdout.splitlines()
    assert re.fullmatch(r"toy: ok in \d+\.\d s, as of 20\S+T\d\d:(00|15|30|45):00Z", first)
    assert heads.split() == ["metric", "value", "unit", "tags"]
    assert row.split() == ["toy.value", "0.5", "item", "kind:b"]
    assert "1 ok, 1 empty; 1 point, nothing sent (dry run)" in ran.stdout
    assert "dropped: 1 not_finite, 2 odd" in ran.stdout
    toy, silent = project.document("toy", "silent")["collectors"]
    assert (silent["status"], silent["samples"]) == ("empty", [])
    assert (toy["status"], toy["dropped"], toy["as_of"] % 900) == ("ok", {"not_finite": 1, "odd": 2}, 0)
    assert [sample["value"] for sample in toy["samples"]] == [0.5]
    assert intake.requests == []


@pytest.mark.slow
def test_each_failure_of_a_dry_run_is_an_outcome_and_the_others_run(project: Project) -> None:
    bodies = {
        "broken": "yield",
        "defect": "raise RuntimeError('a defect')\nyield",
        "good": "yield VALUE(context.deadline.seconds, context.window.until)",
        "late": "yield VALUE(7, context.window.until)\nraise SourceError('it went away')",
    }
    for name, body in bodies.items():
        project.add(name, body)
    (project.root / "collectors" / "broken" / "collector.py").write_text("import no_such_module\n")
    ran = project.run("all", "--json", "--timeout", "90")
    assert ran.returncode == 2
    broken, defect, good, late = json.loads(ran.stdout)["collectors"]
    assert "no_such_module" in broken["error"]["message"]
    assert defect["error"] == {"type": "RuntimeError", "message": "a defect"}
    assert late["error"] == {"type": "SourceError", "message": "it went away"}
    assert good["samples"][0]["value"] == pytest.approx(80, abs=1)
    stacks = [json.loads(line).get("error.stack", "") for line in ran.stderr.splitlines()]
    assert sum("RuntimeError: a defect" in stack for stack in stacks) == 1


@pytest.mark.slow
def test_collector_that_is_not_configured_is_skipped_under_all(project: Project, intake: Intake) -> None:
    project.add("needy", "yield VALUE(1, context.window.until)", settings="token: Secret\narea: Text")
    project.add("toy", "yield VALUE(1, context.window.until)")
    ran = project.run("all", "--push")
    assert (ran.returncode, "needy: skipped" in ran.stdout) == (0, True)
    assert "FLEETGAUGE_NEEDY_TOKEN, FLEETGAUGE_NEEDY_AREA are not set" in ran.stdout
    assert intake.value("collector.up", tags=("collector:needy",)) is None
    assert intake.value("collector.up", tags=("collector:toy",)) == 1
    assert project.run("needy", "--push").returncode == 2  # by its name it is an error, and down
    assert intake.value("collector.up", tags=("collector:needy",)) == 0
    requests = len(intake.requests)
    for variable in ("DD_API_KEY", "DD_ENV"):
        ran = project.run("all", "--push", **{variable: ""})
        assert (ran.returncode, f"{variable} is not set" in ran.stdout) == (2, True)
    assert len(intake.requests) == requests


@pytest.mark.slow
def test_check_names_what_is_good_and_what_is_not(project: Project, intake: Intake) -> None:
    project.keep("host")
    entries = project.document("host", "--check", FLEETGAUGE_NODE_NAME="node-7")["collectors"]
    assert entries[0]["findings"][0] == "metrics will carry the host node-7"
    assert entries[1]["findings"] == [f"the API key is valid at {intake.url}"]
    assert [request.path for request in intake.requests] == ["/api/v1/validate"]


@pytest.mark.slow
def test_settings_in_force_are_shown_with_their_origin(project: Project, tmp_path: Path) -> None:
    project.keep("host")
    file = tmp_path / "fleetgauge.toml"
    file.write_text('step = "5m"\n')
    host, datadog = project.document("host", "--print-config", "--config", str(file))["collectors"]
    rows = {
        row["setting"]: (row["value"], row["from"])
        for row in (*host["settings"], *datadog["core"], *datadog["datadog"])
    }
    assert rows["FLEETGAUGE_HOST_PATHS"] == ("/", "default")
    assert rows["FLEETGAUGE_STEP"] == ("5m", f"{file}: step in the top level")
    assert rows["DD_API_KEY"] == ("********", "the environment")
    ran = project.run("host", "--print-config", DD_API_KEY="")
    assert (ran.returncode, "nothing can be pushed: DD_API_KEY is not set" in ran.stdout) == (0, True)


SPY = """
import warnings
token = context.settings.token.get_secret_value()
log.info("with %s", token)
log.debug("and %r", {"token": token})
warnings.warn(token)
print("printed", token)
sys.stderr.writelines(["lines ", token, "\\n"])
logging.getLogger("library").addHandler(logging.StreamHandler())
logging.getLogger("library").error("handler %r", token.encode())
def broken():
    raise RuntimeError(token)
thread = threading.Thread(target=broken, name="helper")
thread.start()
thread.join()
class Broken:
    def __del__(self):
        raise RuntimeError(token)
Broken()
Path(context.settings.path).write_text(json.dumps(sys.orig_argv))
yield VALUE(1, context.window.until)
raise RuntimeError("it broke with " + token)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--push", "--verbose"), ("--check", "--verbose"), ("--json",), ("--print-config",)],
)
def test_secret_is_never_shown(
    project: Project, intake: Intake, aws: Aws, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The canary is every credential there is, from the environment and from AWS."""
    seen = tmp_path / "seen"
    project.add("spy", SPY, settings="token: Secret\npath: Text")
    project.keep("host")
    aws.put_secret("test/datadog", {"DD_API_KEY": f"{CANARY}-datadog\n"})
    aws.put_secret("test/spy", {"FLEETGAUGE_SPY_TOKEN": f"{CANARY}-spy\n"})
    project.environment.pop("DD_API_KEY")
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DD_APP_KEY", "WANDB_API_KEY")
    extra = {**aws.environment, **{name: f"{CANARY}-{name}" for name in names}}
    extra |= {"HTTPS_PROXY": f"http://user:{CANARY}-proxy@127.0.0.1:9"}
    extra |= {"FLEETGAUGE_SECRET_PREFIX": "test", "FLEETGAUGE_SPY_PATH": str(seen)}
    ran = project.run("all", *options, **extra)
    assert CANARY not in ran.stdout + ran.stderr
    if "--print-config" in options:
        assert "********" in ran.stdout
        assert "the AWS secret test/spy" in ran.stdout
        assert "the AWS secret test/datadog" in ran.stdout
    elif "--check" not in options:
        for shown in (
            "UserWarning: [redacted]",
            "printed [redacted]",
            "lines [redacted]",
            "handler b'[redacted]'",
        ):
            assert shown in ran.stderr
        assert ran.stderr.count("RuntimeError: [redacted]") == 2  # of the thread and the finaliser
        assert "RuntimeError: it broke with [redacted]" in ran.stderr
        assert "it broke with [redacted]" in ran.stdout
        assert CANARY not in seen.read_text()
    assert all(CANARY not in request.target for request in intake.requests)
    assert all(CANARY.encode() not in request.body for request in intake.requests)


@pytest.mark.slow
def test_verbose_logs_requests_and_where_settings_come_from(fleet: Project, wandb: Wandb) -> None:
    quiet, loud = fleet.run("wandb"), fleet.run("wandb", "--verbose")
    assert '"status": "debug"' not in quiet.stderr
    logged = [json.loads(line)["message"] for line in loud.stderr.splitlines()]
    assert "WANDB_API_KEY is from the environment" in logged
    assert any(re.fullmatch(rf"POST {wandb.url}/graphql: sending [\d,]+ bytes", line) for line in logged)
    answered = rf"POST {wandb.url}/graphql: 200 after \d+ ms, [\d,]+ bytes"
    assert any(re.fullmatch(answered, line) for line in logged)


@pytest.mark.slow
def test_directory_with_packages_of_our_names_is_no_matter(project: Project, tmp_path: Path) -> None:
    project.add("toy", "yield VALUE(1, context.window.until)")
    for name in ("common", "collectors", "logging"):
        (tmp_path / "job" / name).mkdir(parents=True)
        (tmp_path / "job" / name / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    project.directory = tmp_path / "job"
    for mode in ((), ("--push",)):
        ran = project.run("toy", *mode)
        assert ran.returncode == 0, ran.stderr
