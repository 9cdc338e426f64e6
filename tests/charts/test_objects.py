"""What each value changes in the objects of a release, beyond what the golden files pin."""

from __future__ import annotations

from typing import Any

import pytest

from fleetgauge import __version__
from support.rendering import (
    ROOT,
    Document,
    container,
    example,
    needs_helm,
    of_kind,
    parsed,
    pod_templates,
    render,
    scenario,
    variables,
)

pytestmark = needs_helm
DIGEST = "sha256:" + "0f" * 32
SOURCES = {
    "agent": ["169.254.170.23/32", "fd00:ec2::23/128"],
    "metadata": ["169.254.169.254/32", "fd00:ec2::254/128"],
}
POLICIES = ROOT / "tests" / "data" / "chart-network-policies.yaml"
LOCAL = {"volume": {"hostPath": {"path": "/var/lib/records"}}}
PAST = {"backfill": {"enabled": True, "since": "7d"}}
IMAGE = "registry.example.com/fleetgauge"


def only(kind: str, name: str, *changes: dict[str, Any]) -> Document:
    """The one object of a kind."""
    [found] = of_kind(render(scenario(name), *changes), kind)
    return found


def pod(kind: str, name: str, *changes: dict[str, Any]) -> Document:
    """The pod of the one object of a kind."""
    [template] = pod_templates([only(kind, name, *changes)]).values()
    return template


@pytest.mark.parametrize(
    ("mirror", "image", "expected"),
    [
        ("", {}, f"{IMAGE}:{__version__}"),
        ("", {"repository": "localhost:5000/team/gauge", "tag": "2"}, "localhost:5000/team/gauge:2"),
        ("", {"tag": "2", "digest": DIGEST}, f"{IMAGE}@{DIGEST}"),
        ("mirror:5000/proxy", {"repository": "localhost:5000/g", "tag": "2"}, "mirror:5000/proxy/g:2"),
        ("mirror.example.com", {"repository": "localhost/gauge", "tag": "2"}, "mirror.example.com/gauge:2"),
        ("mirror.example.com", {"repository": "team/gauge", "tag": "2"}, "mirror.example.com/team/gauge:2"),
    ],
)
def test_image_by_tag_digest_and_registry(mirror: str, image: dict[str, str], expected: str) -> None:
    changes = {"global": {"imageRegistry": mirror}, "image": image}
    assert container(pod("CronJob", "default", changes))["image"] == expected


