"""How requests leave the process: through the proxy where one is set, and never through it to loopback."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

from common.settings import CoreSettings, is_loopback


@dataclass(frozen=True)
class Proxy:
    """A proxy's address without credentials, and the header that carries them."""

    url: str
    headers: dict[str, str] = field(repr=False)


def proxy_for(url: str, core: CoreSettings) -> Proxy | None:
    """The proxy to use for a URL, or None to go straight."""
    host = urlsplit(url).hostname or ""
    if core.proxy is None or is_loopback(host) or proxy_bypass_environment(host, {"no": core.no_proxy}):
        return None
    parts = urlsplit(core.proxy.get_secret_value())
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.username is None:
        return Proxy(address, {})
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(address, {"proxy-authorization": "Basic " + b64encode(credentials.encode()).decode()})
