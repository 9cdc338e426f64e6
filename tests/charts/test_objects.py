"""What each value changes in the objects of a release, beyond what the golden files pin."""

from __future__ import annotations

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from common import registry
from common.cli.arguments import parser
from fleetgauge import __version__
from support.rendering import (
    CHART,
    SCENARIOS,
    Document,
    container,
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


def only(kind: str, *values: dict[str, Any], kubernetes: str = "") -> Document:
    """The one object of a kind."""
    [found] = of_kind(render(*values, kubernetes=kubernetes), kind)
    return found


def pod(kind: str, *values: dict[str, Any]) -> Document:
    """The pod of the one object of a kind."""
    [template] = pod_templates([only(kind, *values)]).values()
    return template


def pods(*changes: dict[str, Any], name: str = "platform") -> dict[str, Document]:
    """Every pod of a release, by kind."""
    found = pod_templates(render(scenario(name), *changes))
    return {key.partition("/")[0]: template for key, template in found.items()}


@pytest.mark.parametrize(
    ("registry_", "image", "expected"),
    [
        ("", {}, f"registry.example.com/fleetgauge:{__version__}"),
        ("", {"repository": "localhost:5000/team/gauge", "tag": "2"}, "localhost:5000/team/gauge:2"),
        ("", {"tag": "2", "digest": DIGEST}, f"registry.example.com/fleetgauge@{DIGEST}"),
        ("mirror:5000/proxy", {"repository": "localhost:5000/g", "tag": "2"}, "mirror:5000/proxy/g:2"),
        ("mirror.example.com", {"repository": "localhost/gauge", "tag": "2"}, "mirror.example.com/gauge:2"),
        ("mirror.example.com", {"repository": "team/gauge", "tag": "2"}, "mirror.example.com/team/gauge:2"),
    ],
)
def test_image_by_tag_digest_and_registry(registry_: str, image: dict[str, str], expected: str) -> None:
    changes = {"global": {"imageRegistry": registry_}, "image": image}
    assert {container(each)["image"] for each in pods(changes).values()} == {expected}


def test_chart_image_and_project_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == __version__


def test_pull_secrets_are_those_of_the_chart_and_of_all_charts() -> None:
    changes = {
        "image": {"pullSecrets": ["own", "mirror"]},
        "global": {"imagePullSecrets": ["a", {"name": "mirror"}]},
    }
    for template in pods(changes).values():
        assert template["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "mirror"}, {"name": "a"}]


@pytest.mark.parametrize("kubernetes", ["1.27", "1.28.15-eks-1", "1.29.0-gke.7", "1.37"])
def test_tick_is_not_retried_and_its_shards_fail_alone(kubernetes: str) -> None:
    changes = {"collectors": {"wandb": {"enabled": True, "schedule": "*/15 * * * *"}}}
    crons = of_kind(render(scenario("shards"), changes, kubernetes=kubernetes), "CronJob")
    shared, sharded = (cron["spec"]["jobTemplate"]["spec"] for cron in crons)
    for job in (shared, sharded):
        assert kubernetes_validate.validate(crons[0], kubernetes[:4], strict=True) == kubernetes[:4]
        assert job["template"]["spec"]["restartPolicy"] == "Never"
        assert job["podFailurePolicy"]["rules"][0]["action"] == "Ignore", "of a drained node"
    assert shared["backoffLimit"] == 0
    assert exits(shared) == {"FailJob": [2]}
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
    past = {"backfill": {"enabled": True, "since": "7d"}, "daemonSet": {"enabled": True}}
    for name, template in pod_templates(render(scenario("shards"), past)).items():
        shards = [text for text in container(template)["args"] if text.startswith("--shard")]
        assert bool(shards) is (name == "CronJob/fleetgauge-wandb")
    assert only("CronJob", scenario("default"), {"shards": 64})["spec"]["jobTemplate"]["spec"]["completions"]


def test_backfill_of_one_slice_is_an_ordinary_job() -> None:
    past = {"enabled": True, "since": "7d", "onlyEnabled": True, "step": "2d", "activeDeadlineSeconds": 3700}
    memory = {"limits": {"memory": "1Gi"}}
    job = only("Job", scenario("default"), {"backfill": past | {"resources": memory}})["spec"]
    assert "completionMode" not in job
    assert (job["activeDeadlineSeconds"], job["backoffLimit"]) == (3700, 3)
    expected = ["wandb", "--push", "--yes", "--since=7d", "--step=2d", "--only-enabled", "--timeout=3600"]
    assert container(job["template"])["args"] == expected
    assert container(job["template"])["resources"] == memory
    assert "FLEETGAUGE_STEP" not in variables(job["template"]), "which may be an hour at most"


@pytest.mark.parametrize("name", ["backfill", "existing-secret"])
def test_backfill_has_no_state(name: str) -> None:
    past = {"backfill": {"enabled": True, "since": "2026-11-07T00:00Z"}, "extraVolumes": []}
    template = pod("Job", scenario(name), past)
    assert "FLEETGAUGE_STATE" not in variables(template)
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["tmp"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("backfill", "Job"), ("dashboards", "Job")],
)
def test_another_template_is_another_job_because_a_job_cannot_change(name: str, kind: str) -> None:
    first, again, other = (
        only(kind, scenario(name), {"image": {"tag": tag}})["metadata"]["name"] for tag in ("1", "1", "2")
    )
    assert first == again != other


def test_dashboards_are_pushed_at_install_and_by_schedule() -> None:
    documents = render(scenario("dashboards"))
    found = {
        name: template for name, template in pod_templates(documents).items() if "fleetgauge-dash" in name
    }
    assert [name.rpartition("-")[0] for name in found] == [
        "Job/fleetgauge-dashboards",
        "CronJob/fleetgauge",
    ]
    once, nightly = found.values()
    assert once == nightly
    assert container(once)["command"] == ["/opt/venv/bin/python", "/app/scripts/provision.py"]
    assert container(once)["args"] == ["--push", "--yes"]
    assert variables(once)["FLEETGAUGE_INSTANCE"] == "monitoring/fleetgauge"
    one_time = of_kind(render(scenario("dashboards"), {"dashboards": {"schedule": ""}}), "CronJob")
    assert [cron["metadata"]["name"] for cron in one_time] == ["fleetgauge"]
    assert of_kind(render(scenario("dashboards"), {"dashboards": {"enabled": False}}), "Job") == []


@pytest.mark.parametrize(
    ("names", "limit", "request_"),
    [
        (["host"], "128Mi", "64Mi"),
        (["xenna"], "256Mi", "128Mi"),
        (["host", "xenna", "gpu_memory", "data_plane"], "512Mi", "256Mi"),
    ],
)
def test_memory_of_a_node_follows_its_collectors(names: list[str], limit: str, request_: str) -> None:
    changes: Document = {
        "daemonSet": {"enabled": True, "collectors": names},
        "collectors": dict.fromkeys(names, LOCAL),
    }
    template = pod("DaemonSet", scenario("default"), changes)
    assert container(template)["args"][: len(names)] == names
    assert variables(template)["FLEETGAUGE_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert container(template)["resources"] == {
        "limits": {"memory": limit},
        "requests": {"cpu": "20m", "memory": request_},
    }
    more = {"daemonSet": {"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}}}
    given = container(pod("DaemonSet", scenario("default"), changes, more))["resources"]
    assert (given["limits"], given["requests"]) == ({"memory": "1Gi"}, {"cpu": "20m", "memory": "1Gi"})


def test_host_is_mounted_read_only_and_only_on_request() -> None:
    template = pod("DaemonSet", scenario("daemonset"), {"daemonSet": {"hostRoot": True}})
    assert variables(template)["FLEETGAUGE_HOST_ROOT"] == "/host"
    assert variables(template)["NVIDIA_VISIBLE_DEVICES"] == "all"
    [mount] = [each for each in container(template)["volumeMounts"] if each["mountPath"] == "/host"]
    assert (mount["readOnly"], mount["mountPropagation"]) == (True, "HostToContainer")
    assert {"name": mount["name"], "hostPath": {"path": "/"}} in template["spec"]["volumes"]
    plain = pod("DaemonSet", scenario("daemonset"))
    assert not any("hostPath" in volume for volume in plain["spec"]["volumes"])


def test_pod_of_a_node_is_ready_after_a_good_tick() -> None:
    template = pod("DaemonSet", scenario("daemonset"))
    file = variables(template)["FLEETGAUGE_READY_FILE"]
    assert container(template)["readinessProbe"] == {"exec": {"command": ["test", "-e", file]}}
    assert any(file.startswith(mount["mountPath"]) for mount in container(template)["volumeMounts"])


@pytest.mark.parametrize("source", [{"csi": {"driver": "local.csi.example.com"}}, None])
def test_node_records_come_by_csi_or_with_the_host(source: Document | None) -> None:
    changes: Document = {
        "daemonSet": {"enabled": True, "collectors": ["xenna"], "hostRoot": source is None},
        "collectors": {"xenna": {"volume": source}},
    }
    volumes = pod("DaemonSet", scenario("default"), changes)["spec"]["volumes"]
    found = [volume["csi"] for volume in volumes if "csi" in volume]
    assert found == ([{"driver": "local.csi.example.com", "readOnly": True}] if source else [])


@pytest.mark.parametrize(
    "change",
    [
        {"collectors": {"host": {"settings": {"gpu_uuid": False}}}},
        {"datadog": {"site": "datadoghq.eu"}},
        {"daemonSet": {"every": "30s"}},
        {"aws": {"secretPrefix": "other"}},
    ],
)
def test_changed_setting_rolls_the_daemonset(change: dict[str, Any]) -> None:
    assert pod("DaemonSet", scenario("daemonset"), change) != pod("DaemonSet", scenario("daemonset"))


@pytest.mark.parametrize(
    "volume",
    [
        {"persistentVolumeClaim": {"claimName": "records"}},
        {"csi": {"driver": "efs.csi.aws.com"}},
        {"nfs": {"server": "nfs.example.com", "path": "/records"}},
    ],
)
def test_records_are_attached_and_mounted_read_only(volume: Document) -> None:
    [(kind, source)] = volume.items()
    template = pod(
        "CronJob", scenario("default"), {"collectors": {"xenna": {"enabled": True, "volume": volume}}}
    )
    assert {"name": "xenna", kind: {**source, "readOnly": True}} in template["spec"]["volumes"]
    mount = {"name": "xenna", "mountPath": "/records/xenna", "readOnly": True}
    assert mount in container(template)["volumeMounts"]


def test_records_in_s3_need_no_volume() -> None:
    paths = ["s3://bucket/a/{date}/*.jsonl", "s3://other/b"]
    values = {"collectors": {"xenna": {"enabled": True, "settings": {"paths": paths}}}}
    assert [volume["name"] for volume in pod("CronJob", scenario("default"), values)["spec"]["volumes"]] == [
        "tmp"
    ]


def test_state_is_in_s3_or_on_a_claim_or_nowhere() -> None:
    assert variables(pod("CronJob", scenario("existing-secret")))["FLEETGAUGE_STATE"] == "/state"
    assert variables(pod("CronJob", scenario("production")))["FLEETGAUGE_STATE"].startswith("s3://")
    assert "FLEETGAUGE_STATE" not in variables(pod("CronJob", scenario("default")))
    nodes = pod("DaemonSet", scenario("existing-secret"), {"daemonSet": {"enabled": True}})
    assert "FLEETGAUGE_STATE" not in variables(nodes), "a claim may be for one node at a time"


def test_role_is_an_annotation_of_a_service_account_without_a_token() -> None:
    more = {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "other", "team": "a"}}}
    account = only("ServiceAccount", scenario("production"), more)
    role = "arn:aws:iam::123456789012:role/fleetgauge"
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role, "team": "a"}
    assert account["automountServiceAccountToken"] is False
    assert not of_kind(render(scenario("existing-secret")), "ServiceAccount")
    assert pod("CronJob", scenario("existing-secret"))["spec"]["serviceAccountName"] == "monitoring"


