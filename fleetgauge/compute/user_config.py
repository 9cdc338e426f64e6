"""What is logged of a job's configuration, whatever that is made of.

Knows which fields are wanted and how to read them from mappings, objects and OmegaConf without importing
any of it. A field that is missing, empty or broken costs itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from fleetgauge.records.background import json_ready

_MODEL = ("model_source", "batch_size", "concurrency")
_ENGINE = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "dtype",
    "kv_cache_dtype",
)
_RUNTIME = (
    "debug",
    "sample_n",
    "job_memory_gb",
    "rows_per_block",
    "streaming_io",
    "prefilter_mode",
    "keyword_buffering",
)
_RUNTIME_FLAGS = "use_llm_"
_MAX_DEPTH = 16

_log = logging.getLogger("fleetgauge.compute")
logged: set[str] = set()  # the parts whose absence was logged


def debug_once(part: str, error: BaseException | str) -> None:
    """Log at debug level that a part is missing, once: a job may collect a thousand times."""
    if part not in logged:
        logged.add(part)
        reason = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        _log.debug("%s left out: %s", part, reason)


def model_section(cfg: object) -> dict[str, Any]:
    """The model's fields and, in one nested mapping, those of its engine."""
    model = field(cfg, "model")
    section = fields(model, _MODEL)
    if engine := fields(field(model, "engine_kwargs"), _ENGINE):
        section["engine_kwargs"] = engine
    return section


def runtime_section(cfg: object) -> dict[str, Any]:
    """The runtime's fields and every flag whose name begins with `use_llm_`."""
    runtime = field(cfg, "runtime")
    flags = sorted(name for name in _names(runtime) if name.startswith(_RUNTIME_FLAGS))
    return fields(runtime, (*_RUNTIME, *flags))


def fields(section: object, names: Iterable[object], depth: int = 0) -> dict[str, Any]:
    """Those of the named fields that have a value, each fit for JSON."""
    values: dict[str, Any] = {}
    for name in names:
        try:
            given = field(section, name)
            value = wandb_ready(given, depth)
        except Exception as error:
            debug_once(f"configuration field {name}", error)
            continue
        if value is not None:
            values[json_ready(str(name))] = value
        elif given is not None:
            debug_once(f"configuration field {name}", "JSON has no form for it")
    return values


def field(section: object, name: Any) -> object:  # Any: keys of a mapping need not be text
    """One field of a mapping or object, None where it is not there or cannot be resolved."""
    try:
        return section[name] if isinstance(section, Mapping) else getattr(section, name)
    except (KeyError, AttributeError):
        return None
    except Exception as error:
        debug_once(f"configuration field {name}", error)
        return None


# JSON has no type of its own.
def wandb_ready(value: Any, depth: int = 0) -> Any:
    """The value in the types of JSON, as its text where it has none; None for what is no number or too deep.

    An entry of a mapping that cannot be written is left out, so that it does not cost the others.
    """
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Enum):
        return wandb_ready(value.value, depth + 1)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return fields(value, value, depth + 1)
    if isinstance(value, Sequence | AbstractSet) and not isinstance(value, str):
        return [wandb_ready(item, depth + 1) for item in value]
    known = value is None or isinstance(value, str | int | float) or hasattr(value, "item")
    return json_ready(value if known else str(value))


def _names(section: object) -> list[str]:
    try:
        return [str(name) for name in section] if isinstance(section, Mapping) else dir(section)
    except Exception as error:
        debug_once("configuration flags", error)
        return []
