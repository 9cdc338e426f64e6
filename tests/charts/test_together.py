"""Values that are each right but do not go together are refused, and the refusal says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from support.rendering import needs_helm, of_kind, pod_templates, refusal, render, scenario, variables

pytestmark = needs_helm
RECORDS = {"enabled": True, "volume": {"persistentVolumeClaim": {"claimName": "records"}}}
CLAIM = {"state": {"existingClaim": "claim"}}
THREE = {"xenna": RECORDS, "data_plane": RECORDS}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {"tag": "latest"}}, "image.tag: `latest` names no version"),
        ({"aws": {"secretPrefix": ""}}, "set where the keys are: aws.secretPrefix with aws.region, or exist"),
        (
            {"existingSecret": "keys"},
            "credentials: set aws.secretPrefix (AWS Secrets Manager) or existingSecret",
        ),
        ({"aws": {"region": ""}}, "aws.region: set the region"),
        (
            {
                "existingSecret": "keys",
                "state": {"s3": "s3://bucket"},
                "aws": {"secretPrefix": "", "region": ""},
            },
            "aws.region: set the region of the secrets and of state in S3",
        ),
        ({"datadog": {"url": "http://intake:8080"}}, "datadog.url: write https; plain http to a host"),
        (
            {"datadog": {"url": "http://intake:8080", "allowPlainHttp": "intake:8081"}},
            "datadog.url: write https",
        ),
        ({"aws": {"endpointUrl": "http://localhost.example"}}, "aws.endpointUrl: write https; plain http"),
        (
            {"collectors": {"wandb": {"settings": {"base_url": "http://wandb"}}}},
            "collectors.wandb.settings.base_url: write https; plain http to a host inside the cluster",
        ),
        ({"collectors": {"wandb": {"enabled": False}}}, "collectors: none is enabled"),
        (
            {"daemonSet": {"enabled": True}, "collectors": {"host": {"enabled": True}}},
            "collectors.host.enabled: the DaemonSet runs it on every node already",
        ),
        (
            {
                "daemonSet": {"enabled": True, "hostRoot": True},
                "collectors": {"host": {"settings": {"root": "/node"}}},
            },
            "daemonSet.hostRoot: it sets the collector's root already",
        ),
        (
            {"collectors": {"data_plane": {"enabled": True}}},
            "collectors.data_plane.volume: say which volume holds its files",
        ),
        ({"state": {"s3": "s3://bucket", "existingClaim": "claim"}}, "state: set s3 or existingClaim"),
        ({**CLAIM, "shards": 2}, "state.existingClaim: a claim is for one CronJob without shards"),
        (
            {**CLAIM, "collectors": {"xenna": {**RECORDS, "schedule": "*/20 * * * *"}}},
            "state.existingClaim: a claim is for one CronJob without shards",
        ),
        (
            {
                **CLAIM,
                "collectors": {"xenna": {"volume": {"hostPath": {"path": "/records"}}}},
                "daemonSet": {"enabled": True, "collectors": ["xenna"]},
            },
            "state.existingClaim: a claim is for one CronJob without shards",
        ),
        (
            {"proxy": {"url": "http://proxy:3128", "existingSecret": "proxy"}},
            "proxy: set url or existingSecret",
        ),
        ({"backfill": {"enabled": True}}, "backfill.since: say where the span begins"),
        (
            {"backfill": {"enabled": True, "since": "7d", "slices": 2}},
            "backfill.slices: slices must agree on the span",
        ),
        ({"extraEnv": [{"name": "DD_ENV", "value": "x"}]}, "extraEnv: DD_ENV has a value of its own"),
        ({"step": "2h"}, "step: a live run's is at least a second and at most 1h"),
        ({"step": "0"}, "step: a live run's is at least a second and at most 1h"),
        (
            {"collectors": {"wandb": {"schedule": "7 */2 * * *", "step": "1h1m"}}},
            "collectors.wandb.step: a live run's is at least a second and at most 1h",
        ),
        ({"daemonSet": {"enabled": True, "every": "0m"}}, "daemonSet.every: it is at least a second"),
        (
            {"networkPolicy": {"enabled": True}, "proxy": {"existingSecret": "proxy"}},
            "networkPolicy: the proxy's port is in a secret; allow it in extraEgress",
        ),
        (
            {"serviceAccount": {"create": False, "annotations": {"team": "a"}}},
            "serviceAccount: with create: false, roleArn and annotations do nothing",
        ),
        (
            {"serviceAccount": {"create": False, "roleArn": "arn:aws:iam::123456789012:role/a"}},
            "serviceAccount: with create: false, roleArn and annotations do nothing",
        ),
        (
            {"collectors": {"wandb": {"timeout": 60}}},
            "collectors.wandb.timeout: it is for a schedule of its own",
        ),
        ({"collectors": {"host": {"step": "5m"}}}, "collectors.host.step: it is for a schedule of its own"),
        (
            {"collectors": {"wandb": {"schedule": "7 * * * *", "timeout": 580}}},
            "collectors.wandb.activeDeadlineSeconds: wandb may take 600 s",
        ),
        (
            {"activeDeadlineSeconds": 280, "collectors": THREE},
            "activeDeadlineSeconds: data_plane, wandb, xenna may take 280 s",
        ),
        (
            {"backfill": {"enabled": True, "since": "7d", "collectors": ["xenna"]}},
            "collectors.xenna.volume: say which volume holds its files",
        ),
        (
            {"collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/a", "/b"]}}}},
            "collectors.xenna.volume: say which volume holds its files",
        ),
        (
            {
                "aws": {"region": "", "secretPrefix": ""},
                "existingSecret": "keys",
                "collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/a"]}}},
            },
            "aws.region: set the region of the records in S3 that collectors.xenna reads",
        ),
        *[
            (
                {"extraVolumes": [{"name": name, "emptyDir": {}}]},
                f"extraVolumes: {name} is the name of a volume",
            )
            for name in ("tmp", "state", "gpu-memory")
        ],
        ({"extraEnv": [{"name": "LANG"}]}, "extraEnv: give LANG a value or a valueFrom"),
    ],
)
def test_values_that_do_not_go_together_are_explained(values: dict[str, Any], said: str) -> None:
    assert [line for line in refusal(values) if line.startswith(f"- {said}")]


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal({"image": {"tag": "latest"}, "aws": {"region": ""}})
    assert len([line for line in said if line.startswith("- ")]) == 2


@pytest.mark.parametrize("allowed", ["intake", "intake:8080"])
def test_plain_http_to_a_named_host_is_accepted(allowed: str) -> None:
    datadog = {"url": "http://intake:8080/api", "allowPlainHttp": allowed}
    for template in pod_templates(render(scenario("default"), {"datadog": datadog})).values():
        assert variables(template)["FLEETGAUGE_ALLOW_PLAIN_HTTP"] == allowed


def test_what_goes_together_after_all_is_not_refused() -> None:
    values = {
        "collectors": {"xenna": {**RECORDS, "schedule": "*/20 * * * *"}},
        "backfill": {"enabled": True, "since": "7d"},
        "networkPolicy": {"enabled": True, "extraEgress": [{"ports": [{"protocol": "TCP", "port": 3128}]}]},
        "proxy": {"existingSecret": "proxy"},
        "activeDeadlineSeconds": 141,
    }
    assert len(of_kind(render(scenario("default"), values), "CronJob")) == 2


def test_a_collector_whose_records_are_all_in_s3_needs_no_volume() -> None:
    paths = ["s3://bucket/a/{date}/*.jsonl", "s3://other/b"]
    values = {"collectors": {"xenna": {"enabled": True, "settings": {"paths": paths}}}}
    assert len(of_kind(render(scenario("default"), values), "CronJob")) == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *[(name, {}) for name in ("DD_VERSION", "AWS_REGION", "AWS_ENDPOINT_URL", "HTTPS_PROXY", "NO_PROXY")],
        *[(name, {}) for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")],
        ("FLEETGAUGE_STEP", {}),
        ("WANDB_PROJECTS", {"collectors": {"wandb": {"settings": {"projects": ["acme/ants"]}}}}),
        ("WANDB_API_KEY", {"existingSecret": "keys", "aws": {"secretPrefix": ""}}),
        ("DD_API_KEY", {"existingSecret": "keys", "aws": {"secretPrefix": ""}}),
        ("DD_APP_KEY", {"backfill": {"appKeySecret": {"name": "key"}}}),
    ],
)
def test_no_variable_is_set_twice(name: str, values: dict[str, Any]) -> None:
    variable = {"name": name, "valueFrom": {"configMapKeyRef": {"name": "more", "key": name}}}
    said = refusal(values, {"extraEnv": [variable]})
    assert f"- extraEnv: {name} has a value of its own in this chart; set that one" in said


def test_a_variable_that_no_value_sets_may_come_from_elsewhere() -> None:
    variable = {
        "name": "WANDB_PROJECTS",
        "valueFrom": {"configMapKeyRef": {"name": "more", "key": "projects"}},
    }
    for template in pod_templates(render(scenario("default"), {"extraEnv": [variable]})).values():
        assert variables(template)["WANDB_PROJECTS"] == variable["valueFrom"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"checkpoints": {"s3": "s3://bucket"}},
            "checkpoints: it is called state now, and is optional; set state.s3",
        ),
        ({"checkpoints": {"persistentVolumeClaim": {"create": True}}}, "checkpoints: it is called state now"),
        ({"backfill": {"again": ""}}, "backfill.again: it was removed"),
        ({"collectors": {"wandb": {"shards": 8}}}, "collectors.wandb.shards: it was removed; set shards"),
        (
            {"collectors": {"xenna": {"shards": 8}}},
            "collectors.xenna.shards: it was removed; only W&B can be divided between pods; run host,",
        ),
    ],
)
def test_a_removed_value_is_refused_with_what_replaces_it(values: dict[str, Any], said: str) -> None:
    [line] = [line for line in refusal(values) if line.startswith("- ")]
    assert line.startswith(f"- {said}")
