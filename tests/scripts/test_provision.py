"""scripts/provision.py against an API that keeps things as the real one does: always the right state."""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from scripts.datadog_documents import all_views, every_metric
from scripts.provision import main
from support.project import ROOT
from support.servers.faults import Fault
from support.servers.loopback import Request
from support.standins import APP_KEY, KEY

from .provisioned import ProvisioningApi

BOARDS = [board for views in all_views() for board in views.dashboards]
MONITORS = [monitor for views in all_views() for monitor in views.monitors]
METADATA = {
    "collector.up": {},
    "host.load_1m": {"description": "Load, as we know it.", "unit": "process"},
}
FOREIGN = {"title": "Fleet", "layout_type": "ordered", "description": "Mine.", "widgets": []}


class Provision:
    """The command, and the API it talks to."""

    def __init__(self, api: ProvisioningApi, folder: Path) -> None:
        self.api, self.folder = api, folder
        self.environ = {
            "PATH": os.environ["PATH"],
            "DD_API_KEY": KEY,
            "DD_APP_KEY": APP_KEY,
            "FLEETGAUGE_DD_URL": api.url,
        }

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "provision.py"), *arguments],
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *arguments: str,
        code: int = 0,
        environ: Mapping[str, str] | None = None,
        said: io.StringIO | None = None,
    ) -> str:
        """All that is said, by the command in this process: starting another one costs seconds."""
        said = said or io.StringIO()
        root = logging.getLogger()
        handlers, level = [*root.handlers], root.level
        try:
            with redirect_stdout(said), redirect_stderr(said):
                found = main([*arguments], {**self.environ, **(environ or {})})
        except SystemExit as error:
            found = int(str(error.code))
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        assert found == code, said.getvalue()
        assert KEY not in said.getvalue()
        assert APP_KEY not in said.getvalue()
        return said.getvalue()

    def configured(self, text: str) -> str:
        path = self.folder / "fleetgauge.toml"
        path.write_text(text)
        return str(path)

    def titles(self) -> list[str]:
        return sorted(board["title"] for board in self.api.dashboards.values())

    def monitor(self, key: str) -> dict[str, Any]:
        [found] = [
            one for one in self.api.monitors.values() if any(f"mark:{key}/" in tag for tag in one["tags"])
        ]
        return found

    def board(self, key: str) -> dict[str, Any]:
        [found] = [one for one in self.api.dashboards.values() if f"mark:{key}/" in one["description"]]
        return found


@pytest.fixture
def provision(tmp_path: Path) -> Iterator[Provision]:
    with ProvisioningApi(KEY, APP_KEY) as api:
        api.metadata |= copy.deepcopy(METADATA)
        yield Provision(api, tmp_path)


State = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> State:
    """What there is after one push."""
    with ProvisioningApi(KEY, APP_KEY) as api:
        api.metadata |= copy.deepcopy(METADATA)
        Provision(api, tmp_path_factory.mktemp("pushed")).run("--push")
        return api.dashboards, api.monitors, api.metadata


@pytest.fixture
def made(provision: Provision, pushed: State) -> Provision:
    """With everything made, and nothing of it in the log of changes."""
    api = provision.api
    api.dashboards, api.monitors, api.metadata = copy.deepcopy(pushed)
    return provision


def whole(provision: Provision) -> None:
    """Every dashboard and every monitor is there once, and its mark is closed."""
    assert provision.titles() == sorted(board.title for board in BOARDS)
    assert len(provision.api.monitors) == len(MONITORS)
    provision.api.requests.clear()
    assert "changed by hand" not in provision.run("--push")
    assert provision.api.changes() == []


