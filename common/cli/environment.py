"""The variables that the child of a collector may see. Standard library only.

`supervise.py` starts children with them; `docs/decisions/09-secrets-are-a-type.md` has the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from common import registry

CHILD = "FLEETGAUGE_CHILD"  # names the collector that a process runs for its parent

# A list of what is passed, and not of what is removed: an unknown variable may be a credential.
_PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "NO_PROXY"),
    *("DD_ENV", "DD_SERVICE", "DD_VERSION", "DD_SITE", "DD_API_KEY", "AWS_REGION", "JOB_COMPLETION_INDEX"),
)


def child_environment(name: str, environ: Mapping[str, str], config: str | None) -> dict[str, str]:
    """Return the environment of the child of one collector: no other one's settings or credentials.

    `config` is the path of the configuration file, None for none. AWS credentials are for those that may need
    them: secrets are in AWS, or records or state in S3. A configuration file is not read here, so that with
    one they may always be needed.
    """
    declaration = registry.declaration(name)
    exact = {*_PASSED, *declaration.secrets, *declaration.environment}
    paths = f"{registry.PREFIX}{name.upper()}_PATHS"
    in_s3 = any("s3://" in environ.get(variable, "") for variable in (f"{registry.PREFIX}STATE", paths))
    needs_aws = bool(config or in_s3 or environ.get(f"{registry.PREFIX}SECRET_PREFIX", "").strip())
    # All AWS_ variables: roles of EKS (web identity, container credentials) are found by several of them.
    prefixes = (registry.PREFIX, f"{name.upper()}_", *(("AWS_",) if needs_aws else ()))
    passed = {
        variable: value
        for variable, value in registry.without_others(name, environ).items()
        if variable in exact or variable.startswith(prefixes)
    }
    return passed | {CHILD: name}
