"""Make docs/licences.md: the licence of every package of the image, as its metadata names it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "locks" / "service.txt"
LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
IDENTIFIER = re.compile(r"MIT|[A-Za-z]+-[\d.]+(-\w+)*|BSD-\d-Clause")  # as SPDX writes them
PAGE = """\
# Licences

What the image holds beside fleetgauge itself, which is under the [MIT licence](../LICENSE): the packages of
`locks/service.txt`, each as it describes itself. Their texts are in the image, in the `.dist-info` folders
under `/opt/venv`. Python and the packages of Debian come with the base image; its `/usr/share/doc` has their
texts, and the image's SBOM lists them ([security](../SECURITY.md)). The probes' wheel holds only
fleetgauge.

| package | version | licence |
| --- | --- | --- |
"""


def licence(about: metadata.PackageMetadata) -> str:
    """Return the SPDX expression of a package, or its classifiers; raise SystemExit where it has neither."""
    named = [about[key] for key in ("License-Expression", "License") if key in about]
    written = str(named[0]) if named else ""
    classified = [
        text.rpartition(" :: ")[2]
        for text in about.get_all("Classifier") or []
        if text.startswith("License :: ")
    ]
    if "License-Expression" in about or IDENTIFIER.fullmatch(written) or not classified:
        [first, *_] = written.splitlines() or [""]
        if not first:
            raise SystemExit(f"{about['Name']} names no licence: find out before it is shipped")
        return first
    return ", ".join(classified)


def page() -> str:
    """Return the page; a package of another version than locked is an error."""
    rows = []
    for name, version in LOCKED.findall(LOCK.read_text(encoding="utf-8")):
        about = metadata.metadata(name)
        if about["Version"] != version:
            raise SystemExit(
                f"{name} is {about['Version']} here and {version} in {LOCK.name}: run scripts/demo"
            )
        rows.append(f"| {name} | {version} | {licence(about)} |\n")
    return PAGE + "".join(rows)