def test_a_dry_run_says_what_it_would_create_and_changes_nothing(provision: Provision) -> None:
    said = provision.run()
    assert "dashboard fleet (Fleet): would create\n" in said
    assert "monitor collector-down (Collector {{collector.name}} is down or silent): would create\n" in said
    assert (
        "metadata collector.up: would change\n"
        '    - description: ""\n'
        '    + description: "0 when the run failed, 1 otherwise; collector.units_lost says what a partial run lacks. '
        '[fleetgauge]"\n'
        '    - short_name: ""\n'
        '    + short_name: "up"\n'
        "metadata of 0 metrics left as it is\n"
        "metadata of 1 metric described by somebody else, left (--force overwrites it):\n"
        "      host.load_1m\n"
    ) in said
    assert f"metadata of {len(every_metric()) - 2} metrics not there yet, skipped" in said
    assert said.endswith("This was a dry run: nothing was changed. --push does it.\n")
    assert provision.api.changes() == []


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_sees_how_many_metrics_were_asked_for(
    provision: Provision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    said = provision.run(said=Screen())
    total = len([*every_metric()])
    for number in (1, total - 1):
        assert f"provision: asking for metadata, {number} of {total}" in said
    assert "asking for metadata" not in provision.run()


@pytest.mark.slow
def test_what_is_created_is_left_alone_the_next_time(provision: Provision) -> None:
    said = provision.run("--push")
    assert "dashboard fleet (Fleet): created\n" in said
    whole(provision)
    assert provision.api.metadata["collector.up"] == {
        "description": "0 when the run failed, 1 otherwise; collector.units_lost says what a partial run lacks. [fleetgauge]",
        "short_name": "up",
    }
    assert provision.api.metadata["host.load_1m"]["description"] == "Load, as we know it."
    assert "dashboard fleet (Fleet): left as it is\n" in provision.run()


def test_a_changed_declaration_changes_that_object_alone_and_shows_how(made: Provision) -> None:
    config = made.configured("[provision.monitors.disk-full]\nthreshold = 97.0\n")
    dry = made.run("--config", config)
    assert "monitor disk-full ({{path.name}} of {{host.name}} fills up): would change\n" in dry
    shown = dry.partition("fills up): would change\n")[2].partition("\nmonitor")[0].splitlines()
    query = "min(last_1h):max:host.disk.used_pct{service:fleetgauge} by {env,host,path} > "
    assert shown == [
        f'    - query: "{query}95"',
        f'    + query: "{query}97"',
        "    - options.thresholds.critical: 95",
        "    + options.thresholds.critical: 97",
    ]
    assert made.api.changes() == []
    made.run("--push", "--config", config)
    monitor = made.monitor("disk-full")
    assert made.api.changes() == [f"PUT /api/v1/monitor/{monitor['id']}"] * 2
    assert monitor["options"]["thresholds"]["critical"] == 97
    assert monitor["query"].endswith("> 97")
    made.api.requests.clear()
    made.run("--push", "--config", config)
    assert made.api.changes() == []


@pytest.mark.slow
def test_recipients_are_told_and_links_lead_somewhere(made: Provision) -> None:
    config = made.configured(
        '[provision]\nnotify = ["@slack-ants"]\ndocuments = "https://git.example.com/x"\n'
    )
    dry = made.run("--config", config)
    assert "gap ({{collector.name}} left a gap): would change\n    - message: Documentation: `docs" in dry
    made.run("--push", "--config", config, "--notify", "@pagerduty-bees")
    message = made.monitor("gap")["message"]
    assert message.endswith(
        "[docs/backfill.md](https://git.example.com/x/docs/backfill.md)\n\n@slack-ants @pagerduty-bees"
    )


def test_a_monitor_that_is_switched_off_is_not_made(provision: Provision) -> None:
    provision.run("--push", "--config", provision.configured("[provision.monitors.gap]\nenabled = false\n"))
    assert len(provision.api.monitors) == len(MONITORS) - 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "[provision.monitors.disk-ful]\nthreshold = 1.0\n",
            "there is no such monitor (did you mean 'disk-full'?)",
        ),
        ("[provision.monitors.disk-full]\nwarning = 99.0\n", "the warning must come before the threshold"),
        (
            "[provision.monitors.disk-full]\ntreshold = 9.0\n",
            "monitors in [provision]: disk-full.treshold: Extra",
        ),
        ("[provision.monitors.gap]\nthreshold = nan\n", "gap.threshold: Input should be a finite number"),
        ("[provision]\nnotfy = []\n", "notfy"),
    ],
)
def test_a_bad_configuration_is_named_before_anything_is_asked(
    provision: Provision, text: str, wrong: str
) -> None:
    assert wrong in provision.run("--push", "--config", provision.configured(text), code=2)
    assert provision.api.requests == []


def test_a_misspelt_variable_is_named_and_those_of_collectors_are_theirs(provision: Provision) -> None:
    misspelt = {"FLEETGAUGE_PROVISION_NOTFY": "@ants"}
    said = provision.run(code=2, environ=misspelt)
    assert "FLEETGAUGE_PROVISION_NOTFY (did you mean 'FLEETGAUGE_PROVISION_NOTIFY'?)" in said
    assert provision.api.requests == []
    provision.run("--check", environ={"FLEETGAUGE_WANDB_DAYS": "7"})