def egress(*changes: dict[str, Any], name: str = "default") -> list[Document]:
    """The egress rules of a release's network policy."""
    policy = only("NetworkPolicy", scenario(name), {"networkPolicy": {"enabled": True}}, *changes)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    return list(policy["egress"])


@pytest.mark.parametrize(
    ("changes", "ports"),
    [
        ({}, []),
        ({"datadog": {"url": "https://intake.example.com:8443/api"}}, [8443]),
        ({"datadog": {"url": "http://intake", "allowPlainHttp": "intake"}}, [80]),
        ({"datadog": {"url": "http://intake/api", "allowPlainHttp": "intake:80"}}, [80]),
        ({"datadog": {"url": "http://intake:8080", "allowPlainHttp": "intake:8080"}}, [8080]),
        ({"collectors": {"wandb": {"settings": {"base_url": "https://wandb.example.com:8444"}}}}, [8444]),
        ({"aws": {"endpointUrl": "https://[fd00::1]:8445"}}, [8445]),
        ({"proxy": {"url": "http://proxy:3128/"}}, [3128]),
        ({"proxy": {"url": "http://proxy"}}, [80]),
        ({"extraEnv": [{"name": "AWS_ENDPOINT_URL_S3", "value": "https://minio:9000"}]}, [9000]),
        ({"proxy": {"existingSecret": "proxy"}, "networkPolicy": {"extraPorts": [3128, 443]}}, [3128]),
    ],
)
def test_network_policy_opens_the_ports_of_all_urls(changes: dict[str, Any], ports: list[int]) -> None:
    found = [(port["protocol"], port["port"]) for port in egress(changes)[0]["ports"]]
    assert found == [("UDP", 53), ("TCP", 53), ("TCP", 443), *[("TCP", port) for port in ports]]


