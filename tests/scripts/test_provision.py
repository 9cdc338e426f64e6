"""scripts/provision.py against Datadog's API on loopback."""

from __future__ import annotations

import copy
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from scripts.datadog_documents import all_views
from scripts.provision import main, prompt
from support.project import ROOT
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.standins import APP_KEY, KEY, NOW

BOARDS = [board for views in all_views() for board in views.dashboards]
MONITORS = [monitor for views in all_views() for monitor in views.monitors]
DASHBOARD_PATH, MONITOR_PATH = "/api/v1/dashboard", "/api/v1/monitor"
FOREIGN = {"title": "Fleet", "layout_type": "ordered", "description": "Mine.", "widgets": []}


class Provision:
    """The command, and the API it talks to, whose clock is set by the test."""

    def __init__(self, api: Intake, folder: Path) -> None:
        self.api, self.folder = api, folder
        self.documents = api.documents
        self.now = float(NOW)
        api.clock = lambda: self.now
        self.environ = {"DD_API_KEY": KEY, "DD_APP_KEY": APP_KEY, "FLEETGAUGE_DD_URL": api.url}

    def run(
        self,
        *arguments: str,
        code: int = 0,
        environ: Mapping[str, str] | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> str:
        """Run the command in this process and return what it prints; no secret may be in it."""
        output = io.StringIO()
        self.api.requests.clear()
        try:
            with redirect_stdout(output), redirect_stderr(output):
                found = main([*arguments], {**self.environ, **(environ or {})}, confirm)
        except SystemExit as error:
            found = int(str(error.code))
        text = output.getvalue()
        assert found == code, text
        assert KEY not in text
        assert APP_KEY not in text
        return text

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "provision.py"), *arguments],
            env={"PATH": os.environ["PATH"], **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def writes(self) -> list[str]:
        """Return the requests of the last run that could change anything."""
        return [f"{one.method} {one.path}" for one in self.api.requests if one.method != "GET"]

    def config(self, text: str) -> str:
        path = self.folder / "fleetgauge.toml"
        path.write_text(text)
        return str(path)

    def board(self, key: str) -> dict[str, Any]:
        found = [one for one in self.documents.dashboards.values() if f":{key}:" in one["description"]]
        return min(found, key=lambda one: str(one["created_at"]))

    def monitor(self, key: str) -> dict[str, Any]:
        [found] = [one for one in self.documents.monitors.values() if f":{key}:" in "".join(one["tags"])]
        return found

    def edit(self, kind: str, document: dict[str, Any], **fields: object) -> None:
        """Change a document as a person does, an hour later."""
        self.now += 3600
        self.documents.store(kind, str(document["id"]), {**document, **fields})


@pytest.fixture
def provision(tmp_path: Path) -> Iterator[Provision]:
    with Intake(KEY, app_key=APP_KEY) as api:
        yield Provision(api, tmp_path)


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """What there is after one push."""
    with Intake(KEY, app_key=APP_KEY) as api:
        Provision(api, tmp_path_factory.mktemp("pushed")).run("--push")
        return api.documents.dashboards, api.documents.monitors


@pytest.fixture
def made(provision: Provision, pushed: tuple[Any, Any]) -> Provision:
    """With everything made an hour ago."""
    documents = provision.documents
    documents.dashboards, documents.monitors = copy.deepcopy(pushed)
    documents.numbers = count(50_000)  # no id is given twice
    provision.now += 3600
    return provision


def assert_complete(provision: Provision) -> None:
    """Every document exists once, and another push writes nothing."""
    titles = [one["title"] for one in provision.documents.dashboards.values()]
    assert sorted(titles) == sorted(board.title for board in BOARDS)
    assert len(provision.documents.monitors) == len(MONITORS)
    provision.run("--push")
    assert provision.writes() == []


def test_push_creates_with_one_write_each_and_again_writes_nothing(provision: Provision) -> None:
    output = provision.run()
    assert "dashboard fleet (Fleet): create\n" in output
    total = len(BOARDS) + len(MONITORS)
    assert output.splitlines()[-1].startswith(
        f"dry run, nothing changed (--push writes): {total} create; metadata of 0 metrics"
    )
    assert provision.writes() == []
    assert provision.run("--push").splitlines()[-1].startswith(f"pushed: {total} create")
    assert len(provision.writes()) == total
    assert provision.board("fleet")["description"].endswith(f"\n\nfleetgauge:fleet:fleetgauge:{NOW}")
    assert {"managed_by:fleetgauge", f"fleetgauge:gap:fleetgauge:{NOW}"} <= {
        *provision.monitor("gap")["tags"]
    }
    assert_complete(provision)


def test_changed_declaration_updates_one_document_and_shows_the_diff(made: Provision) -> None:
    config = made.config("[provision.monitors.disk-full]\nthreshold = 97.0\n")
    dry = made.run("--config", config)
    shown = dry.partition("fills up): update\n")[2].partition("dry run")[0].splitlines()
    query = "min(last_1h):max:host.disk.used_pct{service:fleetgauge} by {env,host,path} > "
    assert shown == [
        "    query:",
        f'      - "{query}95"',
        f'      + "{query}97"',
        "    options.thresholds.critical:",
        "      - 95.0",
        "      + 97.0",
    ]
    assert made.writes() == []
    made.run("--push", "--config", config)
    monitor = made.monitor("disk-full")
    assert made.writes() == [f"PUT {MONITOR_PATH}/{monitor['id']}"]
    assert monitor["options"]["thresholds"]["critical"] == 97
    made.run("--push", "--config", config)
    assert made.writes() == []


@pytest.mark.parametrize(
    ("text", "environ", "arguments", "wrong"),
    [
        ("[provision.monitors.disk-ful]\nthreshold = 1.0\n", {}, [], "did you mean 'disk-full'?"),
        ("[provision.monitors.disk-full]\ntreshold = 9.0\n", {}, [], "disk-full.treshold: Extra"),
        ("[provision.monitors.gap]\nthreshold = nan\n", {}, [], "gap.threshold: Input should be a finite"),
        ("[provision]\nnotfy = []\n", {}, [], "notfy"),
        ("", {"DD_APP_KEY": ""}, [], "DD_APP_KEY is not set; looked in: the environment"),
        ("", {"FLEETGAUGE_PROVISION_NOTFY": "@ants"}, [], "did you mean 'FLEETGAUGE_PROVISION_NOTIFY'?"),
        ("", {"DD_SERVICE": "a" * 60, "FLEETGAUGE_INSTANCE": "b" * 60}, [], "have 121 characters"),
        ("", {}, ["--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        ("", {}, ["--check"], "--check writes nothing"),
    ],
)
def test_what_is_wrong_is_named_before_any_request(
    provision: Provision, text: str, environ: dict[str, str], arguments: list[str], wrong: str
) -> None:
    config = provision.config(text)
    assert wrong in provision.run("--push", "--config", config, *arguments, code=2, environ=environ)
    assert provision.api.requests == []


def test_edited_documents_are_shown_and_left_unless_it_is_agreed(made: Provision) -> None:
    made.edit("dashboard", made.board("fleet"), title="Fleet of Ann")
    made.edit("monitor", made.monitor("gap"), message="Never mind.")
    output = made.run("--push", "--yes")
    assert "dashboard fleet (Fleet of Ann): edited since the last push, left (--overwrite-edited" in output
    assert '    title:\n      - "Fleet of Ann"\n      + "Fleet"\n' in output
    assert output.splitlines()[-1].startswith("pushed: 2 edited, ")
    assert "there is no terminal to ask at" in made.run("--push", code=1)
    assert "2 edited" in made.run("--push", confirm=lambda _: False)
    assert made.writes() == []
    assert "dashboard fleet (Fleet of Ann): overwrite\n" in made.run("--overwrite-edited")
    assert made.writes() == []
    made.run("--push", confirm=lambda question: question == "Overwrite Fleet of Ann?")
    assert made.board("fleet")["title"] == "Fleet"
    assert made.monitor("gap")["message"] == "Never mind."
    overwritten = made.run("--push", "--overwrite-edited", "--yes").splitlines()[-1]
    assert overwritten.startswith(f"pushed: 1 overwritten, {len(BOARDS) + len(MONITORS) - 1} unchanged;")
    assert made.writes() == [f"PUT {MONITOR_PATH}/{made.monitor('gap')['id']}"]
    assert_complete(made)


def test_remove_lists_asks_and_leaves_edited_documents(made: Provision) -> None:
    made.edit("dashboard", made.board("hosts"), title="Hosts of Ann")
    dry = made.run("--remove")
    assert "dashboard fleet (Fleet): remove\n" in dry
    assert "dashboard hosts (Hosts of Ann): edited since the last push, left\n" in dry
    declined = made.run("--remove", "--push", confirm=lambda _: False)
    assert declined.splitlines()[-1] == f"pushed: 1 edited, {len(BOARDS) + len(MONITORS) - 1} left"
    assert "add --yes" in made.run("--remove", "--push", code=2)
    assert made.writes() == []
    lost = f"{MONITOR_PATH}/{made.monitor('gap')['id']}"
    made.api.faults.add(Fault(), times=2, match=lost)  # read for the plan, and before it is removed
    made.api.faults.add(Fault(status=503, applied=True), match=lost)
    made.run("--remove", "--push", confirm=lambda _: True)
    assert [one["title"] for one in made.documents.dashboards.values()] == ["Hosts of Ann"]
    assert made.documents.monitors == {}


def test_of_twins_the_oldest_is_used_and_unedited_younger_ones_go(made: Provision) -> None:
    made.documents.lag = 1e9  # the listing does not show what is there
    made.run("--push")
    made.documents.lag = 0
    made.now += 3600
    assert len(made.documents.monitors) == 2 * len(MONITORS)
    younger = [one for one in made.documents.dashboards.values() if one["title"] == "Hosts"][-1]
    made.edit("dashboard", younger, title="Hosts of Ann")
    oldest = made.board("fleet")["id"]
    output = made.run()
    assert f"dashboard fleet (Fleet): remove (a younger copy of {oldest})\n" in output
    assert "dashboard hosts (Hosts of Ann): edited since the last push, left (a younger copy" in output
    made.run("--push")
    assert made.writes() == []
    made.run("--push", "--yes")
    assert {method.partition(" ")[0] for method in made.writes()} == {"DELETE"}
    assert len(made.documents.monitors) == len(MONITORS)
    assert made.board("fleet")["id"] == oldest
    assert made.documents.dashboards[younger["id"]]["title"] == "Hosts of Ann"


def test_undeclared_document_is_offered_for_removal(made: Provision) -> None:
    config = made.config(
        '[provision]\nnotify = ["@slack-ants"]\ndocuments = "https://git.example.com/x"\n'
        "[provision.monitors.gap]\nenabled = false\n"
    )
    output = made.run("--push", "--config", config, "--notify", "@pagerduty-bees")
    assert "left (--yes removes it) (no longer declared)" in output
    assert " updated, 1 left; " in output.splitlines()[-1]
    assert made.monitor("points-dropped")["message"].endswith(
        "](https://git.example.com/x/docs/troubleshooting.md)\n\n@slack-ants @pagerduty-bees"
    )
    made.run("--push", "--config", config, confirm=lambda _: True)
    assert len(made.documents.monitors) == len(MONITORS) - 1


def test_ours_are_found_on_the_last_page_of_a_listing(made: Provision) -> None:
    for number in range(150):
        made.documents.store("dashboard", "", FOREIGN | {"title": f"Other {number}"})
        made.documents.store("monitor", "", {**made.monitor("gap"), "tags": ["managed_by:fleetgauge"]})
    absurd = f"fleetgauge:fleet:fleetgauge:{'9' * 5000}"  # more digits than Python reads
    made.documents.store("dashboard", "", FOREIGN | {"description": absurd})
    made.documents.monitors = dict(reversed(made.documents.monitors.items()))
    made.run("--push")
    assert made.writes() == []


@pytest.mark.parametrize(
    "fault",
    [Fault(reset="after", applied=True), Fault(status=503, applied=True), Fault(body="{}"), Fault(body="[]")],
    ids=["reset", "503", "garbled", "list"],
)
def test_lost_answer_to_a_creation_makes_no_second_document(provision: Provision, fault: Fault) -> None:
    for path in (DASHBOARD_PATH, MONITOR_PATH):
        provision.api.faults.add(Fault(), match=path)  # the listing
        provision.api.faults.add(fault, match=path)
    provision.run("--push")
    assert_complete(provision)


def test_refusals_are_named_and_a_refused_document_costs_itself(provision: Provision) -> None:
    for environ in ({"DD_APP_KEY": "another-application-key"}, {"DD_API_KEY": "another-api-key"}):
        output = provision.run("--push", code=2, environ=environ)
        assert "check that DD_APP_KEY is valid and has the permissions dashboards_read, " in output
        assert "and that DD_API_KEY is valid" in output
        assert "and that DD_API_KEY is valid" in provision.run("--check", code=2, environ=environ)
    provision.documents.permissions.discard("monitors_write")
    assert provision.run("--push", code=1).count("monitors_write") == len(MONITORS)
    assert len(provision.documents.dashboards) == len(BOARDS)
    provision.documents.permissions.add("monitors_write")
    provision.api.faults.add(Fault(), match=MONITOR_PATH)  # the listing
    provision.api.faults.add(Fault(status=400, body='{"errors": ["No."]}'), match=MONITOR_PATH)
    assert re.findall(r": failed: .*response: (.*)", provision.run("--push", code=1)) == ["No."]
    assert len(provision.documents.monitors) == len(MONITORS) - 1


def test_document_that_cannot_be_read_at_first_has_no_second_copy(made: Provision) -> None:
    made.api.faults.add(Fault(body="{}"), match=f"{DASHBOARD_PATH}/{made.board('fleet')['id']}")
    made.edit("monitor", made.monitor("gap"), restricted_roles=["ants"])  # no field that is declared
    assert "edited" not in made.run("--push")
    assert made.writes() == []


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_restricted_dashboard_fails_alone_and_has_no_second_copy(made: Provision, method: str) -> None:
    made.documents.restricted = {(method, made.board("fleet")["id"])}
    config = made.config('[provision]\ndocuments = "https://x.example"\n')
    output = made.run("--push", "--config", config, code=1)
    assert re.findall(r"^(\w+ [\w-]+).*: failed: .*answered 403", output, re.MULTILINE) == ["dashboard fleet"]
    assert output.splitlines()[-1].startswith(f"pushed: {len(BOARDS) + len(MONITORS) - 1} updated, 1 failed")
    assert {line.partition(" ")[0] for line in made.writes()} == {"PUT"}
    made.run("--remove", "--push", "--yes", code=int(method == "GET"))
    assert [one["title"] for one in made.documents.dashboards.values()] == ["Fleet"] * (method == "GET")
    assert made.documents.monitors == {}


def test_datadog_validates_the_monitors_and_nothing_is_written(provision: Provision) -> None:
    output = provision.run("--check")
    assert output == "".join(f"monitor {monitor.key}: valid\n" for monitor in MONITORS)
    assert provision.documents.monitors == {}
    provision.api.faults.add(Fault(status=400, body='{"errors": ["The query is invalid."]}'))
    assert "response: The query is invalid." in provision.run("--check", code=1)


def test_metadata_fills_empty_fields_and_overwrites_on_request(provision: Provision) -> None:
    edited = {"description": "Load, as we know it.", "unit": "process"}
    provision.documents.metadata = {
        "collector.duration_seconds": {},
        "host.load_1m": dict(edited),
        "host.info": {"unit": "host"},
    }
    assert "metadata of 3 metrics" in provision.run().splitlines()[-1]
    assert provision.writes() == []
    provision.run("--push")
    found = copy.deepcopy(provision.documents.metadata)
    assert found["collector.duration_seconds"] == {
        "description": "How long the run of the collector took.",
        "unit": "second",
        "short_name": "duration seconds",
    }
    assert found["host.load_1m"] == {**edited, "short_name": "load 1m"}
    assert found["host.info"]["unit"] == "host"
    assert "metadata of 0 metrics, 1 differ and are left (--overwrite-edited)" in provision.run("--push")
    assert provision.writes() == []
    provision.run("--push", "--overwrite-edited")
    assert provision.writes() == ["PUT /api/v1/metrics/host.load_1m"]
    assert provision.documents.metadata["host.load_1m"]["description"] != edited["description"]


@pytest.mark.parametrize("path", [DASHBOARD_PATH, MONITOR_PATH])
@pytest.mark.parametrize("body", ["<html>Sign in</html>", "null", "{}", '{"dashboards": [1]}'])
def test_answer_that_is_not_datadogs_is_an_error_without_writes(
    provision: Provision, body: str, path: str
) -> None:
    provision.api.faults.add(Fault(body=body), times=None, match=path)
    assert "Traceback" not in provision.run("--push", "--timeout", "1s", code=1)
    assert provision.writes() == []


def test_signal_and_closed_output_end_the_run_without_a_traceback(provision: Provision) -> None:
    closed = provision.start()
    assert closed.stdout is not None
    closed.stdout.close()
    assert closed.stderr is not None
    assert (closed.stderr.read(), closed.wait(60)) == ("", 128 + signal.SIGPIPE)
    closed.stderr.close()
    provision.api.faults.add(Fault(hang=True), times=None)
    running = provision.start("--push")
    provision.api.on("read", lambda _: running.send_signal(signal.SIGTERM))
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (
        143,
        "provision.py: interrupted by SIGTERM; run it again to continue\n",
    )


def test_only_yes_at_a_terminal_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, agreed in ((" YES \n", True), ("yeah\n", False), ("", False)):
        for name, text in (("stdin", answer), ("stdout", "")):
            stream = io.StringIO(text)
            monkeypatch.setattr(stream, "isatty", lambda: True)
            monkeypatch.setattr(sys, name, stream)
        confirm = prompt()
        assert confirm is not None
        assert confirm("Remove it?") is agreed


def test_another_python_runs_the_environment_of_the_project(provision: Provision) -> None:
    bare = [sys._base_executable, "-S", str(ROOT / "scripts" / "provision.py"), "--check"]  # type: ignore[attr-defined]
    environ = {"PATH": "/usr/bin:/bin", **provision.environ}
    ran = subprocess.run(bare, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(": valid\n") == len(MONITORS)
