"""Short, stable names of GPUs, out of what their drivers call them.

The rule: small letters; without the maker's and the series' name, the form factor and the kind of memory;
with the size of the memory only for models that are sold with several. What is left must look like a model
(`h100`, `mi300x`) or a family and a model (`rtx-a6000`, `gtx-1080-ti`), or else the name stays as it is.
"""

from __future__ import annotations

import re

_WITHOUT = re.compile(
    r"nvidia|amd|instinct|tesla|geforce|quadro|radeon|"
    r"sxm\d*|pcie|oam|mcm|ac|mba|nvl\d*|hbm\d*e?|gpu|generation|server|workstation|edition"
)
_MEMORY = re.compile(r"\d+gi?b")
_SOLD_IN_SIZES = frozenset({"a100", "a800", "p100", "v100"})
_MODEL = re.compile(r"[a-z]{1,2}\d{1,4}[a-z]{0,2}|(?:gtx|rtx|rx|titan)(?:-[a-z0-9]+){1,4}")


def gpu_type(name: str) -> str:
    """`a100-80gb` for `NVIDIA A100-SXM4-80GB`; the name itself where the rule does not know it."""
    words = re.findall(r"[^\s\-_()]+", name.lower().partition("/")[0])
    words = [word for word in words if not _WITHOUT.fullmatch(word)]
    model = "-".join(word for word in words if not _MEMORY.fullmatch(word))
    if not _MODEL.fullmatch(model):
        return name.strip()
    sizes = [word for word in words if _MEMORY.fullmatch(word)] if model in _SOLD_IN_SIZES else []
    return "-".join([model, *sizes])