def test_what_was_changed_by_hand_is_named_and_kept_and_overwritten_by_force(made: Provision) -> None:
    made.board("fleet")["widgets"][1]["definition"]["widgets"][0]["definition"]["title"] = "GPUs, says Ann"
    made.monitor("gap")["message"] = "Never mind."
    said = made.run("--push")
    assert "dashboard fleet (Fleet): changed by hand, left (--force overwrites it)\n" in said
    assert '- widgets[1].definition.widgets[0].definition.title: "GPUs, says Ann"' in said
    assert "monitor gap ({{collector.name}} left a gap): changed by hand, left" in said
    assert made.api.changes() == []
    assert made.monitor("gap")["message"] == "Never mind."
    made.run("--push", "--force")
    assert made.monitor("gap")["message"] != "Never mind."
    made.api.requests.clear()
    made.run("--push")
    assert made.api.changes() == []


def test_a_widget_added_by_hand_and_one_taken_away_are_seen(made: Provision) -> None:
    made.board("fleet")["widgets"].append(copy.deepcopy(made.board("fleet")["widgets"][0]))
    made.board("hosts")["widgets"].pop()
    said = made.run("--push")
    assert "dashboard fleet (Fleet): changed by hand" in said
    assert "dashboard hosts (Hosts): changed by hand" in said


def test_saved_views_and_locks_of_a_person_are_kept(made: Provision) -> None:
    made.board("fleet")["template_variable_presets"] = [{"name": "Ants", "template_variables": []}]
    made.board("hosts")["restricted_roles"] = ["00000000-0000-4000-8000-000000000000"]
    made.monitor("gap")["options"]["silenced"] = {"*": None}
    said = made.run("--push", "--config", made.configured('[provision]\ndocuments = "https://x.example"\n'))
    for name in ("dashboard fleet (Fleet)", "dashboard hosts (Hosts)", "monitor gap"):
        assert re.search(rf"{re.escape(name)}.*: changed by hand, left", said), name
    assert made.board("fleet")["template_variable_presets"] == [{"name": "Ants", "template_variables": []}]


def test_states_dates_and_authors_are_no_change_by_hand(made: Provision) -> None:
    for one in made.api.monitors.values():
        one |= {
            "overall_state": "Alert",
            "modified": "2026-11-17T00:00:00+00:00",
            "creator": {"email": "x@y.z"},
        }
    for one in made.api.dashboards.values():
        one |= {
            "modified_at": "2026-11-17T00:00:00+00:00",
            "author_handle": "x@y.z",
            "url": "/dashboard/other",
            "restricted_roles": None,
        }
    made.run("--push")
    assert made.api.changes() == []


def test_what_it_made_is_removed_and_nothing_else(made: Provision) -> None:
    foreign = made.api.add_dashboard(FOREIGN)
    made.board("hosts")["title"] = "Hosts, says Ann"
    dry = made.run("--remove")
    assert "dashboard fleet (Fleet): would remove\n" in dry
    assert made.api.changes() == []
    assert "dashboard hosts (Hosts, says Ann): changed by hand, left" in made.run("--remove", "--push")
    assert made.titles() == ["Fleet", "Hosts, says Ann"]
    assert made.api.monitors == {}
    assert made.api.metadata["collector.up"]["description"] == ""
    made.api.requests.clear()
    made.run("--remove", "--push", "--force")
    assert [*made.api.dashboards] == [foreign]
    assert made.api.changes() == [request for request in made.api.changes() if "dashboard" in request]
    assert made.api.metadata == {
        "collector.up": {"description": "", "short_name": ""},
        "host.load_1m": METADATA["host.load_1m"],
    }


def test_a_removal_that_is_refused_is_said_and_what_is_gone_already_is_gone(made: Provision) -> None:
    first, second = sorted(made.api.dashboards)[:2]
    for name, status in ((first, 400), (second, 404)):
        path = f"/api/v1/dashboard/{name}"
        made.api.faults.add(Fault(), match=path)  # reading it
        made.api.faults.add(
            Fault(status=status, body='{"errors": ["No."]}', applied=status == 404), match=path
        )
    said = made.run("--remove", "--push", code=1)
    assert said.count("failed: ") == 1
    assert [*made.api.dashboards] == [first]


def test_of_two_that_were_made_at_once_one_is_kept_and_both_are_removed(made: Provision) -> None:
    first = made.board("fleet")
    second = first | {"id": "two-000-two", "created_at": "2027-01-01T00:00:00+00:00"}
    second["description"] = first["description"].replace(first["id"], second["id"])
    made.api.dashboards["two-000-two"] = second
    said = made.run("--push")
    assert "dashboard fleet (Fleet): left as it is\n" in said
    assert (
        "dashboard fleet (Fleet): left as it is; there is another one of it; --remove takes it away\n" in said
    )
    assert made.api.changes() == []
    made.run("--remove", "--push")
    assert made.api.dashboards == {}


