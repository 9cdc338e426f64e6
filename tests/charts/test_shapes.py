"""What each value changes in what Kubernetes is given."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from common import registry
from common.cli.arguments import parser
from fleetgauge import __version__
from support.rendering import (
    CHART,
    ROOT,
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


def only(kind: str, *values: dict[str, Any], release: str = "fleetgauge") -> Document:
    """The one object of a kind."""
    [found] = of_kind(render(*values, release=release), kind)
    return found


def pod(kind: str, *values: dict[str, Any]) -> Document:
    """The pod of the one object of a kind."""
    [template] = pod_templates([only(kind, *values)]).values()
    return template


def arguments(kind: str, *values: dict[str, Any]) -> list[str]:
    """The arguments of the one object of a kind."""
    return list(container(pod(kind, *values))["args"])


def test_the_enabled_collectors_run_together_every_fifteen_minutes() -> None:
    cron = only("CronJob", scenario("production"))
    assert (cron["spec"]["schedule"], cron["spec"]["timeZone"]) == ("*/15 * * * *", "Etc/UTC")
    assert arguments("CronJob", scenario("production")) == [
        *("data_plane", "gpu_memory", "wandb", "xenna"),
        *("--push", "--timeout=120"),
    ]


def test_a_collector_with_its_own_schedule_is_its_own_cronjob() -> None:
    found = {cron["metadata"]["name"]: cron for cron in of_kind(render(scenario("schedules")), "CronJob")}
    assert {name: cron["spec"]["schedule"] for name, cron in found.items()} == {
        "fleetgauge": "*/15 * * * *",
        "fleetgauge-gpu-memory": "*/5 * * * *",
        "fleetgauge-xenna": "*/20 * * * *",
    }
    jobs = {name: cron["spec"]["jobTemplate"]["spec"] for name, cron in found.items()}
    assert [container(job["template"])["args"] for job in jobs.values()] == [
        ["wandb", "--push", "--timeout=120"],
        ["gpu_memory", "--push", "--timeout=120"],
        ["xenna", "--push", "--timeout=900"],
    ]
    assert [variables(job["template"])["FLEETGAUGE_STEP"] for job in jobs.values()] == ["15m", "5m", "20m"]
    assert [job["activeDeadlineSeconds"] for job in jobs.values()] == [600, 200, 1000]
    assert "FLEETGAUGE_XENNA_PATHS" not in variables(jobs["fleetgauge"]["template"])


def test_the_image_is_the_charts_version_unless_a_tag_or_a_digest_says_otherwise() -> None:
    def image(**values: str) -> str:
        return str(container(pod("CronJob", scenario("default"), {"image": values}))["image"])

    assert image() == f"registry.example.com/fleetgauge:{__version__}"
    assert image(repository="localhost:5000/team/gauge", tag="2") == "localhost:5000/team/gauge:2"
    assert image(tag="2", digest=DIGEST) == f"registry.example.com/fleetgauge@{DIGEST}"


def test_the_versions_of_chart_image_and_project_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == __version__
    assert "\nARG VERSION=\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_a_dev_release_stands_beside_production() -> None:
    production = {(each["kind"], each["metadata"]["name"]) for each in render(scenario("production"))}
    documents = render(scenario("dev"), release="fleetgauge-dev")
    assert not production & {(each["kind"], each["metadata"]["name"]) for each in documents}
    assert only("CronJob", scenario("dev"))["spec"]["suspend"] is True
    assert variables(pod("CronJob", scenario("dev")))["DD_ENV"] == "dev"
    assert (
        only("CronJob", scenario("default"), {"nameOverride": "gauge"}, release="r")["metadata"]["name"]
        == "r-gauge"
    )


def test_the_daemonset_measures_every_gpu_node_under_its_own_name() -> None:
    daemons = only("DaemonSet", scenario("daemonset"))
    template = daemons["spec"]["template"]
    assert container(template)["args"] == ["host", "--push", "--every=60s", "--timeout=120"]
    found = variables(template)
    assert found["FLEETGAUGE_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert (found["NVIDIA_VISIBLE_DEVICES"], found["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert template["spec"]["runtimeClassName"] == "nvidia"
    assert template["spec"]["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.present": "true",
    }
    assert template["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert daemons["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert not of_kind(render(scenario("daemonset")), "CronJob")


def test_a_pod_of_a_node_is_ready_once_a_tick_was_good() -> None:
    template = pod("DaemonSet", scenario("daemonset"))
    file = variables(template)["FLEETGAUGE_READY_FILE"]
    assert container(template)["readinessProbe"] == {"exec": {"command": ["test", "-e", file]}}
    assert any(file.startswith(one["mountPath"]) for one in container(template)["volumeMounts"])
    assert "readinessProbe" not in container(pod("CronJob", scenario("default")))


def test_the_host_is_mounted_only_where_it_is_asked_for_and_read_only() -> None:
    asked = {"daemonSet": {"hostRoot": True}}
    template = pod("DaemonSet", scenario("daemonset"), asked)
    assert variables(template)["FLEETGAUGE_HOST_ROOT"] == "/host"
    assert variables(template)["NVIDIA_VISIBLE_DEVICES"] == "all"
    [mount] = [one for one in container(template)["volumeMounts"] if one["mountPath"] == "/host"]
    assert (mount["readOnly"], mount["mountPropagation"]) == (True, "HostToContainer")
    assert {"name": mount["name"], "hostPath": {"path": "/"}} in template["spec"]["volumes"]
    alone = pod("DaemonSet", scenario("daemonset"), asked, {"daemonSet": {"nvidia": {"visibleDevices": ""}}})
    assert variables(alone)["FLEETGAUGE_HOST_ROOT"] == "/host"
    plain = pod("DaemonSet", scenario("daemonset"))
    assert "FLEETGAUGE_HOST_ROOT" not in variables(plain)
    assert not any("hostPath" in volume for volume in plain["spec"]["volumes"])


@pytest.mark.parametrize(
    "change",
    [
        {"collectors": {"host": {"settings": {"gpu_uuid": False}}}},
        {"datadog": {"site": "datadoghq.eu"}},
        {"daemonSet": {"every": "30s"}},
        {"aws": {"secretPrefix": "other"}},
        {"image": {"tag": "9"}},
    ],
)
def test_a_change_of_configuration_rolls_the_daemonset(change: dict[str, Any]) -> None:
    assert pod("DaemonSet", scenario("daemonset"), change) != pod("DaemonSet", scenario("daemonset"))
    kinds = {document["kind"] for document in render(scenario("daemonset"))}
    assert "ConfigMap" not in kinds, "which could change behind a pod's back"


def test_records_are_mounted_so_that_nothing_can_change_them() -> None:
    spec = pod("CronJob", scenario("production"))["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["xenna"] == {"name": "xenna", "mountPath": "/records/xenna", "readOnly": True}
    source = {"claimName": "pipeline-records", "readOnly": True}
    assert volumes["xenna"] == {"name": "xenna", "persistentVolumeClaim": source}
    assert set(mounts) == set(volumes) == {"tmp", "data-plane", "gpu-memory", "xenna"}


def test_state_is_in_s3_or_on_a_claim_or_nowhere() -> None:
    template = pod("CronJob", scenario("claim"))
    assert variables(template)["FLEETGAUGE_STATE"] == "/state"
    assert {"name": "state", "mountPath": "/state"} in container(template)["volumeMounts"]
    claim = {"persistentVolumeClaim": {"claimName": "fleetgauge-state"}}
    assert {"name": "state", **claim} in template["spec"]["volumes"]
    template = pod("CronJob", scenario("s3-state"))
    assert variables(template)["FLEETGAUGE_STATE"] == "s3://acme-fleetgauge/state"
    assert "state" not in [volume["name"] for volume in template["spec"]["volumes"]]
    assert "FLEETGAUGE_STATE" not in variables(pod("CronJob", scenario("default")))
    nodes = pod("DaemonSet", scenario("claim"), {"daemonSet": {"enabled": True}})
    assert "FLEETGAUGE_STATE" not in variables(nodes), "a claim may be for one node at a time"


def test_the_role_is_an_annotation_of_a_service_account_without_a_token() -> None:
    account = only("ServiceAccount", scenario("production"))
    role = "arn:aws:iam::123456789012:role/fleetgauge"
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": role}
    assert account["automountServiceAccountToken"] is False
    more = {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "other", "team": "a"}}}
    both = only("ServiceAccount", scenario("production"), more)["metadata"]["annotations"]
    assert both == {"eks.amazonaws.com/role-arn": role, "team": "a"}
    assert pod("CronJob", scenario("production"))["spec"]["serviceAccountName"] == "fleetgauge"
    assert not of_kind(render(scenario("existing-secret")), "ServiceAccount")
    assert pod("CronJob", scenario("existing-secret"))["spec"]["serviceAccountName"] == "monitoring"


def test_the_network_policy_lets_out_dns_https_and_the_proxy_and_lets_in_nothing() -> None:
    policy = only("NetworkPolicy", scenario("production"))["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    ports = [(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]]
    assert ports == [("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 3128)]
    for url, port in (("http://proxy", 80), ("https://proxy:8443/", 8443), ("https://proxy", 443)):
        rules = only("NetworkPolicy", scenario("production"), {"proxy": {"url": url}})["spec"]["egress"]
        assert rules[-1] == {"ports": [{"protocol": "TCP", "port": port}]}
    labels = pod("CronJob", scenario("production"))["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert not of_kind(render(scenario("default")), "NetworkPolicy")


def test_helm_test_checks_with_the_rights_of_a_run() -> None:
    job = only("Test", scenario("production"))
    check = job["spec"]["template"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert container(check)["args"] == ["data_plane", "gpu_memory", "wandb", "xenna", "--check"]
    run = pod("CronJob", scenario("production"))
    ours, theirs = (dict(each["spec"], containers=None) for each in (check, run))
    assert ours == theirs
    assert {**container(check), "args": None} == {**container(run), "args": None}
    assert arguments("Test", scenario("daemonset")) == ["host", "--check"]


def test_what_helm_test_makes_ends_and_goes_by_itself() -> None:
    """Helm forgets it: a test that succeeded is deleted at once, one that failed once its log was read."""
    job = only("Test", scenario("default"))
    policies = job["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
    assert policies == ["before-hook-creation", "hook-succeeded"]
    assert job["spec"]["activeDeadlineSeconds"] == 600
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["ttlSecondsAfterFinished"] == 600


def test_an_operator_may_place_mark_and_extend_pods() -> None:
    more = {
        "nodeSelector": {"pool": "jobs"},
        "tolerations": [{"key": "jobs", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "low",
        "podAnnotations": {"note": "a"},
        "podLabels": {"team": "b"},
        "extraEnv": [{"name": "LANG", "value": "C.UTF-8"}],
        "verbose": True,
        "terminationGracePeriodSeconds": 80,
    }
    template = pod("CronJob", scenario("default"), more)
    spec = template["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "jobs"}
    for key in (
        "tolerations",
        "affinity",
        "priorityClassName",
        "terminationGracePeriodSeconds",
    ):
        assert spec[key] == more[key]
    assert template["metadata"]["annotations"] == {"note": "a"}
    assert template["metadata"]["labels"]["team"] == "b"
    assert variables(template)["LANG"] == "C.UTF-8"
    assert container(template)["args"][-1] == "--verbose"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_command_line_understands_the_arguments_of_every_pod(name: str) -> None:
    for pod, template in pod_templates(render(scenario(name))).items():
        options = parser().parse_args(container(template)["args"])
        assert set(options.names) <= set(registry.names())
        assert options.check if pod.startswith("Test/") else options.push


def test_limits_of_a_cronjob_are_an_operators_to_set() -> None:
    changed = {
        "suspend": True,
        "timeZone": "Europe/Berlin",
        "startingDeadlineSeconds": 11,
        "successfulJobsHistoryLimit": 0,
        "failedJobsHistoryLimit": 9,
    }
    of_job = {"activeDeadlineSeconds": 141, "backoffLimit": 1, "ttlSecondsAfterFinished": 13}
    spec = only("CronJob", scenario("default"), changed, of_job)["spec"]
    assert {key: spec[key] for key in changed} == changed
    assert {key: spec["jobTemplate"]["spec"][key] for key in of_job} == of_job
