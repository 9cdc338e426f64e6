"""Read the configuration file with the standard library only, as the parent process does."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from common.errors import ConfigurationError

DATADOG_TABLE = "datadog"
PROVISION_TABLE = "provision"
MAX_BYTES = 2**18


def read_tables(path: str) -> dict[str, Any]:  # Any: TOML values
    """Return the content of a TOML file; ConfigurationError names the file and what is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigurationError(f"the configuration file {path} is larger than {MAX_BYTES:,} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except RecursionError:
        raise ConfigurationError(f"the configuration file {path} is nested too deep") from None
    except ValueError as error:  # from None: a UnicodeDecodeError contains the content of the file
        raise ConfigurationError(f"the configuration file {path} is not TOML: {error}") from None