ROLE = {"serviceAccount": {"roleArn": "arn:aws:iam::123456789012:role/fleetgauge"}}
SECRET = {"existingSecret": "keys", "aws": {"secretPrefix": "", "region": "us-east-1"}}
IN_S3 = {"collectors": {"xenna": {"enabled": True, "settings": {"paths": ["s3://bucket/records"]}}}}


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"aws": {"podIdentity": True}}, AGENT),
        ({}, AGENT + METADATA),
        (ROLE, []),
        (SECRET, []),
        ({"extraEnv": [{"name": "AWS_ACCESS_KEY_ID", "value": "AKIA"}]}, []),
        ({**SECRET, "state": {"s3": "s3://bucket"}}, AGENT + METADATA),
        ({**SECRET, **IN_S3}, AGENT + METADATA),
        ({**SECRET, **IN_S3, **ROLE}, []),
        ({**SECRET, "aws": {"secretPrefix": "", "podIdentity": True}}, AGENT),
    ],
)
def test_network_policy_opens_the_source_of_a_role(changes: dict[str, Any], allowed: list[str]) -> None:
    rules = [rule for rule in egress(changes) if "to" in rule]
    assert [block["ipBlock"]["cidr"] for rule in rules for block in rule["to"]] == allowed
    assert all(rule["ports"] == [{"protocol": "TCP", "port": 80}] for rule in rules)


