"""What each value changes in the objects of a release, beyond what the golden files pin."""

from __future__ import annotations

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from fleetgauge import __version__
from support.rendering import (
    Document,
    container,
    example,
    needs_helm,
    of_kind,
    pod_templates,
    render,
    scenario,
    variables,
)

pytestmark = needs_helm
DIGEST = "sha256:" + "0f" * 32
AGENT = ["169.254.170.23/32", "fd00:ec2::23/128"]
METADATA = ["169.254.169.254/32", "fd00:ec2::254/128"]
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


def pods(*changes: dict[str, Any], name: str = "platform") -> dict[str, Document]:
    """Every pod of a release, by kind."""
    found = pod_templates(render(scenario(name), *changes))
    return {key.partition("/")[0]: template for key, template in found.items()}


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


@pytest.mark.parametrize("kubernetes", ["1.27", "1.28.15-eks-1", "1.29.0-gke.7", "1.37"])
def test_tick_is_not_retried_and_its_shards_fail_alone(kubernetes: str) -> None:
    crons = of_kind(render(scenario("shards"), kubernetes=kubernetes), "CronJob")
    shared, sharded = (cron["spec"]["jobTemplate"]["spec"] for cron in crons)
    for cron, job in zip(crons, (shared, sharded), strict=True):
        assert kubernetes_validate.validate(cron, kubernetes[:4], strict=True) == kubernetes[:4]
        assert job["template"]["spec"]["restartPolicy"] == "Never"
        assert job["podFailurePolicy"]["rules"][0]["action"] == "Ignore", "of a drained node"
    assert (shared["backoffLimit"], exits(shared)) == (0, {"FailJob": [2]})
    assert (sharded["completionMode"], sharded["completions"], sharded["parallelism"]) == ("Indexed", 8, 8)
    assert "--shard=/8" in container(sharded["template"])["args"]
    limits = {key: value for key, value in sharded.items() if key.startswith("backoffLimit")}
    if kubernetes >= "1.29":
        assert (limits, exits(sharded)) == ({"backoffLimitPerIndex": 0}, {"FailIndex": [2]})
    else:
        assert (limits, exits(sharded)) == ({"backoffLimit": 8}, {})


def exits(job: Document) -> dict[str, list[int]]:
    """What a Job does after which exit codes."""
    rules = job["podFailurePolicy"]["rules"]
    return {rule["action"]: rule["onExitCodes"]["values"] for rule in rules if "onExitCodes" in rule}


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


def test_backfill_has_no_state() -> None:
    without = pod("Job", "existing-secret", PAST, {"extraVolumes": [], "extraVolumeMounts": []})
    [job] = of_kind(example("backfill"), "Job")
    for template in (without, job["spec"]["template"]):
        assert "FLEETGAUGE_STATE" not in variables(template)
        assert [volume["name"] for volume in template["spec"]["volumes"]] == ["tmp"]


def test_upgrade_changes_no_immutable_field() -> None:
    """A real API server refuses another selector, and other pods of a Job: another name is another Job."""

    def immutable(*changes: dict[str, Any]) -> dict[str, object]:
        documents = render(
            scenario("platform"), {"dashboards": scenario("dashboards")["dashboards"]}, *changes
        )
        assert not any("resource-policy" in str(each) for each in documents)
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


def test_dashboards_are_pushed_at_install_and_by_schedule() -> None:
    found = pod_templates(example("dashboards"))
    [(first, once), (second, nightly)] = [each for each in found.items() if "fleetgauge-dash" in each[0]]
    assert (first.rpartition("-")[0], second) == (
        "Job/fleetgauge-dashboards",
        "CronJob/fleetgauge-dashboards",
    )
    assert once == nightly
    assert container(once)["command"] == ["/opt/venv/bin/python", "/app/scripts/provision.py"]
    assert container(once)["args"] == ["--push", "--yes"]
    assert variables(once)["FLEETGAUGE_INSTANCE"] == "monitoring/fleetgauge"
    assert only("CronJob", "dashboards", {"dashboards": {"schedule": ""}})["metadata"]["name"] == "fleetgauge"


@pytest.mark.parametrize(
    ("names", "limit", "request_"),
    [
        (["host"], "128Mi", "64Mi"),
        (["xenna"], "256Mi", "128Mi"),
        (["host", "xenna", "gpu_memory", "data_plane"], "512Mi", "256Mi"),
    ],
)
def test_memory_of_a_node_follows_its_collectors(names: list[str], limit: str, request_: str) -> None:
    nodes = {"enabled": True, "collectors": names}
    template = pod("DaemonSet", "default", {"daemonSet": nodes, "collectors": dict.fromkeys(names, LOCAL)})
    assert container(template)["args"][: len(names)] == names
    assert variables(template)["FLEETGAUGE_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert container(template)["resources"] == {
        "limits": {"memory": limit},
        "requests": {"cpu": "20m", "memory": request_},
    }


