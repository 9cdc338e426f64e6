"""Values that cannot be right are refused, and the refusal says what to write instead."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from common import registry
from common.collector import load_collector
from support.rendering import CHART, ROOT, RefusedError, needs_helm, refusal, render, scenario

pytestmark = needs_helm
ONE_OF, PULLS = "must be one of the following:", '"Always", "IfNotPresent", "Never"'
SPACE = "kubectl --namespace monitoring"
PREFIX = "production/datadog/collectors"


def test_without_values_one_sentence_says_what_to_set() -> None:
    with pytest.raises(RefusedError) as error:
        render({})
    [said] = [line for line in str(error.value).splitlines() if line.startswith("- ")]
    assert said == (
        "- set image.repository (the image that you built), datadog.env (the tag `env` of every point), "
        "and where the keys are: aws.secretPrefix with aws.region, or existingSecret"
    )
    assert "- set datadog.env (the tag `env` of every point)" in refusal({"datadog": {"env": ""}})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"shedule": "@hourly"}, "(root): Additional property shedule is not allowed"),
        ({"image": {"tags": "1"}}, "image: Additional property tags is not allowed"),
        ({"collectors": {"wanbd": {}}}, "collectors: Additional property wanbd is not allowed"),
        (
            {"collectors": {"wandb": {"settings": {"project_names": []}}}},
            "collectors.wandb.settings: Additional property project_names is not allowed",
        ),
        (
            {"collectors": {"wandb": {"settings": {"projects": "acme/ants"}}}},
            "collectors.wandb.settings.projects: Invalid type. Expected: array, given: string",
        ),
        (
            {"collectors": {"xenna": {"settings": {"settle": 601}}}},
            "collectors.xenna.settings.settle: Must be less than or equal to 600",
        ),
        ({"image": {"pullPolicy": "Often"}}, f"image.pullPolicy: image.pullPolicy {ONE_OF} {PULLS}"),
        ({"timeout": "2m"}, "timeout: Invalid type. Expected: integer, given: string"),
        ({"suspend": "yes"}, "suspend: Invalid type. Expected: boolean, given: string"),
        ({"securityContext": {"fsGroup": 1}}, "securityContext: Additional property fsGroup is not allowed"),
        (
            {"podSecurityContext": {"readOnlyRootFilesystem": True}},
            "podSecurityContext: Additional property readOnlyRootFilesystem is not allowed",
        ),
        ({"securityContext": None}, "(root): securityContext is required"),
        ({"activeDeadlineSeconds": None}, "(root): activeDeadlineSeconds is required"),
        ({"timeout": None}, "(root): timeout is required"),
        ({"shards": 0}, "shards: Must be greater than or equal to 1"),
        ({"shards": 65}, "shards: Must be less than or equal to 64"),
        ({"daemonSet": {"every": None}}, "daemonSet: every is required"),
        ({"backfill": None}, "(root): backfill is required"),
        ({"state": {"claim": "a"}}, "state: Additional property claim is not allowed"),
        ({"backfill": {"activeDeadlineSeconds": None}}, "backfill: activeDeadlineSeconds is required"),
        (
            {"collectors": {"xenna": {"volume": {"nfs": {"path": "/"}}}}},
            "collectors.xenna.volume: Additional property nfs is not allowed",
        ),
    ],
)
def test_unknown_keys_and_wrong_types_are_named(values: dict[str, Any], said: str) -> None:
    assert f"- {said}" in refusal(values)


def test_a_backfill_is_offered_for_collectors_that_know_a_past_and_for_no_other() -> None:
    offered = [name for name in registry.names() if load_collector(name).has_history]
    assert "wandb" in offered
    assert "host" not in offered
    words = ", ".join(json.dumps(name) for name in offered)
    said = f"- backfill.collectors.0: backfill.collectors.0 {ONE_OF} {words}"
    assert said in refusal({"backfill": {"collectors": ["host"]}})


def test_nodes_are_offered_what_measures_them_or_reads_records_and_nothing_else() -> None:
    words = ", ".join(json.dumps(name) for name in registry.names() if name != "wandb")
    said = f"- daemonSet.collectors.0: daemonSet.collectors.0 {ONE_OF} {words}"
    assert said in refusal({"daemonSet": {"collectors": ["wandb"]}})


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"schedule": "every hour"}, "schedule"),
        ({"schedule": "*/15 * * *"}, "schedule"),
        ({"schedule": "@fortnightly"}, "schedule"),
        ({"schedule": "60 * * * *"}, "schedule"),
        ({"schedule": "0,5-61 * * * *"}, "schedule"),
        ({"schedule": "*/0 * * * *"}, "schedule"),
        ({"schedule": "0 24 * * *"}, "schedule"),
        ({"collectors": {"wandb": {"schedule": "@reboot"}}}, "collectors.wandb.schedule"),
        ({"step": "a while"}, "step"),
        ({"image": {"repository": "registry.example.com/fleetgauge:1"}}, "image.repository"),
        ({"image": {"repository": "fleetgauge:1"}}, "image.repository"),
        ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "podLabels"),
        ({"existingSecret": "a..b"}, "existingSecret"),
        ({"image": {"digest": "sha256:abc"}}, "image.digest"),
        ({"state": {"s3": "bucket/prefix"}}, "state.s3"),
        ({"serviceAccount": {"roleArn": "fleetgauge"}}, "serviceAccount.roleArn"),
        ({"datadog": {"site": "https://datadoghq.eu"}}, "datadog.site"),
        ({"datadog": {"url": "http://intake.example.com"}}, "datadog.url"),
        ({"datadog": {"url": "https://user:password@intake.example.com"}}, "datadog.url"),
        ({"proxy": {"url": "http://proxy:3128/path"}}, "proxy.url"),
        ({"proxy": {"url": "http://proxy:65536"}}, "proxy.url"),
        ({"resources": {"limits": {"memory": "lots"}}}, "resources.limits.memory"),
        ({"backfill": {"since": "last week"}}, "backfill.since"),
    ],
)
def test_a_value_of_the_wrong_form_is_named(values: dict[str, Any], key: str) -> None:
    assert [line for line in refusal(values) if line.startswith(f"- {key}: ")]


@pytest.mark.parametrize(
    "values",
    [
        {"collectors": {"wandb": {"settings": {"api_key": "0123456789"}}}},
        {"collectors": {"wandb": {"settings": {"base_url": "https://user:0123456789@wandb.example.com"}}}},
        {"datadog": {"apiKey": "0123456789"}},
        {"datadog": {"url": "https://user:0123456789@intake.example.com"}},
        {"proxy": {"url": "http://user:0123456789@proxy:3128"}},
        {"extraEnv": [{"name": "DD_API_KEY", "value": "0123456789"}]},
        {"extraEnv": [{"name": "aws_secret_access_key", "value": "0123456789"}]},
        {"extraEnv": [{"name": "AWS_SESSION_TOKEN", "value": "0123456789"}]},
    ],
)
def test_no_value_may_hold_a_secret_and_the_refusal_does_not_repeat_it(values: dict[str, Any]) -> None:
    assert "0123456789" in json.dumps(values)
    assert "0123456789" not in "\n".join(refusal(values))


def notes(tmp_path: Path, *values: dict[str, Any]) -> str:
    """What Helm prints after an install. `helm template` leaves it out, so that a copy renders it as data."""
    chart = tmp_path / "fleetgauge"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "files" / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(
        'kind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get "files/notes.txt") . | toJson }}\n'
    )
    [found] = [each["text"] for each in render(*values, chart=chart) if each["kind"] == "Notes"]
    return str(found)


def test_the_notes_give_the_three_commands_to_run_next(tmp_path: Path) -> None:
    said = notes(tmp_path, scenario("default"))
    assert "metrics tagged env:production" in said
    commands = [line.strip() for line in said.splitlines() if line.startswith("     ")]
    assert commands == [
        f"job=fleetgauge-now-$(date +%s); {SPACE} create job --from=cronjob/fleetgauge $job",
        f"until {SPACE} logs --follow job/$job; do sleep 2; done",
        f"aws secretsmanager describe-secret --region us-east-1 --secret-id {PREFIX}/datadog",
        f"helm test fleetgauge --namespace monitoring || {SPACE} logs job/fleetgauge-check",
    ]
    assert "warning `UnexpectedJob`" in said
    assert "backfill" not in said
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    for command in (*commands[:2], commands[3]):
        assert f"$ {command.replace('monitoring', 'fleetgauge')}\n" in page


def test_no_key_is_typed_on_a_command_line_of_the_documentation() -> None:
    for page in ("deploying", "secrets"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert re.search(r"--secret-string (?!file://)|--from-literal", text) is None
        assert re.search(r"aws secretsmanager [a-z-]+ (?!--region )", text) is None


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("existing-secret", f"{SPACE} describe secret fleetgauge"),
        ("daemonset", f"{SPACE} logs --follow daemonset/fleetgauge-host"),
        (
            "dev",
            f"job=fleetgauge-dev-now-$(date +%s); {SPACE} create job --from=cronjob/fleetgauge-dev $job",
        ),
    ],
)
def test_the_notes_fit_what_is_installed(tmp_path: Path, name: str, command: str) -> None:
    assert f"     {command}\n" in notes(tmp_path, scenario(name))


def test_the_notes_start_a_cronjob_that_there_is(tmp_path: Path) -> None:
    own = {"collectors": {"wandb": {"schedule": "7 * * * *"}}}
    assert "create job --from=cronjob/fleetgauge-wandb $job\n" in notes(tmp_path, scenario("default"), own)


def test_the_notes_say_what_mounting_the_host_takes(tmp_path: Path) -> None:
    warning = "beyond Pod Security `baseline`"
    for name, asked in (("asked", True), ("plain", False)):
        (tmp_path / name).mkdir()
        said = notes(tmp_path / name, scenario("daemonset"), {"daemonSet": {"hostRoot": asked}})
        assert (warning in said) is asked


def test_the_notes_say_what_records_on_nodes_take(tmp_path: Path) -> None:
    said = notes(tmp_path, scenario("node-records"))
    for path in ("gpu_memory", "data_plane"):
        assert (
            f"Each node's /var/lib/fleetgauge/{path} is mounted read-only, which is beyond Pod Secur" in said
        )
    assert "Files there must be readable by user 10001 or group 10001." in said


def test_the_notes_multiply_the_cap_by_the_shards(tmp_path: Path) -> None:
    said = notes(tmp_path, scenario("shards"), {"seriesCap": 50_000})
    assert "8 pods share each run of W&B." in said
    assert "50000 x 8 = 400000 series" in said
    (tmp_path / "one").mkdir()
    assert "share each run" not in notes(tmp_path / "one", scenario("default"))


@pytest.mark.parametrize("alone", [True, False])
def test_the_notes_of_a_backfill_show_its_progress(tmp_path: Path, alone: bool) -> None:
    said = notes(tmp_path, scenario("backfill"), {"collectors": {"wandb": {"enabled": not alone}}})
    assert "A backfill from 2026-11-07T00:00Z to 2026-11-14T00:00Z has started" in said
    selector = "--selector app.kubernetes.io/instance=fleetgauge,app.kubernetes.io/component=backfill"
    assert f"get jobs {selector}\n" in said
    assert f"logs --follow --prefix --tail=-1 --max-log-requests=32 {selector}\n" in said


def sections(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every value that holds others, but for what Kubernetes or a collector defines."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in {"collectors", "podSecurityContext"}:
            yield (*path, key)
            yield from sections(value, (*path, key))


@pytest.mark.slow
def test_a_section_that_was_left_empty_is_named_and_nothing_else_is_said() -> None:
    """As `backfill:` is with all its lines commented out: Helm then forgets the defaults."""
    for path in sections(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))):
        changes: Any = None
        for key in reversed(path):
            changes = {key: changes}
        with suppress(RefusedError):
            assert render(scenario("default"), changes)
            continue
        said = [line for line in refusal(changes) if line.startswith("- ")]
        assert said == [f"- {'.'.join(path[:-1]) or '(root)'}: {path[-1]} is required"]
