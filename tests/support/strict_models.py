"""The official client's models as a strict judge: whatever they could not read at any depth is a finding.

The client itself is lenient: what it does not know it keeps as it is, marked, and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datadog_api_client import Configuration
from datadog_api_client.exceptions import ApiTypeError, ApiValueError
from datadog_api_client.model_utils import (
    ModelComposed,
    ModelNormal,
    ModelSimple,
    UnparsedObject,
    validate_and_convert_types,
)


# Any: models of the client, which is not typed, and the JSON they are made of
def findings(document: Any, model: Any) -> list[str]:
    """What is wrong with a document that is to be this model; nothing where all of it is understood."""
    try:
        read = validate_and_convert_types(
            document,
            (model,),
            ["document"],
            True,  # spec_property_naming: keys as they are in JSON
            True,  # check_type
            configuration=Configuration(),
        )
    except (ApiTypeError, ApiValueError, TypeError, ValueError, AttributeError) as error:
        return [f"{type(error).__name__}: {error}"]
    return [*_walk(read, "document", model)]


def _walk(read: Any, path: str, model: Any) -> Iterator[str]:
    if isinstance(read, UnparsedObject):
        yield f"{path}: not understood: {str(read._data_store)[:200]}"
    elif isinstance(read, ModelComposed):
        if not read._composed_instances:
            yield f"{path}: none of the kinds it may be"
        for one in read._composed_instances:
            yield from _walk(one, path, None)
    elif isinstance(read, ModelSimple):
        if read._unparsed:
            yield f"{path}: {read.value!r} is not one of its values"
    elif isinstance(read, ModelNormal):
        known = set(read.attribute_map)
        for key, value in read._data_store.items():
            if key not in known:
                yield f"{path}.{key}: unknown"
            yield from _walk(value, f"{path}.{key}", None)
    elif isinstance(read, list):
        for place, value in enumerate(read):
            yield from _walk(value, f"{path}[{place}]", None)
    elif isinstance(read, dict):
        for key, value in read.items():
            yield from _walk(value, f"{path}.{key}", None)
    elif model is not None:
        yield f"{path}: {type(read).__name__} where {model.__name__} is wanted"
