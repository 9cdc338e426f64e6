"""The logged fields of a job's configuration, which may be a mapping, an object or OmegaConf.

A field that is missing, empty or unreadable is left out. OmegaConf raises on reading a missing value or a
broken interpolation, so that every field is read by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from fleetgauge.records.background import describe, json_ready

# Lists of fields and not all: a configuration may contain secrets.
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
_MAX_CONFIG_DEPTH = 16

_log = logging.getLogger("fleetgauge.compute")
logged: set[str] = set()  # parts already logged as missing


def debug_once(part: str, error: BaseException | str) -> None:
    """Log at debug level that a part is missing, once: a job may collect a thousand times."""
    if part not in logged:
        logged.add(part)
        reason = describe(error) if isinstance(error, BaseException) else error
        _log.debug("%s left out: %s", part, reason)


def model_section(cfg: object) -> dict[str, Any]:
    """Return the logged fields of `cfg.model`, with those of its `engine_kwargs` as a nested mapping."""
    model = field(cfg, "model")
    section = fields(model, _MODEL)
    if engine := fields(field(model, "engine_kwargs"), _ENGINE):
        section["engine_kwargs"] = engine
    return section


def runtime_section(cfg: object) -> dict[str, Any]:
    """Return the logged fields of `cfg.runtime` and its flags whose names begin with `use_llm_`."""
    runtime = field(cfg, "runtime")
    flags = sorted(name for name in _names(runtime) if name.startswith(_RUNTIME_FLAGS))
    return fields(runtime, (*_RUNTIME, *flags))


def fields(section: object, names: Iterable[object], depth: int = 0) -> dict[str, Any]:
    """Return the named fields that have a value, each in types of JSON. Never raises."""
    values: dict[str, Any] = {}
    for name in names:
        try:
            raw = field(section, name)
            value = wandb_ready(raw, depth)
        except Exception as error:
            debug_once(f"configuration field {name}", error)
            continue
        if value is not None:
            values[json_ready(str(name))] = value
        elif raw is not None:
            debug_once(f"configuration field {name}", "it has no JSON representation")
    return values


def field(section: object, name: Any) -> object:  # Any: keys of a mapping need not be text
    """Return a field of a mapping or object, None where it is missing or cannot be resolved."""
    try:
        return section[name] if isinstance(section, Mapping) else getattr(section, name)
    except (KeyError, AttributeError):
        return None
    except Exception as error:
        debug_once(f"configuration field {name}", error)
        return None


def wandb_ready(value: Any, depth: int = 0) -> Any:  # Any: the types of JSON
    """Return the value in types of JSON, an unknown type as its text; None for NaN or beyond the depth limit.

    An entry of a mapping that cannot be converted is left out.
    """
    if depth > _MAX_CONFIG_DEPTH:
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
