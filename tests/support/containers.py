"""The image, really built from the Dockerfile as it stands, and pods of the chart, really run from it.

No registry is asked: Debian's Python of the same version stands in for the base that the Dockerfile names.
podman takes the pod that Helm rendered; only what a cluster would fill in is filled in here first.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetgauge import __version__
from support.rendering import HELM, ROOT, Document, container
from support.requirements import skip_without

TOOLS = ("buildah", "catatonit", "mmdebstrap", "podman", "runc")
USER = 10001
NODE = "node-of-the-test"
SOURCE = "https://example.com/acme/fleetgauge"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# crun fails on machines with hybrid cgroups, and the default limits need a capability that containers lack.
CONFIGURATION = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"


def why_not() -> str | None:
    """What this machine lacks to build and run images, or None."""
    if os.geteuid() != 0:
        return "needs root: it builds and runs images"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}: not installed"
    return None if HELM.exists() else "needs helm: helm-binary exists for Linux on x86_64 only"


needs_containers = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Engine:
    """podman and buildah with a configuration of ours; other containers of this machine are left alone."""

    def __init__(self, folder: Path) -> None:
        configuration = folder / "containers.conf"
        configuration.write_text(CONFIGURATION)
        self._folder = folder
        self._environment = {**os.environ, "CONTAINERS_CONF": str(configuration)}

    def run(self, *command: str, timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run to the end; a failure is an error that shows what was said."""
        ran = subprocess.run(
            command,
            cwd=self._folder,  # where a monitor leaves a note about memory that ran out
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )
        assert ran.returncode == 0, f"{' '.join(command[:3])}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        return ran

    def inspect(self, kind: str, name: str) -> Document:
        """What podman knows of something: a list of one, or of a pod, in older versions, the thing itself."""
        found = json.loads(self.run("podman", kind, "inspect", name).stdout)
        only: Document = found[0] if isinstance(found, list) else found
        return only


def base_reference() -> tuple[str, str]:
    """The base that the Dockerfile names: as it is written, and with its arguments filled in."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    [written] = re.findall(r"^FROM (\S+) AS base$", text, flags=re.MULTILINE)
    [python] = re.findall(r"^ARG PYTHON=(\S+)$", text, flags=re.MULTILINE)
    return written, python


def stand_in(engine: Engine) -> str:
    """An image with Debian's Python of the version the Dockerfile asks for, made once per machine."""
    match = re.fullmatch(r"docker\.io/library/python:(\d+\.\d+)-slim-(\w+)", base_reference()[1])
    assert match, "the base is an official slim image, by tag"
    version, suite = match.groups()
    recipe = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", suite]
    key = hashlib.sha256(" ".join(recipe).encode()).hexdigest()[:12]
    reference = f"localhost/fleetgauge-standin:{version}-{key}"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "fleetgauge-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes run tests too
        if not engine.run("podman", "images", "--quiet", reference).stdout:
            tarball = cache / f"{suite}-{key}.tar"
            _make(recipe, tarball)
            engine.run("podman", "import", "--quiet", str(tarball), reference)
    return reference


def _make(recipe: list[str], tarball: Path) -> None:
    if tarball.exists():
        return
    with tempfile.TemporaryDirectory(dir=tarball.parent) as folder:
        made = Path(folder, "base.tar")
        ran = subprocess.run([*recipe, str(made)], capture_output=True, text=True, check=False)
        if ran.returncode:
            skip_without("debian-mirror", f"no base image: {ran.stderr.strip().splitlines()[-1]}")
        made.rename(tarball)


def skip_unless_it_runs(engine: Engine, base: str) -> None:
    """Skip where podman is installed and yet may not run anything."""
    try:
        engine.run("podman", "run", "--rm", "--pull", "never", "--network", "none", base, "true")
    except AssertionError as error:
        skip_without("container-rights", f"podman cannot run: {error}")


