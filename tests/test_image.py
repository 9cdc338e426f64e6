"""What the Dockerfile makes: what is in the image, what is not, and what it starts."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import registry
from fleetgauge import __version__
from support.containers import SOURCE, USER, Engine, base_reference, needs_containers
from support.rendering import ROOT

pytestmark = [pytest.mark.slow, needs_containers]
MEGABYTE = 10**6
HARDENED = (
    *("--rm", "--pull", "never", "--network", "none", "--read-only", "--read-only-tmpfs=false"),
    *("--tmpfs", "/tmp:rw,noexec,nosuid,size=16m", "--cap-drop", "ALL", "--memory", "256m"),  # noqa: S108
)
IMPORT_ALL = """\
import importlib, json, pkgutil
import boto3, datadog_api_client
found = [module.name for module in pkgutil.walk_packages(datadog_api_client.__path__, "datadog_api_client.")]
for name in found:
    importlib.import_module(name)
for service in ("s3", "secretsmanager", "sts", "sso", "sso-oidc", "signin"):
    boto3.client(service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def files(engine: Engine, image: str) -> Iterator[Path]:
    """The image's file system, as a directory of this machine."""
    yield Path(engine.run("podman", "image", "mount", image).stdout.strip())
    engine.run("podman", "image", "unmount", image)


def run(engine: Engine, image: str, *arguments: str, entrypoint: str | None = None) -> str:
    chosen = ("--entrypoint", entrypoint) if entrypoint else ()
    return engine.run("podman", "run", *HARDENED, *chosen, image, *arguments).stdout


def test_its_arguments_alone_choose_the_job(engine: Engine, image: str) -> None:
    assert run(engine, image).startswith("usage: run_collector.py")
    assert run(engine, image, "--version") == f"{__version__}\n"
    listed = run(engine, image, "--list", "--json")
    assert sorted(json.loads(listed)) == registry.names()
    provision = ("/app/scripts/provision.py", "--help")
    ran = run(engine, image, *provision, entrypoint="/opt/venv/bin/python")
    assert ran.startswith("usage: provision.py")


def test_it_runs_as_a_user_without_a_name_and_says_what_it_is(engine: Engine, image: str) -> None:
    config = engine.inspect("image", image)["Config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "/app/scripts/run_collector.py"]
    labels = {
        key.rpartition(".")[2]: text for key, text in config["Labels"].items() if "opencontainers" in key
    }
    named = [labels[key] for key in ("title", "version", "revision", "licenses", "source")]
    assert named == ["fleetgauge", __version__, "0123456", "MIT", SOURCE]
    assert (labels["name"], labels["digest"]) == (base_reference()[1], "")  # of the base
    assert base_reference()[0] == "${PYTHON}${DIGEST:+@$DIGEST}", (
        "by tag, and pinned by digest if one is given"
    )


@pytest.mark.parametrize("user", ["0:0", f"{USER}:{USER}", "2147483647:54321"])
def test_it_runs_as_any_user(engine: Engine, image: str, user: str) -> None:
    ran = engine.run("podman", "run", *HARDENED, "--user", user, image, "host", "--json")
    [found] = json.loads(ran.stdout)["collectors"]
    assert (found["status"], found["error"]) == ("ok", None)


def test_of_the_project_it_holds_the_service_and_nothing_else(files: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "collectors", "common", "fleetgauge"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    scripts = ("run_collector", "provision", "datadog_documents", "marked")
    wanted = {name for name in listed if not name.endswith(".md")}
    wanted |= {f"scripts/{name}.py" for name in scripts}
    held = {str(path.relative_to(files / "app")) for path in (files / "app").rglob("*") if path.is_file()}
    assert {name for name in held if "__pycache__" not in name} == wanted


def test_everything_is_compiled_and_readable_and_nothing_is_writable(files: Path) -> None:
    for place in ("app", "opt/venv/lib"):
        for path in (files / place).rglob("*"):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            assert mode & stat.S_IROTH, path
            assert path.stat().st_uid != USER
            assert not mode & stat.S_IWOTH, path
            if path.suffix == ".py":
                assert list((path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")), path
    [compiled] = (files / "app" / "common" / "cli" / "__pycache__").glob("main.*.pyc")
    flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
    assert flags == 0b01, "found by hash, and never compared with its source"
    assert (files / "state").stat().st_uid == USER
    assert list((files / "state").iterdir()) == []


def test_its_packages_are_those_of_the_lock_and_there_is_no_compiler(files: Path) -> None:
    lock = (ROOT / "locks" / "service.txt").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==(\S+) .*\\$", lock, flags=re.MULTILINE))
    found = set()
    for path in (files / "opt" / "venv").rglob("*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        found.add((name.lower().replace("_", "-"), version))
    assert found == locked
    tools = {path.name for place in ("usr/bin", "usr/local/bin") for path in (files / place).glob("*")}
    assert not tools & {"cc", "gcc", "g++", "clang", "make", "ld"}
    assert not any((files / left).exists() for left in ("build", "root/.cache", "etc/pip.conf"))


def test_what_was_left_of_the_clients_can_all_be_imported(engine: Engine, image: str) -> None:
    found = json.loads(run(engine, image, "-c", IMPORT_ALL, entrypoint="/opt/venv/bin/python"))
    assert "datadog_api_client.v2.api.metrics_api" in found
    assert "datadog_api_client.v2.api.logs_api" not in found


def test_what_it_adds_to_its_base_stays_small(engine: Engine, image: str, files: Path) -> None:
    def size(place: Path) -> float:
        return sum(path.lstat().st_size for path in place.rglob("*")) / MEGABYTE

    [packages] = (files / "opt" / "venv" / "lib").glob("python3.*/site-packages")
    assert size(files / "opt" / "venv") + size(files / "app") <= 40
    assert size(packages / "datadog_api_client") < 5
    assert size(packages / "botocore") < 8