def test_host_is_mounted_read_only_and_only_on_request() -> None:
    own = {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}
    template = pod("DaemonSet", "daemonset", {"daemonSet": {"hostRoot": True, "resources": own}})
    assert variables(template)["FLEETGAUGE_HOST_ROOT"] == "/host"
    assert variables(template)["NVIDIA_VISIBLE_DEVICES"] == "all"
    [mount] = [each for each in container(template)["volumeMounts"] if each["mountPath"] == "/host"]
    assert (mount["readOnly"], mount["mountPropagation"]) == (True, "HostToContainer")
    assert {"name": mount["name"], "hostPath": {"path": "/"}} in template["spec"]["volumes"]
    given = container(template)["resources"]
    assert (given["limits"], given["requests"]) == ({"memory": "1Gi"}, {"cpu": "20m", "memory": "1Gi"})
    file = variables(template)["FLEETGAUGE_READY_FILE"]
    assert container(template)["readinessProbe"] == {"exec": {"command": ["test", "-e", file]}}
    assert any(file.startswith(mount["mountPath"]) for mount in container(template)["volumeMounts"])
    [plain] = pod_templates(of_kind(example("daemonset"), "DaemonSet")).values()
    assert not any("hostPath" in volume for volume in plain["spec"]["volumes"])


@pytest.mark.parametrize("source", [{"csi": {"driver": "local.csi.example.com"}}, None])
def test_node_records_come_by_csi_or_with_the_host(source: Document | None) -> None:
    changes: Document = {
        "daemonSet": {"enabled": True, "collectors": ["xenna"], "hostRoot": source is None},
        "collectors": {"xenna": {"volume": source}},
    }
    volumes = pod("DaemonSet", "default", changes)["spec"]["volumes"]
    found = [volume["csi"] for volume in volumes if "csi" in volume]
    assert found == ([{"driver": "local.csi.example.com", "readOnly": True}] if source else [])


def test_every_changed_setting_rolls_the_daemonset() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"collectors": {"host": {"settings": {"gpu_uuid": False}}}},
        {"datadog": {"site": "datadoghq.eu"}},
        {"daemonSet": {"every": "30s"}},
        {"aws": {"secretPrefix": "other"}},
    ]
    found = [pod("DaemonSet", "daemonset", change) for change in changes]
    assert all(template not in found[:number] for number, template in enumerate(found))


def test_records_are_mounted_read_only_and_in_s3_need_no_volume() -> None:
    volumes: dict[str, Document] = {
        "xenna": {"persistentVolumeClaim": {"claimName": "records"}},
        "gpu_memory": {"csi": {"driver": "efs.csi.aws.com"}},
        "data_plane": {"nfs": {"server": "nfs.example.com", "path": "/records"}},
    }
    collectors = {name: {"enabled": True, "volume": volume} for name, volume in volumes.items()}
    template = pod("CronJob", "default", {"collectors": collectors})
    for name, volume in volumes.items():
        [(kind, source)] = volume.items()
        called = name.replace("_", "-")
        assert {"name": called, kind: {**source, "readOnly": True}} in template["spec"]["volumes"]
        mount = {"name": called, "mountPath": f"/records/{name}", "readOnly": True}
        assert mount in container(template)["volumeMounts"]
    stored = {"enabled": True, "settings": {"paths": ["s3://bucket/a/{date}/*.jsonl", "s3://other/b"]}}
    [only_one] = pod("CronJob", "default", {"collectors": {"xenna": stored}})["spec"]["volumes"]
    assert only_one["name"] == "tmp"


def test_state_is_in_s3_or_on_a_claim_or_nowhere() -> None:
    for name, expected in (("existing-secret", "/state"), ("default", None)):
        [template] = pod_templates(of_kind(example(name), "CronJob")).values()
        assert variables(template).get("FLEETGAUGE_STATE") == expected
    assert variables(pod("CronJob", "production"))["FLEETGAUGE_STATE"].startswith("s3://")
    nodes = pod("DaemonSet", "existing-secret", {"daemonSet": {"enabled": True}})
    assert "FLEETGAUGE_STATE" not in variables(nodes), "a claim may be for one node at a time"


def test_role_is_an_annotation_of_a_service_account_without_a_token() -> None:
    more = {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "other", "team": "a"}}}
    account = only("ServiceAccount", "production", more)
    role = "arn:aws:iam::123456789012:role/fleetgauge"
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role, "team": "a"}
    assert account["automountServiceAccountToken"] is False
    documents = example("existing-secret")
    assert not of_kind(documents, "ServiceAccount")
    for template in pod_templates(documents).values():
        assert template["spec"]["serviceAccountName"] == "monitoring"


ROLE = {"serviceAccount": {"roleArn": "arn:aws:iam::123456789012:role/fleetgauge"}}
SECRET = {"existingSecret": "keys", "aws": {"secretPrefix": "", "region": "us-east-1"}}
IN_S3 = {"collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/records"]}}}}


