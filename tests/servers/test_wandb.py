"""The W&B server on loopback: that it fails as the service would, and is good enough for the real client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from support.servers.fleet import Row, client_config, text
from support.servers.wandb import KEY, Wandb

NOW = 1_800_000_000.0


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def ask(server: Wandb, query: str, **variables: Any) -> tuple[int, Any]:
    with urllib3.PoolManager(retries=False, timeout=5) as pool:
        answer = pool.request(
            "POST",
            f"{server.url}/graphql",
            body=json.dumps({"query": query, "variables": variables}).encode(),
            headers=urllib3.make_headers(basic_auth=f"api:{KEY}", accept_encoding="gzip"),
        )
        return answer.status, answer.json()


def test_only_the_keys_asked_for_come(server: Wandb) -> None:
    filler = ({"loss": 1}, {"seed": {"value": 3}})
    server.add("acme", "ants", [Row("a", summary={"x": 1, "y": 2}, config=client_config(4), filler=filler)])
    query = """{ project(name: "ants", entityName: "acme") { run(name: "a") {
        some: summaryMetrics(keys: ["x", "loss", "z"]) all: summaryMetrics config(keys: ["seed"])
    } } }"""
    run = ask(server, query)[1]["data"]["project"]["run"]
    assert json.loads(run["some"]) == {"x": 1, "loss": 1}
    assert json.loads(run["all"]) == {"x": 1, "y": 2, "loss": 1}
    assert json.loads(run["config"]) == {"seed": {"value": 3}}


@pytest.mark.parametrize(
    ("document", "matches"),
    [
        ({"createdAt": {"$gte": text(NOW), "$lt": text(NOW + 1)}}, True),
        ({"createdAt": {"$gte": text(NOW - 9).removesuffix("Z")}}, False),
        ({"heartbeatAt": {"$gte": text(0)}}, False),
        ({"shoeSize": 43}, False),
        ({"createdAt": {"$gte": NOW}}, None),
        ({"$xor": []}, None),
        ({"state": {"$like": "r"}}, None),
        ([], None),
    ],
)
def test_filters_choose_as_mongo_would_and_bad_ones_are_a_500(
    server: Wandb, document: Any, matches: bool | None
) -> None:
    server.add("acme", "ants", [Row("a", "running", NOW, None, "train")])
    query = """query ($filters: JSONString) {
        project(name: "ants", entityName: "acme") { runs(filters: $filters) { totalCount } }
    }"""
    status, answer = ask(server, query, filters=json.dumps(document))
    assert status == (500 if matches is None else 200)
    if matches is not None:
        assert answer["data"]["project"]["runs"]["totalCount"] == int(matches)


SCRIPT = """
import json, sys, wandb
api = wandb.Api(overrides={"base_url": sys.argv[1]}, api_key=sys.argv[2], timeout=20)
runs = api.runs("acme/ants", filters={"createdAt": {"$gte": sys.argv[3]}}, per_page=100)
print(json.dumps([[run.id, run.state, run.summary.get("overview/sps"), run.config] for run in runs]))
"""


def test_official_client_lists_runs_with_summary_and_config(server: Wandb, tmp_path: Path) -> None:
    rows = [
        Row("old", created_at=NOW - 9000),
        Row("a", "running", NOW, NOW + 5, summary={"overview/sps": 7.5}, config=client_config(8, seed=3)),
        Row("b", "failed", NOW + 1, NOW + 2),
    ]
    server.add("acme", "ants", rows)
    folders = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "HOME", "TMPDIR")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.url, KEY, text(NOW)],
        env={
            "PATH": os.environ["PATH"],
            "WANDB_ERROR_REPORTING": "false",
            **dict.fromkeys(folders, str(tmp_path)),
        },
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["a", "running", 7.5, {"seed": 3}], ["b", "failed", None, {}]]