def test_clones_and_other_teams_copies_are_not_ours(made: Provision) -> None:
    for key in ("fleet", "hosts"):
        made.api.dashboards[f"clo-{key}"] = copy.deepcopy(made.board(key)) | {"id": f"clo-{key}"}
    made.api.dashboards["clo-fleet"]["title"] = "Fleet (clone)"
    kept = copy.deepcopy({key: made.api.dashboards[key] for key in ("clo-fleet", "clo-hosts")})
    for environ in ({"DD_SERVICE": "other-team"}, {"FLEETGAUGE_INSTANCE": "blue"}):
        said = made.run("--push", environ=environ)
        assert "dashboard fleet (Fleet): created; not ours, and left alone, though of the same name: " in said
    assert made.titles().count("Fleet") == 3
    made.run("--remove", "--push", environ={"DD_SERVICE": "other-team"})
    assert made.titles().count("Fleet") == 2
    made.run("--remove", "--push")
    assert made.titles().count("Fleet") == 1  # of the instance blue
    made.run("--remove", "--push", environ={"FLEETGAUGE_INSTANCE": "blue"})
    assert made.api.dashboards == kept


def test_ours_are_found_among_the_monitors_of_many_instances(made: Provision) -> None:
    one = made.monitor("gap")
    for number in range(120):  # found before ours are
        made.api.monitors[f"{number}"] = one | {"id": number, "created": "2026-01-01", "tags": one["tags"]}
    made.api.monitors = dict(sorted(made.api.monitors.items(), key=lambda pair: int(pair[0])))
    assert "would" not in made.run().replace("metadata", "")
    made.run("--remove", "--push")
    assert len(made.api.monitors) == 120


def test_a_name_that_is_taken_is_said_and_its_owner_is_left_alone(provision: Provision) -> None:
    foreign = provision.api.add_dashboard(FOREIGN)
    before = copy.deepcopy(provision.api.dashboards[foreign])
    said = provision.run("--push")
    assert (
        f"dashboard fleet (Fleet): created; not ours, and left alone, though of the same name: {foreign}\n"
        in said
    )
    assert provision.api.dashboards[foreign] == before


def test_ours_are_found_among_three_hundred_foreign_dashboards(made: Provision) -> None:
    foreign = {made.api.add_dashboard(FOREIGN | {"title": f"Other {n}"}) for n in range(300)}
    before = copy.deepcopy({name: made.api.dashboards[name] for name in foreign})
    made.run("--push")
    assert made.api.changes() == []
    made.run("--remove", "--push")
    assert made.api.dashboards == before


@pytest.mark.parametrize("number", [1, 2, 5, 16, 17, 40])
def test_killed_in_the_middle_it_is_finished_the_next_time(provision: Provision, number: int) -> None:
    changes = iter(range(1, 1000))
    running: list[subprocess.Popen[str]] = []

    def kill(request: Any) -> None:
        if request.method in {"POST", "PUT"} and next(changes) == number:
            running[0].kill()

    provision.api.on("applied", kill)
    running.append(provision.start("--push"))
    running[0].communicate(timeout=60)
    assert running[0].returncode == -signal.SIGKILL
    said = provision.run("--push")
    assert "changed by hand" not in said
    whole(provision)


def test_a_lost_answer_to_a_creation_makes_no_second_one(provision: Provision) -> None:
    for path in ("/api/v1/dashboard", "/api/v1/monitor"):
        provision.api.faults.add(Fault(), match=path)  # the list
        provision.api.faults.add(Fault(reset="after", applied=True), match=path)
    provision.run("--push")
    whole(provision)


def test_too_many_requests_are_tried_again_as_asked(provision: Provision) -> None:
    provision.api.faults.add(Fault(status=429, headers={"X-RateLimit-Reset": "0.01"}), times=5)
    provision.run("--push")
    whole(provision)


def test_without_the_application_key_nothing_is_asked(provision: Provision) -> None:
    said = provision.run("--push", code=2, environ={"DD_APP_KEY": ""})
    assert "DD_APP_KEY is not set; looked in: the environment" in said
    assert provision.api.requests == []


def test_a_refused_application_key_is_told_from_a_refused_api_key(provision: Provision) -> None:
    said = provision.run("--push", code=2, environ={"DD_APP_KEY": "another-application-key"})
    assert "though DD_API_KEY is good: check that DD_APP_KEY is valid" in said
    assert "dashboards_read" in said
    assert provision.api.changes() == []
    said = provision.run("--push", code=2, environ={"DD_API_KEY": "another-api-key"})
    assert "check that DD_API_KEY is valid" in said


