"""What a platform team asks of every chart: its registry, labels, placement, identity, its own objects."""

from __future__ import annotations

from typing import Any

import pytest

from support.rendering import (
    Document,
    container,
    needs_helm,
    of_kind,
    pod_templates,
    refusal,
    render,
    scenario,
    variables,
)

pytestmark = needs_helm
AGENT = ["169.254.170.23/32", "fd00:ec2::23/128"]
METADATA = ["169.254.169.254/32", "fd00:ec2::254/128"]


def pods(*changes: dict[str, Any], name: str = "platform") -> dict[str, Document]:
    """Every pod of a release, by kind."""
    found = pod_templates(render(scenario(name), *changes))
    return {key.partition("/")[0]: template for key, template in found.items()}


@pytest.mark.parametrize(
    ("registry", "repository", "image"),
    [
        ("mirror.example.com", "registry.example.com/team/gauge", "mirror.example.com/team/gauge:2"),
        ("mirror:5000/proxy", "localhost:5000/gauge", "mirror:5000/proxy/gauge:2"),
        ("mirror.example.com", "localhost/gauge", "mirror.example.com/gauge:2"),
        ("mirror.example.com", "team/gauge", "mirror.example.com/team/gauge:2"),
        ("", "team/gauge", "team/gauge:2"),
    ],
)
def test_the_registry_of_all_charts_takes_the_place_of_the_images_own(
    registry: str, repository: str, image: str
) -> None:
    changes = {"global": {"imageRegistry": registry}, "image": {"repository": repository, "tag": "2"}}
    assert {container(template)["image"] for template in pods(changes).values()} == {image}


def test_the_secrets_for_the_registry_are_those_of_the_chart_and_of_all_charts() -> None:
    changes = {
        "image": {"pullSecrets": ["own", "mirror"]},
        "global": {"imagePullSecrets": ["a", {"name": "mirror"}]},
    }
    for template in pods(changes).values():
        assert template["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "mirror"}, {"name": "a"}]


def test_common_labels_are_on_everything_and_in_no_selector() -> None:
    documents = render(scenario("platform"))
    for document in documents:
        assert document["metadata"]["labels"]["cost-center"] == "4711"
    for template in pod_templates(documents).values():
        assert template["metadata"]["labels"]["cost-center"] == "4711"
    [daemons] = of_kind(documents, "DaemonSet")
    assert "cost-center" not in daemons["spec"]["selector"]["matchLabels"]
    [policy] = of_kind(documents, "NetworkPolicy")
    assert "cost-center" not in policy["spec"]["podSelector"]["matchLabels"]


def test_each_kind_of_workload_has_annotations_of_its_own() -> None:
    documents = render(scenario("platform"))
    found = {
        kind: of_kind(documents, kind)[0]["metadata"].get("annotations")
        for kind in ("CronJob", "DaemonSet", "Job")
    }
    assert found == {
        "CronJob": {"example.com/owner": "platform"},
        "DaemonSet": {"reloader.example.com/auto": "false"},
        "Job": {"argocd.argoproj.io/sync-wave": "1"},
    }


def test_datadog_finds_the_tags_of_our_points_on_the_pods() -> None:
    tags = {key: f"tags.datadoghq.com/{key}" for key in ("env", "service", "version")}
    for template in pods(name="default").values():
        labels, found = template["metadata"]["labels"], variables(template)
        assert {key: labels[label] for key, label in tags.items()} == {
            "env": found["DD_ENV"],
            "service": found["DD_SERVICE"],
            "version": found["DD_VERSION"],
        }
    for template in pods().values():
        assert template["metadata"]["labels"][tags["service"]] == "fleet", "what is said of pods wins"


@pytest.mark.parametrize("env", ["team:ants", "x" * 64, "-a", "prod uction", "é"])
def test_a_tag_that_is_no_label_is_left_out(env: str) -> None:
    for template in pods({"datadog": {"env": env}}, name="default").values():
        assert variables(template)["DD_ENV"] == env
        labels = template["metadata"]["labels"]
        assert [key for key in labels if key.startswith("tags.")] == [
            "tags.datadoghq.com/service",
            "tags.datadoghq.com/version",
        ]


@pytest.mark.parametrize("key", ["podLabels", "commonLabels"])
def test_a_label_that_the_chart_needs_cannot_be_changed(key: str) -> None:
    assert [
        line for line in refusal({key: {"app.kubernetes.io/instance": "x"}}) if line.startswith(f"- {key}")
    ]


def test_runs_are_placed_and_resolve_names_as_the_platform_wants() -> None:
    found = pods()
    values = scenario("platform")
    assert set(found) == {"CronJob", "DaemonSet", "Job", "Test"}
    for kind, template in found.items():
        spec = template["spec"]
        assert (spec["dnsPolicy"], spec["dnsConfig"]) == (values["dnsPolicy"], values["dnsConfig"])
        assert spec["initContainers"] == values["initContainers"]
        assert container(template)["envFrom"] == values["extraEnvFrom"]
        assert spec["nodeSelector"]["kubernetes.io/os"] == "linux"
        spread = spec.get("topologySpreadConstraints")
        assert spread == (None if kind == "DaemonSet" else values["topologySpreadConstraints"])


def test_objects_of_ones_own_are_yaml_or_text_and_may_hold_templates() -> None:
    more = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}},
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Values.existingSecret }}-text\n",
    ]
    documents = render(scenario("existing-secret"), {"extraManifests": more})
    assert of_kind(documents, "ConfigMap")[0]["metadata"]["name"] == "fleetgauge-more"
    assert of_kind(documents, "Secret")[0]["metadata"]["name"] == "fleetgauge-text"


