"""Whether a machine could have GPUs at all, by what its PCI bus lists.

Knows sysfs and the identifiers of vendors; knows nothing of drivers. A bus lists the boards of a machine
from inside a container too, whether or not anything there can use them.
"""

from __future__ import annotations

from pathlib import Path

_VENDORS = ("0x10de", "0x1002")  # NVIDIA, and AMD's graphics
_CLASSES = ("0x03", "0x12")  # display controllers and processing accelerators


def lists_gpus(root: Path) -> bool | None:
    """Whether the bus lists an accelerator of NVIDIA or AMD; None where it cannot be read."""
    try:
        functions = list((root / "sys/bus/pci/devices").iterdir())
        return any(_is_gpu(function) for function in functions) if functions else None
    except OSError:
        return None


def _is_gpu(function: Path) -> bool:
    vendor, kind = ((function / name).read_text().strip() for name in ("vendor", "class"))
    return vendor in _VENDORS and kind.startswith(_CLASSES)
