"""Values that are each right but do not go together are refused, and the refusal says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from rendering import needs_helm, refusal

pytestmark = needs_helm
RECORDS = {"enabled": True, "volume": {"persistentVolumeClaim": {"claimName": "records"}}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {"tag": "latest"}}, "image.tag: `latest` names no version"),
        (
            {"aws": {"secretPrefix": ""}},
            "credentials: set aws.secretPrefix (AWS Secrets Manager) or existingSecret",
        ),
        (
            {"existingSecret": "keys"},
            "credentials: set aws.secretPrefix (AWS Secrets Manager) or existingSecret",
        ),
        ({"aws": {"region": ""}}, "aws.region: set the region"),
        ({"collectors": {"wandb": {"enabled": False}}}, "collectors: none is enabled"),
        (
            {"daemonSet": {"enabled": True}, "collectors": {"host": {"enabled": True}}},
            "collectors.host.enabled: the DaemonSet measures every node already",
        ),
        ({"collectors": {"xenna": RECORDS}}, "collectors.xenna: it reads files bit by bit; set checkpoints"),
        (
            {"collectors": {"data_plane": {"enabled": True}}, "checkpoints": {"s3": "s3://bucket"}},
            "collectors.data_plane.volume: say which volume holds its files",
        ),
        (
            {"checkpoints": {"s3": "s3://bucket", "persistentVolumeClaim": {"create": True}}},
            "checkpoints: set one of s3, persistentVolumeClaim.create",
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
        (
            {
                "backfill": {"enabled": True, "since": "2026-11-07", "until": "2026-11-14", "slices": 2},
                "checkpoints": {"persistentVolumeClaim": {"create": True}},
            },
            "backfill.slices: slices run on several nodes",
        ),
        ({"extraEnv": [{"name": "DD_ENV", "value": "x"}]}, "extraEnv: DD_ENV has a value of its own"),
        ({"step": "2h"}, "step: a live run's is at least a second and at most 1h"),
        ({"step": "0"}, "step: a live run's is at least a second and at most 1h"),
        (
            {"collectors": {"wandb": {"schedule": "7 */2 * * *", "step": "1h1m"}}},
            "collectors.wandb.step: a live run's is at least a second and at most 1h",
        ),
        ({"daemonSet": {"enabled": True, "every": "0m"}}, "daemonSet.every: it is at least a second"),
        ({"extraEnv": [{"name": "LANG"}]}, "extraEnv: give LANG a value or a valueFrom"),
    ],
)
def test_values_that_do_not_go_together_are_explained(values: dict[str, Any], said: str) -> None:
    assert [line for line in refusal(values) if line.startswith(f"- {said}")]


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal({"image": {"tag": "latest"}, "aws": {"region": ""}})
    assert len([line for line in said if line.startswith("- ")]) == 2