def test_the_secret_that_external_secrets_makes_is_the_one_that_pods_read() -> None:
    documents = render(scenario("external-secrets"))
    [made] = of_kind(documents, "ExternalSecret")
    assert made["metadata"]["namespace"] == "monitoring"
    for template in pod_templates(documents).values():
        for entry in made["spec"]["data"]:
            reference = {"name": made["spec"]["target"]["name"], "key": entry["secretKey"]}
            assert variables(template)[entry["secretKey"]] == {"secretKeyRef": reference}


KEYS = [{"name": "AWS_ACCESS_KEY_ID", "value": "AKIA"}]
SECRET = {"existingSecret": "keys", "aws": {"secretPrefix": "", "region": "us-east-1"}}
RECORDS = {"collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/records"]}}}}
ROLE = {"serviceAccount": {"roleArn": "arn:aws:iam::123456789012:role/fleetgauge"}}


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"aws": {"podIdentity": True}}, AGENT),
        ({}, AGENT + METADATA),
        (ROLE, []),
        (SECRET, []),
        ({"extraEnv": KEYS}, []),
        ({**SECRET, "state": {"s3": "s3://bucket"}}, AGENT + METADATA),
        ({**SECRET, **RECORDS}, AGENT + METADATA),
        ({**SECRET, **RECORDS, **ROLE}, []),
        ({**SECRET, **ROLE, "state": {"s3": "s3://bucket"}}, []),
        ({**SECRET, "aws": {"secretPrefix": "", "podIdentity": True}}, AGENT),
    ],
)
def test_the_network_policy_lets_pods_ask_for_a_role_where_they_must(
    changes: dict[str, Any], allowed: list[str]
) -> None:
    documents = render(scenario("default"), {"networkPolicy": {"enabled": True}}, changes)
    [policy] = of_kind(documents, "NetworkPolicy")
    rules = [rule for rule in policy["spec"]["egress"] if "to" in rule]
    assert [block["ipBlock"]["cidr"] for rule in rules for block in rule["to"]] == allowed
    assert all(rule["ports"] == [{"protocol": "TCP", "port": 80}] for rule in rules)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({**ROLE, "aws": {"podIdentity": True}}, "aws.podIdentity: serviceAccount.roleArn is another way"),
        ({"dnsPolicy": "Mine"}, "dnsPolicy: dnsPolicy must be one of"),
        ({"topologySpreadConstraints": [{}]}, "topologySpreadConstraints.0: maxSkew is required"),
        ({"extraEnvFrom": [{"secret": "a"}]}, "extraEnvFrom.0: Additional property secret is not allowed"),
        ({"initContainers": [{"name": "a"}]}, "initContainers.0: image is required"),
        ({"global": {"imageRegistry": "https://mirror"}}, "global.imageRegistry: Does not match pattern"),
        ({"global": {"imagePullSecrets": [{}]}}, "global.imagePullSecrets.0: "),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    assert [line for line in refusal(changes) if line.startswith(f"- {said}")]


def test_values_that_other_charts_share_are_let_pass() -> None:
    assert render(scenario("default"), {"global": {"storageClass": "fast"}}) == render(scenario("default"))


PAST = {"enabled": True, "since": "2026-11-07", "until": "2026-11-14", "slices": 8}
GIB = {"limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("name", "changes", "place", "value"),
    [
        (
            "daemonset",
            {"daemonSet": {"maxUnavailable": 3}},
            "DaemonSet.updateStrategy.rollingUpdate.maxUnavailable",
            3,
        ),
        ("default", {"backfill": PAST | {"resources": GIB}}, "Job.template.spec.containers.0.resources", GIB),
        ("default", {"backfill": PAST | {"activeDeadlineSeconds": 3700}}, "Job.activeDeadlineSeconds", 3700),
        ("default", {"backfill": PAST}, "Job.parallelism", 8),
    ],
)
def test_what_is_said_of_one_workload_reaches_it(
    name: str, changes: dict[str, Any], place: str, value: object
) -> None:
    kind, *path = place.split(".")
    [document] = of_kind(render(scenario(name), changes), kind)
    found: Any = document["spec"]
    for key in path:
        found = found[int(key) if key.isdigit() else key]
    assert found == value


def test_verbose_and_the_size_of_tmp_are_for_every_kind_of_run() -> None:
    found = pods({"verbose": True, "temporarySize": "1Gi"})
    for kind, template in found.items():
        assert ("--verbose" in container(template)["args"]) is (kind != "Test")
        assert {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}} in template["spec"]["volumes"]
