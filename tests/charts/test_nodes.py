"""One pod per node: which collectors it runs, what it mounts, and what is refused."""

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
LOCAL = {"volume": {"hostPath": {"path": "/var/lib/records"}}}
CSI = {"volume": {"csi": {"driver": "local.csi.example.com"}}}
CLAIM = {"volume": {"persistentVolumeClaim": {"claimName": "records"}}}


def nodes(*changes: dict[str, Any], name: str = "node-records") -> Document:
    """The pod of the DaemonSet."""
    [template] = pod_templates(of_kind(render(scenario(name), *changes), "DaemonSet")).values()
    return template


def on_nodes(*names: str, **collectors: object) -> dict[str, Any]:
    return {"daemonSet": {"enabled": True, "collectors": list(names)}, "collectors": collectors}


def test_each_node_runs_what_was_chosen_and_reads_its_own_records() -> None:
    template = nodes()
    assert container(template)["args"][:3] == ["host", "gpu_memory", "data_plane"]
    found = variables(template)
    assert found["FLEETGAUGE_NODE_LOCAL"] == "true"
    assert found["FLEETGAUGE_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert found["FLEETGAUGE_STATE"] == "s3://acme-fleetgauge/state"
    assert found["FLEETGAUGE_GPU_MEMORY_PATHS"] == "/records/gpu_memory"
    mounts = {mount["name"]: mount for mount in container(template)["volumeMounts"]}
    assert mounts["gpu-memory"] == {
        "name": "gpu-memory",
        "mountPath": "/records/gpu_memory",
        "readOnly": True,
    }
    paths = [volume["hostPath"]["path"] for volume in template["spec"]["volumes"] if "hostPath" in volume]
    assert paths == ["/var/lib/fleetgauge/gpu_memory", "/var/lib/fleetgauge/data_plane"]
    for name, other in pod_templates(render(scenario("node-records"))).items():
        if name.startswith("CronJob/"):
            assert "FLEETGAUGE_NODE_LOCAL" not in variables(other)
            assert not [volume for volume in other["spec"]["volumes"] if "hostPath" in volume]


def test_host_may_be_left_out_and_is_alone_where_nothing_is_chosen() -> None:
    alone = nodes(on_nodes("xenna", xenna=LOCAL))
    assert container(alone)["args"][0] == "xenna"
    assert "FLEETGAUGE_NODE_NAME" in variables(alone)
    plain = nodes({"daemonSet": {"collectors": []}})
    assert container(plain)["args"][0] == "host"
    assert "FLEETGAUGE_NODE_LOCAL" not in variables(plain)


@pytest.mark.parametrize(
    ("names", "limit", "request_"),
    [
        (["host"], "128Mi", "64Mi"),
        (["host", "xenna"], "256Mi", "128Mi"),
        (["host", "xenna", "gpu_memory", "data_plane"], "512Mi", "256Mi"),
    ],
)
def test_memory_follows_the_collectors(names: list[str], limit: str, request_: str) -> None:
    changes = on_nodes(*names, **dict.fromkeys(names, LOCAL))
    assert container(nodes(changes))["resources"] == {
        "limits": {"memory": limit},
        "requests": {"cpu": "20m", "memory": request_},
    }
    more = {"daemonSet": {"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}}}
    said = container(nodes(changes, more))["resources"]
    assert (said["limits"], said["requests"]) == ({"memory": "1Gi"}, {"cpu": "20m", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (on_nodes("xenna"), "collectors.xenna.volume: say where its files are on every node"),
        (
            on_nodes("xenna", xenna=CLAIM),
            "collectors.xenna.volume: a claim is the same on every node, and each would read all of it",
        ),
        (
            on_nodes("xenna", xenna={**LOCAL, "settings": {"paths": ["s3://bucket/a"]}}),
            "collectors.xenna.settings.paths: every node would read all of S3",
        ),
        (
            on_nodes("xenna", xenna={**LOCAL, "enabled": True}),
            "collectors.xenna.enabled: the DaemonSet runs it on every node already",
        ),
        (
            {"collectors": {"xenna": {**LOCAL, "enabled": True}}},
            "collectors.xenna.volume: a hostPath is another on every node; name xenna in daemonSet.coll",
        ),
        (
            {
                **on_nodes("xenna", xenna=LOCAL),
                "backfill": {"enabled": True, "since": "7d", "collectors": ["xenna"]},
            },
            "collectors.xenna.volume: a hostPath is another on every node",
        ),
    ],
)
def test_what_a_node_cannot_read_alone_is_refused(values: dict[str, Any], said: str) -> None:
    assert [line for line in refusal(values) if line.startswith(f"- {said}")]


@pytest.mark.parametrize("change", [{"collectors": {"xenna": CSI}}, {"daemonSet": {"hostRoot": True}}])
def test_records_may_come_by_csi_or_with_the_whole_host(change: dict[str, Any]) -> None:
    template = nodes(on_nodes("xenna"), change, name="default")
    assert container(template)["args"][0] == "xenna"
    by_csi = [volume["csi"] for volume in template["spec"]["volumes"] if "csi" in volume]
    assert by_csi == (
        [{"driver": "local.csi.example.com", "readOnly": True}] if "collectors" in change else []
    )
