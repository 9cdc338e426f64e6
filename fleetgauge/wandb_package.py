"""Import the package of W&B, which is optional.

W&B makes a directory `wandb` where a job runs. Python imports that where the package is missing: as a
namespace package, without any of W&B's functions. `wandb_logger` and the probes import W&B through here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

MISSING = "wandb is not installed: pip install 'fleetgauge[wandb]'"


# Any: it is optional, and may be a stand-in.
def load() -> Any:
    """Import W&B. Raises ModuleNotFoundError, with the command to install it."""
    if not is_installed():
        raise ModuleNotFoundError(MISSING, name="wandb")
    return importlib.import_module("wandb")


def is_installed() -> bool:
    """Return whether the package is installed, imported or not."""
    if "wandb" in sys.modules:
        module = sys.modules["wandb"]
        # A module imported from a directory has a path, but no file.
        return module is not None and (
            not hasattr(module, "__path__") or getattr(module, "__file__", None) is not None
        )
    try:
        spec = importlib.util.find_spec("wandb")
    except (ImportError, ValueError):
        return False
    # A directory without an `__init__.py` has no origin.
    return spec is not None and spec.origin is not None
