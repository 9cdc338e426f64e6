"""Values that cannot be right are refused before anything is installed, and the refusal names the value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from common import registry
from common.collector import load_collector
from support.rendering import CHART, ROOT, RefusedError, needs_helm, refusal, render, scenario

pytestmark = needs_helm
CLAIM = {"persistentVolumeClaim": {"claimName": "records"}}
RECORDS = {"enabled": True, "volume": CLAIM}
ROLE = {"serviceAccount": {"roleArn": "arn:aws:iam::123456789012:role/fleetgauge"}}
LOCAL = {"volume": {"hostPath": {"path": "/var/lib/records"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exist"}]}]}


def on_nodes(*names: str, **collectors: object) -> dict[str, Any]:
    return {"daemonSet": {"enabled": True, "collectors": list(names)}, "collectors": collectors}


def refused(*values: dict[str, Any]) -> list[str]:
    """The reasons that Helm gives."""
    return [line.removeprefix("- ") for line in refusal(*values) if line.startswith("- ")]


def test_without_values_one_line_names_all_that_must_be_set() -> None:
    with pytest.raises(RefusedError) as error:
        render({})
    [line] = [line for line in str(error.value).splitlines() if line.startswith("- ")]
    for key in ("image.repository", "datadog.env", "aws.secretPrefix", "existingSecret"):
        assert key in line


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"shedule": "@hourly"}, "(root)"),
        ({"image": {"tags": "1"}}, "image"),
        ({"collectors": {"wanbd": {}}}, "collectors"),
        ({"collectors": {"wandb": {"settings": {"project_names": []}}}}, "collectors.wandb.settings"),
        ({"collectors": {"wandb": {"settings": {"projects": "a/b"}}}}, "collectors.wandb.settings.projects"),
        ({"collectors": {"xenna": {"settings": {"settle": 601}}}}, "collectors.xenna.settings.settle"),
        ({"collectors": {"xenna": {"volume": {"nfs": {"path": "/"}}}}}, "collectors.xenna.volume.nfs"),
        ({"timeout": "2m"}, "timeout"),
        ({"securityContext": {"fsGroup": 1}}, "securityContext"),
        ({"shards": 65}, "shards"),
        ({"schedule": "every hour"}, "schedule"),
        ({"schedule": ""}, "schedule"),
        ({"schedule": "60 * * * *"}, "schedule"),
        ({"schedule": "*/0 * * * *"}, "schedule"),
        ({"schedule": "0 24 * * *"}, "schedule"),
        ({"collectors": {"wandb": {"schedule": "@reboot"}}}, "collectors.wandb.schedule"),
        ({"dashboards": {"schedule": "daily"}}, "dashboards.schedule"),
        ({"image": {"repository": "fleetgauge:1"}}, "image.repository"),
        ({"image": {"digest": "sha256:abc"}}, "image.digest"),
        ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "podLabels"),
        ({"commonLabels": {"app.kubernetes.io/instance": "x"}}, "commonLabels"),
        ({"existingSecret": "a..b"}, "existingSecret"),
        ({"state": {"s3": "bucket/prefix"}}, "state.s3"),
        ({"serviceAccount": {"roleArn": "fleetgauge"}}, "serviceAccount.roleArn"),
        ({"datadog": {"site": "https://datadoghq.eu"}}, "datadog.site"),
        ({"datadog": {"allowPlainHttp": "http://host"}}, "datadog.allowPlainHttp"),
        ({"datadog": {"allowPlainHttp": ":80"}}, "datadog.allowPlainHttp"),
        ({"proxy": {"url": "http://proxy:65536"}}, "proxy.url"),
        ({"resources": {"limits": {"memory": "lots"}}}, "resources.limits.memory"),
        ({"backfill": {"since": "last week"}}, "backfill.since"),
        ({"backfill": {"collectors": ["host"]}}, "backfill.collectors.0"),
        ({"daemonSet": {"collectors": ["wandb"]}}, "daemonSet.collectors.0"),
        ({"daemonSet": {"every": "0m"}}, "daemonSet.every"),
        ({"daemonSet": {"maxUnavailable": 0}}, "daemonSet.maxUnavailable"),
        ({"daemonSet": {"maxUnavailable": "0%"}}, "daemonSet.maxUnavailable"),
        ({"networkPolicy": {"extraPorts": ["3128"]}}, "networkPolicy.extraPorts.0"),
        ({"affinity": {"nodeAfinity": {}}}, "affinity"),
        ({"affinity": {"nodeAffinity": {"required": TERMS}}}, "affinity.nodeAffinity"),
        (
            {"daemonSet": {"affinity": {"nodeAffinity": {REQUIRED: TERMS}}}},
            f"daemonSet.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms.0.matchExpressions.0.operator",
        ),
        ({"topologySpreadConstraints": [{}]}, "topologySpreadConstraints.0"),
        ({"extraEnv": [{"name": "LANG"}]}, "extraEnv.0"),
        ({"extraEnvFrom": [{"secret": "a"}]}, "extraEnvFrom.0"),
        ({"initContainers": [{"name": "a"}]}, "initContainers.0"),
        ({"global": {"imageRegistry": "https://mirror"}}, "global.imageRegistry"),
    ],
)
def test_schema_names_unknown_keys_and_wrong_forms(values: dict[str, Any], key: str) -> None:
    assert [line for line in refused(values) if line.startswith(f"{key}: ")]


@pytest.mark.parametrize(
    ("values", "key", "fix"),
    [
        ({"image": {"tag": "latest"}}, "image.tag", "leave it empty"),
        ({"existingSecret": "keys"}, "existingSecret", "aws.secretPrefix"),
        ({"aws": {"region": ""}}, "aws.region", "region"),
        (
            {
                "aws": {"region": "", "secretPrefix": ""},
                "existingSecret": "keys",
                "collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/a"]}}},
            },
            "aws.region",
            "records",
        ),
        ({"collectors": {"wandb": {"enabled": False}}}, "collectors", "enabled"),
        ({"state": {"s3": "s3://bucket", "existingClaim": "claim"}}, "state", "not both"),
        ({"state": {"existingClaim": "claim"}, "shards": 2}, "state.existingClaim", "state.s3"),
        (
            {
                "state": {"existingClaim": "claim"},
                "collectors": {"xenna": {**RECORDS, "schedule": "*/20 * * * *"}},
            },
            "state.existingClaim",
            "state.s3",
        ),
        ({"state": {"existingClaim": "claim"}, **on_nodes("xenna", xenna=LOCAL)}, "state.existingClaim", ""),
        ({**ROLE, "aws": {"podIdentity": True}}, "aws.podIdentity", "serviceAccount.roleArn"),
        ({"serviceAccount": {"create": False, "annotations": {"a": "b"}}}, "serviceAccount", "annotate"),
        ({"proxy": {"url": "http://proxy:3128", "existingSecret": "p"}}, "proxy", "not both"),
        ({"datadog": {"url": "http://intake:8080"}}, "datadog.url", "datadog.allowPlainHttp: intake:8080"),
        (
            {"datadog": {"url": "http://intake:8080", "allowPlainHttp": "intake:8081"}},
            "datadog.url",
            "datadog.allowPlainHttp",
        ),
        ({"aws": {"endpointUrl": "http://localhost.example"}}, "aws.endpointUrl", "https"),
        (
            {"collectors": {"wandb": {"settings": {"base_url": "http://wandb"}}}},
            "collectors.wandb.settings.base_url",
            "datadog.allowPlainHttp: wandb",
        ),
        ({"backfill": {"enabled": True}}, "backfill.since", "7d"),
        ({"backfill": {"enabled": True, "since": "7d", "slices": 2}}, "backfill.slices", "until"),
        (
            {"backfill": {"enabled": True, "since": "7d", "collectors": ["xenna"]}},
            "collectors.xenna.volume",
            "volume",
        ),
        ({"dashboards": {"enabled": True}}, "dashboards.appKeySecret.name", "application key"),
        ({"shards": 2, "collectors": {"host": {"enabled": True}}}, "shards", "collectors.wandb.schedule"),
        (
            {"shards": 2, "collectors": {"xenna": RECORDS, "wandb": {"enabled": False}}},
            "shards",
            "collectors.wandb",
        ),
        ({"collectors": {"data_plane": {"enabled": True}}}, "collectors.data_plane.volume", "volume"),
        (
            {"collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/a", "/b"]}}}},
            "collectors.xenna.volume",
            "volume",
        ),
        ({"collectors": {"xenna": {**LOCAL, "enabled": True}}}, "collectors.xenna.volume", "daemonSet.coll"),
        ({"collectors": {"wandb": {"timeout": 60}}}, "collectors.wandb.timeout", "collectors.wandb.schedule"),
        ({"timeout": 780}, "timeout", "800 s"),
        ({"schedule": "* * * * *"}, "timeout", "40 s"),
        ({"schedule": "*/5 8-18 * * 1-5", "timeout": 180}, "timeout", "200 s"),
        (
            {"collectors": {"wandb": {"schedule": "7 * * * *", "timeout": 3500}}},
            "collectors.wandb.timeout",
            "3500 s",
        ),
        (
            {"timeout": 380, "collectors": {"xenna": RECORDS, "data_plane": RECORDS}},
            "timeout",
            "data_plane, wandb, xenna",
        ),
        ({"schedule": "7 * * * *", "collectors": {"xenna": RECORDS}}, "schedule", "25 minutes"),
        ({"schedule": "@weekly", "collectors": {"xenna": RECORDS}}, "schedule", "25 minutes"),
        (
            on_nodes("xenna", xenna=LOCAL)
            | {"daemonSet": {"enabled": True, "every": "26m", "collectors": ["xenna"]}},
            "daemonSet.every",
            "25 minutes",
        ),
        (
            on_nodes("host", host={"enabled": True, "settings": {"gpu_uuid": True}}),
            "collectors.host.enabled",
            "DaemonSet",
        ),
        (on_nodes("xenna"), "collectors.xenna.volume", "hostPath"),
        (on_nodes("xenna", xenna={"volume": CLAIM}), "collectors.xenna.volume", "hostPath"),
        (
            on_nodes("xenna", xenna={"volume": {"nfs": {"server": "nfs", "path": "/a"}}}),
            "collectors.xenna.volume",
            "hostPath",
        ),
        (
            on_nodes("xenna", xenna={**LOCAL, "settings": {"paths": ["s3://bucket/a"]}}),
            "collectors.xenna.settings.paths",
            "collectors.xenna.enabled",
        ),
        (
            {
                **on_nodes("xenna", xenna=LOCAL),
                "backfill": {"enabled": True, "since": "7d", "collectors": ["xenna"]},
            },
            "collectors.xenna.volume",
            "hostPath",
        ),
        (
            {"daemonSet": {"enabled": True, "hostRoot": True}}
            | {"collectors": {"host": {"settings": {"root": "/node"}}}},
            "extraEnv",
            "FLEETGAUGE_HOST_ROOT",
        ),
        ({"extraEnv": [{"name": "DD_ENV", "value": "x"}]}, "extraEnv", "DD_ENV"),
        ({"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}, "extraVolumes", "tmp"),
        ({"resources": {"limits": {"memory": "100Mi"}}}, "resources", "memory (100Mi)"),
        (
            {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}},
            "resources",
            "cpu (1)",
        ),
        (
            {"daemonSet": {"enabled": True, "resources": {"limits": {"memory": "0.05Gi"}}}},
            "daemonSet.resources",
            "memory",
        ),
        (
            {
                "backfill": {
                    "enabled": True,
                    "since": "7d",
                    "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}},
                }
            },
            "backfill.resources",
            "memory",
        ),
    ],
)
def test_templates_name_the_value_and_its_fix(values: dict[str, Any], key: str, fix: str) -> None:
    [line] = refused(values)
    assert line.startswith(f"{key}: ")
    assert fix in line


def test_all_that_is_wrong_is_reported_at_once() -> None:
    assert len(refused({"image": {"tag": "latest"}, "aws": {"region": ""}})) == 2


@pytest.mark.parametrize(
    "values",
    [
        {"collectors": {"wandb": {"settings": {"api_key": "0123456789"}}}},
        {"collectors": {"wandb": {"settings": {"base_url": "https://user:0123456789@wandb.example.com"}}}},
        {"datadog": {"url": "https://user:0123456789@intake.example.com"}},
        {"proxy": {"url": "http://user:0123456789@proxy:3128"}},
        {"extraEnv": [{"name": "WANDB_API_KEY", "value": "0123456789"}]},
        {"extraEnv": [{"name": "aws_secret_access_key", "value": "0123456789"}]},
        {"extraEnv": [{"name": "AWS_SESSION_TOKEN", "value": "0123456789"}]},
    ],
)
def test_value_with_a_secret_is_refused_without_repeating_it(values: dict[str, Any]) -> None:
    assert "0123456789" in json.dumps(values)
    assert "0123456789" not in "\n".join(refusal(values))


def test_backfill_and_nodes_offer_only_collectors_that_can_run_there() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    found = {
        key: schema[key]["properties"]["collectors"]["items"]["enum"] for key in ("backfill", "daemonSet")
    }
    assert found["backfill"] == [name for name in registry.names() if load_collector(name).has_history]
    assert found["daemonSet"] == [name for name in registry.names() if name != "wandb"]


def test_value_of_0_2_0_exists_or_is_refused_with_its_replacement() -> None:
    old = json.loads((ROOT / "tests" / "data" / "chart-0.2.0.json").read_text(encoding="utf-8"))["values"]
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    replacements = yaml.safe_load((CHART / "files" / "removed.yaml").read_text(encoding="utf-8"))
    removed = [path for path in old if not exists(values, path.split("."))]
    assert {"timeZone", "backfill.again", "checkpoints.s3", "collectors.xenna.step"} <= {*removed}
    changes: dict[str, Any] = {}
    for path in removed:
        *parents, key = path.split(".")
        section = changes
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = 1
    lines = dict(line.split(": ", 1) for line in refused(changes))
    for path in removed:
        [reason] = [lines[key] for key in prefixes(path) if key in lines]
        assert reason.removeprefix("removed; ") in replacements.values()


def exists(values: object, keys: list[str]) -> bool:
    """Whether a value, or a map that holds any keys, is at this path."""
    for key in keys:
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


def prefixes(path: str) -> Iterator[str]:
    keys = path.split(".")
    yield from (".".join(keys[:length]) for length in range(1, len(keys) + 1))


def test_missing_section_is_named_or_does_no_harm() -> None:
    """As `backfill:` is with all its lines commented out: Helm then forgets the defaults."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for key, value in values.items():
        if isinstance(value, dict) and value:
            try:
                documents = render(scenario("default"), {key: None})
            except RefusedError as error:
                documents, reason = [], str(error)
            assert documents or f"- (root): {key} is required" in reason


@pytest.mark.parametrize("name", registry.names())
def test_collector_set_to_null_is_one_that_is_not_enabled(name: str) -> None:
    past = {"backfill": {"enabled": True, "since": "7d", "collectors": ["wandb"]}}
    documents = render(scenario("default"), past, {"collectors": {name: None}})
    runs = [document for document in documents if document["kind"] == "CronJob"]
    assert bool(runs) is (name != "wandb")