@pytest.mark.parametrize(
    ("kubernetes", "limits", "codes"),
    [
        ("1.28.15-eks-1", {"backoffLimit": 8}, {}),
        ("1.29.0-gke.7", {"backoffLimitPerIndex": 0}, {"FailIndex": [2]}),
    ],
)
def test_shards_fail_alone_where_the_version_has_that(
    kubernetes: str, limits: dict[str, int], codes: dict[str, list[int]]
) -> None:
    _, cron = of_kind(example("shards", kubernetes), "CronJob")
    job = cron["spec"]["jobTemplate"]["spec"]
    assert {key: value for key, value in job.items() if key.startswith("backoffLimit")} == limits
    rules = [rule for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert {rule["action"]: rule["onExitCodes"]["values"] for rule in rules} == codes


def test_only_live_runs_of_wandb_have_shards() -> None:
    found = pod_templates(render(scenario("shards"), PAST, {"daemonSet": {"enabled": True}}))
    sharded = {name for name, template in found.items() if "--shard" in str(container(template)["args"])}
    assert (sharded, len(found)) == ({"CronJob/fleetgauge-wandb"}, 5)


def test_backfill_of_one_slice_is_an_ordinary_job() -> None:
    more = {"onlyEnabled": True, "step": "2d", "activeDeadlineSeconds": 3700}
    memory = {"limits": {"memory": "1Gi"}}
    job = only("Job", "default", PAST, {"backfill": more | {"resources": memory}})["spec"]
    assert "completionMode" not in job
    assert (job["activeDeadlineSeconds"], job["backoffLimit"]) == (3700, 3)
    expected = ["wandb", "--push", "--yes", "--since=7d", "--step=2d", "--only-enabled", "--timeout=3600"]
    assert container(job["template"])["args"] == expected
    assert container(job["template"])["resources"] == memory
    assert "FLEETGAUGE_STEP" not in variables(job["template"]), "which may be an hour at most"


def test_upgrade_changes_no_immutable_field() -> None:
    """A real API server refuses another selector, and other pods of a Job: another name is another Job."""

    def immutable(*changes: dict[str, Any]) -> dict[str, object]:
        documents = render(scenario("platform"), *changes)
        kept = [each for each in documents if each["kind"] in {"Job", "DaemonSet"}]
        key = {"Job": "template", "DaemonSet": "selector"}
        return {
            f"{each['kind']}/{each['metadata']['name']}": each["spec"][key[each["kind"]]] for each in kept
        }

    first = immutable()
    assert first == immutable()
    check = first.pop("Job/fleetgauge-check")
    for change in (
        {"image": {"tag": "9.9.9"}},
        {"resources": {"limits": {"memory": "512Mi"}}},
        {"commonLabels": {"team": "a"}, "podLabels": {"team": "a"}},
        {"nodeSelector": {"pool": "a"}},
        {"datadog": {"env": "staging"}},
    ):
        other = immutable(change)
        assert other.pop("Job/fleetgauge-check") != check, "whose hook deletes the last one first"
        assert set(first) & set(other) == {"DaemonSet/fleetgauge-host"}
        assert first["DaemonSet/fleetgauge-host"] == other["DaemonSet/fleetgauge-host"]


def test_resources_of_a_node_follow_its_collectors_and_are_replaced_singly() -> None:
    own = {"limits": {"memory": "1Gi"}}
    nodes = {"enabled": True, "collectors": ["xenna"], "resources": own}
    template = pod("DaemonSet", "default", {"daemonSet": nodes, "collectors": {"xenna": LOCAL}})
    assert container(template)["resources"] == own | {"requests": {"cpu": "20m", "memory": "128Mi"}}


@pytest.mark.parametrize("source", [{"csi": {"driver": "local.csi.example.com"}}, None])
def test_node_records_come_by_csi_or_with_the_host(source: Document | None) -> None:
    changes: Document = {
        "daemonSet": {"enabled": True, "collectors": ["xenna"], "hostRoot": source is None},
        "collectors": {"xenna": {"volume": source}},
    }
    volumes = pod("DaemonSet", "default", changes)["spec"]["volumes"]
    found = [volume["csi"] for volume in volumes if "csi" in volume]
    assert found == ([{"driver": "local.csi.example.com", "readOnly": True}] if source else [])


def test_records_are_mounted_read_only_and_in_s3_need_no_volume() -> None:
    volume = {"csi": {"driver": "efs.csi.aws.com"}}
    stored = {"enabled": True, "settings": {"paths": ["s3://bucket/a/{date}/*.jsonl", "s3://other/b"]}}
    changes = {"collectors": {"gpu_memory": {"enabled": True, "volume": volume}, "xenna": stored}}
    volumes = pod("CronJob", "default", changes)["spec"]["volumes"]
    assert [each for each in volumes if each["name"] != "tmp"] == [
        {"name": "gpu-memory", "csi": {"driver": "efs.csi.aws.com", "readOnly": True}}
    ]


def test_a_claim_of_state_is_not_for_nodes() -> None:
    nodes = pod("DaemonSet", "existing-secret", {"daemonSet": {"enabled": True}})
    assert "FLEETGAUGE_STATE" not in variables(nodes), "a claim may be for one node at a time"


@pytest.mark.parametrize("case", parsed(POLICIES.read_text(encoding="utf-8")), ids=lambda case: case["case"])
def test_network_policy_opens_ports_of_urls_and_the_source_of_a_role(case: Document) -> None:
    policy = only("NetworkPolicy", "default", {"networkPolicy": {"enabled": True}}, case["values"])["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    first, *others = policy["egress"]
    found = [(port["protocol"], port["port"]) for port in first["ports"]]
    assert found == [("UDP", 53), ("TCP", 53), ("TCP", 443), *[("TCP", port) for port in case["ports"]]]
    allowed = [cidr for source in case["sources"] for cidr in SOURCES[source]]
    assert [block["ipBlock"]["cidr"] for rule in others for block in rule["to"]] == allowed
    assert all(rule["ports"] == [{"protocol": "TCP", "port": 80}] for rule in others)


@pytest.mark.parametrize("env", ["team:ants", "x" * 64, "-a", "é"])
def test_env_that_is_no_label_is_only_a_tag(env: str) -> None:
    template = pod("CronJob", "default", {"datadog": {"env": env}})
    assert variables(template)["DD_ENV"] == env
    assert "tags.datadoghq.com/env" not in template["metadata"]["labels"]


def test_extra_manifests_are_yaml_or_text_with_templates() -> None:
    more = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}},
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Values.existingSecret }}-text\n",
    ]
    shared = {"storageClass": "fast"}  # which other charts share, and this one ignores
    documents = render(scenario("existing-secret"), {"extraManifests": more, "global": shared})
    assert of_kind(documents, "ConfigMap")[0]["metadata"]["name"] == "fleetgauge-more"
    assert of_kind(documents, "Secret")[0]["metadata"]["name"] == "fleetgauge-keys-text"