def test_a_missing_permission_is_named(provision: Provision) -> None:
    for permission in ("monitors_write", "metrics_read", "dashboards_read"):
        provision.api.permissions.discard(permission)
        assert f"has the permission {permission};" in provision.run("--push", code=2)
        if permission == "monitors_write":
            assert provision.titles() == sorted(board.title for board in BOARDS)
            provision.api.permissions.add(permission)


def test_datadog_validates_the_monitors_and_nothing_is_made(provision: Provision) -> None:
    said = provision.run("--check")
    assert said == "".join(f"monitor {monitor.key}: valid\n" for monitor in MONITORS)
    assert provision.api.changes() == []
    provision.api.faults.add(Fault(status=400, body='{"errors": ["The query is invalid."]}'))
    assert "it said: The query is invalid." in provision.run("--check", code=1)


def test_one_that_is_refused_costs_itself(provision: Provision) -> None:
    provision.api.faults.add(Fault(), times=2, match="/api/v1/monitor")
    provision.api.faults.add(Fault(status=400, body='{"errors": ["No."]}'), match="/api/v1/monitor")
    said = provision.run("--push", code=1)
    assert said.count(": failed: ") == 1
    assert "it said: No." in said
    assert len(provision.api.monitors) == len(MONITORS) - 1
    provision.run("--push")
    whole(provision)


def test_what_is_interrupted_says_so(provision: Provision) -> None:
    provision.api.faults.add(Fault(), times=12)
    provision.api.faults.add(Fault(status=503), times=None)
    running = provision.start("--push")

    def stop(request: Request) -> None:
        if request.status == 503:
            running.send_signal(signal.SIGTERM)

    provision.api.on("answered", stop)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 143
    assert "run it again to finish" in err


def test_what_is_no_longer_declared_is_named_and_left(made: Provision) -> None:
    said = made.run("--push", "--config", made.configured("[provision.monitors.gap]\nenabled = false\n"))
    assert (
        "monitor gap ({{collector.name}} left a gap): left as it is; no longer declared; --remove takes"
        in said
    )
    assert made.api.changes() == []


@pytest.mark.parametrize(
    "body", ["<html>Sign in</html>", "null", "{}", "[]", '{"dashboards": [1]}', '[{"id": 1}]']
)
def test_somebody_who_answers_for_datadog_is_not_believed(provision: Provision, body: str) -> None:
    provision.api.faults.add(Fault(body=body), times=None)
    said = provision.run("--push", "--timeout", "2s", code=1)
    assert "does not look like Datadog" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("body", ["[]", "{}", '{"id": null}'])
def test_an_answer_to_a_write_that_is_none_is_asked_for_again(provision: Provision, body: str) -> None:
    provision.api.faults.add(Fault(), match="/api/v1/dashboard")  # the list
    provision.api.faults.add(Fault(body=body), match="/api/v1/dashboard")
    provision.run("--push")
    whole(provision)


def test_an_answer_to_a_write_about_another_object_is_not_written_to(provision: Provision) -> None:
    foreign = provision.api.add_dashboard(FOREIGN)
    before = copy.deepcopy(provision.api.dashboards[foreign])
    provision.api.faults.add(Fault(), match="/api/v1/dashboard")  # the list
    provision.api.faults.add(Fault(body=json.dumps(before)), match="/api/v1/dashboard")
    said = provision.run("--push", code=1)
    assert f"failed: {provision.api.url} answered with another dashboard than was written: {foreign}" in said
    assert provision.api.dashboards.pop(foreign) == before
    provision.run("--push")
    whole(provision)


def test_metadata_that_is_refused_costs_itself(provision: Provision) -> None:
    provision.api.metadata["collector.samples"] = {}
    refused = Fault(status=400, body='{"errors": ["No."]}')
    provision.api.faults.add(Fault(), match="/api/v1/metrics/collector.samples")
    provision.api.faults.add(refused, match="/api/v1/metrics/collector.samples")
    said = provision.run("--push", code=1)
    assert "metadata collector.samples: failed: " in said
    assert "metadata collector.up: changed\n" in said
    assert provision.api.metadata["collector.samples"] == {}


def test_whoever_reads_only_the_beginning_sees_no_traceback(provision: Provision) -> None:
    running = provision.start()
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait(60) == 128 + signal.SIGPIPE


def test_check_and_push_do_not_go_together(provision: Provision) -> None:
    assert "--check writes nothing: leave out --push" in provision.run("--check", "--push", code=2)
    assert provision.api.requests == []