@pytest.mark.parametrize(
    ("changes", "ports", "allowed"),
    [
        ({}, [], AGENT + METADATA),
        ({"datadog": {"url": "https://intake.example.com:8443/api"}, **ROLE}, [8443], []),
        ({"datadog": {"url": "http://intake", "allowPlainHttp": "intake"}, **SECRET}, [80], []),
        ({"datadog": {"url": "http://intake/api", "allowPlainHttp": "intake:80"}}, [80], AGENT + METADATA),
        (
            {
                "datadog": {"url": "http://intake:8080", "allowPlainHttp": "intake:8080"},
                **SECRET,
                "state": {"s3": "s3://bucket"},
            },
            [8080],
            AGENT + METADATA,
        ),
        ({"collectors": {"wandb": {"settings": {"base_url": "https://w:8444"}}}, **ROLE}, [8444], []),
        ({"aws": {"endpointUrl": "https://[fd00::1]:8445", "podIdentity": True}}, [8445], AGENT),
        ({"proxy": {"url": "http://proxy:3128/"}, **SECRET, **IN_S3}, [3128], AGENT + METADATA),
        ({"proxy": {"url": "http://proxy"}, **SECRET, **IN_S3, **ROLE}, [80], []),
        (
            {
                "extraEnv": [
                    {"name": "AWS_ENDPOINT_URL_S3", "value": "https://minio:9000"},
                    {"name": "AWS_ACCESS_KEY_ID", "value": "AKIA"},
                ]
            },
            [9000],
            [],
        ),
        (
            {
                "proxy": {"existingSecret": "proxy"},
                "networkPolicy": {"extraPorts": [3128, 443]},
                "existingSecret": "keys",
                "aws": {"secretPrefix": "", "podIdentity": True},
            },
            [3128],
            AGENT,
        ),
    ],
)
def test_network_policy_opens_ports_of_urls_and_the_source_of_a_role(
    changes: dict[str, Any], ports: list[int], allowed: list[str]
) -> None:
    policy = only("NetworkPolicy", "default", {"networkPolicy": {"enabled": True}}, changes)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    first, *others = policy["egress"]
    found = [(port["protocol"], port["port"]) for port in first["ports"]]
    assert found == [("UDP", 53), ("TCP", 53), ("TCP", 443), *[("TCP", port) for port in ports]]
    assert [block["ipBlock"]["cidr"] for rule in others for block in rule["to"]] == allowed
    assert all(rule["ports"] == [{"protocol": "TCP", "port": 80}] for rule in others)


@pytest.mark.parametrize("env", ["team:ants", "x" * 64, "-a", "prod uction", "é"])
def test_env_that_is_no_label_is_only_a_tag(env: str) -> None:
    for template in pods({"datadog": {"env": env}}, name="default").values():
        assert variables(template)["DD_ENV"] == env
        labels = {key for key in template["metadata"]["labels"] if key.startswith("tags.")}
        assert labels == {"tags.datadoghq.com/service", "tags.datadoghq.com/version"}


def test_what_a_platform_sets_reaches_every_kind_of_pod() -> None:
    values = scenario("platform")
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    changes = {
        "affinity": affinity,
        "tolerations": [{"operator": "Exists"}],
        "temporarySize": "1Gi",
        "image": {"pullSecrets": ["own", "mirror"]},
        "global": {"imagePullSecrets": ["a", {"name": "mirror"}]},
        "verbose": True,
    }
    documents = render(values, changes)
    assert all(each["metadata"]["labels"]["cost-center"] == "4711" for each in documents)
    selectors = [of_kind(documents, "DaemonSet")[0]["spec"]["selector"]]
    selectors.append(of_kind(documents, "NetworkPolicy")[0]["spec"]["podSelector"])
    assert all("cost-center" not in selector["matchLabels"] for selector in selectors)
    found = pods(changes)
    assert set(found) == {"CronJob", "DaemonSet", "Job", "Test"}
    for kind, template in found.items():
        spec = template["spec"]
        assert template["metadata"]["labels"]["cost-center"] == "4711"
        assert spec["imagePullSecrets"] == [{"name": "own"}, {"name": "mirror"}, {"name": "a"}]
        assert (spec["dnsPolicy"], spec["dnsConfig"]) == (values["dnsPolicy"], values["dnsConfig"])
        assert spec["initContainers"] == values["initContainers"]
        assert container(template)["envFrom"] == values["extraEnvFrom"]
        assert ("--verbose" in container(template)["args"]) is (kind != "Test")
        assert spec["nodeSelector"]["kubernetes.io/os"] == "linux"
        assert {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"]
        of_runs = (affinity, [{"operator": "Exists"}], values["topologySpreadConstraints"])
        keys = ("affinity", "tolerations", "topologySpreadConstraints")
        assert tuple(map(spec.get, keys)) == ((None, None, None) if kind == "DaemonSet" else of_runs)


def test_extra_manifests_are_yaml_or_text_with_templates() -> None:
    more = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}},
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Values.existingSecret }}-text\n",
    ]
    shared = {"storageClass": "fast"}  # which other charts share, and this one ignores
    documents = render(scenario("existing-secret"), {"extraManifests": more, "global": shared})
    assert of_kind(documents, "ConfigMap")[0]["metadata"]["name"] == "fleetgauge-more"
    assert of_kind(documents, "Secret")[0]["metadata"]["name"] == "fleetgauge-keys-text"
