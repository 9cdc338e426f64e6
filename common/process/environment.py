"""What a child is started with: the Python that runs it, and the variables that it may see.

Standard library only. What a child needs of the environment is passed on, and nothing else.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from common import registry
from common.config.file import PROVISION_TABLE, read_tables
from common.errors import ConfigurationError
from common.job import DATADOG, Job, Mode

_PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "DD_ENV", "DD_SERVICE", "DD_VERSION", "DD_SITE", "AWS_REGION"),
)
_PROXY = ("HTTPS_PROXY", "NO_PROXY")

# What the group `service` of pyproject.toml is imported as.
NEEDED = (
    *("boto3", "datadog_api_client", "orjson", "psutil", "pydantic_settings"),
    *("pynvml", "tenacity", "urllib3"),
    *(("backports",) if sys.version_info < (3, 14) else ()),  # of zstd
)


def child_environment(job: Job, environ: Mapping[str, str]) -> dict[str, str]:
    """What one child may see: no other collector's settings, and only credentials it can need."""
    secrets: list[str] = []
    more: tuple[str, ...] = ()
    own: str | None = None
    if job.collector != DATADOG and job.mode is not Mode.REPORT:
        own = job.collector
        _, declared, more = registry.declaration(own)
        secrets.extend(declared)
    if job.collector == DATADOG or job.mode in {Mode.PUSH, Mode.REPORT}:
        secrets.append("DD_API_KEY")
    past = job.backfill and (job.mode is Mode.PUSH or job.collector == DATADOG)
    if past or (job.mode is Mode.SETTINGS and job.collector == DATADOG):
        secrets.append("DD_APP_KEY")
    # A secret is read unless the child sees every key of it, also those that are not passed on.
    keys = {*secrets, "DD_APP_KEY"} if "DD_API_KEY" in secrets else {*secrets}
    unseen = [name for name in keys if name not in secrets or not environ.get(name)]
    asks_aws = unseen and configured(job, environ, "secret_prefix")
    in_s3 = "s3://" in configured(job, environ, "state") + configured(job, environ, "paths", own)
    needs_aws = bool(asks_aws) or in_s3
    # Whoever talks to a service may do so through a proxy, whose address may hold a password.
    exact = {*_PASSED, *secrets, *more, *(_PROXY if secrets or needs_aws else ())}
    shared = (registry.PREFIX, "AWS_") if needs_aws else (registry.PREFIX,)
    known = [*registry.names(), PROVISION_TABLE]  # what that is given is no collector's
    passed = {
        name: value
        for name, value in environ.items()
        if name in exact
        or (owner == own if (owner := registry.owner(name, known)) else name.startswith(shared))
    }
    return passed | {"PYTHONPATH": str(registry.ROOT)}


def configured(job: Job, environ: Mapping[str, str], name: str, collector: str | None = None) -> str:
    """One setting, core or of a collector, as the child will see it. What cannot be read it will report."""
    variable = f"FLEETGAUGE_{collector}_{name}" if collector else f"FLEETGAUGE_{name}"
    text = environ.get(variable.upper(), "").strip()
    if text or job.config is None:
        return text
    with suppress(ConfigurationError):
        tables = read_tables(job.config)
        table = tables.get(collector, {}) if collector else tables
        return str(table.get(name, "")) if isinstance(table, dict) else ""
    return ""


def interpreter() -> str:
    """The project's own Python where there is one, or else this one, as in the image."""
    own = registry.ROOT / ".venv" / "bin" / "python"
    if os.access(own, os.X_OK):
        return str(own)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ConfigurationError(
            f"this Python ({sys.executable}) lacks {', '.join(missing)}, which the service needs: "
            f"run {registry.ROOT / 'scripts' / 'setup'} once"
        )
    return sys.executable
