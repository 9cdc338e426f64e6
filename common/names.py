"""How Datadog spells tags, and which hosts it accepts: pure functions of one name.

What is sent is spelled as it will be stored, so that two series which Datadog would merge are seen here. The
merging is in `common/datadog/series.py`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

TAG_LENGTH = 200
HOST_LENGTH = 255

_PUNCTUATION = frozenset("_-:./")
# Most tags, if not all: whatever this matches is stored as it is.
is_stored_as_it_is = re.compile(rf"[a-z][a-z0-9_\-:./]{{0,{TAG_LENGTH - 1}}}+(?<!:)").fullmatch
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.\-]*[A-Za-z0-9])?")
_LOCAL_HOSTS = frozenset({"localhost", "localhost.localdomain", "localhost6", "ip6-localhost"})


def normalise_tag(tag: str) -> str:
    """Return a tag as Datadog stores it: from its first letter, in lower case, cut to 200 characters.

    Letters and digits of any script stay, in their composed form: `e` with an accent may be written in two
    ways, and is one letter. Anything else becomes `_`. The result is empty where there is no letter.
    """
    if is_stored_as_it_is(tag):
        return tag
    # Twice, because the lower case of a composed letter may be decomposed.
    composed = unicodedata.normalize("NFC", unicodedata.normalize("NFC", tag).lower())
    start = next((at for at, character in enumerate(composed) if character.isalpha()), len(composed))
    spelled = "".join(
        character if character.isalpha() or character.isdecimal() or character in _PUNCTUATION else "_"
        for character in composed[start : start + TAG_LENGTH]
    )
    return spelled.rstrip(":")


@lru_cache(maxsize=2**13)
def is_host(name: str) -> bool:
    """Return whether Datadog accepts a name as that of a host.

    Names that every machine has, such as `localhost`, would merge all of them.
    """
    return len(name) <= HOST_LENGTH and _HOST.fullmatch(name) is not None and name.lower() not in _LOCAL_HOSTS
