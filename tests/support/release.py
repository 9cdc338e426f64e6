"""A release of the chart whose values lead to Datadog, W&B and AWS on loopback, with something to read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from support.containers import USER
from support.project import KEY
from support.record_files import write_records
from support.rendering import Document, of_kind, pod_templates, render, scenario
from support.servers.aws import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Aws
from support.servers.datadog import Intake
from support.servers.fleet import plausible_day
from support.servers.wandb import Wandb

PREFIX = "production/datadog/collectors"
COLLECTORS = ["data_plane", "gpu_memory", "host", "wandb", "xenna"]
RECORDS = ["xenna", "gpu_memory", "data_plane"]
SECRETS = {"aws": {"secret": SECRET_ACCESS_KEY}}


def claim(name: str) -> Document:
    return {"persistentVolumeClaim": {"claimName": f"{name.replace('_', '-')}-records"}}


class Release:
    """The values of a release with every collector, and the servers and volumes they lead to."""

    def __init__(self, image: str, intake: Intake, wandb: Wandb, aws: Aws, folder: Path) -> None:
        self.intake = intake
        self.aws = aws
        self.folder = folder
        self._wandb = wandb
        (folder / "state").mkdir()
        os.chown(folder / "state", USER, USER)  # as fsGroup has the kubelet do
        folder.chmod(0o755)
        aws.put_secret(f"{PREFIX}/datadog", {"DD_API_KEY": KEY})
        aws.put_secret(f"{PREFIX}/wandb", {"WANDB_API_KEY": KEY})
        repository, _, tag = image.rpartition(":")
        records = {name: {"enabled": True, "volume": claim(name)} for name in RECORDS}
        self.values: Document = {
            "image": {"repository": repository, "tag": tag},
            "datadog": {"url": intake.url},
            "aws": {"endpointUrl": aws.url},
            "collectors": {
                "wandb": {"settings": {"projects": ["acme/ants"], "base_url": wandb.url}},
                "host": {"enabled": True},
                **records,
            },
            "state": {"existingClaim": "fleetgauge-state"},
            "extraEnv": [
                {"name": "AWS_ACCESS_KEY_ID", "value": ACCESS_KEY_ID},
                {
                    "name": "AWS_SECRET_ACCESS_KEY",
                    "valueFrom": {"secretKeyRef": {"name": "aws", "key": "secret"}},
                },
            ],
        }

    def fill(self, writers: int = 1, runs: int = 60) -> None:
        """Give it something to read: so many writers of each kind of records, and runs in W&B."""
        write_records(self.folder / "records", writers)
        self._wandb.add("acme", "ants", plausible_day(time.time(), runs))

    @property
    def claims(self) -> dict[str, Path]:
        """The directories that stand for volumes, by claim."""
        records = {f"{name.replace('_', '-')}-records": self.folder / "records" / name for name in RECORDS}
        return {"fleetgauge-state": self.folder / "state", **records}

    def render(self, *changes: dict[str, Any]) -> list[Document]:
        return render(scenario("default"), self.values, *changes)

    def template(self, kind: str, *changes: dict[str, Any]) -> Document:
        [found] = pod_templates(of_kind(self.render(*changes), kind)).values()
        return found
