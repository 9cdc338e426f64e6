"""A real browser that draws our pages, and how to tell from one whether text stands out."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    "--remote-debugging-pipe",
)
COMPLAINTS = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}

LIGHT = """
const parse = colour => colour.match(/[\\d.]+/g).map(Number);
const linear = part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
const light = colour => { const [r, g, b] = parse(colour).map(part => linear(part / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b };
const contrast = (one, other) => { const [a, b] = [light(one), light(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
"""
LEAST_CONTRAST = """
const behind = element => { for (; element; element = element.parentElement) {
    const colour = getComputedStyle(element).backgroundColor;
    if ((parse(colour)[3] ?? 1) > 0) return colour }
  return 'rgb(255, 255, 255)' };
const holds = element => [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim());
return [...document.querySelectorAll('body *')].filter(holds)
  .map(element => [contrast(getComputedStyle(element).color, behind(element)), element.outerHTML])
  .sort((a, b) => a[0] - b[0])[0];
"""


class Browser:
    """A headless Chromium, spoken to over two pipes (its file descriptors 3 and 4)."""

    def __init__(self, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Clear of 3 and 4, so that putting one in place does not close the other.
        reading, writing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs_in, theirs_out))
        arguments = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        silence = (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)
        places = [silence, (os.POSIX_SPAWN_DUP2, reading, 3), (os.POSIX_SPAWN_DUP2, writing, 4)]
        self._process = os.posix_spawn(str(CHROMIUM), arguments, os.environ, file_actions=places)
        for fd in (theirs_in, theirs_out, reading, writing):
            os.close(fd)
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self._number, self._session, self._left = 0, "", b""
        self.complaints: list[Any] = []  # what the page wrote to the console, or failed in
        self.requests: list[str] = []  # what it asked for, itself first
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Network", "Runtime"):
            self.ask(f"{domain}.enable")

    # What the protocol takes and gives differs from method to method.
    def ask(self, method: str, until: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method; answers its result, after the event `until` if one is named."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        result: dict[str, Any] | None = None
        while result is None or until is not None:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result = answer["result"]
            elif answer.get("method") == until:
                until = None
            elif answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            elif answer.get("method") in COMPLAINTS:
                self.complaints.append(answer["params"])
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = os.read(self._in.fileno(), 1 << 20)
            assert read, "Chromium ended"
            self._left += read
        message, self._left = self._left.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def show(self, path: Path, width: int = 1000, scheme: str = "light", media: str = "screen") -> None:
        """Draw a page."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.complaints.clear()
        self.requests.clear()
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)
        self.ask("Page.navigate", until="Page.loadEventFired", url=path.as_uri())

    def look(self, expression: str) -> Any:
        """The value of an expression about the drawn page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def every(self, selector: str, expression: str) -> list[Any]:
        """The value of an expression of each element `e` that a selector finds."""
        found: list[Any] = self.look(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => {expression})"
        )
        return found

    def texts(self, selector: str) -> list[str]:
        """What a person reads in each element that a selector finds."""
        return self.every(selector, "e.innerText.trim()")

    def close(self) -> None:
        self._session = ""
        self.ask("Browser.close")
        os.waitpid(self._process, 0)
        self._out.close()
        self._in.close()