def build(engine: Engine, folder: Path) -> str:
    """Build the image and return its name."""
    written, filled_in = base_reference()
    base = stand_in(engine)
    skip_unless_it_runs(engine, base)
    reference = f"localhost/fleetgauge:test-{uuid.uuid4().hex[:12]}"
    mounts = []
    (folder / "pip.conf").write_text(_pip_configuration())
    if CERTIFICATES.exists():  # behind a proxy that looks into TLS, the base alone trusts nobody
        mounts = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    engine.run(
        *("buildah", "bud", "--isolation", "chroot", "--network", "host", "--pull-never"),
        # Older versions look for the text of FROM, newer ones for what it comes to.
        *("--build-context", f"{written}=container-image://{base}"),
        *("--build-context", f"{filled_in}=container-image://{base}"),
        *("--volume", f"{folder / 'pip.conf'}:/etc/pip.conf:ro", *mounts),
        *("--build-arg", f"VERSION={__version__}", "--build-arg", "REVISION=0123456"),
        *("--build-arg", f"SOURCE={SOURCE}", "--tag", reference, str(ROOT)),
    )
    return reference


def _pip_configuration() -> str:
    """Where this machine's pip finds packages, for the pip in the build."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # none made by uv
    lines = ["[global]", f"cert = {CERTIFICATES}"] if CERTIFICATES.exists() else ["[global]"]
    for key, value in re.findall(
        r"\.(index-url|extra-index-url|proxy|timeout)='(.*)'$", listed, re.MULTILINE
    ):
        if "file:" not in value:
            lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


class Pod:
    """A pod that podman runs."""

    def __init__(self, engine: Engine, name: str, grace: int) -> None:
        self._engine = engine
        self._name = name
        self.grace = grace

    @property
    def container(self) -> str:
        """What podman calls its container."""
        return f"{self._name}-fleetgauge"

    @property
    def state(self) -> Document:
        """What podman knows of its container."""
        return self._engine.inspect("container", self.container)

    def wait(self, seconds: float) -> int:
        """The exit code; not having ended by then is an error."""
        return int(self._engine.run("podman", "wait", self.container, timeout=seconds).stdout)

    def log(self) -> str:
        said = self._engine.run("podman", "logs", self.container)
        return said.stdout + said.stderr

    def stop(self) -> int:
        """End it as the kubelet does, with SIGKILL when the pod's own grace is over; the exit code."""
        self._engine.run("podman", "stop", "--time", str(self.grace), self.container)
        return int(self.state["State"]["ExitCode"])


@contextmanager
def running(
    engine: Engine,
    template: Document,
    *,
    secrets: Mapping[str, Mapping[str, str]] | None = None,
    claims: Mapping[str, Path] | None = None,
) -> Iterator[Pod]:
    """Start the pod of a rendered template, and remove it in the end."""
    name = f"fleetgauge-{uuid.uuid4().hex[:12]}"
    filled = filled_in(template, secrets or {}, claims or {})
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": filled["spec"]}
    pod["metadata"] = {**filled.get("metadata", {}), "name": name}
    pod["metadata"].pop("namespace", None)
    try:
        engine.run("podman", "play", "kube", "--network", "host", "-", input=yaml.safe_dump(pod))
        yield Pod(engine, name, pod["spec"]["terminationGracePeriodSeconds"])
    finally:
        remove = ("podman", "pod", "rm", "--force", "--ignore", "--time", "0", name)
        try:
            engine.run(*remove)
        except AssertionError:  # podman 4 may crash where a volume goes at the same time; the pod stays
            engine.run(*remove)


def filled_in(
    template: Document, secrets: Mapping[str, Mapping[str, str]], claims: Mapping[str, Path]
) -> Document:
    """The template with what a cluster puts in: secrets and config maps, the node's name, bound volumes."""
    filled = copy.deepcopy(template)
    for variable in container(filled).get("env", []):
        source = variable.pop("valueFrom", {})
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            variable["value"] = secrets[reference["name"]][reference["key"]]
        elif "fieldRef" in source:
            assert source == {"fieldRef": {"fieldPath": "spec.nodeName"}}
            variable["value"] = NODE
    for source in container(filled).pop("envFrom", []):
        [reference] = source.values()
        held = secrets[reference["name"]]
        container(filled)["env"] += [{"name": name, "value": value} for name, value in held.items()]
    for volume in filled["spec"]["volumes"]:
        claim = volume.pop("persistentVolumeClaim", None)
        if claim is not None:
            volume["hostPath"] = {"path": str(claims[claim["claimName"]]), "type": "Directory"}
    return filled
