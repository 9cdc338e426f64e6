"""What a checkpoint is called: readable parts, and a hash that keeps apart what they do not tell apart."""

from __future__ import annotations

import hashlib
import json
import re

from common.config.settings import CoreSettings

MAX_PART = 24  # characters; seven of them, which leaves room for a node and a shard, stay under 200


def checkpoint_key(collector: str, core: CoreSettings, address: str, *more: str) -> str:
    """The key of a collector's live runs that deliver to an address; `more` may be a node, or a shard.

    Only what tells one installation from another is part of it, so that another path or project goes on
    with the state that is there.
    """
    exact = [collector, core.env, core.service, address, core.instance, *more]
    site = address.partition("://")[2]
    parts = [collector, core.env, core.service, site, core.instance, *more]
    readable = [re.sub(r"[^A-Za-z0-9.-]", "_", part)[:MAX_PART] for part in parts if part]
    digest = hashlib.blake2b(json.dumps(exact).encode(), digest_size=8).hexdigest()
    return "-".join([*readable, digest])