def test_common_labels_are_on_everything_and_in_no_selector() -> None:
    documents = render(scenario("platform"))
    for document in documents:
        assert document["metadata"]["labels"]["cost-center"] == "4711"
    for template in pod_templates(documents).values():
        assert template["metadata"]["labels"]["cost-center"] == "4711"
    selectors = [of_kind(documents, "DaemonSet")[0]["spec"]["selector"]]
    selectors.append(of_kind(documents, "NetworkPolicy")[0]["spec"]["podSelector"])
    assert all("cost-center" not in selector["matchLabels"] for selector in selectors)


@pytest.mark.parametrize("env", ["team:ants", "x" * 64, "-a", "prod uction", "é"])
def test_env_that_is_no_label_is_only_a_tag(env: str) -> None:
    for template in pods({"datadog": {"env": env}}, name="default").values():
        assert variables(template)["DD_ENV"] == env
        labels = template["metadata"]["labels"]
        assert [key for key in labels if key.startswith("tags.")] == [
            "tags.datadoghq.com/service",
            "tags.datadoghq.com/version",
        ]


def test_placement_and_dns_reach_every_kind_of_pod() -> None:
    values = scenario("platform")
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = pods({"affinity": affinity, "tolerations": [{"operator": "Exists"}], "temporarySize": "1Gi"})
    assert set(found) == {"CronJob", "DaemonSet", "Job", "Test"}
    for kind, template in found.items():
        spec = template["spec"]
        assert (spec["dnsPolicy"], spec["dnsConfig"]) == (values["dnsPolicy"], values["dnsConfig"])
        assert spec["initContainers"] == values["initContainers"]
        assert container(template)["envFrom"] == values["extraEnvFrom"]
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
    documents = render(scenario("existing-secret"), {"extraManifests": more})
    assert of_kind(documents, "ConfigMap")[0]["metadata"]["name"] == "fleetgauge-more"
    assert of_kind(documents, "Secret")[0]["metadata"]["name"] == "fleetgauge-keys-text"


def test_values_that_other_charts_share_are_ignored() -> None:
    assert render(scenario("default"), {"global": {"storageClass": "fast"}}) == render(scenario("default"))


def test_helm_test_checks_with_the_rights_of_a_run() -> None:
    check, run = pod("Test", scenario("production")), pod("CronJob", scenario("production"))
    assert container(check)["args"] == ["data_plane", "gpu_memory", "wandb", "xenna", "--check"]
    ours, theirs = (dict(each["spec"], containers=None) for each in (check, run))
    assert ours == theirs
    assert {**container(check), "args": None} == {**container(run), "args": None}
    assert container(pod("Test", scenario("daemonset")))["args"] == ["host", "--check"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_command_line_accepts_the_arguments_of_every_pod(name: str) -> None:
    for key, template in pod_templates(render(scenario(name), {"verbose": True})).items():
        if "command" not in container(template):
            options = parser().parse_args(container(template)["args"])
            assert set(options.names) <= set(registry.names())
            assert options.check if key.startswith("Test/") else options.push and options.verbose
