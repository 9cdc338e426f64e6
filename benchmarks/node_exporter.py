"""node_exporter beside us, where the machine has it: what the field measures a node with."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import urllib3

BINARY = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
MISSING = "neither prometheus-node-exporter nor node_exporter is installed"
_LINE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)


class NodeExporter:
    """One that runs and can be scraped."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._url = f"http://127.0.0.1:{port}/metrics"

    def scrape(self) -> dict[tuple[str, str], float]:
        """Every value, by metric and labels as they are written."""
        text = urllib3.request("GET", self._url, timeout=10).data.decode()
        return {(name, labels or ""): float(value) for name, labels, value in _LINE.findall(text)}


@contextmanager
def node_exporter() -> Iterator[NodeExporter]:
    """Started on a port of loopback that is free, with what it measures by default; ended again."""
    if BINARY is None:
        raise FileNotFoundError(MISSING)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--web.listen-address=127.0.0.1:{port}", "--collector.filesystem.fs-types-exclude=^$"]
    process = subprocess.Popen([BINARY, *options], stderr=subprocess.PIPE)
    try:
        if process.stderr is None:
            raise RuntimeError("node_exporter has no pipe")
        for line in process.stderr:  # it says where it listens once it does
            if b"istening on" in line or b"TLS is disabled" in line:
                break
        else:
            raise RuntimeError("node_exporter ended at once")
        yield NodeExporter(process, port)
    finally:
        process.kill()
        process.communicate()
